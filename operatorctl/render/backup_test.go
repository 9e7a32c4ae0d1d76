// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/mariadb"
)

// backups is a server with databases, and the rendered script in a directory.
type backups struct {
	t                 *testing.T
	db                *mariadb.Server
	dir, script, conf string
	// text is the script as rendered.
	text string
	keep int
}

const markers = "CREATE TABLE ocadm.owners (kind VARCHAR(16), name VARCHAR(64), id VARCHAR(64), PRIMARY KEY (kind, name)) " +
	"DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

func newBackups(t *testing.T) *backups {
	t.Helper()
	b := &backups{t: t, db: mariadb.Require(t, mariadb.Options{}), dir: t.TempDir(), keep: 3}
	b.sql("CREATE DATABASE ocadm", markers, "CREATE DATABASE keystone", "CREATE DATABASE foreign_one", "CREATE DATABASE report",
		"CREATE TABLE keystone.t (id INT PRIMARY KEY, pad LONGTEXT)", "INSERT INTO keystone.t VALUES (1, 'kept')", "CREATE TABLE foreign_one.secret_t (id INT)",
		// The component of report is disabled in this cloud.
		"CREATE TABLE report.r (id INT)", "INSERT INTO ocadm.owners VALUES ('database', 'keystone', 'cloud-1'), ('database', 'report', 'cloud-1'), "+
			"('database', 'gone', 'cloud-1'), ('database', 'foreign_one', 'cloud-2'), ('account', 'keystone', 'cloud-1')")
	cluster := resolved(t, "testdata/choices/cr.yaml")
	cluster.ID = "cloud-1"
	objects, err := render.Component(cluster.Components["backup"], component.Inputs{Cluster: cluster, Self: cluster.Components["backup"]})
	if err != nil {
		t.Fatal(err)
	}
	cm, ok := objects.ConfigMaps[0].(*corev1.ConfigMap)
	if !ok {
		t.Fatalf("%T", objects.ConfigMaps[0])
	}
	b.text, b.script, b.conf = cm.Data["config"], filepath.Join(b.dir, "backup.sh"), filepath.Join(b.dir, "my.cnf")
	b.write(b.conf, fmt.Sprintf("[client]\nhost=%s\nport=%d\nuser=root\npassword=%q\n", b.db.Host, b.db.Port, b.db.RootPassword))
	return b
}

func (b *backups) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *backups) sql(statements ...string) string {
	b.t.Helper()
	out, err := b.db.Execute(b.t.Context(), statements...)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// run runs the script over a directory; before is shell that runs first.
func (b *backups) run(over, before string) (string, error) {
	b.write(b.script, strings.NewReplacer("cd /backup\n", "cd "+over+"\n", "=/etc/backup/my.cnf\n", "="+b.conf+"\n").Replace(b.text))
	cmd := exec.CommandContext(b.t.Context(), "unshare", "--mount", "sh", "-c", before+`exec sh "$SCRIPT"`)
	cmd.Env = append(os.Environ(), "BACKUP_DIR="+over, "SCRIPT="+b.script, fmt.Sprintf("KEEP=%d", b.keep), "OUT="+b.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func privileged(t *testing.T) {
	if os.Getuid() != 0 && os.Getenv("OCADM_TEST_REQUIRE") != "1" {
		t.Skip("needs root, for a mount namespace of its own")
	}
}

// A dump holds what is marked as the cloud's and nothing else; it restores databases and markers beside those of another cloud.
func TestBackupHoldsWhatIsOurs(t *testing.T) {
	privileged(t)
	b := newBackups(t)
	over := t.TempDir()
	for _, old := range []string{"20200101T000000Z", "20200102T000000Z", "20200103T000000Z"} {
		if err := os.WriteFile(filepath.Join(over, "prod-"+old+".sql.gz"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(over, "prod.part"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := b.run(over, "")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	have := files(t, over)
	if len(have) != 3 || have[0] != "prod-20200102T000000Z.sql.gz" || slices.Contains(have, "prod.part") {
		t.Fatalf("files %q", have)
	}
	text, err := exec.CommandContext(t.Context(), "zcat", filepath.Join(over, have[2])).Output()
	if err != nil {
		t.Fatal(err)
	}
	dump := string(text)
	for want, is := range map[string]bool{"`keystone`": true, "`report`": true, "'kept'": true, "secret_t": false, "'cloud-2'": false} {
		if strings.Contains(dump, want) != is {
			t.Errorf("%s in the dump: %v", want, !is)
		}
	}
	b.sql("DROP DATABASE keystone", "DROP DATABASE report", "DELETE FROM ocadm.owners WHERE id = 'cloud-1'",
		"INSERT INTO ocadm.owners VALUES ('database', 'report', 'cloud-3')")
	b.sql(dump)
	if got := b.sql("SELECT pad FROM keystone.t", "SELECT id FROM ocadm.owners WHERE kind = 'database' ORDER BY name"); got != "kept\ncloud-2\ncloud-1\ncloud-1\ncloud-3\n" {
		t.Errorf("restored: %q", got)
	}
}

// A full disk costs old backups, not the new one; the newest complete one never goes; and what fails says so by its exit code.
func TestBackupOnAFullDisk(t *testing.T) {
	privileged(t)
	b := newBackups(t)
	b.keep = 7
	over := filepath.Join(b.dir, "volume")
	if err := os.Mkdir(over, 0o700); err != nil {
		t.Fatal(err)
	}
	// 1.5 MiB that do not compress.
	noise := "INSERT INTO keystone.t SELECT seq + 1, HEX(RANDOM_BYTES(1024)) FROM keystone.seq_1_to_1500"
	mount := `mount -t tmpfs -o size=4m none "$BACKUP_DIR"; `
	list := `; r=$?; ls "$BACKUP_DIR" >"$OUT/list"; exit $r; `
	old := func(kib int, days ...int) string {
		var s string
		for _, d := range days {
			s += fmt.Sprintf(`head -c %d /dev/zero >"$BACKUP_DIR/prod-2020010%dT000000Z.sql.gz"; `, kib<<10, d)
		}
		return s
	}
	for _, c := range []struct {
		name, before string
		data         []string
		fails        string
		left         []string
	}{
		{"old backups fill it", mount + old(1000, 1, 2, 3, 4), []string{noise}, "", []string{"prod-20200103T000000Z.sql.gz", "prod-20200104T000000Z.sql.gz", "new"}},
		{"they were smaller", mount + old(400, 1, 2, 3, 4, 5, 6, 7, 8, 9), nil, "", nil},
		{"it is too small for two", mount + old(3000, 1), nil, "the backup", []string{"prod-20200101T000000Z.sql.gz"}},
		{"files may not grow", "ulimit -f 100; ", nil, "the backup failed", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.data != nil {
				b.sql(c.data...)
			}
			out, err := b.run(over, c.before+`sh "$SCRIPT"`+list)
			if (err != nil) != (c.fails != "") || !strings.Contains(out, c.fails) {
				t.Fatalf("%v: %s", err, out)
			}
			text, err := os.ReadFile(filepath.Join(b.dir, "list"))
			if err != nil {
				t.Fatal(err)
			}
			left := strings.Fields(string(text))
			if slices.ContainsFunc(left, func(n string) bool { return strings.HasSuffix(n, ".part") }) {
				t.Errorf("left %q", left)
			}
			if c.fails == "" && (len(left) == 0 || strings.HasPrefix(left[len(left)-1], "prod-2020")) {
				t.Errorf("no new backup: %q; %s", left, out)
			}
			if c.left == nil {
				return
			}
			if len(left) > 0 && !strings.HasPrefix(left[len(left)-1], "prod-2020") {
				left[len(left)-1] = "new"
			}
			if !slices.Equal(left, c.left) {
				t.Errorf("left %q, want %q; %s", left, c.left, out)
			}
		})
	}
}

// A dump that fails half-way leaves no file with a final name.
func TestFailedDumpIsNoBackup(t *testing.T) {
	privileged(t)
	b := newBackups(t)
	b.sql("CREATE VIEW keystone.broken AS SELECT * FROM keystone.t", "RENAME TABLE keystone.t TO keystone.t2")
	over := t.TempDir()
	out, err := b.run(over, "")
	if err == nil || len(files(t, over)) > 0 {
		t.Errorf("%v, files %q: %s", err, files(t, over), out)
	}
	b.sql("DELETE FROM ocadm.owners")
	if out, err := b.run(over, ""); err == nil || !strings.Contains(out, "nothing to dump") {
		t.Errorf("nothing is ours: %v: %s", err, out)
	}
}
