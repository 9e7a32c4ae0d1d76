// SPDX-License-Identifier: Apache-2.0

// Package mariadb starts a real database server for tests in its own directory: MariaDB from the distribution's package, or MySQL if OCADM_TEST_MYSQL
// names its files (scripts/mysql.sh). It leaves no process or file behind. Durability is off.
package mariadb

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/child"
	"yunion.io/x/ocadm/test/freeport"
	"yunion.io/x/ocadm/test/require"
)

// ErrNotInstalled means that this machine has no mariadbd.
var ErrNotInstalled = errors.New("mariadbd is not installed (Debian: apt-get install mariadb-server)")

// Options are the options of a server. The zero value is usable.
type Options struct {
	// Addr is the address to listen on; "127.0.0.1:0" if empty.
	Addr string
	// RootPassword is generated if empty.
	RootPassword string
	// RootHosts are the hosts from which root may connect; "%" if empty. root@localhost over the socket always exists.
	RootHosts []string
	// GeneralLog logs every statement; see Server.Statements.
	GeneralLog bool
	// Args are added to the server's command line.
	Args []string
}

// Server is a running server.
type Server struct {
	// MySQL is true for Oracle's MySQL, false for MariaDB.
	MySQL        bool
	Host         string
	Port         int
	Socket       string
	RootPassword string

	dir, log string
	process  *child.Process
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// startTimeout is generous: the machine may be busy with a build.
const startTimeout = 3 * time.Minute

// Start creates a database directory below dir, starts a server in it and waits until it accepts connections. ctx limits only the start.
func Start(ctx context.Context, dir string, o Options) (*Server, error) {
	p, err := FindPrograms()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s := &Server{MySQL: p.MySQL, RootPassword: cmp.Or(o.RootPassword, "Root-"+rand.Text())}
	if s.Host, s.Port, err = listenAddr(o.Addr); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp(dir, "mariadb-"); err != nil {
		return nil, err
	}
	if err := s.start(ctx, p, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, p Programs, o Options) error {
	me, err := user.Current()
	if err != nil {
		return err
	}
	data, initFile := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "init.sql")
	s.log = filepath.Join(s.dir, "general.log")
	s.Socket = filepath.Join(s.dir, "s")
	// A starting server removes from its temporary directory what it takes for its own leftovers, so servers must not share one.
	tmp := filepath.Join(s.dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	//nolint:gosec // programs of the distribution
	out, err := p.Install.run(ctx, "--datadir="+data, "--user="+me.Username, "--tmpdir="+tmp).CombinedOutput()
	if err != nil {
		return fmt.Errorf("making a database directory: %w: %s", err, out)
	}
	if err := os.WriteFile(initFile, []byte(initSQL(s.RootPassword, o.RootHosts, p.MySQL)), 0o600); err != nil {
		return err
	}
	args := []string{
		"--user=" + me.Username, "--datadir=" + data, "--socket=" + s.Socket, "--init-file=" + initFile, "--tmpdir=" + tmp,
		"--pid-file=" + filepath.Join(s.dir, "pid"), "--bind-address=" + s.Host, "--port=" + strconv.Itoa(s.Port),
		"--skip-name-resolve", "--skip-log-bin", "--performance-schema=OFF", "--innodb-flush-log-at-trx-commit=0",
		"--innodb-buffer-pool-size=64M", "--max-connections=500",
	}
	if !p.MySQL {
		args = append(args, "--plugin-load-add=disks") // as in the embedded database
	}
	if o.GeneralLog {
		args = append(args, "--general-log", "--general-log-file="+s.log)
	}
	cmd := p.Daemon.run(context.WithoutCancel(ctx), append(args, o.Args...)...) // ctx bounds the start only
	cmd.Dir = s.dir
	if s.process, err = child.Start(cmd, filepath.Join(s.dir, "server.log")); err != nil {
		return err
	}
	for !strings.Contains(s.process.Output(), "ready for connections") {
		select {
		case <-s.process.Exited:
			return fmt.Errorf("the server ended while starting:\n%s", s.process.Output())
		case <-ctx.Done():
			return fmt.Errorf("waiting for the server: %w:\n%s", ctx.Err(), s.process.Output())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// Close stops the server and removes its files. It may be called more than once.
func (s *Server) Close() error {
	if s.process != nil {
		s.process.Stop(20 * time.Second)
	}
	return os.RemoveAll(s.dir)
}

// initSQL sets root's password and hosts. Both come from the test but are quoted anyway.
func initSQL(password string, hosts []string, mysql bool) string {
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'" }
	if len(hosts) == 0 {
		hosts = []string{"%"}
	}
	lines := []string{"ALTER USER root@localhost IDENTIFIED BY " + quote(password)}
	if !mysql {
		lines = append(lines, "DELETE FROM mysql.global_priv WHERE User = '' OR (User = 'root' AND Host <> 'localhost')", "FLUSH PRIVILEGES")
	}
	for _, h := range hosts {
		lines = append(lines,
			"DROP USER IF EXISTS root@"+quote(h), "CREATE USER root@"+quote(h)+" IDENTIFIED BY "+quote(password),
			"GRANT ALL PRIVILEGES ON *.* TO root@"+quote(h)+" WITH GRANT OPTION")
	}
	return strings.Join(lines, ";\n") + ";\n"
}

func listenAddr(addr string) (string, int, error) {
	host, p, err := net.SplitHostPort(cmp.Or(addr, "127.0.0.1:0"))
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.Atoi(p)
	if err != nil || port != 0 {
		return host, port, err
	}
	port, err = freeport.Take(host)
	return host, port, err
}

// Execute runs statements as root with the client of the server's package. It returns the client's output: a line for each row, separated by tabs.
func (s *Server) Execute(ctx context.Context, statements ...string) (string, error) {
	p, err := FindPrograms()
	if err != nil {
		return "", err
	}
	cmd := p.client.run(ctx, "--socket="+s.Socket, "--user=root", "--batch", "--skip-column-names")
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+s.RootPassword)
	cmd.Stdin = strings.NewReader(strings.Join(statements, ";\n") + ";\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}

// Wipe removes all databases and accounts except the server's own.
func (s *Server) Wipe(ctx context.Context) error {
	list, err := s.Execute(ctx,
		"SELECT CONCAT('DROP DATABASE `', REPLACE(SCHEMA_NAME, '`', '``'), '`') FROM information_schema.SCHEMATA "+
			"WHERE SCHEMA_NAME NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')",
		"SELECT CONCAT('DROP USER ', QUOTE(User), '@', QUOTE(Host)) FROM mysql.user WHERE User NOT IN ('root', 'mariadb.sys') AND User NOT LIKE 'mysql.%'")
	if err != nil || strings.TrimSpace(list) == "" {
		return err
	}
	_, err = s.Execute(ctx, strings.Split(strings.TrimSpace(list), "\n")...)
	return err
}

// Statement is an entry of the general log: a connection (Command Connect), a statement (Query, Execute, Prepare) or the end of a connection (Quit).
type Statement struct {
	Thread  int
	Command string
	Text    string
}

// logLine is "[yymmdd hh:mm:ss]\t thread Command\ttext", in MySQL with an RFC 3339 time; other lines continue the statement before.
var logLine = regexp.MustCompile(`^(?:\d{6}\s+\d{1,2}:\d{2}:\d{2}|\d{4}-\S+Z|\s)\s*(\d+) ([A-Z][A-Za-z ]*)\t(.*)$`)

// Statements returns the contents of the general log (Options.GeneralLog).
func (s *Server) Statements() ([]Statement, error) {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return nil, fmt.Errorf("reading the general log: %w", err)
	}
	var out []Statement
	for _, line := range strings.Split(string(data), "\n") {
		m := logLine.FindStringSubmatch(line)
		if m == nil {
			if n := len(out); n > 0 && line != "" {
				out[n-1].Text += "\n" + line
			}
			continue
		}
		thread, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		out = append(out, Statement{Thread: thread, Command: m[2], Text: m[3]})
	}
	return out, nil
}

// Count returns the number of statements that clients sent: queries and executions, but not connections and preparations.
func Count(statements []Statement) int {
	return lists.Count(statements, func(st Statement) bool { return st.Command == "Query" || st.Command == "Execute" })
}

// Require starts a server for one test and closes it at its end. Without mariadbd the test is skipped, or fails with OCADM_TEST_REQUIRE=1.
func Require(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), shortTempDir(t), o)
	if errors.Is(err, ErrNotInstalled) && os.Getenv("OCADM_TEST_REQUIRE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("stopping MariaDB: %v", err)
		}
	})
	return s
}

// Main is the body of a TestMain whose tests share one server. run gets the server, or nil if it is neither installed nor required.
func Main(ctx context.Context, o Options, run func(*Server) int) int {
	dir, err := os.MkdirTemp("", "ocadm-db-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s, err := Start(ctx, dir, o)
	if errors.Is(err, ErrNotInstalled) && os.Getenv("OCADM_TEST_REQUIRE") != "1" {
		return run(nil)
	}
	if err != nil {
		panic(err)
	}
	defer s.Close()
	return run(s)
}

// shortTempDir returns a short path: a Unix socket's path has at most about a hundred characters, and t.TempDir's may be longer.
func shortTempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ocadm-db-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
