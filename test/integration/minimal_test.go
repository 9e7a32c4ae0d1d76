// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// minimalResource has exactly the four fields of the specification's first example.
const minimalResource = `
apiVersion: onecloud.yunion.io/v1alpha1
kind: OnecloudCluster
metadata:
  name: default
  namespace: onecloud
spec:
  mysql:
    host: 127.0.0.1
    username: root
    password: PASSWORD
  region: region0
`

// TestMinimalResource creates a cloud from the smallest resource. Its public endpoints lead to a node, and stay when the address of the node changes.
// At the end its backup runs on schedule.
func TestMinimalResource(t *testing.T) {
	e := newCloudTest(t, env.Options{Workloads: env.Programs, Database: &mariadb.Options{Addr: "127.0.0.1:3306"}})
	e.address("node1", "127.0.0.1")
	e.StartOperator()
	cr := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(minimalResource, "PASSWORD", e.DB.RootPassword)), &cr.Object))
	require.NoError(t, e.Client.Create(t.Context(), cr, client.FieldOwner("kubectl-create")))
	e.UntilReady()
	spec := e.Cloud().Spec
	if spec.LoadBalancerEndpoint != "127.0.0.1" || spec.Version != "latest" || spec.MySQL.Port != 3306 {
		t.Errorf("the spec shows address %q, version %q, port %d", spec.LoadBalancerEndpoint, spec.Version, spec.MySQL.Port)
	}
	if have, want := e.endpoints("region2"), []string{"internal=https://default-region:30888", "public=https://127.0.0.1:30888"}; !slices.Equal(have, want) {
		t.Errorf("endpoints of region: %q, want %q", have, want)
	}
	ended, _ := e.Passes()
	e.address("node1", "192.0.2.99")
	e.UntilQuiet(ended)
	if now := e.Cloud().Spec.LoadBalancerEndpoint; now != "127.0.0.1" {
		t.Errorf("the address followed the node to %s", now)
	}
	e.runsOnSchedule()
}

// runsOnSchedule sets the shortest backup schedule: Kubernetes' CronJob controller creates a Job, which ends.
func (e *cloudTest) runsOnSchedule() {
	e.Edit(`{"spec":{"backup":{"disable":false,"schedule":"* * * * *"}}}`)
	cron := &batchv1.CronJob{}
	e.Until(cron, "default-backup", func(o client.Object) (bool, string) {
		c, ok := o.(*batchv1.CronJob)
		return ok && c.Status.LastSuccessfulTime != nil, "no Job of it has succeeded"
	})
	e.Get(cron, "default-backup")
	jobs := &batchv1.JobList{}
	require.NoError(e, e.Client.List(e.Context(), jobs, client.InNamespace(namespace)))
	of := slices.DeleteFunc(jobs.Items, func(j batchv1.Job) bool { return !metav1.IsControlledBy(&j, cron) })
	if len(of) == 0 || of[0].Spec.Template.Spec.Containers[0].Image != cron.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image {
		e.Errorf("%d Jobs of the CronJob, want one with its image", len(of))
	}
}

// address sets the address of a node, as its kubelet does.
func (e *cloudTest) address(node, address string) {
	e.Helper()
	o := &corev1.Node{}
	o.Name = node
	patch := `{"status":{"addresses":[{"type":"Hostname","address":"` + node + `"},{"type":"InternalIP","address":"` + address + `"}]}}`
	require.NoError(e, e.Client.Status().Patch(e.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}
