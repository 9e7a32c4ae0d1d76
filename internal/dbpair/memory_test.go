// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// Only a later record of the same Lease replaces the memory. A record of another Lease always replaces it, because it belongs to another pair.
func TestMemoryAfter(t *testing.T) {
	was := memory{Lease: "u", Known: Known{Primary: First, InSync: Second, Term: 4}}
	for name, c := range map[string]struct {
		lease string
		r     Record
		want  Known
	}{
		"the same":                  {"u", Record{Primary: First, InSync: Second, Term: 4}, was.Known},
		"a later one":               {"u", Record{Primary: Second, Term: 5}, Known{Primary: Second, Term: 5}},
		"an older one":              {"u", Record{Primary: Second, Term: 3}, was.Known},
		"another one of the term":   {"u", Record{Primary: Second, Term: 4}, was.Known},
		"of an earlier ocadm":       {"u", Record{Primary: First, Term: 4}, Known{Primary: First, Term: 4}},
		"one that is not settled":   {"u", Record{Primary: Second, Term: 9, Unsettled: Restored}, was.Known},
		"one that names no server":  {"u", Record{Primary: "ocadm-mysql-1", Term: 5}, was.Known},
		"that of another pair":      {"v", Record{Primary: Second, Term: 1}, Known{Primary: Second, Term: 1}},
		"a new one of another pair": {"v", Record{Primary: First}, Known{}},
	} {
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{UID: "v"}}
		if c.lease == "u" {
			lease.UID = "u"
		}
		if got := was.after(lease.UID, c.r).of(lease.UID); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestMemoryIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "primary.json")
	if m, err := recall(file); err != nil || m != (memory{}) {
		t.Errorf("a new volume: %+v, %v", m, err)
	}
	want := memory{Lease: "u", Known: Known{Primary: Second, InSync: First, Term: 4}}
	require.NoError(t, want.save(file))
	if err := os.WriteFile(file+".new", []byte("{"), 0o600); err != nil { // a later one that was not written completely
		t.Fatal(err)
	}
	if m, err := recall(file); err != nil || m != want {
		t.Errorf("%+v, %v", m, err)
	}
	for _, damaged := range []string{"", "{", `{"lease":"u","known":{"primary":"other","term":4}}`} {
		require.NoError(t, os.WriteFile(file, []byte(damaged), 0o600))
		if m, err := recall(file); err == nil {
			t.Errorf("%q passes for %+v", damaged, m)
		}
	}
}

// agentOn returns an agent without a server, with a record in its Lease.
func agentOn(t *testing.T, r Record, update func() error) (*Agent, *coordinationv1.Lease) {
	t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: RecordName, UID: "u"}}
	r.Write(l)
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(l).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := update(); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
	}).Build()
	return New(Config{Me: First, Namespace: "onecloud", Kube: c, Limits: DefaultLimits(), Files: Files{Dir: t.TempDir()}, Log: slog.New(slog.DiscardHandler)}), l
}

// Only what was written to the Lease is remembered. Otherwise a lost write would leave a memory later than the record, as if etcd had gone back.
func TestNoMemoryOfLostWrites(t *testing.T) {
	lost := errors.New("lost")
	a, _ := agentOn(t, Record{Primary: First, InSync: Second, Term: 4}, func() error { return lost })
	k := &a.keeper
	if !k.read(t.Context()) || k.unkept != nil {
		t.Fatal(k.unkept)
	}
	if err := k.write(t.Context(), Record{Primary: First, Term: 5}); !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
	if m, err := recall(k.file); err != nil || m.Known != (Known{Primary: First, InSync: Second, Term: 4}) {
		t.Errorf("%+v, %v", m, err)
	}
	lost = nil
	if err := k.write(t.Context(), Record{Primary: First, Term: 5}); err != nil {
		t.Error(err)
	}
	if m, err := recall(k.file); err != nil || m.Known != (Known{Primary: First, Term: 5}) {
		t.Errorf("%+v, %v", m, err)
	}
}

// The agent does not act on a record that it cannot keep, gives the other agent no answer that a power failure could undo, and reports why.
func TestRecordIsNotKept(t *testing.T) {
	a, l := agentOn(t, Record{Primary: First, InSync: Second, Term: 4}, func() error { return nil })
	files := &a.local.files
	files.Dir = filepath.Join(files.Dir, "missing")
	a.keeper.file = files.memory()
	v := a.look(t.Context())
	if d := Decide(v); v.Reached || v.Unkept == "" || d.Act != Wait || d.Why != v.Unkept {
		t.Errorf("%+v: %+v", v, d)
	}
	m := Member{}
	a.keeper.record.Unsettled = Restored
	a.keeper.confess(&m)
	if m.Error == "" || m.Seen != "" {
		t.Errorf("%+v", m)
	}
	err := a.follow(t.Context(), v.Server, Decision{Act: StartPrimary, Write: &Record{Primary: First, Term: 5}})
	if !errors.Is(err, fs.ErrNotExist) || a.local.mode != Stopped {
		t.Errorf("acted without a memory: %s, %v", a.local.mode, err)
	}
	require.NoError(t, os.Mkdir(files.Dir, 0o700))
	if v := a.look(t.Context()); !v.Reached || v.Unkept != "" || v.Known.Term != 5 {
		t.Errorf("%+v", v)
	}
	a.keeper.record.Unsettled, m = Restored, Member{}
	if a.keeper.confess(&m); m.Seen == "" || m.Known.Term != 5 || m.Error != "" {
		t.Errorf("%+v, %s", m, l.ResourceVersion)
	}
}
