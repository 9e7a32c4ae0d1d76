// SPDX-License-Identifier: Apache-2.0

package dbpair_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/freeport"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

const (
	namespace = "onecloud"
	password  = "Root-1"
)

// quick returns short limits in the same order as the real ones.
func quick() dbpair.Limits {
	return dbpair.Limits{
		Every: 100 * time.Millisecond, Silence: 1500 * time.Millisecond, Fence: 1500 * time.Millisecond, FenceAlone: 3 * time.Second,
		Takeover: 2500 * time.Millisecond, Connected: 20 * time.Second, Forced: 4 * time.Second, Handover: 10 * time.Second, Unresponsive: 20 * time.Second, Recovery: time.Minute, CopyAgain: time.Second,
	}
}

// node is a machine with a server and its agent. Its links can be cut.
type node struct {
	name      string
	dir       string
	port      int
	link      *link
	unreached atomic.Bool
	update    atomic.Pointer[func(o client.Object, do func() error) error] // decides the result of an update and its answer
	stop      context.CancelFunc
	ended     chan struct{}
	programs  dbpair.Programs
}

// pair is two nodes, with a fake API server.
type pair struct {
	t     *testing.T
	kube  client.Client
	nodes map[string]*node
	ca    pki.Pair
}

func newPair(t *testing.T) *pair {
	t.Helper()
	programs, err := mariadb.FindPrograms()
	if errors.Is(err, mariadb.ErrNotInstalled) && os.Getenv("OCADM_TEST_REQUIRE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	if programs.MySQL {
		t.Skip("the embedded database is MariaDB")
	}
	p := &pair{t: t, nodes: map[string]*node{}}
	if p.ca, err = pki.NewCA(time.Now(), "database", nil); err != nil {
		t.Fatal(err)
	}
	scheme := kube.Scheme()
	record := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: dbpair.RecordName}}
	dbpair.Record{Primary: dbpair.First}.Write(record)
	objs := []client.Object{record}
	for _, s := range dbpair.Servers() {
		objs = append(objs, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: dbpair.MemberName(s)}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: dbpair.PodName(s)}})
	}
	p.kube = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objs...).Build()
	for _, s := range dbpair.Servers() {
		p.nodes[s] = p.newNode(s, programs)
	}
	t.Cleanup(func() {
		for _, n := range p.nodes {
			p.off(n)
			n.link.close()
		}
	})
	return p
}

func (p *pair) newNode(name string, programs mariadb.Programs) *node {
	p.t.Helper()
	dir, err := os.MkdirTemp("", "ocadm-db-") // the path of a socket must be short
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{name: name, dir: dir}
	if n.port, err = freeport.Take("127.0.0.1"); err != nil {
		p.t.Fatal(err)
	}
	if n.link, err = newLink(n.port); err != nil {
		p.t.Fatal(err)
	}
	me, err := user.Current()
	require.NoError(p.t, err)
	for _, d := range []string{"tmp", "run", "volume"} {
		require.NoError(p.t, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	tmp, init := "--tmpdir="+filepath.Join(dir, "tmp"), filepath.Join(dir, "init.sql")
	sql := "SET SESSION sql_log_bin = 0;\nDELETE FROM mysql.global_priv WHERE User = 'root' AND Host NOT IN ('localhost', '%');\nFLUSH PRIVILEGES;\nCREATE USER IF NOT EXISTS 'root'@'%' IDENTIFIED BY '" + password + "';\nGRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION;\n" +
		"ALTER USER 'root'@'localhost' IDENTIFIED BY '" + password + "';\n" +
		"CREATE USER IF NOT EXISTS 'ocadm-replica'@'%' IDENTIFIED BY 'r' REQUIRE SSL;\nGRANT REPLICATION SLAVE ON *.* TO 'ocadm-replica'@'%';\n" +
		"DELETE FROM mysql.global_priv WHERE User = '';\nFLUSH PRIVILEGES;\n"
	require.NoError(p.t, os.WriteFile(init, []byte(sql), 0o600))
	n.programs.Server = append(programs.Daemon, "--user="+me.Username, tmp, "--pid-file="+filepath.Join(dir, "run", "pid"), "--bind-address=127.0.0.1",
		fmt.Sprintf("--port=%d", n.port), "--skip-name-resolve", "--innodb-buffer-pool-size=64M", "--performance-schema=OFF", "--init-file="+init)
	install := append(programs.Install, "--user="+me.Username, tmp)
	if name == dbpair.First {
		//nolint:gosec // the program is from the distribution
		if out, err := exec.Command(install[0], append(install[1:], "--datadir="+filepath.Join(dir, "volume", "data"))...).CombinedOutput(); err != nil {
			p.t.Fatalf("%v: %s", err, out)
		}
	}
	n.programs.Install = install
	return n
}

// on starts a node.
func (p *pair) on(name string) {
	p.t.Helper()
	n := p.nodes[name]
	ctx, cancel := context.WithCancel(context.Background())
	log, err := os.OpenFile(filepath.Join(n.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(p.t, err)
	run := filepath.Join(n.dir, "run")
	n.unreached.Store(false)
	n.link.cut(false)
	programs, peer := n.programs, p.nodes[dbpair.Peer(name)]
	programs.Output = log
	agent := dbpair.New(dbpair.Config{
		Me: name, Node: "node-of-" + name, Namespace: namespace, Limits: quick(), Programs: programs,
		Kube: interceptor.NewClient(p.kube.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if n.unreached.Load() {
					return errors.New("cut off")
				}
				return c.Get(ctx, key, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				if n.unreached.Load() {
					return errors.New("cut off")
				}
				do := func() error { return c.Update(ctx, o, opts...) }
				if f := n.update.Load(); f != nil {
					return (*f)(o, do)
				}
				return do()
			},
		}),
		Files: dbpair.Files{
			Dir: filepath.Join(n.dir, "volume"), Socket: filepath.Join(run, "s"), CA: filepath.Join(run, "ca.crt"), Certificate: filepath.Join(run, "tls.crt"),
			Key: filepath.Join(run, "tls.key"),
		},
		User: "root", Password: password, Source: mysql.Source{Host: "127.0.0.1", Port: peer.link.port, User: "ocadm-replica", Password: "r"},
		Authority: p.ca, Names: []string{"127.0.0.1"}, Log: slog.New(slog.NewTextHandler(writer{p.t, name}, nil)),
	})
	n.stop, n.ended = cancel, make(chan struct{})
	go func() {
		defer close(n.ended)
		defer log.Close()
		_ = agent.Run(ctx)
	}()
}

// off stops a node as a power failure does.
func (p *pair) off(n *node) {
	if n.stop == nil {
		return
	}
	n.isolate()
	n.stop()
	<-n.ended
	n.stop = nil
}

// isolate cuts a node off from the API server and from the other node.
func (n *node) isolate() {
	n.unreached.Store(true)
	n.link.cut(true)
}

type writer struct {
	t    *testing.T
	name string
}

func (w writer) Write(b []byte) (int, error) {
	w.t.Logf("%s: %s", w.name, strings.TrimSpace(string(b)))
	return len(b), nil
}

func (p *pair) record() dbpair.Record {
	p.t.Helper()
	l := &coordinationv1.Lease{}
	require.NoError(p.t, p.kube.Get(p.t.Context(), client.ObjectKey{Namespace: namespace, Name: dbpair.RecordName}, l))
	return dbpair.ReadRecord(l)
}

// ask changes the record as a user's command would.
func (p *pair) ask(change func(*dbpair.Record)) {
	p.t.Helper()
	for {
		l := &coordinationv1.Lease{}
		require.NoError(p.t, p.kube.Get(p.t.Context(), client.ObjectKey{Namespace: namespace, Name: dbpair.RecordName}, l))
		r := dbpair.ReadRecord(l)
		change(&r)
		r.Write(l)
		if p.kube.Update(p.t.Context(), l) == nil {
			return
		}
	}
}

func (p *pair) member(server string) dbpair.Member {
	p.t.Helper()
	l := &coordinationv1.Lease{}
	require.NoError(p.t, p.kube.Get(p.t.Context(), client.ObjectKey{Namespace: namespace, Name: dbpair.MemberName(server)}, l))
	m, err := dbpair.ReadMember(l)
	require.NoError(p.t, err)
	return m
}

// await waits for a condition, and returns how long it took.
func (p *pair) await(what string, is func() bool) time.Duration {
	p.t.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > 2*time.Minute {
			p.t.Fatalf("%s: not within 2 minutes; the record is %+v, the members %+v and %+v", what, p.record(), p.member(dbpair.First), p.member(dbpair.Second))
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.t.Logf("%s after %.1f s", what, time.Since(began).Seconds())
	return time.Since(began)
}

func (p *pair) inSync(primary string) time.Duration {
	p.t.Helper()
	return p.await(dbpair.Peer(primary)+" in sync with "+primary, func() bool {
		r := p.record()
		return r.Primary == primary && r.InSync == dbpair.Peer(primary)
	})
}

// open connects to a server over its socket, bypassing the link.
func (p *pair) open(ctx context.Context, server string) (*mysql.Admin, error) {
	return mysql.Open(ctx, mysql.Config{
		Host: "localhost", User: "root", Password: password, TLS: mysql.TLSDisabled, Timeout: 2 * time.Second,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(p.nodes[server].dir, "run", "s"))
		},
	})
}

// execute runs a statement on a server, over its socket.
func (p *pair) execute(ctx context.Context, server, statement string) error {
	db, err := p.open(ctx, server)
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.ExecContext(ctx, statement)
	return err
}

func (p *pair) must(server, statement string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	for {
		err := p.execute(ctx, server, statement)
		if err == nil {
			return
		}
		if ctx.Err() != nil || !mysql.IsUnavailable(err) {
			p.t.Fatalf("%s on %s: %v", statement, server, err)
		}
		time.Sleep(50 * time.Millisecond) // the server is starting
	}
}

// numbers returns the numbers in table t.n of a server.
func (p *pair) numbers(server string) map[int]bool {
	p.t.Helper()
	db, err := p.open(p.t.Context(), server)
	require.NoError(p.t, err)
	defer db.Close()
	conn, err := db.Conn(p.t.Context())
	require.NoError(p.t, err)
	defer conn.Close()
	rows, err := conn.QueryContext(p.t.Context(), "SELECT i FROM t.n")
	require.NoError(p.t, err)
	defer rows.Close()
	out := map[int]bool{}
	for rows.Next() {
		var i int
		require.NoError(p.t, rows.Scan(&i))
		out[i] = true
	}
	return out
}
