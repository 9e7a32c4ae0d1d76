// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/require"
)

// toldOf returns the events so far with a reason.
func (b *bench) toldOf(reason string) []string {
	var out []string
	for {
		select {
		case e := <-b.events.Events:
			if strings.Contains(e, reason) {
				out = append(out, e)
			}
		default:
			return out
		}
	}
}

func (b *bench) editConfig(component, patch string) {
	b.t.Helper()
	require.NoError(b.t, edit(b.t, &corev1.ConfigMap{}, "default-"+component, patch)(b.api))
	b.reconcile()
}

func (b *bench) config(component string) string {
	b.t.Helper()
	s := &corev1.Secret{}
	b.get(s, "default-"+component+"-config")
	return string(s.Data[component+".conf"])
}

func TestInvalidOptionIsReportedAndChangesNothing(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.reconcile()
	b.editConfig("logger", `{"data":{"action_log_exceed_count":"10"}}`)
	good := b.config("logger")
	if !strings.Contains(good, "action_log_exceed_count: 10") {
		t.Fatal(good)
	}
	b.toldOf("")
	for _, c := range []struct{ patch, says string }{
		{`{"data":{"action_log_exceed_cuont":"20"}}`,
			`ConfigMap default-logger: option "action_log_exceed_cuont" is not known to logger; did you mean "action_log_exceed_count"?; the pods keep`},
		{`{"data":{"action_log_exceed_cuont":null,"port":"many"}}`, `ConfigMap default-logger: option "port" must be a whole number, not "many"; the pods keep`},
		{`{"data":{"enable_separate_admin_log":"[","log_level":"loud","flux":"1"}}`, `; and 2 more; the pods keep`},
	} {
		b.editConfig("logger", c.patch)
		s := b.component("logger")
		if s.State != v1alpha1.Degraded || s.Reason != status.ReasonInvalidOption || !strings.Contains(s.Message, c.says) {
			t.Errorf("%s %s: %s", s.State, s.Reason, s.Message)
		}
		if events := b.toldOf(status.ReasonInvalidOption); len(events) != 1 || !strings.Contains(events[0], "logger is Degraded") {
			t.Errorf("events %q", events)
		}
		if diff := cmp.Diff(good, b.config("logger")); diff != "" {
			t.Errorf("the pods would roll: %s", diff)
		}
		b.reconcile() // and reports it once
		if events := b.toldOf(status.ReasonInvalidOption); len(events) > 0 {
			t.Errorf("reported again: %q", events)
		}
		if s := b.component("yunionconf"); s.Reason == status.ReasonInvalidOption {
			t.Errorf("yunionconf: %s", s.Message)
		}
	}
	cm := &corev1.ConfigMap{}
	if b.get(cm, "default-logger"); cm.Data["port"] != "many" {
		t.Errorf("the edit was taken back: port %q", cm.Data["port"])
	}
	b.editConfig("logger", `{"data":{"enable_separate_admin_log":"true","log_level":"debug","port":null,"flux":null,"action_log_exceed_count":"20"}}`)
	if s := b.component("logger"); s.Reason == status.ReasonInvalidOption {
		t.Errorf("corrected, and still %s", s.Message)
	}
	for _, want := range []string{"action_log_exceed_count: 20\n", "enable_separate_admin_log: true\n", "log_level: debug\n", "port: 30999\n"} {
		if !strings.Contains(b.config("logger"), want) {
			t.Errorf("no %q", want)
		}
	}
}

// The table of options may be older than a release: a user can declare an option valid.
func TestAcceptedOption(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.reconcile()
	b.editConfig("logger", fmt.Sprintf(`{"data":{"brand_new":"1"},"metadata":{"annotations":{%q:"other, brand_new"}}}`, v1alpha1.AnnotationAcceptOptions))
	if s := b.component("logger"); s.Reason == status.ReasonInvalidOption || !strings.Contains(b.config("logger"), "brand_new: 1\n") {
		t.Errorf("%s: %s", s.Reason, s.Message)
	}
}

// In a ConfigMap older than the cloud, invalid options are ignored, and the others are used.
func TestInvalidOptionOfANewCloud(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cloudKey.Namespace, Name: "default-logger", Labels: map[string]string{
		v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cloudKey.Name, v1alpha1.LabelComponent: "logger",
	}}, Data: map[string]string{"port": "many", "log_level": "debug"}}
	b := newBench(t, interceptor.Funcs{}, newCloud())
	require.NoError(t, b.api.Create(t.Context(), cm, client.FieldOwner("kubectl-create")))
	b.reconcile()
	s := b.component("logger")
	if s.Reason != status.ReasonInvalidOption || !strings.Contains(s.Message, "it is ignored until") {
		t.Errorf("%s: %s", s.Reason, s.Message)
	}
	if text := b.config("logger"); !strings.Contains(text, "log_level: debug\n") || !strings.Contains(text, "port: 30999\n") {
		t.Error(text)
	}
}
