// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/agekey"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// saved tests a cloud that is backed up, restored and moved.
type saved struct {
	*cloudTest
	dir, key string
}

const alice, alicesPassword = "alice", "Open-Sesame-1"

// TestBackup takes one cloud through a backup, a restore in place, a restore in another namespace with another database server after everything was
// deleted, and a move of its databases. The same user logs in with the same password each time.
func TestBackup(t *testing.T) {
	e := newCloudTest(t, env.Options{Workloads: env.Programs})
	e.deployment()
	e.Install(e.Only("keystone", "region", "glance", "yunionconf", "web"))
	s := &saved{cloudTest: e, dir: t.TempDir()}
	key, id := agekey.Write(t, s.dir)
	s.key = key
	c, snapshot := e.identity()
	if _, _, err := c.EnsureUser(t.Context(), snapshot, alice, alicesPassword); err != nil {
		t.Fatal(err)
	}
	s.SQL(e.DB, "CREATE TABLE keystone.kept (id INT PRIMARY KEY, name VARCHAR(20))", "INSERT INTO keystone.kept VALUES (1, 'one'), (2, 'two')")
	prints(e.Env, "", "component", "options", "set", "glance", "log_level=debug")
	info := s.create(id)
	_, before := s.Databases(e.DB)

	s.inPlace(info, before)
	second := s.elsewhere(info, before, id)
	s.move(second, before)
}

// create makes a backup while the cloud is running.
func (s *saved) create(id *age.X25519Identity) backup.Info {
	s.Helper()
	if out, err := ocadm(s.Env, "cluster", "backup", "create", "--to", s.dir); err == nil {
		s.Fatalf("a backup without a recipient: %s", out)
	}
	out, err := ocadm(s.Env, "cluster", "backup", "create", "--to", s.dir, "--recipient", id.Recipient().String(), "-o", "json")
	require.NoError(s, err)
	var list []backup.Info
	require.NoError(s, json.Unmarshal([]byte(out), &list))
	if len(list) != 1 || list[0].Proven == nil || !list[0].Encrypted || list[0].Version != "v4.0.4" || !slices.Contains(list[0].Databases, "keystone") {
		s.Errorf("%s", out)
	}
	prints(s.Env, "proven", "cluster", "backup", "list", "--in", s.dir)
	s.known(list[0])
	return list[0]
}

// known waits until the operator reports the proven backup, no longer reports it, and reports it again after another proof.
func (s *saved) known(info backup.Info) {
	s.Helper()
	is := func(status metav1.ConditionStatus, reason string) func(*v1alpha1.OnecloudCluster) bool {
		return func(cr *v1alpha1.OnecloudCluster) bool {
			c := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionBackupProven)
			return c != nil && c.Status == status && c.Reason == reason
		}
	}
	s.UntilCloud(is(metav1.ConditionTrue, "Proven"))
	if b := s.Cloud().Status.Backups; b == nil || b.Name != info.Name || !b.Proven.Time.Equal(b.Last.Time) {
		s.Errorf("status.backups: %+v", b)
	}
	prints(s.Env, info.Name, "cluster", "backup", "list")
	s.EditObject(&corev1.ConfigMap{}, backup.HistoryName, `{"data":{"backups.json":"[{\"time\":\"2026-01-02T03:04:05Z\",\"error\":\"no room\"}]"}}`)
	s.UntilCloud(is(metav1.ConditionUnknown, "Failed")) // no schedule requires backups
	prints(s.Env, "failed: no room", "cluster", "backup", "list")
	prints(s.Env, "every table matches", "cluster", "backup", "verify", filepath.Join(s.dir, info.Name), "--identity", s.key, "--restore")
	s.UntilCloud(is(metav1.ConditionTrue, "Proven"))
}

// inPlace updates the cloud, damages it, and restores it. The version of the backup returns immediately, without another update.
func (s *saved) inPlace(info backup.Info, before dump.Summary) {
	s.Helper()
	prints(s.Env, "", "cluster", "update", "--version", "v4.0.5", "--wait")
	s.SQL(s.DB, "DELETE FROM keystone.kept", "DROP DATABASE glance")
	s.EditObject(&corev1.Secret{}, cloud+"-credentials", `{"data":{"glance.database-password":"b3RoZXItb3RoZXItb3RoZXI="}}`)
	prints(s.Env, "restored from", "cluster", "backup", "restore", filepath.Join(s.dir, info.Name), "--identity", s.key, "--yes", "--wait")
	s.UntilReady()
	s.holds(s.DB, before)
	s.login(s.Env)
	updates := 0
	for _, o := range s.Operations() {
		if o.Spec.Action == v1alpha1.ActionUpdate {
			updates++
		}
	}
	if cr := s.Cloud(); cr.Spec.Version != "v4.0.4" || cr.Status.Version != "v4.0.4" || updates != 1 {
		s.Errorf("the cloud is at %s, its spec at %s, after %d updates", cr.Status.Version, cr.Spec.Version, updates)
		for _, args := range [][]string{{"cluster", "history"}, {"operation", "list"}} {
			out, err := ocadm(s.Env, args...)
			s.Logf("%v\n%s", err, out)
		}
	}
	list, err := backup.List(s.Context(), backup.Dir(s.dir))
	if err != nil || len(list) != 2 || !list[0].Encrypted {
		s.Errorf("what was there before is not saved: %+v %v", list, err)
	}
	if a := s.Cloud().Annotations[v1alpha1.AnnotationPaused]; a != "" {
		s.Errorf("the cloud is paused: %q", a)
	}
}

// elsewhere deletes everything, and restores in another namespace with another database server.
func (s *saved) elsewhere(info backup.Info, before dump.Summary, id age.Identity) *saved {
	s.Helper()
	const other = "tenant-restored"
	was := s.Credentials()
	prints(s.Env, "", "cluster", "delete", "--delete-data", "--yes")
	s.UntilGone(&v1alpha1.OnecloudCluster{}, cloud)
	s.StopOperator()
	for _, name := range []string{"credentials", "certs"} {
		secret := &corev1.Secret{}
		secret.Namespace, secret.Name = namespace, cloud+"-"+name
		if err := s.Client.Delete(s.Context(), secret); client.IgnoreNotFound(err) != nil {
			s.Fatal(err)
		}
	}
	second := *s
	second.cloudTest = &cloudTest{Env: s.MoveTo(other)}
	second.DB = mariadb.Require(s.T.(*testing.T), mariadb.Options{})
	s.Cleanup(second.Clean)
	s.Cleanup(second.StopOperator)
	password := filepath.Join(s.dir, "password")
	require.NoError(s, os.WriteFile(password, []byte(second.DB.RootPassword+"\n"), 0o600))
	args := []string{"cluster", "backup", "restore", filepath.Join(s.dir, info.Name), "--identity", s.key, "--namespace", other, "--database-host", second.DB.Host,
		"--database-port", strconv.Itoa(second.DB.Port), "--database-password-file", password, "--yes"}
	r := cluster.Restore{Store: backup.Dir(s.dir), Name: info.Name, IDs: []age.Identity{id}, Namespace: other, Watch: workflow.Discard{}, Spec: map[string]any{"mysql.later": "x"},
		Confirm: func(question string) error { return errors.New(question) }}
	_, err := r.Apply(s.Context(), s.Client)
	if list := finding.Of(err); len(list) != 1 || list[0].Code != "OCA-7440" || !strings.Contains(err.Error(), "spec.mysql.later") {
		s.Errorf("a field of a newer ocadm: %v", err)
	}
	prints(s.Env, "restored from", args...)
	second.StartOperator(func(l *env.Launch) { l.Options.Namespaces = []string{namespace, other} })
	second.UntilReady()
	second.holds(second.DB, before)
	for k, v := range second.Credentials() {
		if string(was[k]) != string(v) {
			s.Errorf("password %s is another one", k)
		}
	}
	cr := second.Cloud()
	if ref := cr.Spec.MySQL.PasswordSecretRef; cr.Spec.MySQL.Password != "" || ref == nil || cr.Spec.MySQL.Host != second.DB.Host {
		s.Errorf("the database server: %+v", cr.Spec.MySQL)
	}
	cm := &corev1.ConfigMap{}
	if second.Get(cm, cloud+"-glance"); cm.Data["log_level"] != "debug" {
		s.Errorf("an option of people: %q", cm.Data["log_level"])
	}
	second.login(second.Env)
	return &second
}

// move moves the databases back to the first server.
func (s *saved) move(second *saved, before dump.Summary) {
	s.Helper()
	password := filepath.Join(s.dir, "password")
	require.NoError(s, os.WriteFile(password, []byte(s.DB.RootPassword), 0o600))
	patch := `{"spec":{"mysql":{"host":"10.1.1.1"}}}`
	if err := s.Client.Patch(s.Context(), second.Cloud(), client.RawPatch("application/merge-patch+json", []byte(patch))); err == nil || !strings.Contains(err.Error(), "move-database") {
		s.Errorf("the host of the databases was changed by hand: %v", err)
	}
	args := []string{"cluster", "move-database", "--namespace", second.Namespace, "--database-host", s.DB.Host, "--database-port", strconv.Itoa(s.DB.Port),
		"--database-password-file", password, "--yes"}
	prints(s.Env, "moved from", args...)
	second.UntilReady()
	second.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return env.IsReady(cr) && cr.Status.ObservedGeneration == cr.Generation
	})
	second.login(second.Env)
	second.holds(s.DB, before)
	prints(s.Env, "already", args...)
	if err := second.DB.Close(); err != nil { // the old one is no longer needed
		s.Error(err)
	}
	second.DB = s.DB
	second.login(second.Env)
}

// holds compares the rows of every table. Services that run again may have added some.
func (s *saved) holds(db *mariadb.Server, before dump.Summary) {
	s.Helper()
	_, now := s.Databases(db)
	have := now.Tables()
	for name, t := range before.Tables() {
		got, there := have[name]
		if !there || got.Rows < t.Rows || strings.HasSuffix(name, ".kept") && got.Checksum != t.Checksum {
			s.Errorf("%s has %d rows, had %d", name, got.Rows, t.Rows)
		}
	}
}

// login fails unless alice and the administrator can log in.
func (s *saved) login(at *env.Env) {
	s.Helper()
	certs := &corev1.Secret{}
	at.Get(certs, cloud+"-"+v1alpha1.SecretCerts)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certs.Data["ca.crt"])
	transport := &http.Transport{DialContext: at.Pods.Dial, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	c, err := identity.New(identity.Options{AuthURL: "https://default-keystone." + at.Namespace + ".svc:30357/v3", Username: "sysadmin",
		Password: string(at.Credentials()[component.BootstrapPassword]), Transport: transport})
	require.NoError(s, err)
	if err := c.Login(s.Context()); err != nil {
		s.Errorf("the administrator: %v", err)
	}
	if err := c.CheckLogin(s.Context(), alice, alicesPassword, ""); err != nil {
		s.Errorf("%s: %v", alice, err)
	}
}
