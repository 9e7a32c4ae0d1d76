// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// read checks that the status has what users and older tools read from it, and that each transition was reported once.
func (e *cloudTest) read() {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"onecloudcluster.onecloud.yunion.io/default condition met\n", []string{"wait", "--for=condition=Ready", "--timeout=5s"}},
		{"onecloudcluster.onecloud.yunion.io/default condition met\n", []string{"wait", "--for=condition=Degraded=false", "--timeout=5s"}},
		{"v4.0.4", []string{"get", "-o", "jsonpath={.status.region.imageStatus.tag}"}},
		{"registry.cn-beijing.aliyuncs.com/yunionio", []string{"get", "-o", "jsonpath={.status.keystone.imageStatus.repository}"}},
		{"apigateway Normal", []string{"get", "-o", "jsonpath={.status.apiGateway.imageStatus.imageName} {.status.web.phase}"}},
		{"Available", []string{"get", "-o", `jsonpath={.status.components[?(@.name=="glance")].state}`}},
	} {
		out, err := e.Cluster.Kubectl(e.Context(), append([]string{"-n", namespace, c.args[0], "oc/" + cloud}, c.args[1:]...)...)
		if err != nil || out != c.want {
			e.Errorf("kubectl %q: %q, want %q, %v", c.args, out, c.want, err)
		}
	}
	told := e.told()
	available := 0
	for note, n := range told {
		if strings.HasPrefix(note, "Available: ") {
			available++
			if n > 1 {
				e.Errorf("reported %d times: %s", n, note)
			}
		}
	}
	if available < 30 || told["Running: the cloud is Running"] != 1 {
		e.Errorf("%d components are reported as Available; %v", available, told)
	}
}

// told returns the events about the cloud so far as "reason: note", with their counts.
func (e *cloudTest) told() map[string]int {
	e.Helper()
	var list eventsv1.EventList
	require.NoError(e, e.Client.List(e.Context(), &list, client.InNamespace(namespace)))
	told := map[string]int{}
	for _, e := range list.Items {
		if e.Regarding.Kind != "OnecloudCluster" {
			continue
		}
		n := 1
		if e.Series != nil {
			n = int(e.Series.Count)
		}
		told[e.Reason+": "+e.Note] += n
	}
	return told
}

// TestCrashLoopIsOneTransition tests climc, which has no readiness probe. Its program ends repeatedly and runs in between. That is one transition to
// Degraded and, after it has kept running, one back.
func TestCrashLoopIsOneTransition(t *testing.T) {
	e := installed(t, env.Options{Workloads: env.Programs}, "keystone", "region", "climc")
	count := func() (degraded, available int) {
		for note, n := range e.told() {
			switch {
			case strings.HasPrefix(note, "PodsNotRunning: climc is Degraded"):
				degraded += n
			case note == "Available: climc is Available":
				available += n
			}
		}
		return degraded, available
	}
	degraded, available := count()
	var pods corev1.PodList
	if err := e.Client.List(e.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{"app": "climc"}); err != nil || len(pods.Items) != 1 {
		e.Fatalf("%d pods of climc, %v", len(pods.Items), err)
	}
	for ends := int32(1); ends <= 4; ends++ {
		e.Pods.Kill("default-climc")
		e.Until(&corev1.Pod{}, pods.Items[0].Name, func(o client.Object) (bool, string) {
			p, ok := o.(*corev1.Pod)
			return ok && p.Status.ContainerStatuses[0].RestartCount >= ends && p.Status.ContainerStatuses[0].State.Running != nil, "climc does not run again"
		})
	}
	e.UntilReady()
	// The last event, that it is Available again, may not have arrived yet.
	if d, a := count(); d-degraded != 1 || a-available > 1 {
		e.Errorf("climc became Degraded %d times and Available %d times, want once each: %v", d-degraded, a-available, e.told())
	}
}
