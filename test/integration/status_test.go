// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// read: what people and older tools ask the status for is there, and each transition was told once.
func (r *rig) read() {
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
		out, err := r.cluster.Kubectl(r.t.Context(), append([]string{"-n", namespace, c.args[0], "oc/" + cloud}, c.args[1:]...)...)
		if err != nil || out != c.want {
			r.t.Errorf("kubectl %q: %q, want %q, %v", c.args, out, c.want, err)
		}
	}
	var list eventsv1.EventList
	if err := r.client.List(r.t.Context(), &list, client.InNamespace(namespace)); err != nil {
		r.t.Fatal(err)
	}
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
	available := 0
	for note, n := range told {
		if strings.HasPrefix(note, "Available: ") {
			available++
			if n > 1 {
				r.t.Errorf("told %d times: %s", n, note)
			}
		}
	}
	if available < 30 || told["Running: the cloud is Running"] != 1 {
		r.t.Errorf("%d components are told to be Available; %v", available, told)
	}
}
