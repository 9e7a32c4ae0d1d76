// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"yunion.io/x/ocadm/test/child"
	"yunion.io/x/ocadm/test/freeport"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/require"
)

// cluster is an etcd of real processes on the loopback interface.
type cluster struct {
	t       *testing.T
	root    string
	program string
	config  Config
	args    []string
	running map[string]*child.Process
}

func startCluster(t *testing.T, size int, args ...string) *cluster {
	t.Helper()
	program, err := binaries.Path(t.Context(), "etcd")
	require.NoError(t, err)
	if other := os.Getenv("OCADM_TEST_ETCD"); other != "" { // another version of etcd
		program = other
	}
	c := &cluster{t: t, root: t.TempDir(), program: program, args: args, running: map[string]*child.Process{}}
	for i := range size {
		c.config.Members = append(c.config.Members, Member{
			Name: fmt.Sprintf("m-%d", i), ClientURL: "http://" + freeAddress(t), PeerURL: "http://" + freeAddress(t),
		})
	}
	for _, m := range c.config.Members {
		c.start(m.Name, "")
	}
	for _, m := range c.config.Members {
		c.ready(m.Name)
	}
	return c
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := freeport.Take("127.0.0.1")
	require.NoError(t, err)
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func (c *cluster) dir(name string) string { return filepath.Join(c.root, name) }

func (c *cluster) member(name string) Member {
	return c.config.Members[slices.IndexFunc(c.config.Members, func(m Member) bool { return m.Name == name })]
}

// start runs a member with the flags from the catalogue; state is what pods get from the environment.
func (c *cluster) start(name, state string) {
	c.t.Helper()
	m := c.member(name)
	var initial []string
	for _, o := range c.config.Members {
		initial = append(initial, o.Name+"="+o.PeerURL)
	}
	cmd := exec.Command(c.program, append([]string{
		"--name=" + name, "--data-dir=" + c.dir(name), "--listen-client-urls=" + m.ClientURL, "--advertise-client-urls=" + m.ClientURL,
		"--listen-peer-urls=" + m.PeerURL, "--initial-advertise-peer-urls=" + m.PeerURL, "--initial-cluster=" + strings.Join(initial, ","),
		"--initial-cluster-token=test", "--auto-compaction-retention=1", "--max-wals=1",
		"--heartbeat-interval=500", "--election-timeout=5000", // so that a busy machine does not depose a leader, see follows
	}, c.args...)...)
	cmd.Env = []string{"ETCD_INITIAL_CLUSTER_STATE=" + state}
	p, err := child.Start(cmd, filepath.Join(c.t.TempDir(), "log"))
	require.NoError(c.t, err)
	c.running[name] = p
	c.t.Cleanup(func() { c.stop(name) })
}

// stop stops a member and returns its log.
func (c *cluster) stop(name string) string {
	p := c.running[name]
	if p == nil {
		return ""
	}
	delete(c.running, name)
	p.Kill()
	return p.Output()
}

// ends waits until a member exits by itself and returns its log.
func (c *cluster) ends(name string) string {
	c.t.Helper()
	p := c.running[name]
	select {
	case <-p.Exited:
		delete(c.running, name)
	case <-time.After(time.Minute):
		c.t.Fatalf("member %s runs on", name)
	}
	return p.Output()
}

func (c *cluster) ready(name string) {
	c.t.Helper()
	kv := c.kv(name)
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for {
		_, err := kv.Get(ctx, "ready")
		if err == nil {
			return
		}
		select {
		case <-c.running[name].Exited:
			c.t.Fatalf("member %s: %v", name, c.running[name].Ended())
		case <-ctx.Done():
			c.t.Fatalf("member %s: %v", name, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *cluster) kv(names ...string) *clientv3.Client {
	c.t.Helper()
	var endpoints []string
	for _, n := range names {
		endpoints = append(endpoints, c.member(n).ClientURL)
	}
	v3, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = v3.Close() })
	return v3
}

func (c *cluster) open() *Client {
	c.t.Helper()
	e, err := Open(c.t.Context(), c.config)
	require.NoError(c.t, err)
	c.t.Cleanup(e.Close)
	return e
}

// follows makes sure that a member is not the leader: without a leader the others could do nothing until the election is over.
func (c *cluster) follows(e *Client, name string) {
	c.t.Helper()
	all, err := e.look(c.t.Context())
	require.NoError(c.t, err)
	if leader := all[len(all)-1]; leader.name == name {
		if _, err := c.kv(name).MoveLeader(c.t.Context(), all[0].ID); err != nil {
			c.t.Fatal(err)
		}
	}
}

// sizes returns the sizes of the members' databases.
func (c *cluster) sizes(e *Client) map[string]int64 {
	c.t.Helper()
	all, err := e.look(c.t.Context())
	require.NoError(c.t, err)
	out := map[string]int64{}
	for _, m := range all {
		if m.err != nil {
			c.t.Fatal(m.err)
		}
		out[m.name] = m.status.DbSize
	}
	return out
}

// dropped waits until a member has dropped what a compaction allows. It keeps writing, because pages count as free only after the next write.
func (c *cluster) dropped(e *Client, name string) {
	c.t.Helper()
	for range 600 {
		if _, err := e.v3.Put(c.t.Context(), "tick", ""); err != nil {
			c.t.Fatal(err)
		}
		s, err := e.v3.Status(c.t.Context(), c.member(name).ClientURL)
		require.NoError(c.t, err)
		if s.DbSizeInUse < s.DbSize/2 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Fatalf("member %s keeps old revisions", name)
}

const mebi = 1 << 20

// fill writes n MiB under one key, or until etcd refuses.
func fill(ctx context.Context, kv *clientv3.Client, n int) error {
	for range n {
		if _, err := kv.Put(ctx, "filler", strings.Repeat("x", mebi)); err != nil {
			return err
		}
	}
	return nil
}

func TestNothingListens(t *testing.T) {
	_, err := Open(t.Context(), Config{Members: []Member{{Name: "m-0", ClientURL: "http://" + freeAddress(t)}}})
	if !errors.Is(err, ErrUnreachable) {
		t.Fatalf("Open: %v", err)
	}
}

func TestDefragment(t *testing.T) {
	c := startCluster(t, 3)
	kv := c.kv("m-0", "m-1", "m-2")
	require.NoError(t, fill(t.Context(), kv, 20))
	e := c.open()
	if freed, stopped, err := e.Defragment(t.Context()); err != nil || freed != 0 || stopped != "" {
		t.Fatalf("with all in use: freed %d, stopped %q, %v", freed, stopped, err)
	}
	require.NoError(t, e.compact(t.Context()))
	for name := range c.sizes(e) {
		c.dropped(e, name)
	}
	c.follows(e, "m-2")
	c.stop("m-2")
	if freed, stopped, err := e.Defragment(t.Context()); err != nil || freed != 0 || !strings.Contains(stopped, "m-2") {
		t.Fatalf("with a member down: freed %d, stopped %q, %v", freed, stopped, err)
	}
	c.start("m-2", "")
	c.ready("m-2")
	before := c.sizes(e)
	freed, stopped, err := e.Defragment(t.Context())
	if err != nil || freed < 3*15*mebi || stopped != "" {
		t.Fatalf("freed %d, stopped %q, %v", freed, stopped, err)
	}
	for name, size := range c.sizes(e) {
		if size > before[name]/2 {
			t.Errorf("%s: %d bytes before, %d after", name, before[name], size)
		}
	}
	if freed, stopped, err := e.Defragment(t.Context()); err != nil || freed != 0 || stopped != "" {
		t.Errorf("once more: freed %d, stopped %q, %v", freed, stopped, err)
	}
}

// The reason not to defragment names the member, or the address of one without a name.
func TestUnwell(t *testing.T) {
	is := func(learner bool, alarms ...string) *clientv3.StatusResponse {
		return &clientv3.StatusResponse{IsLearner: learner, Errors: alarms}
	}
	c := &Client{members: make([]Member, 2)}
	for want, all := range map[string][]member{
		"": {{name: "a", status: is(false)}, {name: "b", status: is(false)}},
		"member b of etcd is a learner: its join is not complete": {{name: "a", status: is(false)}, {name: "b", status: is(true)}},
		"member a of etcd reports NOSPACE":                        {{name: "a", status: is(false, "NOSPACE")}, {name: "b", status: is(false)}},
		"asking b":                                                {{name: "a", status: is(false)}, {name: "b", err: errors.New("asking b")}},
		"etcd has 1 member, and should have 2":                    {{name: "a", status: is(false)}},
	} {
		if got := c.unwell(all); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	for want, got := range map[string]string{"b": nodeOf("b", "https://10.0.0.7:2380"), "10.0.0.7": nodeOf("", "https://10.0.0.7:2380"), "": nodeOf("")} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestLiftNoSpace(t *testing.T) {
	c := startCluster(t, 3, fmt.Sprintf("--quota-backend-bytes=%d", 16*mebi))
	kv, e := c.kv("m-0", "m-1", "m-2"), c.open()
	if lifted, err := e.LiftNoSpace(t.Context()); err != nil || len(lifted.Members) != 0 {
		t.Fatalf("without an alarm: %+v, %v", lifted, err)
	}
	if err := fill(t.Context(), kv, 40); err == nil || !strings.Contains(err.Error(), "space exceeded") {
		t.Fatalf("filling it: %v", err)
	}
	lifted, err := e.LiftNoSpace(t.Context())
	if err != nil || len(lifted.Members) == 0 || lifted.Before < 15*mebi || lifted.After > 4*mebi {
		t.Fatalf("%+v, %v", lifted, err)
	}
	// A member may raise its alarm at any later time. The operator clears that one in its next pass.
	for range 5 {
		if err = fill(t.Context(), kv, 1); err == nil {
			return
		}
		if _, err := e.LiftNoSpace(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Errorf("writing afterwards: %v", err)
}

// A member with a new disk is removed and added, and joins with the data of the others.
func TestReplace(t *testing.T) {
	c := startCluster(t, 3)
	kv, e := c.kv("m-0", "m-1"), c.open()
	if _, err := kv.Put(t.Context(), "kept", "yes"); err != nil {
		t.Fatal(err)
	}
	allowed := 0
	allow := func(context.Context) error { allowed++; return nil }
	if replaced, err := e.Replace(t.Context(), "m-2", allow); err != nil || replaced || allowed != 0 {
		t.Fatalf("a member that is well: %v, %v, allowed %d times", replaced, err, allowed)
	}
	c.follows(e, "m-2")
	c.stop("m-2")
	require.NoError(t, os.RemoveAll(c.dir("m-2")))
	c.start("m-2", "")
	if log := c.ends("m-2"); !LostDisk(log) {
		t.Fatalf("it does not say that it has lost its disk:\n%s", log)
	}
	for i, want := range []bool{true, false} { // an interrupted run continues
		if replaced, err := e.Replace(t.Context(), "m-2", allow); err != nil || replaced != want || allowed != i+1 {
			t.Fatalf("%v, %v, allowed %d times", replaced, err, allowed)
		}
	}
	if joining, err := e.Joining(t.Context()); err != nil || !slices.Equal(joining, []string{"m-2"}) {
		t.Fatalf("joining: %v, %v", joining, err)
	}
	c.start("m-2", "existing")
	c.ready("m-2")
	answer, err := c.kv("m-2").Get(t.Context(), "kept", clientv3.WithSerializable())
	if err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("its data: %v, %v", answer, err)
	}
	if joining, err := e.Joining(t.Context()); err != nil || len(joining) != 0 {
		t.Errorf("joining: %v, %v", joining, err)
	}
	if log := c.stop("m-2"); LostDisk(log) {
		t.Error("a member that joins is taken for one that has lost its disk")
	}
	c.start("m-2", "") // the environment counts only the first time
	c.ready("m-2")
}

func TestIsUnavailable(t *testing.T) {
	for err, want := range map[error]bool{
		ErrUnreachable: true, context.DeadlineExceeded: true, rpctypes.ErrTimeout: true, rpctypes.ErrNoLeader: true,
		rpctypes.ErrNoSpace: false, context.Canceled: false, errors.New("etcd reports CORRUPT"): false, nil: false,
	} {
		wrapped := err
		if err != nil {
			wrapped = fmt.Errorf("listing the members of etcd: %w", err)
		}
		if IsUnavailable(wrapped) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}

// A member without data that is to join a cluster of which no member serves ends and says why.
func TestNoClusterToJoin(t *testing.T) {
	c := startCluster(t, 3)
	for _, n := range []string{"m-0", "m-1", "m-2"} {
		if log := c.stop(n); FoundNone(log) {
			t.Errorf("%s has data: %s", n, log)
		}
	}
	c.root = t.TempDir()
	c.start("m-0", "existing")
	if log := c.ends("m-0"); !FoundNone(log) || LostDisk(log) {
		t.Errorf("it ended with: %s", log)
	}
}
