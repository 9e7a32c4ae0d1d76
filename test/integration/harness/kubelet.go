// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
)

// KubeletAgent is the user agent of the stand-in: leave it out of counts.
const KubeletAgent = "instant-kubelet"

// Kubelet is a stand-in for what runs pods and reports on them. It watches, and writes to the status subresource what controllers
// and kubelets would report in the end, at once. Without a controller-manager it does so for Deployments, StatefulSets,
// DaemonSets, Jobs and PersistentVolumeClaims, and no pods exist; with one it binds pods to a node and calls them ready.
// Nothing runs: a wrong image, command or probe is never seen here.
type Kubelet struct {
	client  kubernetes.Interface
	nodes   corev1listers.NodeLister
	stores  map[string]cache.Store
	handle  map[string]func(context.Context, any, bool) error
	cancel  context.CancelFunc
	stopped func()

	mu   sync.Mutex
	held map[string]bool
	errs []error
}

// Node is a Node object that the stand-in keeps Ready.
type Node struct {
	Name   string
	Labels map[string]string
}

// StartKubelet starts the stand-in and creates the nodes. ctx bounds its life; Stop ends it before.
func (c *Cluster) StartKubelet(ctx context.Context, nodes ...Node) (*Kubelet, error) {
	kinds := []string{"Deployment", "StatefulSet", "DaemonSet", "Job", "PersistentVolumeClaim"}
	if c.options.ControllerManager {
		kinds = []string{"Pod"}
	}
	return c.StartKubeletFor(ctx, kinds, nodes...)
}

// StartKubeletFor is StartKubelet for the named kinds only; something else reports on the others.
func (c *Cluster) StartKubeletFor(ctx context.Context, kinds []string, nodes ...Node) (*Kubelet, error) {
	config := c.Config(Admin)
	config.UserAgent = KubeletAgent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	for _, n := range nodes {
		if err := createNode(ctx, client, n); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactory(client, 0)
	k := &Kubelet{client: client, nodes: factory.Core().V1().Nodes().Lister(), stores: map[string]cache.Store{}, held: map[string]bool{},
		cancel: cancel, stopped: factory.Shutdown}
	k.handle = map[string]func(context.Context, any, bool) error{
		"Deployment": k.deployment, "StatefulSet": k.statefulSet, "DaemonSet": k.daemonSet, "Job": k.job, "PersistentVolumeClaim": k.claim,
		"Pod": k.pod,
	}
	watched, err := informersFor(factory, kinds)
	if err != nil {
		cancel()
		return nil, err
	}
	nodeInformer := factory.Core().V1().Nodes().Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), nodeInformer.HasSynced) {
		cancel()
		return nil, errors.New("reading nodes: stopped")
	}
	for kind, informer := range watched {
		k.stores[kind] = informer.GetStore()
		see := func(object any) { k.see(ctx, kind, object) }
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, object any) { see(object) }})
		if err != nil {
			cancel()
			return nil, fmt.Errorf("watching %s: %w", kind, err)
		}
	}
	// A node that comes or changes its labels changes what a DaemonSet wants, and where a pod may go.
	again := func(any) { k.seeAll(ctx, "DaemonSet", "Pod") }
	changes := cache.ResourceEventHandlerFuncs{AddFunc: again, UpdateFunc: func(_, _ any) { again(nil) }, DeleteFunc: again}
	if _, err := nodeInformer.AddEventHandler(changes); err != nil {
		cancel()
		return nil, fmt.Errorf("watching nodes: %w", err)
	}
	factory.Start(ctx.Done())
	return k, nil
}

func informersFor(factory informers.SharedInformerFactory, kinds []string) (map[string]cache.SharedIndexInformer, error) {
	watched := map[string]cache.SharedIndexInformer{}
	for _, kind := range kinds {
		switch kind {
		case "Deployment":
			watched[kind] = factory.Apps().V1().Deployments().Informer()
		case "StatefulSet":
			watched[kind] = factory.Apps().V1().StatefulSets().Informer()
		case "DaemonSet":
			watched[kind] = factory.Apps().V1().DaemonSets().Informer()
		case "Job":
			watched[kind] = factory.Batch().V1().Jobs().Informer()
		case "PersistentVolumeClaim":
			watched[kind] = factory.Core().V1().PersistentVolumeClaims().Informer()
		case "Pod":
			watched[kind] = factory.Core().V1().Pods().Informer()
		default:
			return nil, fmt.Errorf("the instant kubelet does not report on %q", kind)
		}
	}
	return watched, nil
}

// Stop ends the stand-in and returns what went wrong meanwhile.
func (k *Kubelet) Stop() error {
	k.cancel()
	k.stopped()
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.errs...)
}

// Hold keeps an object from becoming available, from its next change on; "*" as a name holds every object of the kind. With a
// controller-manager the kind is Pod.
func (k *Kubelet) Hold(kind, namespace, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[kind+"/"+namespace+"/"+name] = true
}

// Release ends Hold and makes available what was held.
func (k *Kubelet) Release(ctx context.Context, kind, namespace, name string) {
	k.mu.Lock()
	delete(k.held, kind+"/"+namespace+"/"+name)
	k.mu.Unlock()
	k.seeAll(ctx, kind)
}

func (k *Kubelet) seeAll(ctx context.Context, kinds ...string) {
	for _, kind := range kinds {
		store, watched := k.stores[kind]
		if !watched {
			continue
		}
		for _, object := range store.List() {
			k.see(ctx, kind, object)
		}
	}
}

func (k *Kubelet) isHeld(kind, namespace, name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[kind+"/"+namespace+"/"+name] || k.held[kind+"/"+namespace+"/*"]
}

// see reports on one object. Its own report comes back as a change and finds nothing left to do.
func (k *Kubelet) see(ctx context.Context, kind string, object any) {
	meta, ok := object.(metav1.Object)
	if !ok || meta.GetDeletionTimestamp() != nil && kind != "Pod" {
		return
	}
	err := k.handle[kind](ctx, object, k.isHeld(kind, meta.GetNamespace(), meta.GetName()))
	if err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, fmt.Errorf("reporting on %s %s/%s: %w", kind, meta.GetNamespace(), meta.GetName(), err))
}

// fitting are the nodes that a pod's node selector and required affinity allow; taints are not looked at.
func (k *Kubelet) fitting(spec corev1.PodSpec) ([]*corev1.Node, error) {
	nodes, err := k.nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	required := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: spec})
	return slices.DeleteFunc(nodes, func(n *corev1.Node) bool {
		fits, err := required.Match(n)
		return err != nil || !fits
	}), nil
}

func (k *Kubelet) deployment(ctx context.Context, object any, held bool) error {
	d := object.(*appsv1.Deployment)
	status := DeploymentStatus(d, !held, !held)
	if status.ObservedGeneration == d.Status.ObservedGeneration && status.AvailableReplicas == d.Status.AvailableReplicas &&
		status.UnavailableReplicas == d.Status.UnavailableReplicas && status.Replicas == d.Status.Replicas && len(d.Status.Conditions) > 0 {
		return nil
	}
	_, err := k.client.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.JSONPatchType, StatusPatch(status), metav1.PatchOptions{}, "status")
	return err
}

func (k *Kubelet) statefulSet(ctx context.Context, object any, held bool) error {
	s := object.(*appsv1.StatefulSet)
	status := statefulSetStatus(s, held)
	if equality.Semantic.DeepEqual(status, s.Status) {
		return nil
	}
	_, err := k.client.AppsV1().StatefulSets(s.Namespace).Patch(ctx, s.Name, types.JSONPatchType, StatusPatch(status), metav1.PatchOptions{}, "status")
	return err
}

func (k *Kubelet) daemonSet(ctx context.Context, object any, held bool) error {
	d := object.(*appsv1.DaemonSet)
	nodes, err := k.fitting(d.Spec.Template.Spec)
	if err != nil {
		return err
	}
	status := daemonSetStatus(d, int32(len(nodes)), held)
	if equality.Semantic.DeepEqual(status, d.Status) {
		return nil
	}
	_, err = k.client.AppsV1().DaemonSets(d.Namespace).Patch(ctx, d.Name, types.JSONPatchType, StatusPatch(status), metav1.PatchOptions{}, "status")
	return err
}

func (k *Kubelet) job(ctx context.Context, object any, held bool) error {
	j := object.(*batchv1.Job)
	if jobDone(j) || held && j.Status.StartTime != nil {
		return nil
	}
	_, err := k.client.BatchV1().Jobs(j.Namespace).Patch(ctx, j.Name, types.JSONPatchType, StatusPatch(jobStatus(j, held, Now())), metav1.PatchOptions{}, "status")
	return err
}

func (k *Kubelet) claim(ctx context.Context, object any, held bool) error {
	claim := object.(*corev1.PersistentVolumeClaim)
	status := claimStatus(claim, held)
	if status.Phase == claim.Status.Phase {
		return nil
	}
	_, err := k.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.JSONPatchType, StatusPatch(status), metav1.PatchOptions{}, "status")
	return err
}

func (k *Kubelet) pod(ctx context.Context, object any, held bool) error {
	p := object.(*corev1.Pod)
	if k.lost(p.Spec.NodeName) {
		return nil
	}
	if p.DeletionTimestamp != nil { // it ends at once
		now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))}
		return k.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, now)
	}
	if p.Spec.NodeName == "" {
		nodes, err := k.fitting(p.Spec)
		if err != nil || len(nodes) == 0 {
			return err
		}
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
			Target: corev1.ObjectReference{Kind: "Node", Name: nodes[0].Name}}
		return k.client.CoreV1().Pods(p.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
	}
	status := podStatus(p, held, Now())
	if status.Phase == p.Status.Phase && (held || p.Status.StartTime != nil) {
		return nil
	}
	_, err := k.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.JSONPatchType, StatusPatch(status), metav1.PatchOptions{}, "status")
	return err
}

// lost reports whether a node is there and is not Ready: nobody starts or ends a pod there.
func (k *Kubelet) lost(name string) bool {
	n, err := k.nodes.Get(name)
	return err == nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// StatusPatch replaces the status as a whole: a merge would keep numbers that have become zero.
func StatusPatch(status any) []byte {
	data, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status", "value": status}})
	if err != nil {
		panic(err) // a status of the API's own types always encodes
	}
	return data
}

func createNode(ctx context.Context, client kubernetes.Interface, n Node) error {
	size := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods: resource.MustParse("110")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating node %s: %w", n.Name, err)
	}
	status := corev1.NodeStatus{Capacity: size, Allocatable: size, Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Instant", LastHeartbeatTime: Now(), LastTransitionTime: Now()},
	}}
	if _, err := client.CoreV1().Nodes().Patch(ctx, n.Name, types.JSONPatchType, StatusPatch(status), metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("reporting on node %s: %w", n.Name, err)
	}
	// The API server gives a new node the taint not-ready, which the node controller takes away; there is none.
	if _, err := client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("taking the taints off node %s: %w", n.Name, err)
	}
	return nil
}
