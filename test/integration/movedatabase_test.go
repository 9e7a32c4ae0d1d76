// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// moves tests moves of databases that fail, are cancelled or are killed.
type moves struct {
	*programs
	to       *mariadb.Server
	password string
}

// TestMoveDatabaseFails checks that, whatever fails, the cloud ends entirely on the old or entirely on the new server, with all rows.
func TestMoveDatabaseFails(t *testing.T) {
	m := &moves{programs: newPrograms(t), to: mariadb.Require(t, mariadb.Options{})}
	m.password = filepath.Join(m.dir, "password")
	require.NoError(t, os.WriteFile(m.password, []byte(m.to.RootPassword), 0o600))
	m.refused()
	m.broken()
	m.cancelled()
	m.killed()
	m.notSwitched()
	m.switched()
	m.queued()
	if os.Getenv("OCADM_SWEEP") != "" {
		m.sweep(t)
	}
}

func (m *moves) args(to *mariadb.Server) []string {
	return []string{"cluster", "move-database", "--database-host", to.Host, "--database-port", strconv.Itoa(to.Port), "--database-password-file", m.password, "--yes"}
}

// fails runs a move that must fail and returns the finding.
func (m *moves) fails(args ...string) finding.Finding {
	m.Helper()
	_, err := ocadm(m.Env, args...)
	l := finding.Of(err)
	if len(l) == 0 || l[0].Remedy == "" {
		m.Fatalf("%v", err)
	}
	return l[0]
}

// belongs fails unless the cloud runs on a server and has all its rows there.
func (m *moves) belongs(to *mariadb.Server) {
	m.Helper()
	if s := m.Cloud().Spec.MySQL; s.Host != to.Host || int(s.Port) != to.Port || s.MovedFrom != "" || m.stopped() {
		m.Errorf("it belongs to %s:%d (moved from %q), stopped %v; want port %d", s.Host, s.Port, s.MovedFrom, m.stopped(), to.Port)
	}
	m.UntilReady()
	if rows := m.SQL(to, "SELECT COUNT(*) FROM keystone.first"); rows != "2" {
		m.Errorf("%s rows", rows)
	}
}

// moved checks how the last move ended.
func (m *moves) moved(want v1alpha1.OperationPhase) {
	m.Helper()
	var last *v1alpha1.OnecloudOperation
	for _, o := range m.Operations() {
		if o.Spec.Action == v1alpha1.ActionMoveDatabase {
			last = o
		}
	}
	if last == nil || last.Status.Phase != want {
		m.Errorf("%+v, want %s", last, want)
	}
}

// refused checks that with an unreachable or unusable server nothing is stopped and no operation is created.
func (m *moves) refused() {
	m.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // only its port matters
	require.NoError(m, err)
	nobody := &mariadb.Server{Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
	require.NoError(m, l.Close())
	if f := m.fails(m.args(nobody)...); f.Code != "OCA-7401" {
		m.Errorf("%+v", f)
	}
	m.SQL(m.to, "CREATE USER weak@'%' IDENTIFIED BY '"+m.to.RootPassword+"'", "GRANT CREATE, SELECT ON *.* TO weak@'%'")
	if f := m.fails(append(m.args(m.to), "--database-user", "weak")...); f.Code != "OCA-7401" || !strings.Contains(f.Remedy+f.Cause, "GRANT") {
		m.Errorf("an account without permissions: %+v", f)
	}
	own := filepath.Join(m.dir, "own")
	require.NoError(m, os.WriteFile(own, []byte(m.DB.RootPassword), 0o600))
	alias := &mariadb.Server{Host: "localhost", Port: m.DB.Port}
	if f := m.fails(append(m.args(alias), "--database-password-file", own)...); f.Code != "OCA-7411" || !strings.Contains(f.Remedy, "movedFrom") {
		m.Errorf("the server in use: %+v", f)
	}
	for _, o := range m.Operations() {
		m.Errorf("there is operation %s", o.Name)
	}
	m.belongs(m.DB)
}

// broken checks that a copy that fails halfway is rolled back.
func (m *moves) broken() {
	m.Helper()
	m.SQL(m.DB, "CREATE TABLE keystone.large (id INT PRIMARY KEY, what LONGBLOB)", "INSERT INTO keystone.large VALUES (1, REPEAT('x', 4000000))")
	packet := m.SQL(m.to, "SELECT @@GLOBAL.max_allowed_packet")
	m.SQL(m.to, "SET GLOBAL max_allowed_packet=1048576")
	if f := m.fails(m.args(m.to)...); f.Code != "OCA-7411" || !strings.Contains(f.What, "still belongs to") {
		m.Errorf("%+v", f)
	}
	m.moved(v1alpha1.OperationReverted)
	m.belongs(m.DB)
	m.SQL(m.to, "SET GLOBAL max_allowed_packet="+packet)
}

// cancelled checks that a user can cancel a move while it copies.
func (m *moves) cancelled() {
	m.Helper()
	release := m.holding(m.DB)
	c := m.start(m.args(m.to)...)
	m.waits(m.DB)
	name := m.running(v1alpha1.ActionMoveDatabase)
	prints(m.Env, "cancelled", "operation", "cancel", name)
	if o := m.UntilOperation(name, env.Ended); o.Status.Phase != v1alpha1.OperationCancelled {
		m.Errorf("%+v", o.Status)
	}
	if err := c.Wait(); err == nil {
		m.Error("the command succeeded")
	}
	release()
	m.belongs(m.DB)
}

// killed kills a move (kill -9) while it copies. The operator starts the services on the old server.
func (m *moves) killed() {
	m.Helper()
	release := m.holding(m.DB)
	c := m.start(m.args(m.to)...)
	m.waits(m.DB)
	name := m.running(v1alpha1.ActionMoveDatabase)
	require.NoError(m, c.Process.Kill())
	release()
	if o := m.lost(name); o.Status.Phase != v1alpha1.OperationReverted {
		m.Errorf("%+v", o.Status)
	}
	m.belongs(m.DB)
}

// forbid makes the API server reject changes to clouds that violate a CEL rule.
func (m *moves) forbid(rule, message string) (allow func()) {
	m.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	policy.Name = "test-moves"
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Update},
		Rule:       admissionv1.Rule{APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"onecloudclusters"}},
	}}}}
	policy.Spec.Validations = []admissionv1.Validation{{Expression: rule, Message: message}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	binding.Name, binding.Spec.PolicyName, binding.Spec.ValidationActions = policy.Name, policy.Name, []admissionv1.ValidationAction{admissionv1.Deny}
	for _, o := range []client.Object{policy, binding} {
		require.NoError(m, m.Client.Create(m.Context(), o))
	}
	done := false
	allow = func() {
		if done {
			return
		}
		done = true
		for _, o := range []client.Object{binding, policy} {
			if err := m.Client.Delete(m.Context(), o); err != nil {
				m.Error(err)
			}
		}
	}
	m.Cleanup(allow)
	return allow
}

// tries dry-runs a patch of the cloud until the API server rejects or accepts it, because a new policy takes effect after a moment.
func (m *moves) tries(patch string, refused bool) {
	m.Helper()
	m.Eventually(func() (bool, string) {
		err := m.Client.Patch(m.Context(), m.Cloud(), client.RawPatch("application/merge-patch+json", []byte(patch)), client.DryRunAll)
		return (err != nil) == refused, "it does not follow the policy yet"
	})
}

// notSwitched checks that, if the API server rejects the switch, the services start on the old server.
func (m *moves) notSwitched() {
	m.Helper()
	other := `{"spec":{"mysql":{"port":1,"movedFrom":"` + m.DB.Host + `"}}}`
	allow := m.forbid("!has(object.spec.mysql.movedFrom)", "no moves today")
	m.tries(other, true)
	if f := m.fails(m.args(m.to)...); f.Code != "OCA-7411" || !strings.Contains(f.What, "services run on") || !strings.Contains(f.Cause, "no moves today") {
		m.Errorf("%+v", f)
	}
	m.moved(v1alpha1.OperationFailed)
	m.belongs(m.DB)
	allow()
	m.tries(other, false)
}

// switched fails a move after the resource was changed. The cloud runs on the new server, and the same command completes the move.
func (m *moves) switched() {
	m.Helper()
	allow := m.forbid("!has(oldObject.spec.mysql.movedFrom) || has(object.spec.mysql.movedFrom)", "not yet")
	m.Edit(`{"spec":{"mysql":{"movedFrom":"an earlier move"}}}`)
	m.tries(`{"spec":{"mysql":{"movedFrom":null}}}`, true)
	if f := m.fails(m.args(m.to)...); f.Code != "OCA-7411" || !strings.Contains(f.What, "runs on") {
		m.Errorf("%+v", f)
	}
	if s := m.Cloud().Spec.MySQL; int(s.Port) != m.to.Port || s.MovedFrom == "" || m.stopped() {
		m.Errorf("%+v", s)
	}
	m.UntilReady()
	allow()
	m.tries(`{"spec":{"mysql":{"movedFrom":null}}}`, false)
	prints(m.Env, "already", m.args(m.to)...)
	m.belongs(m.to)
}

// queued checks that a database created while a move waits for its turn is moved, too.
func (m *moves) queued() {
	m.Helper()
	m.Operation("held", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionBackup, Backup: &v1alpha1.BackupParameters{Place: "elsewhere"}})
	m.status("held", func(s *v1alpha1.OnecloudOperationStatus) {
		s.Runner = &v1alpha1.OperationRunner{Name: "another machine", Renewed: metav1.NowMicro()}
	})
	m.UntilOperation("held", func(o *v1alpha1.OnecloudOperation) bool { return o.Status.Phase == v1alpha1.OperationRunning })
	require.NoError(m, os.WriteFile(m.password, []byte(m.DB.RootPassword), 0o600))
	c := m.start(m.args(m.DB)...)
	m.Eventually(func() (bool, string) {
		waits := slices.ContainsFunc(m.Operations(), func(o *v1alpha1.OnecloudOperation) bool {
			return o.Spec.Action == v1alpha1.ActionMoveDatabase && o.Status.Phase == v1alpha1.OperationPending
		})
		return waits, "the move does not wait"
	})
	m.makeDatabase(m.to, "late")
	m.status("held", func(s *v1alpha1.OnecloudOperationStatus) { s.Phase = v1alpha1.OperationSucceeded })
	if err := c.Wait(); err != nil {
		m.Fatalf("%v\n%s", err, c.said.String())
	}
	m.belongs(m.DB)
	if rows := m.SQL(m.DB, "SELECT COUNT(*) FROM late.t"); rows != "2" {
		m.Errorf("%s rows", rows)
	}
}

// sweep tests the slower cases: a server whose version is too old.
func (m *moves) sweep(t *testing.T) {
	old := mariadb.Require(t, mariadb.Options{Args: []string{"--version=10.1.48-MariaDB"}, RootPassword: m.to.RootPassword})
	if f := m.fails(m.args(old)...); f.Code != "OCA-7401" || !strings.Contains(f.Cause, "too old") {
		m.Errorf("%+v", f)
	}
	m.belongs(m.DB)
}
