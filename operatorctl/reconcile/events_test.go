// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/require"
)

// reported returns the events since the last call, with their counts.
func (b *bench) reported() map[string]int {
	out := map[string]int{}
	for {
		select {
		case e := <-b.events.Events:
			out[e]++
		default:
			return out
		}
	}
}

// A transition is one event: another reconcile does not repeat it, and one with a failed status write reports nothing.
func TestEveryTransitionIsOneEvent(t *testing.T) {
	fail := false
	b := newBench(t, interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
		opts ...client.SubResourcePatchOption) error {
		if fail {
			return errors.New("the API server is gone")
		}
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}}, newCloud())
	fail = true
	if _, err := b.r.Reconcile(t.Context(), request()); err == nil {
		t.Fatal("the status was written after all")
	}
	if reported := b.reported(); len(reported) > 0 {
		t.Errorf("reported before it was written: %v", reported)
	}
	fail = false
	b.reconcile()
	if reported := b.reported(); reported["Normal Creating the cloud is Creating"] != 1 {
		t.Errorf("of a new cloud: %v", reported)
	}
	b.reconcile()
	if reported := b.reported(); len(reported) > 0 {
		t.Errorf("reported without a transition: %v", reported)
	}
}

// Each transition of a component is reported as specified.
func TestReportOfAComponent(t *testing.T) {
	in := func(s v1alpha1.State, reason string) v1alpha1.ComponentStatus {
		return v1alpha1.ComponentStatus{Name: "glance", State: s, Reason: reason, Message: "why"}
	}
	var none v1alpha1.ComponentStatus
	for _, c := range []struct {
		was, is v1alpha1.ComponentStatus
		want    string
	}{
		{none, in(v1alpha1.Waiting, "WaitingForComponents"), ""},
		{none, in(v1alpha1.Disabled, "Disabled"), ""},
		{in(v1alpha1.Waiting, "WaitingForComponents"), in(v1alpha1.Progressing, "RolloutInProgress"), ""},
		{in(v1alpha1.Progressing, "RolloutInProgress"), in(v1alpha1.Available, "Available"), "Normal Available glance is Available"},
		{in(v1alpha1.Available, "Available"), in(v1alpha1.Available, "Paused"), ""},
		{in(v1alpha1.Progressing, "RolloutInProgress"), in(v1alpha1.Idle, "NoMatchingNodes"), "Normal Idle glance is Idle: why"},
		{in(v1alpha1.Idle, "NoMatchingNodes"), in(v1alpha1.Progressing, "RolloutInProgress"), "Normal RolloutInProgress glance is Progressing: why"},
		{in(v1alpha1.Available, "Available"), in(v1alpha1.Progressing, "RolloutInProgress"), "Normal RolloutInProgress glance is Progressing: why"},
		{in(v1alpha1.Available, "Available"), in(v1alpha1.Degraded, "PodsNotRunning"), "Warning PodsNotRunning glance is Degraded: why"},
		{in(v1alpha1.Degraded, "PodsNotRunning"), in(v1alpha1.Degraded, "PodsNotRunning"), ""},
		{in(v1alpha1.Degraded, "PodsNotRunning"), in(v1alpha1.Degraded, "EffectFailed"), "Warning EffectFailed glance is Degraded: why"},
		{in(v1alpha1.Degraded, "EffectFailed"), in(v1alpha1.Progressing, "NotMade"), "Normal NotMade glance is Progressing: why"},
		{in(v1alpha1.Available, "Available"), in(v1alpha1.Disabled, "Disabled"), "Normal Disabled glance is Disabled: why"},
		{in(v1alpha1.Disabled, "Disabled"), in(v1alpha1.Waiting, "WaitingForComponents"), "Normal WaitingForComponents glance is Waiting: why"},
	} {
		var before v1alpha1.OnecloudClusterStatus
		if c.was.Name != "" {
			before.Components = []v1alpha1.ComponentStatus{c.was}
		}
		var got string
		for _, e := range transitions(before, v1alpha1.OnecloudClusterStatus{Components: []v1alpha1.ComponentStatus{c.is}}) {
			got += e.kind + " " + e.reason + " " + e.note
		}
		if got != c.want {
			t.Errorf("%s %s to %s %s: %q", c.was.State, c.was.Reason, c.is.State, c.is.Reason, got)
		}
	}
}

// An invalid spec is reported once, and again when the error changes.
func TestInvalidSpecIsReportedOnce(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	generation := 1
	set := func(spec string) {
		generation++ // the fake client does not count them
		patch := fmt.Sprintf(`{"metadata":{"generation":%d},"spec":%s}`, generation, spec)
		require.NoError(t, edit(t, &v1alpha1.OnecloudCluster{}, "default", patch)(b.api))
	}
	count := func() (n int) {
		for e, times := range b.reported() {
			if strings.Contains(e, status.ReasonInvalid) {
				n += times
			}
		}
		return n
	}
	set(`{"db_engine":"dameng"}`)
	b.reconcile()
	b.reconcile()
	if n := count(); n != 1 {
		t.Errorf("reported %d times", n)
	}
	set(`{"db_engine":null,"mysql":{"host":null}}`)
	b.reconcile()
	b.reconcile()
	if n := count(); n != 1 {
		t.Errorf("the other trouble was reported %d times", n)
	}
	if p := b.cloud().Status.Phase; p != v1alpha1.PhaseFailed {
		t.Errorf("phase %s", p)
	}
}

// statusLimit is the maximum status size of a cloud with everything enabled and the longest messages: an object in etcd may have 1.5 MiB, and every
// watcher of clouds receives all of it.
const statusLimit = 96 << 10

func TestStatusOfTheWholeCatalogueIsBounded(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	long := strings.Repeat("ünïcödé ", 2000)
	s := v1alpha1.OnecloudClusterStatus{Effects: map[string]string{}}
	for _, c := range b.r.acts.catalog.components {
		r := component.Resolved{Component: c, Enabled: true, FullImage: "registry.example.com:5000/" + strings.Repeat("p/", 60) + c.Name + ":v4.0.4", PullPolicy: "IfNotPresent"}
		cs := status.Component(status.Observed{Name: c.Name, Resolved: r, Problem: long, BlockedBy: c.After, Now: b.clock})
		s.Components = append(s.Components, cs)
		if place := s.Workload(c.StatusKey); place != nil {
			*place = status.Legacy(r, cs)
		}
		for _, effect := range append([]string{"database", "account", "endpoints", "options"}, c.Setup...) {
			s.Effects[effect+"/"+c.Name] = strings.Repeat("f", 24)
		}
	}
	out := status.Of(&v1alpha1.OnecloudCluster{Status: s}, b.clock)
	out.Summarize()
	text, err := json.Marshal(out.OnecloudClusterStatus)
	require.NoError(t, err)
	t.Logf("%d components, %d effects: %d bytes", len(s.Components), len(s.Effects), len(text))
	if len(text) > statusLimit {
		t.Errorf("the status may grow to %d bytes, limit %d", len(text), statusLimit)
	}
	if len(s.Components) < 50 || !strings.HasSuffix(s.Components[0].Message, "…") {
		t.Error("the status is not what this test means it to be")
	}
}

// The API server rejects an event with a longer note, and no user would see the event.
func TestNotesOfEventsAreNotTooLong(t *testing.T) {
	cr := newCloud()
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("no-component-%d", i))
	}
	cr.Annotations = map[string]string{v1alpha1.AnnotationPaused: strings.Join(names, ",")}
	b := newBench(t, interceptor.Funcs{}, cr)
	b.reconcile()
	told := false
	for e := range b.reported() {
		kind, rest, _ := strings.Cut(e, " ")
		reason, note, _ := strings.Cut(rest, " ")
		told = told || kind == "Warning" && reason == status.ReasonUnknownFields
		if len(note) > 1024 {
			t.Errorf("%s has %d bytes", reason, len(note))
		}
	}
	if !told {
		t.Error("the unknown components are not reported")
	}
}
