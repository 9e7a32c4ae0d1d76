// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"fmt"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// checkEtcdClaims refuses to start etcd on the volumes of an etcd of another size. A member that finds data forms the cluster it knows,
// and those that find none form another one, behind the same Service.
func (p *pass) checkEtcdClaims() {
	c := p.byName["etcd"]
	if c == nil || !c.Enabled || c.err != nil {
		return
	}
	name, claims := p.cluster.Object("etcd"), 0
	for key := range p.live.objects {
		switch {
		case key.GVK.Kind == "StatefulSet" && key.Name == name:
			return // it runs: admission keeps its size
		case key.GVK.Kind == "PersistentVolumeClaim" && strings.HasPrefix(key.Name, "data-"+name+"-"):
			claims++
		}
	}
	if claims == 0 || claims == int(c.Replicas) {
		return
	}
	c.err = fmt.Errorf("there are volumes of an etcd of %d members, and spec.etcd.size is %d: set it back, or give up the leases and caches in them: "+
		"kubectl -n %s delete pvc -l %s=etcd,%s=%s", claims, c.Replicas, p.cr.Namespace, v1alpha1.LabelComponent, v1alpha1.LabelInstance, p.live.instance)
}
