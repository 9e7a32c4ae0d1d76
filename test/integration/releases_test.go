// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// TestOlderReleases installs a cloud of a v3 release and moves it up to v4: each release becomes Ready with just the components it has.
func TestOlderReleases(t *testing.T) {
	r := newRig(t)
	r.startOperator()
	cr := r.minimal()
	cr.Spec.Version = "v3.10.16"
	if err := r.client.Create(t.Context(), cr, client.FieldOwner("kubectl-create")); err != nil {
		t.Fatal(err)
	}
	r.untilReady()
	r.disabled(map[string]string{
		"llm": "first in v4.0.2", "mcp-server": "first in v4.0.2", "aiproxy": "first in v4.0.4", "host-sdnagent": "first in v4.0.2", "influxdb": "",
	})
	service, claim := &corev1.Service{}, &corev1.PersistentVolumeClaim{}
	r.get(service, "default-influxdb")
	if port := service.Spec.Ports[0].NodePort; port != 30086 {
		t.Errorf("influxdb is published at port %d", port)
	}
	r.get(claim, "default-influxdb")
	host := &appsv1.DaemonSet{}
	r.get(host, "default-host")
	var containers []string
	for _, c := range host.Spec.Template.Spec.Containers {
		containers = append(containers, c.Name)
	}
	if want := []string{"host", "ovn-controller", "sdnagent"}; !slices.Equal(containers, want) {
		t.Errorf("the host's pod runs %v, want %v", containers, want)
	}

	r.edit(r.cloud(), `{"spec":{"version":"v3.11.14"}}`)
	r.untilReady()
	r.disabled(map[string]string{"influxdb": "last in v3.10", "llm": "first in v4.0.2"})
	if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(service), &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
		t.Errorf("influxdb still runs: %v", err)
	}
	r.get(claim, "default-influxdb") // its data stays

	r.edit(r.cloud(), `{"spec":{"version":"v4.0.3"}}`)
	r.untilReady()
	r.disabled(map[string]string{"llm": "", "host-sdnagent": "", "aiproxy": "first in v4.0.4"})
}

// disabled compares components with the reason why they are off, "" if they are on.
func (r *rig) disabled(want map[string]string) {
	r.t.Helper()
	var wrong []string
	for _, c := range r.cloud().Status.Components {
		reason, asked := want[c.Name]
		off := c.State == v1alpha1.Disabled
		if asked && (off != (reason != "") || !strings.Contains(c.Message, reason)) {
			wrong = append(wrong, fmt.Sprintf("%s is %s: %s", c.Name, c.State, c.Message))
		}
		delete(want, c.Name)
	}
	if len(wrong) > 0 || len(want) > 0 {
		r.t.Errorf("wrong: %v; not in the status: %v", wrong, want)
	}
}
