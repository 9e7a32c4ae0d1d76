// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"yunion.io/x/ocadm/internal/flock"
	"yunion.io/x/ocadm/test/child"
	"yunion.io/x/ocadm/test/freeport"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/require"
)

// member is a single-member etcd, as a real process.
type member struct {
	*testing.T
	dir, client, peer string
	process           *child.Process
}

func newMember(t *testing.T) *member {
	t.Helper()
	m := &member{T: t, dir: filepath.Join(t.TempDir(), "data")}
	for _, at := range []*string{&m.client, &m.peer} {
		port, err := freeport.Take("127.0.0.1")
		require.NoError(t, err)
		*at = "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	m.start()
	return m
}

func (m *member) start() {
	m.Helper()
	program, err := binaries.Path(m.Context(), "etcd")
	require.NoError(m, err)
	m.process, err = child.Start(exec.Command(program, "--name=m", "--data-dir="+m.dir, "--listen-client-urls="+m.client, "--advertise-client-urls="+m.client,
		"--listen-peer-urls="+m.peer, "--initial-advertise-peer-urls="+m.peer, "--initial-cluster=m="+m.peer), filepath.Join(m.TempDir(), "log"))
	require.NoError(m, err)
	m.Cleanup(m.process.Kill)
}

func (m *member) config() clientv3.Config {
	return clientv3.Config{Endpoints: []string{m.client}, Logger: zap.NewNop(), DialTimeout: 5 * time.Second}
}

func (m *member) do(f func(context.Context, *clientv3.Client) error) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), 30*time.Second)
	defer cancel()
	c, err := clientv3.New(m.config())
	require.NoError(m, err)
	defer func() { _ = c.Close() }()
	require.NoError(m, f(ctx, c))
}

func (m *member) put(key string) {
	m.Helper()
	m.do(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Put(ctx, key, "value")
		return err
	})
}

func (m *member) keys() (keys string, revision int64) {
	m.Helper()
	m.do(func(ctx context.Context, c *clientv3.Client) error {
		got, err := c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range got.Kvs {
			keys += string(kv.Key)
		}
		revision = got.Header.Revision
		return nil
	})
	return keys, revision
}

// A snapshot is verified and private, and restores its keys at a revision that no client has seen. The data of a killed member restores all of them.
func TestSaveAndRestore(t *testing.T) {
	m := newMember(t)
	m.put("a")
	dir := filepath.Join(t.TempDir(), "snapshots")
	at := time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)
	info, err := Save(t.Context(), m.config().Endpoints[0], nil, dir, 1<<20, at)
	if err != nil || info.Keys != 1 || info.Revision != 2 || info.Digest == "" || filepath.Base(info.File) != "etcd-20261123T060000Z-r2.db" {
		t.Fatalf("%+v, %v", info, err)
	}
	st, err := os.Stat(info.File)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	m.put("b")
	m.process.Stop(10 * time.Second) // as the kubelet stops it; a killed one has its latest data only in its log
	database := Database(m.dir)
	if r, err := LastRevision(database); err != nil || r != 3 {
		t.Errorf("the database is at revision %d, %v", r, err)
	}
	if values, err := Values(database, "a", "x"); err != nil || len(values) != 1 || string(values["a"]) != "value" {
		t.Errorf("the database has the values %q, %v", values, err)
	}
	if values, err := Values(info.File, ""); err != nil || len(values) != 1 || string(values["a"]) != "value" {
		t.Errorf("the snapshot has the values %q, %v", values, err)
	}
	if peers, err := Peers(database); err != nil || !slices.Equal(peers, []string{m.peer}) {
		t.Errorf("the database has the members %q, %v", peers, err)
	}
	for _, c := range []struct {
		file string
		raw  bool
		want string
	}{{info.File, false, "a"}, {database, true, "ab"}} {
		to := filepath.Join(t.TempDir(), "restored")
		require.NoError(t, Restore(c.file, c.raw, Target{Name: "m", PeerURL: m.peer, Dir: to}))
		was := m.dir
		m.dir = to
		m.start()
		if keys, revision := m.keys(); keys != c.want || revision < RevisionBump {
			t.Errorf("from %s: keys %q at revision %d", c.file, keys, revision)
		}
		m.process.Kill()
		m.dir = was
	}
}

// Values returns the last values in a database, without deleted keys.
func TestValues(t *testing.T) {
	m := newMember(t)
	m.do(func(ctx context.Context, c *clientv3.Client) error {
		for _, op := range []clientv3.Op{
			clientv3.OpPut("/a/1", "old"), clientv3.OpPut("/a/2", "gone"), clientv3.OpPut("/b/1", "other"), clientv3.OpPut("/a/1", "new"),
			clientv3.OpDelete("/a/2"), clientv3.OpPut("/a/3", "first"), clientv3.OpDelete("/a/3"), clientv3.OpPut("/a/3", "again"),
		} {
			if _, err := c.Do(ctx, op); err != nil {
				return err
			}
		}
		return nil
	})
	m.process.Stop(10 * time.Second)
	values, err := Values(Database(m.dir), "/a/", "/c/")
	if err != nil || len(values) != 2 || string(values["/a/1"]) != "new" || string(values["/a/3"]) != "again" {
		t.Errorf("%q, %v", values, err)
	}
	if _, err := Values(filepath.Join(m.dir, "missing"), "/"); err == nil {
		t.Error("a missing database has values")
	}
}

// A snapshot that is restored a second time gets revisions above those after the first time, known from the replaced data or from later snapshots.
func TestRestoreTwice(t *testing.T) {
	m := newMember(t)
	m.put("a")
	dir := filepath.Join(t.TempDir(), "snapshots")
	info, err := Save(t.Context(), m.config().Endpoints[0], nil, dir, 1<<20, time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC))
	require.NoError(t, err)
	m.process.Kill()
	restore := func(dir string) int64 {
		t.Helper()
		require.NoError(t, Restore(info.File, false, Target{Name: "m", PeerURL: m.peer, Dir: dir}))
		r, err := LastRevision(Database(dir))
		require.NoError(t, err)
		return r
	}
	first := filepath.Join(t.TempDir(), "first")
	once := restore(first)
	if once < RevisionBump {
		t.Errorf("the first restore has revision %d", once)
	}
	if twice := restore(filepath.Join(first, "second")); twice < once+RevisionBump {
		t.Errorf("the second restore has revision %d after %d", twice, once)
	}
	for i, where := range []string{dir, filepath.Dir(dir)} { // the second is the directory of the hourly ones, for a snapshot from before an upgrade
		later := once + 500*int64(i+1)
		require.NoError(t, os.WriteFile(filepath.Join(where, "etcd-20261123T070000Z-r"+strconv.FormatInt(later, 10)+".db"), nil, 0o600))
		if got := restore(filepath.Join(t.TempDir(), "third")); got < later+RevisionBump {
			t.Errorf("a restore with a snapshot of revision %d in %s has revision %d", later, where, got)
		}
	}
}

// Any damage to a file is detected before it is used, and the last good snapshot is found behind it.
func TestDamage(t *testing.T) {
	m := newMember(t)
	m.put("a")
	dir := t.TempDir()
	at := time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)
	good, err := Save(t.Context(), m.config().Endpoints[0], nil, dir, 1<<20, at)
	require.NoError(t, err)
	m.process.Kill()
	raw, err := os.ReadFile(good.File)
	require.NoError(t, err)
	flipped := append([]byte(nil), raw...)
	flipped[len(flipped)/2] ^= 0xff
	for name, content := range map[string][]byte{
		"flipped": flipped, "cut": raw[:len(raw)/2], "cut to pages": raw[:4096*2], "no digest": raw[:len(raw)-32], "empty": nil, "text": []byte("no snapshot"),
	} {
		file := filepath.Join(dir, "etcd-20261123T070000Z-r9.db")
		require.NoError(t, os.WriteFile(file, content, 0o600))
		if _, err := Verify(file); err == nil {
			t.Errorf("%s: verified", name)
		}
		if found, damaged, err := LastGood(dir); err != nil || found == nil || found.File != good.File || len(damaged) != 1 {
			t.Errorf("%s: the last good one is %+v, damaged %v, %v", name, found, damaged, err)
		}
		if name != "no digest" && name != "cut" { // bolt decides where it writes the latest page: half a file may contain it
			require.NoError(t, os.WriteFile(Database(m.dir), content, 0o600))
			if _, err := LastRevision(Database(m.dir)); err == nil && name != "flipped" {
				t.Errorf("%s: a revision was read", name)
			}
		}
	}
}

// The clock was a day ahead when one snapshot was saved, and in 1970 for another. The revision orders them, so that neither is taken for the newest,
// and the newest one is not deleted.
func TestClockJumps(t *testing.T) {
	dir := t.TempDir()
	want := []string{"etcd-19700101T000100Z-r40.db", "etcd-20261123T070000Z-r30.db", "etcd-20261124T060000Z-r20.db", "etcd-20261123T050000Z-r10.db"}
	for _, n := range want {
		require.NoError(t, os.WriteFile(filepath.Join(dir, n), nil, 0o600))
	}
	list, err := List(dir)
	if err != nil || len(list) != len(want) {
		t.Fatalf("%+v, %v", list, err)
	}
	for i, s := range list {
		if filepath.Base(s.File) != want[i] {
			t.Errorf("%d: %s, want %s", i, s.File, want[i])
		}
	}
	excess, err := Keep{Last: 2}.Prune(dir)
	if err != nil || len(excess) != 2 || filepath.Base(excess[0].File) != want[2] {
		t.Errorf("%+v, %v", excess, err)
	}
	now := time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)
	if !Future(list[2].Time, now) || Future(list[0].Time, now) || Future(now.Add(time.Second), now) {
		t.Error("which times are in the future")
	}
}

func TestSaveNeedsSpace(t *testing.T) {
	_, err := Save(t.Context(), "", nil, t.TempDir(), 1<<60, time.Now())
	if !errors.Is(err, ErrNoSpace) || !strings.Contains(err.Error(), "MiB are needed, of which 512 MiB stay free") {
		t.Errorf("%v", err)
	}
}

func TestKeep(t *testing.T) {
	var list []Info
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for i := range 60 { // one per hour
		list = append(list, Info{Time: at.Add(-time.Duration(i) * time.Hour)})
	}
	for _, c := range []struct {
		keep Keep
		want int
	}{
		{Keep{Last: 12, Days: 7}, 60 - 12 - 2}, // the newest of today is among the last
		{Keep{Last: 60, Days: 0}, 0},
		{Keep{Last: 1, Days: 0}, 59},
		{Keep{Last: 0, Days: 2}, 58},
		{Keep{Last: 1 << 30}, 0},
	} {
		if got := c.keep.Excess(list); len(got) != c.want {
			t.Errorf("%+v drops %d, want %d", c.keep, len(got), c.want)
		}
	}
}

// The hourly snapshot and a manual one do not remove each other's unfinished file.
func TestOneSaveAtATime(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lock(t.Context(), dir)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 2*flock.Interval)
	defer cancel()
	if _, err := lock(short, dir); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second one: %v", err)
	}
	time.AfterFunc(flock.Interval, unlock)
	again, err := lock(t.Context(), dir)
	require.NoError(t, err)
	again()
}

// A member that accepts connections and does not answer, like one whose disk hangs, is given up: its client would retry forever.
func TestSaveGivesUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	defer func(was time.Duration) { patience = was }(patience)
	patience = 0 // a second is left for the MiB
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	dir := t.TempDir()
	_, err = Save(ctx, "http://"+l.Addr().String(), nil, dir, 1<<20, time.Now())
	if left, lerr := os.ReadDir(dir); ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) || len(left) > 0 || lerr != nil {
		t.Errorf("%v, %v, %v, %v", ctx.Err(), err, left, lerr)
	}
}
