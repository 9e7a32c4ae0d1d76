// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/reconcile"
)

// instruments are the operator's own metrics, beside controller-runtime's; docs/monitoring/README.md lists them, and a test compares.
type instruments struct {
	state, condition, phase, pods, open *prometheus.GaugeVec
	renewal, expiry, audit              *prometheus.GaugeVec
	writes, effects                     *prometheus.CounterVec

	mu sync.Mutex
	// shown are the labels that change from pass to pass: what is set now, so that the next pass takes back only what differs.
	shown map[types.NamespacedName]map[*prometheus.GaugeVec]map[string]string
}

func newInstruments(reg prometheus.Registerer) *instruments {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append([]string{"namespace", "cluster"}, labels...))
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	i := &instruments{
		state:     gauge("ocadm_component_state", "1 for the state a component of a cloud is in.", "component", "state"),
		pods:      gauge("ocadm_component_pods", "Pods of a component: how many are wanted, how many are ready.", "component", "which"),
		condition: gauge("ocadm_cloud_condition", "1 where a condition of a cloud is true, 0 where it is not.", "type"),
		phase:     gauge("ocadm_cloud_phase", "1 for the phase a cloud is in.", "phase"),
		open:      gauge("ocadm_effects_open", "Effects outside Kubernetes that are not done, by state.", "state"),
		renewal:   gauge("ocadm_certificate_renewal_timestamp_seconds", "When the next certificate of a cloud is renewed."),
		expiry:    gauge("ocadm_certificate_expiry_timestamp_seconds", "When the certificate of a cloud's services, or its CA, ends.", "certificate"),
		audit:     gauge("ocadm_audit_due_timestamp_seconds", "When what lies outside Kubernetes is verified next."),
		writes:    counter("ocadm_object_writes_total", "Objects created, configured or pruned by the operator.", "kind", "action"),
		effects:   counter("ocadm_effects_total", "Effects outside Kubernetes that were tried, by target and result.", "target", "result"),
		shown:     map[types.NamespacedName]map[*prometheus.GaugeVec]map[string]string{},
	}
	for _, c := range i.all() {
		// Two operators in one process (tests) share a registry; the second one's metrics are then its own.
		_ = reg.Register(c)
	}
	return i
}

func (i *instruments) all() []prometheus.Collector {
	return []prometheus.Collector{i.state, i.pods, i.condition, i.phase, i.open, i.renewal, i.expiry, i.audit, i.writes, i.effects}
}

// registry is controller-runtime's, served at /metrics.
func registry() prometheus.Registerer { return metrics.Registry }

// Effect counts an effect that was tried.
func (i *instruments) Effect(o effects.Outcome) {
	switch {
	case o.Changed:
		i.effects.WithLabelValues(string(o.Effect.Target), "changed").Inc()
	case o.State == effects.Failed:
		i.effects.WithLabelValues(string(o.Effect.Target), "failed").Inc()
	}
}

// Reconciled shows what a reconcile did and left undone.
func (i *instruments) Reconciled(s reconcile.Summary) {
	i.changes(s.Changes)
	i.due(i.renewal, s.Cloud, s.RenewAt)
	i.due(i.audit, s.Cloud, s.AuditAt)
	i.ends(s.Cloud, s.Cloud.Status.Certificates)
	i.openEffects(s.Cloud, s.Effects)
}

func (i *instruments) changes(list []engine.Change) {
	for _, c := range list {
		if c.Action != engine.Unchanged && c.Action != "" {
			i.writes.WithLabelValues(c.Kind, string(c.Action)).Inc()
		}
	}
}

// openEffects counts what a pass left undone.
func (i *instruments) openEffects(cr *v1alpha1.OnecloudCluster, outcomes []effects.Outcome) {
	count := map[effects.State]int{effects.Pending: 0, effects.Failed: 0}
	for _, o := range outcomes {
		if o.State != effects.Done {
			count[o.State]++
		}
	}
	for state, n := range count {
		i.open.WithLabelValues(cr.Namespace, cr.Name, string(state)).Set(float64(n))
	}
}

// due tells when something happens next; the zero time is not told.
func (i *instruments) ends(cr *v1alpha1.OnecloudCluster, certs v1alpha1.CertificatesStatus) {
	for name, at := range map[string]metav1.Time{"service": certs.NotAfter, "ca": certs.CANotAfter} {
		if !at.IsZero() {
			i.expiry.WithLabelValues(cr.Namespace, cr.Name, name).Set(float64(at.Unix()))
		}
	}
}

func (i *instruments) due(g *prometheus.GaugeVec, cr *v1alpha1.OnecloudCluster, at time.Time) {
	if !at.IsZero() {
		g.WithLabelValues(cr.Namespace, cr.Name).Set(float64(at.Unix()))
	}
}

// Status shows the status of a cloud.
func (i *instruments) Status(cr *v1alpha1.OnecloudCluster) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range cr.Status.Conditions {
		value := 0.0
		if c.Status == metav1.ConditionTrue {
			value = 1
		}
		i.condition.WithLabelValues(cr.Namespace, cr.Name, c.Type).Set(value)
	}
	i.one(i.phase, cr, "", string(cr.Status.Phase))
	for _, c := range cr.Status.Components {
		i.one(i.state, cr, c.Name, string(c.State))
		if c.State == v1alpha1.Disabled {
			for _, which := range []string{"wanted", "ready"} { // a match of some labels would look at every series, in every pass
				i.pods.DeleteLabelValues(cr.Namespace, cr.Name, c.Name, which)
			}
			continue
		}
		i.pods.WithLabelValues(cr.Namespace, cr.Name, c.Name, "wanted").Set(float64(c.Replicas))
		i.pods.WithLabelValues(cr.Namespace, cr.Name, c.Name, "ready").Set(float64(c.Ready))
	}
}

// one sets the series of one value of a label and removes that of the value before. "" is no value.
func (i *instruments) one(g *prometheus.GaugeVec, cr *v1alpha1.OnecloudCluster, what, value string) {
	key := types.NamespacedName{Namespace: cr.Namespace, Name: cr.Name}
	if i.shown[key] == nil {
		i.shown[key] = map[*prometheus.GaugeVec]map[string]string{}
	}
	if i.shown[key][g] == nil {
		i.shown[key][g] = map[string]string{}
	}
	was, shown := i.shown[key][g][what]
	if shown && was == value {
		return
	}
	labels := func(v string) []string {
		l := []string{cr.Namespace, cr.Name}
		if what != "" {
			l = append(l, what)
		}
		return append(l, v)
	}
	if shown {
		g.DeleteLabelValues(labels(was)...)
		delete(i.shown[key][g], what)
	}
	if value != "" {
		g.WithLabelValues(labels(value)...).Set(1)
		i.shown[key][g][what] = value
	}
}

// Gone takes back everything about a cloud that is gone.
func (i *instruments) Gone(namespace, name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.shown, types.NamespacedName{Namespace: namespace, Name: name})
	for _, g := range []*prometheus.GaugeVec{i.state, i.pods, i.condition, i.phase, i.open, i.renewal, i.expiry, i.audit} {
		g.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "cluster": name})
	}
}
