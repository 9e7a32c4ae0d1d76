// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Target is the version that the cluster should run, and its source.
type Target struct {
	Version string `json:"version"`
	// Source is "bundle", "depot" or "internet"; Name describes it in a sentence.
	Source string `json:"source"`
	Name   string `json:"name"`
	// Versions holds the versions of the other components in a bundle, by name.
	Versions map[string]string `json:"versions,omitempty"`
}

// Work is the work left on a node.
type Work struct {
	Node string `json:"node"`
	// Command is the command to run on the node.
	Command string   `json:"command"`
	Does    []string `json:"does"`
	// Interrupts describes what users notice.
	Interrupts string `json:"interrupts"`
}

// done reports whether nothing is left to do on a node.
func (n Node) done(version string) bool {
	return n.Kubelet == version && (!n.ControlPlane || len(podsLeft(n, version)) == 0)
}

// proxyBehind reports whether kube-proxy has another version. CoreDNS, which has its own versions, is upgraded together with it.
func proxyBehind(addons []Addon, version string) bool {
	return slices.ContainsFunc(addons, func(a Addon) bool { return a.Name == proxyName && a.Version != version })
}

// Left returns the remaining work, in order.
func Left(i Inventory, t Target) []Work {
	out, planes, last := []Work{}, 0, 0 // last is the last control-plane node with work; if no node has any, the first one finishes the addons
	for n, is := range i.Nodes {
		if is.ControlPlane {
			planes++
			if !is.done(t.Version) {
				last = n
			}
		}
	}
	begun, behind := i.Version == t.Version, proxyBehind(i.Addons, t.Version)
	for n, is := range i.Nodes {
		addons := behind && is.ControlPlane && n == last
		if is.done(t.Version) && !addons {
			continue
		}
		w := Work{Node: is.Name, Command: "ocadm upgrade node", Interrupts: "nothing: its pods keep running; the kubelet restarts (with --drain, its pods move first)"}
		switch {
		case is.done(t.Version):
			w.Interrupts = "nothing: kube-proxy restarts once on every node, and connections are kept"
		case is.ControlPlane:
			w.Interrupts = "its API server restarts: clients of this one reconnect to the others; its pods keep running"
			if planes == 1 {
				w.Interrupts = "the API server is unavailable for up to a minute: kubectl and the operator wait; pods and virtual machines keep running"
			}
			w.Does = append(w.Does, podsLeft(is, t.Version)...)
		}
		if is.ControlPlane && !begun {
			w.Command, begun = "ocadm upgrade apply", true
		}
		if is.Kubelet != t.Version {
			w.Does = append(w.Does, fmt.Sprintf("kubelet %s to %s, and the container runtime and CNI plugins if the source has other versions", is.Kubelet, t.Version))
		}
		if addons {
			w.Does = append(w.Does, "CoreDNS and kube-proxy to the versions of "+t.Version)
		}
		out = append(out, w)
	}
	return out
}

func podsLeft(n Node, version string) []string {
	return lists.Pick(kubernetes.StaticPods()[1:], func(name string) (string, bool) {
		return fmt.Sprintf("%s %s to %s", name, n.StaticPods[name], version), n.StaticPods[name] != version
	})
}

// Facts are known only on the machine that the command runs on.
type Facts struct {
	// CutOff is set if an exchange of static pods was interrupted here. Etcd then lacks this machine's member.
	CutOff bool
	Etcd   []etcd.Observed
	// EtcdProblem is why etcd cannot be queried.
	EtcdProblem string
	// Snapshot is the time of the newest etcd snapshot; zero if there is none.
	Snapshot     time.Time
	Certificates error
	// Free and Needed are in bytes, on the disk of /var/lib.
	Free, Needed int64
	// ForeignKubelet is the path of a kubelet that ocadm did not install, "" if it did.
	ForeignKubelet string
}

// staleSnapshot is the age of a snapshot from which the plan warns. apply takes one anyway.
const staleSnapshot = 3 * time.Hour

// Judge returns everything that prevents an upgrade, or should be known before it.
func Judge(i Inventory, t Target, f Facts, now time.Time) finding.List {
	var out finding.List
	kubelets := lists.Map(i.Nodes, func(n Node) string { return n.Kubelet })
	if why := kubernetes.Skew(i.Version, t.Version, kubelets); why != "" {
		out = append(out, finding.New("OCA-4501", fmt.Sprintf("Kubernetes %s cannot be upgraded to %s", i.Version, t.Version), why, skewRemedy(i.Version)))
	}
	out = append(out, judgeNodes(i, f.CutOff)...)
	out = append(out, judgeEtcd(f, now)...)
	if f.Certificates != nil {
		for _, c := range finding.Of(f.Certificates) {
			c.Severity = finding.Warning
			if c.Code == "OCA-4301" {
				c.Severity = finding.Error
			}
			out = append(out, c)
		}
	}
	if f.Free < f.Needed {
		g := finding.New("OCA-4509", "There is not enough space for the upgrade", fmt.Sprintf("the disk of /var/lib has %d MiB free, and %d MiB are needed", f.Free>>20, f.Needed>>20),
			"free space there; ocadm depot prune removes images that the cluster does not run")
		g.Check = "Disk"
		out = append(out, g)
	}
	if f.ForeignKubelet != "" {
		out = append(out, ForeignKubelet(f.ForeignKubelet))
	}
	return append(out, judgeAPIs(i, t)...)
}

// goesBack returns a finding if a version is older than the one that the cluster runs. This holds for unfinished upgrades as well.
func goesBack(from, to string) error {
	if semver.Compare(to, from) >= 0 {
		return nil
	}
	return finding.New("OCA-4501", fmt.Sprintf("Kubernetes %s cannot be upgraded to %s", from, to), kubernetes.Skew(from, to, nil),
		"on the remaining nodes: ocadm upgrade node; to continue to a newer version: "+skewRemedy(from))
}

func skewRemedy(from string) string {
	var minor int
	if _, err := fmt.Sscanf(semver.MajorMinor(from), "v1.%d", &minor); err != nil {
		return "give --bundle FILE with the next version"
	}
	return fmt.Sprintf("use the ocadm and a bundle of Kubernetes v1.%d, or of a newer v1.%d", minor+1, minor)
}

// ForeignKubelet returns the finding for a kubelet that a package manager maintains.
func ForeignKubelet(file string) finding.Finding {
	return finding.New("OCA-4513", "The kubelet of this machine is not ocadm's", file+" was installed before ocadm, and its unit starts it",
		"upgrade it with the package manager that installed it, to the new version; then run the same command again").With(file)
}

func judgeNodes(i Inventory, cutOff bool) (out finding.List) {
	var down, workers []string
	for _, n := range i.Nodes {
		switch {
		case cutOff && n.Here:
		case !n.Ready && n.ControlPlane:
			down = append(down, n.Name)
		case !n.Ready:
			workers = append(workers, n.Name)
		}
	}
	if len(down) > 0 {
		f := finding.New("OCA-4502", "Control-plane nodes are not Ready", strings.Join(down, ", "), "ocadm why "+down[0]+"; ocadm node remove removes a lost node")
		f.Check = "NodesReady"
		out = append(out, f)
	}
	if len(workers) > 0 {
		out = append(out, finding.Warn("OCA-4502", "Nodes are not Ready", strings.Join(workers, ", "), "ocadm why "+workers[0]+"; they can be upgraded later"))
	}
	return out
}

func judgeEtcd(f Facts, now time.Time) (out finding.List) {
	if f.EtcdProblem != "" {
		out = append(out, finding.New("OCA-4147", "etcd does not answer", f.EtcdProblem, "ocadm etcd status"))
	}
	for _, m := range f.Etcd {
		switch {
		case m.Learner: // even if it does not answer: it may never have started
			out = append(out, finding.New("OCA-4137", "The join of another control-plane node was not completed", m.Node()+" is a learner of etcd",
				"complete the join of that machine: run its join command again there; or undo it: ocadm reset; if it is lost, here: ocadm node remove "+m.Node()))
		case !m.Answers:
			out = append(out, finding.New("OCA-4147", "A member of etcd does not answer", m.Node()+": "+m.Problem, "ocadm etcd status"))
		case len(m.Alarms) > 0:
			out = append(out, finding.New("OCA-4147", "etcd reports an alarm", m.Name+": "+strings.Join(m.Alarms, ", "), "ocadm etcd defrag"))
		}
	}
	switch {
	case f.Snapshot.IsZero():
		out = append(out, finding.Warn("OCA-4511", "This machine has no snapshot of etcd", "", "apply saves one before it changes anything; or now: ocadm etcd snapshot"))
	case snapshot.Future(f.Snapshot, now):
		out = append(out, finding.Warn("OCA-4511", "The time of the last snapshot of etcd is in the future",
			f.Snapshot.Format(time.RFC3339)+": the clock of this machine was ahead then, or is behind now",
			"set the clock, if timedatectl shows that it is wrong; then: ocadm etcd snapshot"))
	case now.Sub(f.Snapshot) > staleSnapshot:
		out = append(out, finding.Warn("OCA-4511", "The last snapshot of etcd is old", now.Sub(f.Snapshot).Round(time.Minute).String()+" old",
			"apply saves one before it changes anything; the static pod ocadm-etcd should do so every hour: ocadm etcd status"))
	}
	return out
}

func judgeAPIs(i Inventory, t Target) (out finding.List) {
	var gone, later []string
	for _, d := range i.Deprecated {
		line := d.API + ", removed in " + d.Removed
		if semver.Compare("v"+d.Removed, semver.MajorMinor(t.Version)) <= 0 {
			gone = append(gone, line)
		} else {
			later = append(later, line)
		}
	}
	if len(gone) > 0 {
		f := finding.New("OCA-4510", "APIs are in use that Kubernetes "+t.Version+" does not serve", strings.Join(gone, "; "),
			"find their clients in the audit log or the managedFields of the objects, and change them; or --ignore-preflight-errors DeprecatedAPIs")
		f.Check = "DeprecatedAPIs"
		out = append(out, f.With(gone...))
	}
	if len(later) > 0 {
		out = append(out, finding.Warn("OCA-4510", "APIs are in use that a later Kubernetes does not serve", strings.Join(later, "; "),
			"change their clients before the upgrade to that version").With(later...))
	}
	return out
}
