// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"strings"

	"yunion.io/x/ocadm/operatorctl/component"
)

// Subject identifies what can have a problem: a kind alone ("dns"), or with a name ("node/n1", "component/region", "pod/NAMESPACE/NAME",
// "claim/NAMESPACE/NAME").
type Subject string

// Subjects that exist once.
const (
	cloud        Subject = "cloud"
	operator     Subject = "operator"
	controlPlane Subject = "control-plane"
	database     Subject = "database"
	dns          Subject = "dns"
	identity     Subject = "identity"
	kubeconfig   Subject = "kubeconfig"
	certificates Subject = "certificates" // those of the services
)

func componentSubject(name string) Subject        { return Subject("component/" + name) }
func nodeSubject(name string) Subject             { return Subject("node/" + name) }
func claimSubject(namespace, name string) Subject { return Subject("claim/" + namespace + "/" + name) }

func (s Subject) isPod() bool { return strings.HasPrefix(string(s), "pod/") }

func (s Subject) split() (kind, name string) {
	kind, name, _ = strings.Cut(string(s), "/")
	return kind, name
}

type graph map[Subject][]Subject

func (g graph) link(from Subject, to ...Subject) {
	for _, t := range to {
		if t != from && !slices.Contains(g[from], t) {
			g[from] = append(g[from], t)
		}
	}
}

// graphOf builds the dependency graph. Texts add edges: a service that logs that it cannot reach the database depends on it.
func graphOf(f *facts, found []Found) graph {
	g := graph{}
	g.link(cloud, operator, controlPlane, dns)
	g.link(operator, controlPlane)
	g.link(identity, componentSubject("keystone"))
	for _, n := range f.Nodes {
		g.link(cloud, nodeSubject(n.Name))
		g.link(nodeSubject(n.Name), controlPlane)
	}
	for _, m := range f.Machines {
		g.link(cloud, nodeSubject(m.Node))
		if m.ControlPlane {
			g.link(controlPlane, nodeSubject(m.Node))
		}
	}
	f.linkPods(g)
	f.linkComponents(g)
	for _, x := range found {
		g.link(cloud, x.On)
		for _, v := range x.via {
			g.link(v, x.On)
		}
	}
	return g
}

func (f *facts) linkPods(g graph) {
	for i := range f.Pods {
		p := &f.Pods[i]
		s := podSubject(p)
		if p.Spec.NodeName != "" {
			g.link(s, nodeSubject(p.Spec.NodeName))
		}
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				g.link(s, claimSubject(p.Namespace, v.PersistentVolumeClaim.ClaimName))
			}
		}
		if c := component.NameOf(p); c != "" && p.Namespace == f.Namespace && f.unwell(p) {
			g.link(componentSubject(c), s)
		}
		if f.unwell(p) && p.Namespace != f.Namespace {
			g.link(cloud, s)
		}
	}
	for _, p := range f.dnsPods() {
		g.link(dns, podSubject(p))
	}
	for _, p := range f.operatorPods() {
		g.link(operator, podSubject(p))
	}
	for _, p := range f.databasePods() {
		g.link(database, podSubject(p))
		g.link(cloud, database)
	}
	for _, c := range f.Claims {
		for _, p := range f.podsLabelled("", "app", "local-path-provisioner") {
			if f.unwell(p) {
				g.link(claimSubject(c.Namespace, c.Name), podSubject(p))
			}
		}
	}
	for _, n := range f.Nodes {
		for _, label := range []string{"flannel", "kube-proxy"} {
			for _, p := range slices.Concat(f.podsLabelled("", "app", label), f.podsLabelled("", "k8s-app", label)) {
				if p.Spec.NodeName == n.Name && f.unwell(p) {
					g.link(nodeSubject(n.Name), podSubject(p))
				}
			}
		}
	}
}

func (f *facts) linkComponents(g graph) {
	if f.Cloud == nil {
		return
	}
	for _, c := range f.Cloud.Status.Components {
		s := componentSubject(c.Name)
		if !c.Settled() {
			g.link(cloud, s)
		}
		// The operator is to blame only if neither another component nor a pod is, or if it can do nothing: a correction would have no effect.
		if (len(c.BlockedBy) == 0 && len(g[s]) == 0 || f.hindrance() != "") && !c.Settled() {
			g.link(s, operator)
		}
		for _, b := range c.BlockedBy {
			if f.component(b) != nil {
				g.link(s, componentSubject(b))
			}
		}
	}
}

// reach returns the subjects that one depends on, including itself, each with its predecessor on a path from there.
func (g graph) reach(from Subject) map[Subject]Subject {
	before := map[Subject]Subject{from: ""}
	for queue := []Subject{from}; len(queue) > 0; queue = queue[1:] {
		for _, to := range g[queue[0]] {
			if _, there := before[to]; !there {
				before[to] = queue[0]
				queue = append(queue, to)
			}
		}
	}
	return before
}

// way returns the path from a symptom to a cause.
func way(before map[Subject]Subject, to Subject) []Subject {
	var out []Subject
	for s := to; s != ""; s = before[s] {
		out = append(out, s)
	}
	slices.Reverse(out)
	return out
}
