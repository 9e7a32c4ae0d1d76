// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/fakecloud/program"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// rehearsed is a cloud whose update is rehearsed.
type rehearsed struct {
	*cloudTest
	before dump.Summary
}

const (
	rehearsalFrom = "v4.0.2"
	rehearsalTo   = "v4.0.4" // with new columns, a renamed one and a migration of data
)

// withDatabases lists the components of the cloud that have databases; yunionconf creates its tables when it starts.
var withDatabases = []string{"glance", "keystone", "logger", "region", "yunionconf"}

// TestRehearsal rehearses an update. The programs of the new release run every migration on copies, with an account that can access nothing else.
// Then programs of that release are broken in each way, and the rehearsal names them.
func TestRehearsal(t *testing.T) {
	e := newCloudTest(t, env.Options{Workloads: env.Programs, Database: &mariadb.Options{GeneralLog: true, Args: []string{"--max-connections=2000"}}})
	cr := e.Only(append([]string{"scheduler"}, withDatabases...)...)
	cr.Spec.Version = rehearsalFrom
	e.Install(cr)
	e.Rest()
	r := &rehearsed{cloudTest: e}
	r.before = r.examine()

	r.passes()
	broken := func(component string, how program.Failure) {
		image := ""
		if how != "" {
			image = rehearsalTo + string(how)
		}
		e.Pods.Publish("registry.cn-beijing.aliyuncs.com/yunionio/"+component+":"+rehearsalTo, image)
	}
	for _, one := range []struct {
		broken map[string]program.Failure
		failed []string
		// skipped means that some components cannot be tried without an identity service.
		skipped bool
	}{
		{map[string]program.Failure{"region": program.InMigration, "glance": program.InMigration, "logger": program.WhenReady}, []string{"glance", "region"}, false},
		{map[string]program.Failure{"yunionconf": program.InMigration}, []string{"yunionconf"}, false},
		{map[string]program.Failure{"keystone": program.InMigration}, []string{"keystone"}, true},
		{map[string]program.Failure{"keystone": program.AtStart}, []string{"keystone"}, true},
	} {
		for name, how := range one.broken {
			broken(name, how)
		}
		r.predicts(one.failed, one.skipped)
		for name := range one.broken {
			broken(name, "")
		}
	}
	r.survives()
}

// rehearse runs the command, and checks that it has changed nothing and left nothing behind.
func (r *rehearsed) rehearse() (results map[string]v1alpha1.Rehearsed, o v1alpha1.OnecloudOperation, err error) {
	r.Helper()
	from, statements := r.Mark(), len(r.statements())
	out, err := ocadm(r.Env, "cluster", "update", "--version", rehearsalTo, "--rehearse", "--wait", "-o", "json")
	if jerr := json.Unmarshal([]byte(out), &o); jerr != nil {
		r.Fatalf("%v: %v: %s", err, jerr, out)
	}
	results = map[string]v1alpha1.Rehearsed{}
	for _, one := range o.Status.Rehearsal {
		results[one.Component] = one
	}
	r.untouched(from, statements, o.Name)
	r.nothingLeft()
	return results, o, err
}

// passes rehearses an update that would succeed.
func (r *rehearsed) passes() {
	r.Helper()
	results, o, err := r.rehearse()
	if err != nil || o.Status.Phase != v1alpha1.OperationSucceeded {
		r.Fatalf("%v: %+v", err, o.Status)
	}
	if names := slices.Sorted(maps.Keys(results)); !slices.Equal(names, withDatabases) {
		r.Errorf("rehearsed: %q, want %q", names, withDatabases)
	}
	for _, one := range results {
		if one.Result != v1alpha1.RehearsalPassed || one.Rows == 0 || one.BytesBefore == 0 || one.BytesAfter == 0 || one.Duration == "" || !strings.HasSuffix(one.Image, rehearsalTo) {
			r.Errorf("%+v", one)
		}
	}
	// The migration of data shows that it was the new release.
	if !slices.ContainsFunc(r.statements(), func(s mariadb.Statement) bool { return strings.Contains(s.Text, "guest_isolated_devices_tbl") }) {
		r.Error("region has not migrated its data")
	}
}

// predicts rehearses an update that would fail.
func (r *rehearsed) predicts(failed []string, skipped bool) {
	r.Helper()
	results, o, err := r.rehearse()
	if err == nil || o.Status.Phase != v1alpha1.OperationFailed || len(o.Status.Findings) == 0 || o.Status.Findings[0].Code != "OCA-7090" {
		r.Errorf("%v: %+v", err, o.Status)
	}
	for name, one := range results {
		want := v1alpha1.RehearsalPassed
		if slices.Contains(failed, name) {
			want = v1alpha1.RehearsalFailed
		} else if skipped {
			want = v1alpha1.RehearsalSkipped
		}
		if one.Result != want || want != v1alpha1.RehearsalPassed && one.Message == "" {
			r.Errorf("%s: %+v, want %s", name, one, want)
		}
	}
}

// survives ends the operator while migrations run, and starts another.
func (r *rehearsed) survives() {
	r.Helper()
	r.Operation("rehearse-twice", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionRehearse, Update: &v1alpha1.UpdateParameters{Version: rehearsalTo}})
	r.UntilOperation("rehearse-twice", func(o *v1alpha1.OnecloudOperation) bool { return len(o.Status.Rehearsal) > 0 || env.Ended(o) })
	r.StopOperator()
	r.StartOperator()
	o := r.UntilOperation("rehearse-twice", env.Ended)
	if o.Status.Phase != v1alpha1.OperationSucceeded || len(o.Status.Rehearsal) != len(withDatabases) {
		r.Errorf("%+v", o.Status)
	}
	r.nothingLeft()
}

// untouched checks the requests to the API server and the statements on the database server.
func (r *rehearsed) untouched(from harness.Mark, statements int, operation string) {
	r.Helper()
	for _, q := range r.Requests(from, harness.Filter{User: env.OperatorUser}) {
		reads := q.Verb == "get" || q.Verb == "list" || strings.Contains(q.URI, "dryRun=All") || q.Resource == "selfsubjectaccessreviews"
		own := q.Resource == "onecloudoperations" || q.Resource == "events" || strings.HasPrefix(q.Name, operation) ||
			(q.Resource == "pods" || q.Resource == "secrets") && q.Verb == "create" && q.Name == ""
		if !reads && !own {
			r.Errorf("a rehearsal asked for %s", q)
		}
	}
	r.judgeStatements(r.statements()[statements:])
	if differs := backup.Same(r.before, r.examine(), func(d string) string { return d }); len(differs) > 0 {
		r.Errorf("the databases: %q", differs)
	}
}

var (
	connected = regexp.MustCompile(`^(\S+)@\S+ on (\S*)`)
	using     = regexp.MustCompile("(?i)^use `([^`]+)`$")
	changing  = regexp.MustCompile(`(?i)^\s*(create|alter|drop|insert|update|delete|replace|truncate|grant|revoke|rename|load|call)\b`)
	defining  = regexp.MustCompile(`(?i)^\s*(create|alter|drop|truncate|rename)\b`)
)

// judgeStatements checks that the programs of the rehearsal connect only to copies, that the administrator changes only copies, their account and the
// records of owners, and that the running services only issue tokens and change no table's definition.
func (r *rehearsed) judgeStatements(all []mariadb.Statement) {
	r.Helper()
	users, in := map[int]string{}, map[int]string{}
	migrated := false
	for _, s := range all {
		if m := connected.FindStringSubmatch(s.Text); s.Command == "Connect" && m != nil {
			users[s.Thread], in[s.Thread] = m[1], m[2]
			if scratch := strings.HasPrefix(m[1], "ocadm_scratch_"); scratch && m[2] != "" && !strings.HasPrefix(m[2], "ocadm_scratch_") { // "" tests the login
				r.Errorf("a program of the rehearsal connects to %q", m[2])
			} else if scratch {
				migrated = true
			}
			continue
		}
		if m := using.FindStringSubmatch(s.Text); s.Command == "Query" && m != nil {
			in[s.Thread] = m[1]
		}
		if s.Command != "Query" && s.Command != "Execute" || !changing.MatchString(s.Text) {
			continue
		}
		user, known := users[s.Thread]
		switch {
		case strings.HasPrefix(in[s.Thread], "ocadm_scratch_"):
		case strings.Contains(s.Text, "ocadm_scratch_") || strings.Contains(s.Text, "`ocadm`.`owners`"):
		case user == "root":
			r.Errorf("the administrator said: %.200s", s.Text)
		case defining.MatchString(s.Text) || known:
			r.Errorf("%q, connected during the rehearsal, said: %.200s", user, s.Text)
		case !strings.Contains(s.Text, "tokens"):
			r.Errorf("a service of the cloud said: %.200s", s.Text)
		}
	}
	if !migrated {
		r.Error("no program has connected to a copy: is the log whole?")
	}
}

func (r *rehearsed) statements() []mariadb.Statement {
	r.Helper()
	all, err := r.DB.Statements()
	require.NoError(r, err)
	return all
}

// nothingLeft checks that nothing that a rehearsal creates is left.
func (r *rehearsed) nothingLeft() {
	r.Helper()
	if out := r.SQL(r.DB, "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME LIKE 'ocadm\\_scratch%'",
		"SELECT User FROM mysql.user WHERE User LIKE 'ocadm\\_scratch%'", "SELECT name FROM ocadm.owners WHERE name LIKE 'ocadm\\_scratch%'"); out != "" {
		r.Errorf("on the database server: %q", out)
	}
	var pods corev1.PodList
	var secrets corev1.SecretList
	for _, list := range []client.ObjectList{&pods, &secrets} {
		require.NoError(r, r.Client.List(r.Context(), list, client.InNamespace(namespace), client.HasLabels{"onecloud.yunion.io/rehearsal"}))
	}
	if len(pods.Items)+len(secrets.Items) > 0 {
		r.Errorf("left: %+v %+v", pods.Items, secrets.Items)
	}
}

// examine returns a summary of the cloud's tables, except the table of tokens.
func (r *rehearsed) examine() dump.Summary {
	r.Helper()
	_, sum := r.Databases(r.DB)
	for i := range sum.Databases {
		sum.Databases[i].Tables = slices.DeleteFunc(sum.Databases[i].Tables, func(t dump.TableSummary) bool { return t.Name == "tokens" })
	}
	return sum
}
