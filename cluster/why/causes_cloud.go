// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/agentlog"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// seenDelay is how long the operator may take to notice a change of the cloud.
const seenDelay = 2 * time.Minute

func operatorCauses() []Cause {
	return []Cause{
		refusal("definition-missing", "OCA-7005", Operator, "The operator is not installed"),
		{ID: "operator-missing", Code: "OCA-7530", Layer: Operator, On: string(operator), Title: "The operator's Deployment is gone",
			Why: "the cloud exists, but nothing manages it", Next: finding.InstallOperator,
			When: func(f *facts) []Hit {
				if f.Cloud == nil || f.Refused != nil || f.operator() != nil || len(f.operatorPods()) > 0 || f.lacks("deployments") {
					return nil
				}
				return []Hit{{On: operator, Evidence: []string{"no Deployment onecloud-operator in the namespaces that were read"}}}
			}},
		{ID: "operator-stopped", Code: "OCA-7531", Layer: Operator, Title: "The operator is scaled to 0", Why: "it was stopped, and nothing manages the cloud",
			Next: "kubectl -n ${namespace} scale deployment onecloud-operator --replicas=1",
			Fix:  &Fix{Action: StartOperator, Title: "Start the operator: one replica", Command: "kubectl -n ${namespace} scale deployment ${deployment} --replicas=1"},
			When: func(f *facts) []Hit {
				d := f.operator()
				if d == nil || d.Spec.Replicas == nil || *d.Spec.Replicas != 0 {
					return nil
				}
				return []Hit{{On: operator, Evidence: []string{"Deployment " + d.Namespace + "/" + d.Name + " has 0 replicas"},
					Values: map[string]string{"namespace": d.Namespace, "deployment": d.Name}}}
			}},
		{ID: "operator-down", Code: "OCA-7532", Layer: Symptom, Title: "The operator does not run", What: "Pod ${pod} of the operator does not run",
			Why: "it is not ready", Next: "kubectl -n ${namespace} logs ${pod} --previous",
			When: func(f *facts) []Hit {
				pods := f.operatorPods()
				if !f.allUnwell(pods) {
					return nil
				}
				return lists.Map(pods, func(p *corev1.Pod) Hit {
					return Hit{On: podSubject(p), Via: []Subject{operator}, Evidence: []string{f.podLine(p)}}
				})
			}},
		{ID: "operator-behind", Code: "OCA-7533", Layer: Operator, Title: "The operator has not seen the latest change",
			Why:  "it hangs, or is not allowed to read the cloud; otherwise it would respond within seconds",
			Next: "kubectl -n " + finding.DefaultNamespace + " logs -l app=onecloud-operator --prefix --tail=50",
			When: func(f *facts) []Hit {
				if f.Cloud == nil || f.Cloud.Status.ObservedGeneration >= f.Cloud.Generation || f.Time.Sub(f.changed()) < seenDelay {
					return nil
				}
				return []Hit{{On: operator, Evidence: []string{fmt.Sprintf("generation %d, observed %d", f.Cloud.Generation, f.Cloud.Status.ObservedGeneration)}}}
			}},
		{ID: "operator-silent", Code: "OCA-7533", Layer: Operator, Title: "No operator renews its lease", Why: "it hangs, or is not allowed to write the lease; nothing is repaired",
			Next: "kubectl -n " + finding.DefaultNamespace + " logs -l app=onecloud-operator --prefix --tail=50",
			When: func(f *facts) []Hit {
				if pods := f.operatorPods(); len(pods) == 0 || f.allUnwell(pods) {
					return nil
				}
				return f.silent(operator, finding.DefaultNamespace+"/ocadm-operator")
			}},
		{ID: "operator-rights", Code: "OCA-7534", Layer: Operator, Title: "The operator lacks a permission", What: "The operator lacks a permission that ${component} needs",
			Why: "its ClusterRole belongs to another release, or was edited", Next: finding.InstallOperator,
			Says: regexp.MustCompile(`is forbidden: User "system:serviceaccount:[^"]+" cannot`), In: Message},
		{ID: "cloud-paused", Code: "OCA-7535", Layer: Setting, Warning: true, Title: "The cloud is paused",
			Why:  "it has the annotation " + v1alpha1.AnnotationPaused + "; nothing is repaired meanwhile",
			Next: "ocadm operation list; ocadm cluster start, unless a restore or a move still runs",
			When: func(f *facts) []Hit {
				if f.Cloud == nil || f.Cloud.Annotations[v1alpha1.AnnotationPaused] != "true" {
					return nil
				}
				return []Hit{{On: cloud, Evidence: []string{v1alpha1.AnnotationPaused + ": true"}}}
			}},
		{ID: "cloud-certificates", Code: "OCA-7536", Layer: Operator, Title: "The certificate of the services has expired", Why: "services and clients reject it",
			Next: "kubectl -n ${namespace} describe oc ${cloud}; with certificates of your own, replace Secret ${cloud}-certs",
			When: func(f *facts) []Hit { return f.cloudCertificates(func(left time.Duration) bool { return left <= 0 }) }},
		{ID: "cloud-certificates-expiring", Code: "OCA-7536", Layer: Operator, Warning: true, Title: "The certificate of the services expires soon",
			Why: "you provided it, so the operator does not renew it", Next: "replace Secret ${cloud}-certs: docs/configure.md, Certificates of your own",
			When: func(f *facts) []Hit {
				return f.cloudCertificates(func(left time.Duration) bool {
					return left > 0 && left < certificateWarning && f.Cloud.Status.Certificates.Supplied
				})
			}},
		{ID: "node-certificates", Code: "OCA-4406", Layer: Operator, Warning: true, Title: "Certificates of control-plane nodes are not renewed",
			Why:  "condition NodeCertificates of the cloud shows which certificates, and why",
			Next: "ocadm operation list; on the control-plane nodes: ocadm certs check, then ocadm certs renew",
			When: func(f *facts) []Hit {
				if f.Cloud == nil || !meta.IsStatusConditionFalse(f.Cloud.Status.Conditions, v1alpha1.ConditionNodeCertificates) {
					return nil
				}
				return []Hit{{On: cloud, Evidence: []string{shorten(f.condition(v1alpha1.ConditionNodeCertificates))}}}
			}},
		{ID: "cloud-ca", Code: "OCA-7536", Layer: Operator, Title: "The CA of the cloud cannot be read", Why: "the Secret ${cloud}-certs was edited",
			Next: "restore Secret ${cloud}-certs, or delete it: the operator makes it again", Says: regexp.MustCompile(`reading the CA in Secret`), In: Message},
	}
}

func cloudCauses() []Cause {
	reason := func(id, code, word, title, why, next string) Cause {
		return Cause{ID: id, Code: code, Layer: Setting, Title: title, What: title + ": ${component}", Why: why, Next: next, Says: regexp.MustCompile(`^` + word + `: `),
			In: Message}
	}
	const status = "ocadm cluster status; kubectl -n ${namespace} events --for oc/${cloud}"
	return []Cause{
		refusal("no-cloud", "OCA-7002", Operator, "There is no such cloud"),
		{ID: "invalid-spec", Code: "OCA-7540", Layer: Operator, Title: "The resource of the cloud cannot be applied", Why: "a field is invalid; the message names it",
			Next: "kubectl -n ${namespace} edit oc ${cloud}", Says: regexp.MustCompile(`^InvalidSpec: `), In: Message},
		{ID: "cloud-blocked", Code: "OCA-7201", Layer: Symptom, Title: "The operator cannot work on the cloud",
			Why: "${why}", Next: status, Says: regexp.MustCompile(`^Blocked: (?P<why>.+)`), In: Message},
		reason("invalid-option", "OCA-7013", v1alpha1.ReasonInvalidOption, "An option of a component is invalid",
			"the service does not accept the option or its value", "ocadm component options list ${component}; ocadm component options unset ${component} OPTION"),
		reason("field-conflict", "OCA-7541", "FieldConflict", "Another tool keeps changing an object", "the message names its field manager",
			"stop that tool, or let it leave the field alone; "+status),
		reason("immutable-field", "OCA-7542", "ImmutableField", "A field of an object cannot change", "Kubernetes does not change it in place",
			"run the command in the message: "+status),
		{ID: "cloud-etcd", Code: "OCA-7543", Layer: Setting, Title: "The etcd of the cloud has no majority, or is damaged",
			Why: "members have lost their disks, or their data differ", Next: "read the message of component etcd: it has the command; docs/reference/faults.md",
			Says: regexp.MustCompile(`leaves no majority|etcd reports [A-Z]+ of member|etcd is nearly full`), In: Message},
		{ID: "deletion-blocked", Code: "OCA-7544", Layer: Setting, Title: "Something keeps a cloud from being deleted", Why: "a finalizer, or a pod that nothing owns",
			Next: "read the condition Ready: kubectl -n ${namespace} describe oc ${cloud}",
			When: func(f *facts) []Hit {
				if f.Cloud == nil || f.Cloud.DeletionTimestamp == nil || f.Time.Sub(f.Cloud.DeletionTimestamp.Time) < eventAge/3 {
					return nil
				}
				return []Hit{{On: cloud,
					Evidence: []string{"its deletion began at " + f.Cloud.DeletionTimestamp.UTC().Format(time.RFC3339), shorten(f.condition(v1alpha1.ConditionReady))}}}
			}},
		{ID: "operation-failed", Code: "OCA-7545", Layer: Setting, Warning: true, Past: true, Title: "The last operation failed", What: "Operation ${operation} failed",
			Why: "its steps show why", Next: "ocadm operation show ${operation}",
			When: func(f *facts) []Hit { return f.operations(v1alpha1.OperationFailed) }},
		{ID: "update-failed", Code: "OCA-7551", Layer: Setting, Warning: true, Past: true, Title: "The last update did not move the cloud", Why: "${why}", Next: "${next}",
			When: (*facts).updateFailed},
		{ID: "operation-paused", Code: "OCA-7545", Layer: Setting, Warning: true, Title: "An operation is paused", What: "Operation ${operation} is paused",
			Why: "it waits until a user resumes it", Next: "ocadm operation show ${operation}; ocadm operation resume ${operation}",
			When: func(f *facts) []Hit { return f.operations(v1alpha1.OperationPaused) }},
		reason("backup-failed", "OCA-7546", "LastRunFailed", "The last backup failed", "the log of its Job shows why", "kubectl -n ${namespace} logs -l app=backup --tail=20"),
		{ID: "object-refused", Code: "OCA-7547", Layer: Symptom, Title: "The API server refuses an object", What: "The API server refuses an object of ${component}",
			Why: "its message gives the reason", Next: status, Says: regexp.MustCompile(`^NotApplied: `), In: Message},
		{ID: "effect-failed", Code: "OCA-7548", Layer: Symptom, Title: "The operator cannot do what a component needs",
			What: "The operator cannot do what ${component} needs", Why: "its message gives the reason", Next: status, Says: regexp.MustCompile(`^EffectFailed: `), In: Message},
		{ID: "rollout-stalled", Code: "OCA-7549", Layer: Symptom, Title: "Pods do not become ready in time", What: "The pods of ${component} do not become ready",
			Why: "the rollout has exceeded its deadline", Next: "kubectl -n ${namespace} describe pod -l app=${component}", Says: regexp.MustCompile(`^RolloutStalled: `),
			In: Message},
		{ID: "component-degraded", Code: "OCA-7201", Layer: Symptom, Title: "A component is Degraded", What: "Component ${component} is Degraded",
			Why: "its message gives the reason", Next: status, Says: regexp.MustCompile(`.`), In: Message,
			Of: func(_ *facts, t Text) bool { return t.Values["state"] == string(v1alpha1.Degraded) }},
		{ID: "fields-ignored", Code: "OCA-7550", Layer: Setting, Warning: true, Title: "Fields of the cloud are unknown",
			Why: "the operator does not recognize them, so they have no effect", Next: "kubectl -n ${namespace} edit oc ${cloud}",
			When: ofCondition(cloud, v1alpha1.ConditionIgnored, "UnknownFields")},
	}
}

// ofCondition finds a condition of the cloud by its reason.
func ofCondition(on Subject, kind, reason string) func(*facts) []Hit {
	return func(f *facts) []Hit {
		if says := f.condition(kind); strings.HasPrefix(says, reason+": ") {
			return []Hit{{On: on, Evidence: []string{shorten(says)}}}
		}
		return nil
	}
}

// agents lists the components whose logs package agentlog knows.
var agents = []string{"host", "host-deployer", "host-image", "host-health", "host-sdnagent", "host-ovn-controller", "host-ovs-vswitchd",
	"host-ovsdb-server", "host-ovs-image", "telegraf", "lbagent"}

// agentCauses returns those of package agentlog, which also cover the findings of "ocadm node doctor".
func agentCauses() []Cause {
	var out []Cause
	of := map[string]int{} // IDs are counted within a code: a further rule changes no others
	for _, r := range agentlog.Rules() {
		of[r.Code]++
		out = append(out, Cause{ID: fmt.Sprintf("agent-%s-%d", r.Code[len("OCA-"):], of[r.Code]), Code: r.Code, Layer: Setting, Warning: r.Severity == "warning",
			Title: r.What, Why: r.Cause, Next: r.Remedy,
			Says: r.Match, In: LogLine | Event, Of: func(_ *facts, t Text) bool { return slices.Contains(agents, t.Values["component"]) }})
	}
	return out
}

// OfHostAgent reports whether a pod runs the agent that registers a compute node with the cloud. It is ready before that.
func OfHostAgent(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelComponent] == "host" }

// hostSays collects why a host agent that is ready has not registered its node: the last attempt in its log.
func (f *facts) hostSays(l Log) {
	p := f.pod(Subject("pod/" + l.Namespace + "/" + l.Pod))
	if p == nil || !OfHostAgent(p) || l.Previous || f.nodeUnwell(p.Spec.NodeName) {
		return
	}
	for _, line := range slices.Backward(agentlog.Unsettled(l.Lines)) {
		if strings.Contains(line, agentlog.Unregistered+":") {
			f.add(LogLine, podSubject(p), fmt.Sprintf("log of pod %s, container %s", l.Pod, l.Container), line, podValues(p), "container", l.Container)
			return
		}
	}
}

func (f *facts) operator() *appsv1.Deployment {
	return first(f.Deployments, func(d *appsv1.Deployment) bool { return d.Name == "onecloud-operator" })
}

// lacks reports whether a kind could not be read.
func (f *facts) lacks(kind string) bool {
	re := regexp.MustCompile(`\b` + kind + `\b`)
	return slices.ContainsFunc(f.Missing, re.MatchString)
}

// changed returns the time of the last change of the cloud's spec, from its managed fields.
func (f *facts) changed() time.Time {
	t := f.Cloud.CreationTimestamp.Time
	for _, m := range f.Cloud.ManagedFields {
		if m.Subresource == "" && m.Time != nil && m.Time.After(t) {
			t = m.Time.Time
		}
	}
	return t
}

func (f *facts) cloudCertificates(is func(left time.Duration) bool) []Hit {
	if f.Cloud == nil {
		return nil
	}
	end := f.Cloud.Status.Certificates.NotAfter
	if end.IsZero() || !is(end.Sub(f.Time)) {
		return nil
	}
	h := Hit{On: certificates, Evidence: []string{"it expires at " + end.UTC().Format(time.RFC3339)}}
	for _, t := range f.texts {
		switch {
		case !strings.Contains(t.lower, "certificate has expired"):
		case identityEffect(f, t):
			h.Via = append(h.Via, identity)
		case f.ownerOf(t.On) != "" && !ofEffect("database/")(f, t):
			h.Via = append(h.Via, t.On)
		}
	}
	return []Hit{h}
}

// updateFailed splits condition UpdateFailed into the reason, the next step, and the command that shows the operation.
func (f *facts) updateFailed() []Hit {
	_, text, there := strings.Cut(f.condition(v1alpha1.ConditionUpdateFailed), ": ")
	if !there {
		return nil
	}
	text, details, _ := strings.Cut(text, "; details: ")
	why, next, _ := strings.Cut(text, "; next: ")
	return []Hit{{On: cloud, Evidence: []string{"condition UpdateFailed: " + shorten(why)}, Values: map[string]string{
		"why": shorten(why), "next": strings.TrimPrefix(next+"; "+details, "; "),
	}}}
}

// operations reports the newest operation if it has failed, or the newest paused one: that keeps later ones, such as backups, from starting.
func (f *facts) operations(phase v1alpha1.OperationPhase) []Hit {
	var newest *v1alpha1.OnecloudOperation
	for i, o := range f.Operations {
		if o.Spec.Cloud == f.Name && (o.Status.Phase == phase || phase == v1alpha1.OperationFailed) && (newest == nil || o.CreationTimestamp.After(newest.CreationTimestamp.Time)) {
			newest = &f.Operations[i]
		}
	}
	if newest == nil || newest.Status.Phase != phase || strings.HasSuffix(f.condition(v1alpha1.ConditionUpdateFailed), " "+newest.Name) {
		return nil // update-failed has more detail
	}
	return []Hit{{On: cloud, Values: map[string]string{"operation": newest.Name}, Evidence: []string{shorten("it is " + string(phase) + ": " + newest.Status.Message)}}}
}
