// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/admission"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/secrets"
	"yunion.io/x/ocadm/operatorctl/status"
)

// State is the input of a reconcile's decisions: what gather has read, and what was done since.
type State struct {
	Cloud *v1alpha1.OnecloudCluster
	Now   time.Time
	Live  Live
	// Paused is what a user paused.
	Paused  pause
	Secrets stored
	Last    last
	// Catalog holds the components that the cloud may have: those of its release, unless it moves to this build.
	Catalog  catalogue
	Releases releases
	// Audit is true if everything outside Kubernetes must be verified again.
	Audit bool
	// Done is what was done since; copies of a State share it.
	Done *outcome
}

// releases holds what a cloud runs, and what it will run next.
type releases struct {
	// current is the index of the release in force, nil if there is none; kept holds all kept ones, by revision.
	current *release.Release
	kept    map[int]*corev1.Secret
	// free is true if what this build renders is applied, whatever the release has; asked if an update of that release was requested.
	free, asked bool
	// past is set if the State is the input of a release: nothing is wrong there.
	past *release.From
	// waiting is the version in the spec to which no operation has moved the cloud yet, "" if there is none. cannotMove is true if the operator may not
	// run operations.
	waiting    string
	cannotMove bool
	// failed is the last operation that should have moved the cloud to another release, if it did not; otherwise nil.
	failed *v1alpha1.OnecloudOperation
	// rollout is the operation that is moving the cloud, nil if there is none.
	rollout *rollout
}

// outcome is what a reconcile has done so far.
type outcome struct {
	// Components holds the outcomes of components, by name.
	Components map[string]*componentOutcome
	// Effects holds the outcomes of checked effects, by key.
	Effects map[string]effects.Outcome
	// Changes lists all changes of objects.
	Changes []engine.Change
	// Refused is true if a read or deletion failed. Retry is when requests that the API server rejected are due again.
	Refused bool
	Retry   time.Time
}

func nothingDone() *outcome {
	return &outcome{Components: map[string]*componentOutcome{}, Effects: map[string]effects.Outcome{}}
}

// componentOutcome is what a reconcile has done with one component so far.
type componentOutcome struct {
	// err is the reason why it cannot be rendered or applied.
	err error
	// tried is true once its workload was applied.
	tried bool
	// refusals lists objects that were not applied, kept the fields that keep their live values in those that were.
	refusals []*engine.Refusal
	kept     []engine.Kept
}

// stored holds the secrets of a cloud in the cluster.
type stored struct {
	// credentials is nil if the Secret does not exist.
	credentials *corev1.Secret
	// record is the earlier operator's record of passwords, nil if there is none or no password is missing.
	record *corev1.ConfigMap
	// certificates holds the Secrets of certificates by name. current holds their values, valid if issued is true.
	certificates map[string]*corev1.Secret
	current      secrets.Certificates
	issued       bool
}

// Live holds the live objects of one cloud.
type Live struct {
	namespace string
	objects   map[engine.Key]client.Object
	pods      []corev1.Pod
	// nodes are those of the Kubernetes cluster, nil if they may not be read.
	nodes []status.Node
	// redundancy is the report of the embedded database about itself, nil if there is none.
	redundancy *corev1.ConfigMap
	// instance is the label that marks its objects, see instanceOf. address is one that reaches its nodes, "" if none is known.
	instance, address string
}

// secret returns a Secret of the cloud, nil if there is none.
func (l Live) secret(name string) *corev1.Secret {
	return live[*corev1.Secret](l, "Secret", name)
}

// configMap returns a ConfigMap of the cloud, nil if there is none.
func (l Live) configMap(name string) *corev1.ConfigMap {
	return live[*corev1.ConfigMap](l, "ConfigMap", name)
}

func live[T client.Object](l Live, kind, name string) T {
	o, _ := l.objects[coreKey(kind, l.namespace, name)].(T)
	return o
}

// coreKey returns the key of an object of the core API group: Secret, ConfigMap, Pod, …
func coreKey(kind, namespace, name string) engine.Key {
	return engine.Key{GVK: corev1.SchemeGroupVersion.WithKind(kind), Namespace: namespace, Name: name}
}

// outcome returns the outcome of a component, for reading and writing.
func (s State) outcome(name string) *componentOutcome {
	o := s.Done.Components[name]
	if o == nil {
		o = &componentOutcome{}
		s.Done.Components[name] = o
	}
	return o
}

// address returns the address of the cloud for users and hosts: the spec's, or that of a node, which becomes the spec's default; "" if there is
// neither.
func (s State) address() string {
	address := strings.Trim(s.Cloud.Spec.LoadBalancerEndpoint, "[]")
	if address == "" && effects.MayChooseAddress(s.Cloud.Status.Effects) {
		return s.Live.address
	}
	return address
}

// seen returns what package status needs to judge live workloads.
func (s State) seen() status.Seen {
	return status.Seen{Pods: s.Live.pods, Nodes: s.Live.nodes, Now: s.Now}
}

// onRecord returns the hashes of the effects in status. Those in ClickHouse do not count if the status is from a time with another server, or none: a
// database or account of the same name on this one may be someone else's.
func onRecord(cr *v1alpha1.OnecloudCluster) map[string]string {
	out := map[string]string{}
	before, now := cr.Status.Fixed, admission.Fixed(&cr.Spec)
	moved := cr.Spec.Clickhouse.Host == "" ||
		len(before) > 0 && (before["clickhouse.host"] != now["clickhouse.host"] || before["clickhouse.port"] != now["clickhouse.port"])
	for key, hash := range cr.Status.Effects {
		if !moved || !strings.HasPrefix(key, "clickhouse/") {
			out[key] = hash
		}
	}
	return out
}

// idOf returns the ID with which a cloud marks its databases. The status has it too: namespace and Secret may be deleted together.
func idOf(s State) string {
	_, names := secrets.Split(s.Secrets.credentials)
	return cmp.Or(names[component.CloudID], s.Cloud.Status.Fixed[component.CloudID], string(s.Cloud.UID)) // as in a new Secret
}

// recorded returns the hashes of the completed effects. Effects that are not planned now (of a disabled component) keep theirs.
func (s State) recorded() map[string]string {
	out := onRecord(s.Cloud)
	if s.Releases.rollout != nil {
		maps.Copy(out, s.Releases.rollout.forgotten)
		maps.DeleteFunc(out, func(_, hash string) bool { return hash == "" })
	}
	for key, o := range s.Done.Effects {
		if o.State == effects.Done {
			out[key] = o.Effect.Hash
		}
	}
	return out
}

// passwordTaken reports whether the identity service has received the administrator's password.
func (s State) passwordTaken() bool {
	if s.Releases.past != nil {
		return s.Releases.past.PasswordTaken
	}
	passwords, _ := secrets.Split(s.Secrets.credentials)
	return effects.AdminPasswordTaken(string(s.Cloud.UID), passwords, s.recorded())
}

// retryAt schedules the next reconcile for t at the latest; the zero time changes nothing.
func (s State) retryAt(t time.Time) { s.Done.Retry = wait.Earliest(s.Done.Retry, t) }

// own sets the owner reference, except on claims: they may hold data and outlive the cloud. With spec.deletionPolicy Delete, finalize removes them.
func own(cr *v1alpha1.OnecloudCluster, o client.Object) client.Object {
	if o.GetObjectKind().GroupVersionKind().Kind == "PersistentVolumeClaim" {
		return o
	}
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(cr, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))})
	return o
}

// labels returns the labels of objects that belong to no component: credentials and certificates.
func labels(s State) map[string]string {
	return map[string]string{
		v1alpha1.LabelName:      v1alpha1.ValueName,
		v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy,
		v1alpha1.LabelInstance:  s.Live.instance,
	}
}

// lastWords returns the last messages of the pods of a StatefulSet that keep failing, by name.
func lastWords(s State, c *target) map[string]string {
	if c.Workload.Kind != component.StatefulSet || s.Releases.past != nil {
		return nil
	}
	words := map[string]string{}
	for _, pod := range s.Live.pods {
		if pod.Labels[v1alpha1.LabelComponent] == c.Name {
			if w := status.LastWords(pod); w != "" {
				words[pod.Name] = w
			}
		}
	}
	return words
}

// leftState returns the state that tasks left for the pods of a component, nil if there is none.
func leftState(s State, d *Desired, c *target) map[string]string {
	if cm := s.Live.configMap(d.Cluster.State(c.Name)); cm != nil {
		return cm.Data
	}
	return nil
}

// absent returns the number of pods that block the rollout of a component although they take no part in it.
func absent(s State, d *Desired, c *target) int32 {
	if c.Workload.Kind != component.DaemonSet || s.Releases.past != nil {
		return 0
	}
	o := s.Live.objects[d.key("DaemonSet", c.Name, "")]
	if o == nil {
		return 0
	}
	return status.Absent(o, s.seen())
}

// replicaDown reports whether none of a component's read-only replicas answers, so that clients must not use them.
func replicaDown(s State, d *Desired, c *target) bool {
	return c.Workload.ReadReplicas && c.ReadReplicas != 0 && s.Releases.past == nil && !replicasAnswer(s, d, c.Name)
}

func replicasAnswer(s State, d *Desired, name string) bool {
	w := status.WorkloadOf(s.Live.objects[d.key("Deployment", name, render.ReplicaSuffix)], s.seen())
	return w != nil && w.Answering > 0
}

// key returns the key of a Deployment, DaemonSet or StatefulSet.
func (d *Desired) key(kind, name, suffix string) engine.Key {
	return engine.Key{GVK: appsv1.SchemeGroupVersion.WithKind(kind), Namespace: d.Cluster.Namespace, Name: d.Cluster.Object(name) + suffix}
}

// configMap returns the ConfigMap of a component, an empty one if there is none.
func (d *Desired) configMap(s State, name string) *corev1.ConfigMap {
	if cm := s.Live.configMap(d.Cluster.Object(name)); cm != nil {
		return cm
	}
	return &corev1.ConfigMap{}
}

// composedSecret returns the Secret with the file that the pods of a component mount; an empty one if there is none.
func (d *Desired) composedSecret(s State, c *target) *corev1.Secret {
	if secret := s.Live.secret(d.Cluster.Object(c.Name) + render.ConfigSuffix); secret != nil {
		return secret
	}
	return &corev1.Secret{}
}
