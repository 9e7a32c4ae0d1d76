// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// upon returns a Watcher that calls a function at the first line with the given words.
func upon(words string, do func()) said {
	return func(line string) {
		if strings.Contains(line, words) && do != nil {
			do()
			do = nil
		}
	}
}

// saved makes a backup in a directory, and a set of copies of databases.
func (e env) saved(databases ...string) (v Vault, dir Dir, info Info, set Saved) {
	e.Helper()
	v, dir = Vault{Admin: e.admin, CloudID: cloud.ID}, Dir(e.TempDir())
	p := e.plan(dir)
	p.SkipProof = true
	info, err := p.Run(e.Context(), workflow.Discard{})
	require.NoError(e, err)
	if set, err = v.Save(e.Context(), "b1", "one", databases, workflow.Discard{}); err != nil {
		e.Fatal(err)
	}
	return v, dir, info, set
}

// TestReplacingOneAtATime checks that a restore, a copy back and a removal wait while another program replaces databases, report which one, and change nothing.
func TestReplacingOneAtATime(t *testing.T) {
	e := setUp(t)
	v, dir, info, set := e.saved("keystone")
	_, release, err := Replacing(t.Context(), workflow.Discard{}, open(t, server, cloud))
	require.NoError(t, err)
	e.run("INSERT INTO keystone.user VALUES (7, 'new')")
	for what, do := range map[string]func(context.Context, Watcher) error{
		"restore": func(ctx context.Context, w Watcher) error {
			_, err := restored(ctx, w, dir, info, e.admin)
			return err
		},
		"copy back": func(ctx context.Context, w Watcher) error { return v.Restore(ctx, w, set, []string{"keystone"}) },
		"move": func(ctx context.Context, w Watcher) error {
			_, err := Copy(ctx, w, e.admin, e.admin, []string{"keystone"})
			return err
		},
		"empty": func(ctx context.Context, w Watcher) error { return Empty(ctx, w, e.admin, []string{"keystone"}) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		waited := false
		err := do(ctx, upon("waiting: another run (connection", func() { waited = true; cancel() }))
		cancel()
		if mysql.ClassOf(err) != mysql.Canceled || !waited {
			t.Errorf("%s: %v, waited: %v", what, err, waited)
		}
	}
	if n := strings.TrimSpace(e.run("SELECT COUNT(*) FROM keystone.user")); n != "3" {
		t.Errorf("something was replaced: %s users", n)
	}
	another := open(t, server, Cloud{Namespace: "onecloud", Name: "other", ID: "id-2"})
	if _, end, err := Replacing(t.Context(), workflow.Discard{}, another); err != nil {
		t.Errorf("another cloud: %v", err)
	} else {
		end()
	}
	release()
	if err := v.Restore(t.Context(), workflow.Discard{}, set, []string{"keystone"}); err != nil {
		t.Error(err)
	}
}

// TestReplacingEndsWithItsLock checks that a program that loses the lock half-way drops and fills nothing more, at any step.
func TestReplacingEndsWithItsLock(t *testing.T) {
	e := setUp(t)
	v, dir, info, set := e.saved("keystone", "report")
	const lost = "another run may hold it now"
	// As the server does with a connection that was silent for too long. The next program has the databases then.
	overtaken := func() {
		e.run("KILL IS_USED_LOCK('" + replacingPrefix + digest([]byte(cloud.ID))[:8] + "')")
	}
	held, release, err := Replacing(t.Context(), workflow.Discard{}, e.admin)
	require.NoError(t, err)
	overtaken()
	for what, do := range map[string]func(Watcher) error{
		"drop": func(w Watcher) error { return Empty(t.Context(), w, held, []string{"keystone"}) },
		"copy back": func(w Watcher) error {
			return Vault{Admin: held, CloudID: cloud.ID}.Restore(t.Context(), w, set, []string{"keystone"})
		},
	} {
		if err := do(workflow.Discard{}); err == nil || !strings.Contains(err.Error(), lost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	release()
	if n := strings.TrimSpace(e.run("SELECT COUNT(*) FROM keystone.user")); n != "2" {
		t.Errorf("something was replaced: %s users", n)
	}
	// Half-way through loading: keystone is loaded, report is not.
	err = v.Restore(t.Context(), upon("database "+set.Copy("report"), overtaken), set, []string{"keystone", "report"})
	if err == nil || !strings.Contains(err.Error(), lost) {
		t.Errorf("loading copies: %v", err)
	}
	_, err = restored(t.Context(), upon("comparing", overtaken), dir, info, e.admin)
	if err == nil || !strings.Contains(err.Error(), lost) || errors.Is(err, ErrDamaged) {
		t.Errorf("finishing a restore: %v", err)
	}
	if err := v.Restore(t.Context(), workflow.Discard{}, set, []string{"keystone", "report"}); err != nil {
		t.Errorf("the next one: %v", err)
	}
}
