// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
)

// Leader election: a killed leader is replaced within 15 s (the lease), one that stops gracefully immediately.
const (
	leaseName     = "ocadm-operator"
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = time.Second
	// gracePeriod is the default limit of a graceful stop, which rarely takes a second. Its pod has ten.
	gracePeriod = 7 * time.Second
)

// managed selects the operator's objects; only those are cached.
var managed = labels.SelectorFromSet(labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy})

func newManager(cfg *rest.Config, o Options) (ctrl.Manager, error) {
	cfg = rest.CopyConfig(cfg)
	// API priority and fairness limits us; a client-side limit would only slow a first install.
	cfg.QPS, cfg.Burst = -1, 0
	ctrllog.SetLogger(logr.FromSlogHandler(o.Log.Handler())) // otherwise controller-runtime complains on standard error
	byObject := map[client.Object]cache.ByObject{
		&v1alpha1.OnecloudCluster{}: {},
		&corev1.Pod{}:               {Label: managed, Transform: stripped(stripPod)},
	}
	for _, k := range render.Kinds() { // pods are only watched, to explain why a workload is not ready
		b := cache.ByObject{Label: managed}
		if _, isConfig := k.(*corev1.ConfigMap); !isConfig {
			b.Transform = stripped(stripManagedFields)
		}
		byObject[k] = b
	}
	if !o.without.operations {
		byObject[&v1alpha1.OnecloudOperation{}] = cache.ByObject{Transform: cache.TransformStripManagedFields()}
	}
	if !o.without.machines {
		byObject[&v1alpha1.OnecloudMachine{}] = cache.ByObject{Transform: cache.TransformStripManagedFields()}
	}
	if !o.without.jobs {
		byObject[&batchv1.Job{}] = cache.ByObject{Label: managed, Transform: stripped(stripJob)}
	}
	if !o.without.nodes {
		byObject[&corev1.Node{}] = cache.ByObject{Transform: stripped(stripNode)}
	}
	const off = "0"
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        kube.Scheme(),
		Logger:                        logr.FromSlogHandler(o.Log.Handler()),
		Cache:                         cache.Options{ByObject: byObject, DefaultNamespaces: cacheNamespaces(o.Namespaces)},
		Metrics:                       metricsserver.Options{BindAddress: cmp.Or(o.Listen.Metrics, off)},
		HealthProbeBindAddress:        cmp.Or(o.Listen.Health, off),
		PprofBindAddress:              cmp.Or(o.Listen.Profile, off),
		LeaderElection:                o.Lease != "",
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.Lease,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
		RetryPeriod:                   new(retryPeriod),
		GracefulShutdownTimeout:       new(cmp.Or(o.Grace, gracePeriod)),
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the operator: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return nil, fmt.Errorf("setting up /healthz and /readyz: %w", err)
	}
	return mgr, nil
}

func cacheNamespaces(names []string) map[string]cache.Config {
	if len(names) == 0 {
		return nil
	}
	return lists.Index(names, func(n string) (string, cache.Config) { return n, cache.Config{} })
}

// stripped returns a transform that makes a cache keep less of each T.
func stripped[T client.Object](strip func(T)) toolscache.TransformFunc {
	return func(in any) (any, error) {
		if o, ok := in.(T); ok {
			strip(o)
		}
		return in, nil
	}
}

// stripManagedFields keeps the cache small. Only ConfigMaps (whose options people own) and the cloud itself need managed fields. The others keep the
// entries that show whether an autoscaler sets the replicas.
func stripManagedFields(o client.Object) {
	o.SetManagedFields(engine.ScaleEntries(o.GetManagedFields()))
}

// stripPod keeps the parts of a pod that explain why it is not ready.
func stripPod(p *corev1.Pod) {
	p.ManagedFields = nil
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, InitContainers: stripContainers(p.Spec.InitContainers),
		Containers: stripContainers(p.Spec.Containers)}
}

// stripJob keeps the status of a Job.
func stripJob(j *batchv1.Job) { j.ManagedFields, j.Spec = nil, batchv1.JobSpec{} }

// stripContainers keeps the startup time limits of containers, and which init containers are sidecars.
func stripContainers(all []corev1.Container) []corev1.Container {
	return lists.Map(all, func(c corev1.Container) corev1.Container {
		k := corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
		if p := c.StartupProbe; p != nil {
			k.StartupProbe = &corev1.Probe{PeriodSeconds: p.PeriodSeconds, FailureThreshold: p.FailureThreshold}
		}
		return k
	})
}

// stripNode keeps the labels, addresses, age and Ready condition of a node.
func stripNode(n *corev1.Node) {
	var ready []corev1.NodeCondition
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	*n = corev1.Node{
		TypeMeta: n.TypeMeta, Status: corev1.NodeStatus{Conditions: ready, Addresses: n.Status.Addresses},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels,
			CreationTimestamp: n.CreationTimestamp},
	}
}
