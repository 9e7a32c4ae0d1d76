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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KubeletAgent is the user agent of the stand-in; exclude it from counts.
const KubeletAgent = "instant-kubelet"

// Kubelet is a stand-in for the programs that run pods and report on them. It watches objects and immediately writes the final status that
// controllers and kubelets would report. Without a controller-manager it does so for Deployments, StatefulSets, DaemonSets, Jobs and
// PersistentVolumeClaims, and there are no pods. With one it binds pods to a node and reports them ready. Nothing runs, so it never detects a wrong
// image, command or probe, except in pods that only pull images.
type Kubelet struct {
	client  client.Client
	nodes   corev1listers.NodeLister
	stores  map[string]cache.Store
	cancel  context.CancelFunc
	stopped func()

	mu   sync.Mutex
	held map[string]bool
	gone []string
	errs []error
}

// reporter describes a kind whose status the stand-in reports.
type reporter struct {
	resource schema.GroupVersionResource
	report   func(k *Kubelet, ctx context.Context, object any, held bool) error
}

var reporters = map[string]reporter{
	"Deployment":            {appsv1.SchemeGroupVersion.WithResource("deployments"), (*Kubelet).deployment},
	"StatefulSet":           {appsv1.SchemeGroupVersion.WithResource("statefulsets"), (*Kubelet).statefulSet},
	"DaemonSet":             {appsv1.SchemeGroupVersion.WithResource("daemonsets"), (*Kubelet).daemonSet},
	"Job":                   {batchv1.SchemeGroupVersion.WithResource("jobs"), (*Kubelet).job},
	"PersistentVolumeClaim": {corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), (*Kubelet).claim},
	"Pull":                  {corev1.SchemeGroupVersion.WithResource("pods"), (*Kubelet).pull},
	"Pod":                   {corev1.SchemeGroupVersion.WithResource("pods"), (*Kubelet).pod},
}

// Node is a Node object that the stand-in keeps Ready.
type Node struct {
	Name   string
	Labels map[string]string
}

// Workloads are the kinds to report without a controller-manager. With one, the only kind is "Pod".
var Workloads = []string{"Deployment", "StatefulSet", "DaemonSet", "Job", "PersistentVolumeClaim", "Pull"}

// StartKubelet starts the stand-in for some kinds and creates the nodes. It runs until ctx ends or Stop is called.
func (c *Cluster) StartKubelet(ctx context.Context, kinds []string, nodes ...Node) (*Kubelet, error) {
	config := c.Config(Admin)
	config.UserAgent = KubeletAgent
	writer, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	reader, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(reader, 0)
	k := &Kubelet{client: writer, nodes: factory.Core().V1().Nodes().Lister(), stores: map[string]cache.Store{}, held: map[string]bool{}, stopped: factory.Shutdown}
	for _, n := range nodes {
		if err := k.AddNode(ctx, n); err != nil {
			return nil, err
		}
	}
	ctx, k.cancel = context.WithCancel(ctx)
	if err := k.watch(ctx, factory, kinds); err != nil {
		k.cancel()
		return nil, err
	}
	return k, nil
}

func (k *Kubelet) watch(ctx context.Context, factory informers.SharedInformerFactory, kinds []string) error {
	nodes := factory.Core().V1().Nodes().Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced) {
		return errors.New("reading nodes: stopped")
	}
	for _, kind := range kinds {
		generic, err := factory.ForResource(reporters[kind].resource)
		if err != nil {
			return fmt.Errorf("watching %s: %w", kind, err)
		}
		see := func(object any) { k.see(ctx, kind, object) }
		k.stores[kind] = generic.Informer().GetStore()
		if _, err := generic.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, object any) { see(object) }}); err != nil {
			return fmt.Errorf("watching %s: %w", kind, err)
		}
	}
	// A new node or changed labels change the desired pods of a DaemonSet, and where a pod may run.
	again := func(any) { k.seeAll(ctx, "DaemonSet", "Pod") }
	changes := cache.ResourceEventHandlerFuncs{AddFunc: again, UpdateFunc: func(_, _ any) { again(nil) }, DeleteFunc: again}
	if _, err := nodes.AddEventHandler(changes); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	factory.Start(ctx.Done())
	return nil
}

// Stop stops the stand-in and returns the errors that occurred.
func (k *Kubelet) Stop() error {
	k.cancel()
	k.stopped()
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(k.errs...)
}

// Hold keeps an object from becoming available, from its next change on. The name "*" holds every object of the kind. With a controller-manager the kind is Pod.
func (k *Kubelet) Hold(kind, namespace, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[kind+"/"+namespace+"/"+name] = true
}

// Release ends Hold and makes the held objects available.
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

// see reports the status of one object. The report itself causes another change, after which there is nothing left to do.
func (k *Kubelet) see(ctx context.Context, kind string, object any) {
	meta, ok := object.(metav1.Object)
	if !ok || meta.GetDeletionTimestamp() != nil && kind != "Pod" {
		return
	}
	err := reporters[kind].report(k, ctx, object, k.isHeld(kind, meta.GetNamespace(), meta.GetName()))
	if err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, fmt.Errorf("reporting on %s %s/%s: %w", kind, meta.GetNamespace(), meta.GetName(), err))
}

// fitting returns the nodes that a pod's node selector and required affinity allow. It ignores taints.
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
	return ReportStatus(ctx, k.client, d, status)
}

func (k *Kubelet) statefulSet(ctx context.Context, object any, held bool) error {
	s := object.(*appsv1.StatefulSet)
	status := statefulSetStatus(s, held)
	if equality.Semantic.DeepEqual(status, s.Status) {
		return nil
	}
	return ReportStatus(ctx, k.client, s, status)
}

func (k *Kubelet) daemonSet(ctx context.Context, object any, held bool) error {
	d := object.(*appsv1.DaemonSet)
	nodes, err := k.fitting(d.Spec.Template.Spec)
	if err != nil {
		return err
	}
	status := DaemonSetStatus(d, int32(len(nodes)), held)
	if equality.Semantic.DeepEqual(status, d.Status) {
		return nil
	}
	return ReportStatus(ctx, k.client, d, status)
}

func (k *Kubelet) job(ctx context.Context, object any, held bool) error {
	j := object.(*batchv1.Job)
	if jobDone(j) || held && j.Status.StartTime != nil {
		return nil
	}
	return ReportStatus(ctx, k.client, j, jobStatus(j, held, Now()))
}

func (k *Kubelet) claim(ctx context.Context, object any, held bool) error {
	claim := object.(*corev1.PersistentVolumeClaim)
	status := claimStatus(claim, held)
	if status.Phase == claim.Status.Phase {
		return nil
	}
	return ReportStatus(ctx, k.client, claim, status)
}

func (k *Kubelet) pod(ctx context.Context, object any, held bool) error {
	p := object.(*corev1.Pod).DeepCopy()
	if k.lost(p.Spec.NodeName) {
		return nil
	}
	if p.DeletionTimestamp != nil { // it ends immediately
		return k.client.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID})
	}
	if p.Spec.NodeName == "" {
		nodes, err := k.fitting(p.Spec)
		nodes = slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return !tolerates(p.Spec, n) })
		if err != nil || len(nodes) == 0 {
			return err
		}
		return k.client.SubResource("binding").Create(ctx, p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: nodes[0].Name}})
	}
	if neverStarts(p) {
		return k.pull(ctx, p, held)
	}
	status := podStatus(p, held, Now())
	if status.Phase == p.Status.Phase && (held || p.Status.StartTime != nil) {
		return nil
	}
	return ReportStatus(ctx, k.client, p, status)
}

// tolerates reports whether a scheduler may place a pod on a node with its taints.
func tolerates(spec corev1.PodSpec, n *corev1.Node) bool {
	_, barred := scheduling.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule
	}, true)
	return !barred
}

// lost reports whether a node exists and is not Ready: no kubelet starts or ends a pod there.
func (k *Kubelet) lost(name string) bool {
	n, err := k.nodes.Get(name)
	return err == nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// ReportStatus replaces the whole status of an object, because a merge would keep numbers that have become zero. It does not change the object in memory.
func ReportStatus(ctx context.Context, c client.Client, object client.Object, status any) error {
	data, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status", "value": status}})
	if err != nil {
		return err
	}
	return c.Status().Patch(ctx, object.DeepCopyObject().(client.Object), client.RawPatch(types.JSONPatchType, data))
}

// AddNode creates a Ready node.
func (k *Kubelet) AddNode(ctx context.Context, n Node) error {
	size := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods: resource.MustParse("110")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}}
	if err := k.client.Create(ctx, node); err != nil {
		return fmt.Errorf("creating node %s: %w", n.Name, err)
	}
	status := corev1.NodeStatus{Capacity: size, Allocatable: size, Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Instant", LastHeartbeatTime: Now(), LastTransitionTime: Now()},
	}}
	if err := ReportStatus(ctx, k.client, node, status); err != nil {
		return fmt.Errorf("reporting on node %s: %w", n.Name, err)
	}
	// The API server gives a new node the taint not-ready, which the node controller would remove; there is none here.
	if err := k.client.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))); err != nil {
		return fmt.Errorf("taking the taints off node %s: %w", n.Name, err)
	}
	return nil
}
