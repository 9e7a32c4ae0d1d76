// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/secrets"
	"yunion.io/x/ocadm/operatorctl/status"
)

// State is what a reconcile decides on: what gather has read, and what has been done since.
type State struct {
	Cloud *v1alpha1.OnecloudCluster
	Now   time.Time
	Live  Live
	// Paused says what a user keeps the operator from.
	Paused  pause
	Secrets stored
	Last    last
	// Catalog are the components that the cloud may have: those of its release, unless it is to be brought to this build.
	Catalog  catalogue
	Releases releases
	// Audit is true if everything outside Kubernetes is to be verified again.
	Audit bool
	// Done is what has been done since; the copies of a State share it.
	Done *outcome
}

// releases are what a cloud runs, and what it is to run next.
type releases struct {
	// current is the index of the release in force, nil if there is none yet; kept are all that are kept, by revision.
	current *release.Release
	kept    map[int]*corev1.Secret
	// free is true if what this build renders is to be applied, whatever the release has; asked, if an update of that release was asked for.
	free, asked bool
	// past is set if the State is what the release was rendered from: nothing is amiss there.
	past *release.From
	// waiting is the version of the spec to which no operation has moved the cloud yet, "" if there is none. cannotMove is true if none can: the
	// operator may not run operations.
	waiting    string
	cannotMove bool
	// failed is the last operation that was to move the cloud to another release, if it did not; else nil.
	failed *v1alpha1.OnecloudOperation
	// rollout is the operation that moves the cloud to another release, nil if none does.
	rollout *rollout
}

// outcome is what a reconcile has done so far.
type outcome struct {
	// Components are the outcomes of components, by name.
	Components map[string]*componentOutcome
	// Effects are the outcomes of those that it looked at, by key.
	Effects map[string]effects.Outcome
	// Changes are all that it did to objects.
	Changes []engine.Change
	// Refused is true if something could not be read or pruned. Retry is when what the API server did not take is due again.
	Refused bool
	Retry   time.Time
}

// nothingDone is where a reconcile begins.
func nothingDone() *outcome {
	return &outcome{Components: map[string]*componentOutcome{}, Effects: map[string]effects.Outcome{}}
}

// componentOutcome is what a reconcile has done with one component so far.
type componentOutcome struct {
	// err is why it cannot be rendered or applied.
	err error
	// tried is true once its workload was applied.
	tried bool
	// refusals are objects that were not applied, kept the fields that stay as they are in those that were.
	refusals []*engine.Refusal
	kept     []engine.Kept
}

// stored is what the cluster has of the secrets of a cloud.
type stored struct {
	// credentials is nil if there is no such Secret.
	credentials *corev1.Secret
	// record is the earlier operator's record of passwords, nil if there is none or no password is missing.
	record *corev1.ConfigMap
	// certificates are the Secrets of certificates by name. current are their values, valid if issued is true.
	certificates map[string]*corev1.Secret
	current      secrets.Certificates
	issued       bool
}

// Live is what the cluster has of one cloud.
type Live struct {
	namespace string
	objects   map[engine.Key]client.Object
	pods      []corev1.Pod
	// nodes of the Kubernetes cluster, nil where they may not be read.
	nodes []status.Node
	// redundancy is what the embedded database reports of itself, nil if it does not.
	redundancy *corev1.ConfigMap
	// instance is the label by which its objects are known, see instanceOf. address is one by which nodes are reached, "" if none is known.
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

// coreKey is the key of an object of Kubernetes' first group: Secret, ConfigMap, Pod, …
func coreKey(kind, namespace, name string) engine.Key {
	return engine.Key{GVK: corev1.SchemeGroupVersion.WithKind(kind), Namespace: namespace, Name: name}
}

// outcome of a component. It may be written.
func (s State) outcome(name string) *componentOutcome {
	o := s.Done.Components[name]
	if o == nil {
		o = &componentOutcome{}
		s.Done.Components[name] = o
	}
	return o
}

// address by which users and hosts reach the cloud: the spec's, or a node's that becomes the spec's default; "" if there is neither.
func (s State) address() string {
	address := strings.Trim(s.Cloud.Spec.LoadBalancerEndpoint, "[]")
	if address == "" && effects.MayChooseAddress(s.Cloud.Status.Effects) {
		return s.Live.address
	}
	return address
}

// seen is what live workloads are judged by.
func (s State) seen() status.Seen {
	return status.Seen{Pods: s.Live.pods, Nodes: s.Live.nodes, Now: s.Now}
}

// recorded are the hashes of the effects that are done. What is not planned now (a component that is off) keeps its record.
func (s State) recorded() map[string]string {
	out := map[string]string{}
	for key, hash := range s.Cloud.Status.Effects {
		out[key] = hash
	}
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

// passwordTaken is true if the identity service has had the administrator's password.
func (s State) passwordTaken() bool {
	if s.Releases.past != nil {
		return s.Releases.past.PasswordTaken
	}
	passwords, _ := secrets.Split(s.Secrets.credentials)
	return effects.AdminPasswordTaken(string(s.Cloud.UID), passwords, s.recorded())
}

// retryAt makes the next reconcile come at t at the latest; the zero time changes nothing.
func (s State) retryAt(t time.Time) { s.Done.Retry = wait.Earliest(s.Done.Retry, t) }

// own sets the owner reference, except on claims: they may hold data and outlive the cloud. With spec.deletionPolicy Delete the finalizer
// removes them.
func own(cr *v1alpha1.OnecloudCluster, o client.Object) client.Object {
	if o.GetObjectKind().GroupVersionKind().Kind == "PersistentVolumeClaim" {
		return o
	}
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(cr, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))})
	return o
}

// labels of an object of this cloud that belongs to no component: credentials and certificates.
func labels(s State) map[string]string {
	return map[string]string{
		v1alpha1.LabelName:      v1alpha1.ValueName,
		v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy,
		v1alpha1.LabelInstance:  s.Live.instance,
	}
}

// lastWords are the last messages of the pods of a StatefulSet that keep ending, by name.
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

// leftState is what tasks have left for the pods of a component, nil if nothing.
func leftState(s State, d *Desired, c *target) map[string]string {
	if cm := s.Live.configMap(d.Cluster.State(c.Name)); cm != nil {
		return cm.Data
	}
	return nil
}

// absent counts the pods of a component that keep its rollout from going on, although they are no part of it.
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

// replicaDown is true if a component is to have read-only replicas and none of them answers, so that no client is to be sent there.
func replicaDown(s State, d *Desired, c *target) bool {
	if !c.Workload.ReadReplicas || c.ReadReplicas == 0 || s.Releases.past != nil {
		return false
	}
	return !replicasAnswer(s, d, c.Name)
}

func replicasAnswer(s State, d *Desired, name string) bool {
	w := status.WorkloadOf(s.Live.objects[d.key("Deployment", name, render.ReplicaSuffix)], s.seen())
	return w != nil && w.Answering > 0
}

// key of a workload of kind Deployment, DaemonSet or StatefulSet.
func (d *Desired) key(kind, name, suffix string) engine.Key {
	return engine.Key{GVK: appsv1.SchemeGroupVersion.WithKind(kind), Namespace: d.Cluster.Namespace, Name: d.Cluster.Object(name) + suffix}
}

// configMap of a component, an empty one if there is none.
func (d *Desired) configMap(s State, name string) *corev1.ConfigMap {
	if cm := s.Live.configMap(d.Cluster.Object(name)); cm != nil {
		return cm
	}
	return &corev1.ConfigMap{}
}

// composedSecret holds the file that the pods of a component mount; an empty one if there is none.
func (d *Desired) composedSecret(s State, c *target) *corev1.Secret {
	if secret := s.Live.secret(d.Cluster.Object(c.Name) + render.ConfigSuffix); secret != nil {
		return secret
	}
	return &corev1.Secret{}
}
