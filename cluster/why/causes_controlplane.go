// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/etcdlog"
	"yunion.io/x/ocadm/internal/lists"
)

const (
	// certificateWarning is how long before its expiry a certificate gets a warning: kubeadm renews with every upgrade, and there are three a year.
	certificateWarning = 30 * 24 * time.Hour
	// leaseAge is how long a leader may be silent: it renews its lease every 2 s, and loses it after 15 s.
	leaseAge = time.Minute
)

func controlPlaneCauses() []Cause {
	return []Cause{
		refusal("api-unreachable", "OCA-4203", Symptom, "The API server does not answer"),
		refusal("api-credentials", "OCA-4204", ControlPlane, "The API server rejects the kubeconfig"),
		refusal("api-forbidden", "OCA-4205", ControlPlane, "The account of the kubeconfig lacks permissions"),
		refusal("no-kubeconfig", "OCA-4201", Symptom, "The cluster was not queried: there is no kubeconfig"),
		refusal("kubeconfig-unusable", "OCA-4202", Symptom, "The cluster was not queried: the kubeconfig cannot be used"),
		{ID: "certificate-expired", Code: "OCA-4301", Layer: ControlPlane, Title: "A certificate of Kubernetes has expired",
			What: "The certificate ${file} of ${node} has expired", Why: "kubeadm's certificates expire after a year unless an upgrade or a command renews them",
			Next: "${next}",
			When: func(f *facts) []Hit { return f.certificates(func(left time.Duration) bool { return left <= 0 }) }},
		{ID: "certificate-expiring", Code: "OCA-4301", Layer: ControlPlane, Warning: true, Title: "A certificate of Kubernetes expires soon",
			What: "The certificate ${file} of ${node} expires soon", Why: "kubeadm's certificates expire after a year unless an upgrade or a command renews them",
			Next: "${next}",
			When: func(f *facts) []Hit {
				return f.certificates(func(left time.Duration) bool { return left > 0 && left < certificateWarning })
			}},
		{ID: "certificate-rejected", Code: "OCA-4301", Layer: ControlPlane, Title: "Kubernetes rejects a certificate as expired",
			Why:  "a certificate has expired, or a clock is wrong",
			Next: "on each control-plane node: ocadm certs check; timedatectl",
			Says: regexp.MustCompile(`x509: certificate has expired or is not yet valid`), In: Journal | State | Event | LogLine,
			Of: func(f *facts, t Text) bool {
				return t.On == controlPlane || t.In == Journal || t.Values["namespace"] == "kube-system"
			}},
		{ID: "etcd-no-space", Code: "OCA-4302", Layer: ControlPlane, On: string(controlPlane), Title: "etcd of Kubernetes accepts no writes",
			Why:  "its database has reached its quota (alarm NOSPACE)",
			Next: "on a control-plane node: ocadm etcd defrag",
			Says: regexp.MustCompile(`mvcc: database space exceeded|alarm:NOSPACE`), Of: notOwnEtcd},
		{ID: "etcd-damaged", Code: "OCA-4014", Layer: ControlPlane, On: string(controlPlane), Title: "The data of etcd is damaged, or belongs to another cluster",
			Why:  "/var/lib/etcd contains the data of another cluster, or was damaged by a power cut or a full disk",
			Next: "on that machine: ocadm etcd status; then with several control-plane nodes ocadm etcd rejoin, with only one ocadm etcd restore",
			Says: regexp.MustCompile(`cluster ID mismatch|` + etcdlog.Damage.String()), Of: notOwnEtcd},
		{ID: "control-plane-pod", Code: "OCA-4304", Layer: Symptom, Title: "A part of the control plane does not run",
			What: "${pod} does not run", Why: "a static pod of the control plane is not ready",
			Next: "kubectl -n kube-system logs ${pod} --previous; kubectl -n kube-system describe pod ${pod}",
			When: func(f *facts) []Hit {
				return lists.Pick(f.podsLabelled("kube-system", "tier", "control-plane"), func(p *corev1.Pod) (Hit, bool) {
					return Hit{On: podSubject(p), Via: []Subject{controlPlane}, Evidence: []string{f.podLine(p)}}, f.unwell(p)
				})
			}},
		{ID: "etcd-no-leader", Code: "OCA-4303", Layer: ControlPlane, On: string(controlPlane), Title: "etcd of Kubernetes lost its leader, or was slow",
			Why:  "a majority of its members is needed, and their disks must not be slow",
			Next: "on the control-plane nodes: ocadm etcd status",
			Says: regexp.MustCompile(`etcdserver: (no leader|request timed out|leader changed)`), Of: notOwnEtcd},
		{ID: "controllers-silent", Code: "OCA-4305", Layer: ControlPlane, On: string(controlPlane), Title: "A controller of Kubernetes is silent",
			What: "${lease} is silent", Why: "without it, pods are not created, or not assigned to nodes",
			Next: "kubectl -n kube-system get pods -l tier=control-plane; on the control-plane nodes: journalctl -u kubelet -n 50; ls /var/log/pods",
			When: func(f *facts) []Hit {
				return f.silent(controlPlane, "kube-system/kube-controller-manager", "kube-system/kube-scheduler")
			}},
		{ID: "webhook-down", Code: "OCA-4306", Layer: ControlPlane, On: "webhook/${webhook}", Title: "An admission webhook does not answer",
			What: "The admission webhook ${webhook} does not answer", Why: "the API server refuses objects while it cannot call a webhook whose failurePolicy is Fail",
			Next: "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations; repair the service behind ${webhook}, or delete its configuration",
			Says: regexp.MustCompile(`failed calling webhook "(?P<webhook>[^"]+)"`)},
		{ID: "webhook-denies", Code: "OCA-4307", Layer: Setting, Title: "An admission policy refuses an object",
			What: "${policy} refuses an object of ${component}", Why: "a webhook or policy of the cluster forbids it; its message gives the reason",
			Next: "change the policy, or what it refuses: kubectl describe validatingadmissionpolicies,validatingwebhookconfigurations",
			Says: regexp.MustCompile(`(?P<policy>admission webhook "[^"]+"|ValidatingAdmissionPolicy '[^']+')(?: with binding '[^']+')? denied (?:the )?request`)},
		{ID: "pod-security", Code: "OCA-4307", Layer: Setting, Title: "Pod Security refuses a pod",
			Why: "the namespace enforces a profile that the pod does not meet; agents and the database need privileged or baseline", In: Message | Event,
			Next: "kubectl label namespace ${namespace} --overwrite pod-security.kubernetes.io/enforce=privileged",
			Says: regexp.MustCompile(`violates PodSecurity "(?P<level>[^"]+)"`)},
		{ID: "quota", Code: "OCA-4308", Layer: Setting, Title: "A quota of the namespace refuses objects",
			What: "The quota ${quota} refuses objects of ${component}", Why: "a ResourceQuota of the namespace is used up, or counts limits that the pod does not have",
			Next: "kubectl -n ${namespace} describe quota ${quota}; raise it or, if it counts limits, create a LimitRange with defaults for them",
			Says: regexp.MustCompile(`(?:exceeded|failed) quota: (?P<quota>[^,:\s]+)`)},
		{ID: "limit-range", Code: "OCA-4308", Layer: Setting, Title: "A limit range of the namespace refuses pods",
			Why: "a LimitRange of the namespace allows less than the pod requests", Next: "kubectl -n ${namespace} describe limits",
			Says: regexp.MustCompile(`(maximum|minimum) (cpu|memory|storage) usage per (Container|Pod|PersistentVolumeClaim)`)},
	}
}

// notOwnEtcd excludes the etcd of the cloud, whose logs look the same.
func notOwnEtcd(f *facts, t Text) bool {
	return t.Values["component"] != "etcd" && (t.On == controlPlane || t.Values["namespace"] == "kube-system" || t.In == Message || t.In == Event)
}

// refusal is a cause that repeats the finding that there is no access to the API server, or no cloud.
func refusal(id, code string, layer Layer, title string) Cause {
	return Cause{ID: id, Code: code, Layer: layer, Title: title, What: "${what}", Why: "${why}", Next: "${next}", When: func(f *facts) []Hit { return f.refused(code) }}
}

// refused returns the hit for the finding that there is no access to the API server, or no cloud.
func (f *facts) refused(code string) []Hit {
	if f.Refused == nil || f.Refused.Code != code {
		return nil
	}
	evidence := lists.Pick(f.Machines, func(m Machine) (string, bool) {
		return "the API server of " + m.Node + ": " + shorten(m.APIServer), m.APIServer != "" && m.APIServer != Ready
	})
	on := controlPlane
	if f.notAsked() {
		on, evidence = kubeconfig, nil // nothing on the machine explains its absence
	}
	return []Hit{{On: on, Evidence: evidence, Values: map[string]string{"what": f.Refused.What, "why": f.Refused.Cause, "next": f.Refused.Remedy}}}
}

func (f *facts) certificates(is func(left time.Duration) bool) []Hit {
	var out []Hit
	for _, m := range f.Machines {
		for _, c := range m.Certificates {
			if left := c.NotAfter.Sub(f.Time); is(left) {
				next := renewal(m.Node, m.ControlPlane, left <= 0, c.File)
				out = append(out, Hit{On: nodeSubject(m.Node), Values: map[string]string{"file": c.File, "node": m.Node, "next": next},
					Evidence: []string{fmt.Sprintf("%s expires at %s", c.File, c.NotAfter.UTC().Format(time.RFC3339))}})
			}
		}
	}
	return out
}

// renewal explains how to renew a certificate of a machine.
func renewal(node string, controlPlane, expired bool, file string) string {
	switch name := path.Base(file); {
	case name == "ca.crt" || name == "front-proxy-ca.crt":
		return "on a control-plane node: ocadm certs rotate-ca --dry-run"
	case !controlPlane && expired:
		return "on a control-plane node: ocadm token create --print-join-command; then run that line on " + node + ", with the role flags it was joined with"
	case !controlPlane: // its kubelet should have renewed it; a join refuses while the node is Ready
		return "on " + node + ": systemctl restart kubelet; journalctl -u kubelet -n 50"
	}
	return "on " + node + ", and on each other control-plane node: ocadm certs renew"
}

// silent finds leases that are not renewed. It compares them with the newest one, so that this machine's clock does not matter. Those of the holders must differ
// by less than leaseAge.
func (f *facts) silent(on Subject, leases ...string) []Hit {
	newest := f.newestLease()
	var out []Hit
	for _, l := range f.Leases {
		if l.Spec.RenewTime == nil || !slices.Contains(leases, l.Namespace+"/"+l.Name) {
			continue
		}
		if age := newest.Sub(l.Spec.RenewTime.Time); age > leaseAge {
			out = append(out, Hit{On: on, Values: map[string]string{"lease": l.Name},
				Evidence: []string{fmt.Sprintf("lease %s was renewed last %s before the newest lease of the cluster", l.Name, age.Round(time.Second))}})
		}
	}
	return out
}

// newestLease considers the control plane only, where API servers have leases, too. The leases of nodes carry the times of the nodes' clocks.
func (f *facts) newestLease() (newest time.Time) {
	for _, l := range f.Leases {
		if l.Namespace == "kube-system" && l.Spec.RenewTime != nil && l.Spec.RenewTime.After(newest) {
			newest = l.Spec.RenewTime.Time
		}
	}
	return newest
}
