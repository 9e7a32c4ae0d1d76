// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// instruments are the operator's own metrics, beside controller-runtime's; docs/cloud.md lists them.
type instruments struct {
	state   *prometheus.GaugeVec
	writes  *prometheus.CounterVec
	effects *prometheus.CounterVec
	expiry  *prometheus.GaugeVec
}

func newInstruments(reg prometheus.Registerer) *instruments {
	i := &instruments{
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ocadm_component_state", Help: "1 for the state a component of a cloud is in.",
		}, []string{"namespace", "cluster", "component", "state"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ocadm_object_writes_total", Help: "Objects created, configured or pruned by the operator.",
		}, []string{"kind", "action"}),
		effects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ocadm_effects_total", Help: "Effects outside Kubernetes that were tried, by target and result.",
		}, []string{"target", "result"}),
		expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ocadm_certificate_renewal_timestamp_seconds", Help: "When the next certificate of a cloud is renewed.",
		}, []string{"namespace", "cluster"}),
	}
	for _, c := range []prometheus.Collector{i.state, i.writes, i.effects, i.expiry} {
		// Two operators in one process (tests) share a registry; the second one's metrics are then its own.
		_ = reg.Register(c)
	}
	return i
}

// registry is controller-runtime's, served at /metrics.
func registry() prometheus.Registerer { return metrics.Registry }

func (i *instruments) effect(o effects.Outcome) {
	switch {
	case o.Changed:
		i.effects.WithLabelValues(string(o.Effect.Target), "changed").Inc()
	case o.State == effects.Failed:
		i.effects.WithLabelValues(string(o.Effect.Target), "failed").Inc()
	}
}

func (i *instruments) changes(list []engine.Change) {
	for _, c := range list {
		if c.Action != engine.Unchanged && c.Action != "" {
			i.writes.WithLabelValues(c.Kind, string(c.Action)).Inc()
		}
	}
}

func (i *instruments) states(cr *v1alpha1.OnecloudCluster) {
	i.forget(cr.Namespace, cr.Name)
	for _, c := range cr.Status.Components {
		i.state.WithLabelValues(cr.Namespace, cr.Name, c.Name, string(c.State)).Set(1)
	}
}

func (i *instruments) forget(namespace, name string) {
	i.state.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "cluster": name})
}
