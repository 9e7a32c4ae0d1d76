// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/reconcile"
)

// instruments holds the operator's own metrics; docs/monitoring/README.md lists them, and a test compares. Those that come from a status are read
// from the cache at each scrape.
type instruments struct {
	// list reads all clouds, operations or machines from the cache, unless without has them.
	list    func(client.ObjectList) error
	without lacking
	// certificates reads the reports on control-plane certificates from the cache, for the clouds of a namespace.
	certificates func(namespace string) map[string]certreport.Report

	state, condition, phase, pods, open *prometheus.Desc
	operation, machine, paused          *prometheus.Desc
	renewal, expiry, audit              *prometheus.Desc
	proven, nodeExpiry                  *prometheus.Desc
	writes, effects                     *prometheus.CounterVec

	mu   sync.Mutex
	last map[types.NamespacedName]reconcile.Summary
}

func newInstruments(list func(client.ObjectList) error, without lacking, certificates func(namespace string) map[string]certreport.Report) *instruments {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"namespace", "cluster"}, labels...), nil)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &instruments{
		list: list, without: without, certificates: certificates,
		operation: gauge("ocadm_operation_phase", "1 for the phase an operation is in.", "operation", "action", "phase"),
		machine:   gauge("ocadm_machine_phase", "1 for the phase a machine is in.", "machine", "phase"),
		state:     gauge("ocadm_component_state", "1 for the state a component of a cloud is in.", "component", "state"),
		pods:      gauge("ocadm_component_pods", "Pods of a component, desired and ready.", "component", "which"),
		condition: gauge("ocadm_cloud_condition", "1 if a condition of a cloud is true, 0 if it is false, absent if it is unknown.", "type"),
		proven:    gauge("ocadm_backup_proven_age_seconds", "Age of the latest proven backup of a cloud."),
		phase:     gauge("ocadm_cloud_phase", "1 for the phase a cloud is in.", "phase"),
		paused:    gauge("ocadm_cloud_paused", "1 for a cloud that is paused or stopped as a whole."),
		open:      gauge("ocadm_effects_open", "Pending and failed effects outside Kubernetes, by state.", "state"),
		renewal:   gauge("ocadm_certificate_renewal_timestamp_seconds", "When the next certificate of a cloud is renewed."),
		expiry:    gauge("ocadm_certificate_expiry_timestamp_seconds", "When the certificate of a cloud's services, or its CA, expires.", "certificate"),
		nodeExpiry: gauge("ocadm_node_certificate_expiry_timestamp_seconds", "When a certificate of a control-plane node expires, if the operator manages them.",
			"node", "certificate"),
		audit:   gauge("ocadm_audit_due_timestamp_seconds", "When the effects outside Kubernetes are verified next."),
		writes:  counter("ocadm_object_writes_total", "Objects created, configured or pruned by the operator.", "kind", "action"),
		effects: counter("ocadm_effects_total", "Attempts at effects outside Kubernetes, by target and result.", "target", "result"),
		last:    map[types.NamespacedName]reconcile.Summary{},
	}
}

// register adds the metrics to controller-runtime's registry, which is served at /metrics. With several operators in one process (tests), the last
// one's are served.
func (i *instruments) register() error {
	err := metrics.Registry.Register(i)
	if taken, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		metrics.Registry.Unregister(taken.ExistingCollector)
		err = metrics.Registry.Register(i)
	}
	return err
}

// Describe lists the metrics.
func (i *instruments) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{i.state, i.pods, i.condition, i.phase, i.paused, i.operation, i.machine, i.open, i.renewal, i.expiry, i.audit, i.proven, i.nodeExpiry} {
		ch <- d
	}
	i.writes.Describe(ch)
	i.effects.Describe(ch)
}

// Collect reports the metrics of all clouds.
func (i *instruments) Collect(ch chan<- prometheus.Metric) {
	i.writes.Collect(ch)
	i.effects.Collect(ch)
	var all v1alpha1.OnecloudClusterList
	var operations v1alpha1.OnecloudOperationList
	var machines v1alpha1.OnecloudMachineList
	if i.list(&all) != nil || !i.without.operations && i.list(&operations) != nil || !i.without.machines && i.list(&machines) != nil {
		return // the cache is not ready
	}
	for _, o := range operations.Items {
		if o.Status.Phase != "" {
			ch <- prometheus.MustNewConstMetric(i.operation, prometheus.GaugeValue, 1, o.Namespace, o.Spec.Cloud, o.Name, o.Spec.Action, string(o.Status.Phase))
		}
	}
	for _, m := range machines.Items {
		if m.Status.Phase != "" {
			ch <- prometheus.MustNewConstMetric(i.machine, prometheus.GaugeValue, 1, m.Namespace, m.Spec.Cloud, m.Name, string(m.Status.Phase))
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for n := range all.Items {
		i.collect(&all.Items[n], ch)
		i.collectNodes(&all.Items[n], ch)
	}
}

// collectNodes reports the control-plane certificates that the operator manages for a cloud. A name that occurs twice in a damaged report would make the
// whole scrape fail.
func (i *instruments) collectNodes(cr *v1alpha1.OnecloudCluster, ch chan<- prometheus.Metric) {
	for node, r := range i.certificates(cr.Namespace) {
		ends := map[string]time.Time{}
		for _, c := range r.Certificates {
			ends[c.Name] = wait.Earliest(ends[c.Name], c.Ends)
		}
		for name, at := range ends {
			if !at.IsZero() {
				ch <- prometheus.MustNewConstMetric(i.nodeExpiry, prometheus.GaugeValue, float64(at.Unix()), cr.Namespace, cr.Name, node, name)
			}
		}
	}
}

func (i *instruments) collect(cr *v1alpha1.OnecloudCluster, ch chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{cr.Namespace, cr.Name}, labels...)...)
	}
	at := func(d *prometheus.Desc, t time.Time, labels ...string) {
		if !t.IsZero() {
			set(d, float64(t.Unix()), labels...)
		}
	}
	for _, c := range cr.Status.Conditions {
		if c.Status == metav1.ConditionUnknown {
			continue
		}
		value := 0.0
		if c.Status == metav1.ConditionTrue {
			value = 1
		}
		set(i.condition, value, c.Type)
	}
	if cr.Status.Phase != "" {
		set(i.phase, 1, string(cr.Status.Phase))
	}
	paused, _ := v1alpha1.Paused(cr.Annotations[v1alpha1.AnnotationPaused])
	if paused {
		set(i.paused, 1)
	}
	components := cr.Status.Components
	if !cr.DeletionTimestamp.IsZero() {
		components = nil // they are no longer observed
	}
	for _, c := range components {
		set(i.state, 1, c.Name, string(c.State))
		if c.State != v1alpha1.Disabled && c.State != v1alpha1.Idle { // no node takes the pods of an Idle one
			set(i.pods, float64(c.Replicas), c.Name, "wanted")
			set(i.pods, float64(c.Ready), c.Name, "ready")
		}
	}
	if b := cr.Status.Backups; b != nil && !b.Proven.IsZero() {
		set(i.proven, time.Since(b.Proven.Time).Seconds())
	}
	at(i.expiry, cr.Status.Certificates.NotAfter.Time, "service")
	at(i.expiry, cr.Status.Certificates.CANotAfter.Time, "ca")
	at(i.renewal, cr.Status.Certificates.RenewAt.Time)
	if last, known := i.last[client.ObjectKeyFromObject(cr)]; known && !paused && cr.DeletionTimestamp.IsZero() { // otherwise nothing is attempted
		at(i.audit, last.AuditAt)
		for _, state := range []effects.State{effects.Pending, effects.Failed} {
			set(i.open, float64(last.Open[state]), string(state))
		}
	}
}

// Effect counts an attempted effect.
func (i *instruments) Effect(o effects.Outcome) {
	switch {
	case o.Changed:
		i.effects.WithLabelValues(string(o.Effect.Target), "changed").Inc()
	case o.State == effects.Failed:
		i.effects.WithLabelValues(string(o.Effect.Target), "failed").Inc()
	}
}

// Reconciled counts the writes of a reconcile, and keeps the rest of its summary.
func (i *instruments) Reconciled(cloud types.NamespacedName, s reconcile.Summary) {
	for _, c := range s.Changes {
		i.writes.WithLabelValues(c.Kind, string(c.Action)).Inc()
	}
	s.Changes = nil
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last[cloud] = s
}

// Gone drops the state of a deleted cloud.
func (i *instruments) Gone(cloud types.NamespacedName) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.last, cloud)
}
