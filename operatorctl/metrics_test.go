// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/reconcile"
	"yunion.io/x/ocadm/test/require"
)

var descName = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

// TestMetricsAreDocumented compares the registered metrics with docs/monitoring/README.md: names and labels of ours, names of the libraries'.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/monitoring/README.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\|([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = m[3]
	}
	descs := make(chan *prometheus.Desc, 100)
	newInstruments(nil, lacking{}, nil).Describe(descs)
	close(descs)
	for d := range descs {
		m := descName.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatal("a metric that cannot be read")
		}
		labels, known := documented[m[1]]
		if want := "`" + strings.ReplaceAll(m[2], ",", "`, `") + "`"; !known || strings.TrimSpace(labels) != want {
			t.Errorf("%s: documented labels %q, registered %q", m[1], labels, want)
		}
		delete(documented, m[1])
	}
	for name := range documented {
		if strings.HasPrefix(name, "ocadm_") {
			t.Errorf("%s is documented and does not exist", name)
			continue
		}
		// The library's registry does not list names, but rejects a taken one.
		probe := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: "?"})
		if metrics.Registry.Register(probe) == nil {
			metrics.Registry.Unregister(probe)
			t.Errorf("%s is documented, and no library registers it", name)
		}
	}
}

// attempted reports whether a series is about what the operator tries again: in a paused cloud, and in one that goes, it tries nothing.
func attempted(series string) bool {
	return strings.HasPrefix(series, "ocadm_audit_due") || strings.HasPrefix(series, "ocadm_effects_open")
}

// A scrape shows the current state of clouds, and nothing of a deleted one.
func TestMetricsFollowTheStatus(t *testing.T) {
	cr := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cr).Build()
	i := newInstruments(func(all client.ObjectList) error { return c.List(t.Context(), all) }, lacking{}, func(string) map[string]certreport.Report { return nil })
	op := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "check-1"},
		Spec:   v1alpha1.OnecloudOperationSpec{Cloud: "c", Action: v1alpha1.ActionCheck},
		Status: v1alpha1.OnecloudOperationStatus{Phase: v1alpha1.OperationRunning}}
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "worker-1"},
		Spec: v1alpha1.OnecloudMachineSpec{Cloud: "c"}, Status: v1alpha1.OnecloudMachineStatus{Phase: v1alpha1.MachineFailed}}
	for _, o := range []client.Object{op, m} {
		require.NoError(t, c.Create(t.Context(), o))
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(i)
	set := func(phase v1alpha1.Phase, state v1alpha1.State, ready metav1.ConditionStatus) {
		t.Helper()
		cr.Status.Phase = phase
		cr.Status.Components = []v1alpha1.ComponentStatus{{Name: "glance", State: state, Replicas: 2, Ready: 1}}
		cr.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: ready}}
		cr.Status.Certificates.RenewAt = metav1.Unix(5, 0)
		require.NoError(t, c.Update(t.Context(), cr))
	}
	shown := func() []string {
		families, err := reg.Gather()
		require.NoError(t, err)
		var out []string
		for _, f := range families {
			for _, m := range f.GetMetric() {
				text := f.GetName()
				for _, l := range m.GetLabel() {
					if l.GetName() != "namespace" && l.GetName() != "cluster" {
						text += " " + l.GetValue()
					}
				}
				out = append(out, text+" "+strings.TrimSuffix(m.GetGauge().String(), " ")[len("value:"):])
			}
		}
		slices.Sort(out)
		return out
	}
	set(v1alpha1.PhaseCreating, v1alpha1.Progressing, metav1.ConditionFalse)
	set(v1alpha1.PhaseRunning, v1alpha1.Available, metav1.ConditionTrue)
	const renewal = "ocadm_certificate_renewal_timestamp_seconds 5"
	if s := shown(); !slices.Contains(s, renewal) { // the alert must survive a restart of the operator
		t.Errorf("before the first reconciliation: %q", s)
	}
	i.Reconciled(client.ObjectKeyFromObject(cr), reconcile.Summary{Open: map[effects.State]int{effects.Failed: 2}, AuditAt: time.Unix(7, 0)})
	want := []string{
		"ocadm_audit_due_timestamp_seconds 7", renewal, "ocadm_cloud_condition Ready 1", "ocadm_cloud_phase Running 1",
		"ocadm_component_pods glance ready 1", "ocadm_component_pods glance wanted 2", "ocadm_component_state glance Available 1",
		"ocadm_effects_open failed 2", "ocadm_effects_open pending 0", "ocadm_machine_phase worker-1 Failed 1",
		"ocadm_operation_phase Check check-1 Running 1",
	}
	if d := cmp.Diff(want, shown()); d != "" {
		t.Error(d)
	}
	cr.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true"}
	set(v1alpha1.PhaseRunning, v1alpha1.Disabled, metav1.ConditionTrue)
	if s := shown(); !slices.Contains(s, "ocadm_cloud_paused 1") || !slices.Contains(s, renewal) || slices.ContainsFunc(s, attempted) {
		t.Errorf("a paused cloud: %q", s)
	}
	if s := shown(); slices.ContainsFunc(s, func(l string) bool { return strings.HasPrefix(l, "ocadm_component_pods") }) {
		t.Errorf("a disabled component has pods: %q", s)
	}
	set(v1alpha1.PhaseRunning, v1alpha1.Idle, metav1.ConditionTrue)
	if s := shown(); slices.ContainsFunc(s, func(l string) bool { return strings.HasPrefix(l, "ocadm_component_pods") }) {
		t.Errorf("a component without a node misses pods: %q", s) // OcadmPodsMissing would never end
	}
	cr.Annotations, cr.Finalizers = nil, []string{v1alpha1.Finalizer}
	set(v1alpha1.PhaseDeleting, v1alpha1.Available, metav1.ConditionFalse)
	for _, o := range []client.Object{cr, op, m} {
		require.NoError(t, c.Delete(t.Context(), o))
	}
	gone := func(series string) bool { return attempted(series) || strings.HasPrefix(series, "ocadm_component") } // components are no longer observed
	if s := shown(); !slices.Contains(s, "ocadm_cloud_phase Deleting 1") || slices.ContainsFunc(s, gone) {
		t.Errorf("a cloud that is being deleted: %q", s)
	}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cr), cr))
	cr.Finalizers = nil
	require.NoError(t, c.Update(t.Context(), cr))
	i.Gone(client.ObjectKeyFromObject(cr))
	if s := shown(); len(s) > 0 || len(i.last) > 0 {
		t.Errorf("left of a cloud that is gone: %q", s)
	}
}

// A damaged report of certificates does not cost the operator all its metrics.
func TestMetricsOfADamagedReport(t *testing.T) {
	cr := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cr).Build()
	twice := certreport.Report{Certificates: []certreport.Certificate{{Name: "apiserver", Ends: time.Unix(9, 0)}, {Name: "apiserver", Ends: time.Unix(5, 0)}, {Name: "no end"}}}
	i := newInstruments(func(all client.ObjectList) error { return c.List(t.Context(), all) }, lacking{operations: true, machines: true},
		func(string) map[string]certreport.Report { return map[string]certreport.Report{"node1": twice} })
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(i)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 || families[0].GetMetric()[0].GetGauge().GetValue() != 5 {
		t.Errorf("%v, %v", families, err)
	}
}
