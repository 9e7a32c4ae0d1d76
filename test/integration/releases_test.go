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
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// TestOlderReleases installs a cloud of a v3 release and updates it to v4. Each release becomes Ready with exactly its own components.
func TestOlderReleases(t *testing.T) {
	e := newCloudTest(t, env.Options{Workloads: env.Programs})
	e.StartOperator()
	cr := e.Minimal()
	cr.Spec.Version = "v3.10.16"
	require.NoError(t, e.Client.Create(t.Context(), cr, client.FieldOwner("kubectl-create")))
	e.UntilReady()
	e.disabled(map[string]string{
		"llm": "first in v4.0.2", "mcp-server": "first in v4.0.2", "aiproxy": "first in v4.0.4", "host-sdnagent": "first in v4.0.2", "influxdb": "",
	})
	service, claim := &corev1.Service{}, &corev1.PersistentVolumeClaim{}
	e.Get(service, "default-influxdb")
	if port := service.Spec.Ports[0].NodePort; port != 30086 {
		t.Errorf("influxdb is published at port %d", port)
	}
	e.Get(claim, "default-influxdb")
	host := &appsv1.DaemonSet{}
	e.Get(host, "default-host")
	var containers []string
	for _, c := range host.Spec.Template.Spec.Containers {
		containers = append(containers, c.Name)
	}
	if want := []string{"host", "ovn-controller", "sdnagent"}; !slices.Equal(containers, want) {
		t.Errorf("the host's pod runs %v, want %v", containers, want)
	}

	prints(e.Env, "v3.11.14", "cluster", "update", "--version", "v3.11.14", "--wait")
	if cr := e.Cloud(); !env.IsReady(cr) || cr.Status.Version != "v3.11.14" {
		t.Errorf("after cluster update --wait the cloud is %s at %s", cr.Status.Phase, cr.Status.Version)
	}
	e.disabled(map[string]string{"influxdb": "last in v3.10", "llm": "first in v4.0.2"})
	if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(service), &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
		t.Errorf("influxdb still runs: %v", err)
	}
	e.Get(claim, "default-influxdb") // its data stays

	e.Edit(`{"spec":{"version":"v4.0.3"}}`)
	e.UntilReady()
	e.disabled(map[string]string{"llm": "", "host-sdnagent": "", "aiproxy": "first in v4.0.4"})
}

// disabled compares components with the reason why they are disabled, "" if they are enabled.
func (e *cloudTest) disabled(want map[string]string) {
	e.Helper()
	var wrong []string
	for _, c := range e.Cloud().Status.Components {
		reason, asked := want[c.Name]
		off := c.State == v1alpha1.Disabled
		if asked && (off != (reason != "") || !strings.Contains(c.Message, reason)) {
			wrong = append(wrong, fmt.Sprintf("%s is %s: %s", c.Name, c.State, c.Message))
		}
		delete(want, c.Name)
	}
	if len(wrong) > 0 || len(want) > 0 {
		e.Errorf("wrong: %v; not in the status: %v", wrong, want)
	}
}
