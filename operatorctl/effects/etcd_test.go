// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/child"
	"yunion.io/x/ocadm/test/freeport"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/require"
)

const alreadyMember = `{"level":"fatal","msg":"discovery failed","error":"member 117b9266988c4966 has already been bootstrapped"}`

// taskRecord records what a task does in addition to its requests to etcd.
type taskRecord struct {
	notices []string
	state   map[string]string
}

func (r *taskRecord) clients(dial func(context.Context, string, string) (net.Conn, error)) Clients {
	return Clients{
		Dial: dial, Notify: func(n Notice) { r.notices = append(r.notices, n.Reason) },
		SetState: func(_ context.Context, _ string, data map[string]string) error { r.state = data; return nil },
	}
}

func etcdInput(t *testing.T, size int32, words map[string]string) (Input, pki.Etcd, pki.Pair) {
	t.Helper()
	now := time.Now()
	ca, err := pki.NewCA(now, "test", nil)
	require.NoError(t, err)
	reqs := pki.EtcdRequests("default-etcd", "onecloud", nil, now.Add(-time.Hour), now.Add(time.Hour))
	pair, err := pki.Issue(ca, reqs.Client)
	require.NoError(t, err)
	key, err := pair.KeyPEM()
	require.NoError(t, err)
	return Input{
		Cluster: component.Cluster{Name: "default", Namespace: "onecloud", Instance: "onecloud-cluster-default", Spec: &component.Spec{}, Components: map[string]component.Resolved{
			etcdName: {Enabled: true, Replicas: size, Component: component.Component{Name: etcdName}},
		}},
		ClientCertificate: identity.Certificate{PEM: string(pair.CertPEM()), KeyPEM: string(key), CAPEM: string(ca.CertPEM())},
		LastWords:         map[string]map[string]string{etcdName: words}, State: map[string]map[string]string{},
	}, reqs, ca
}

func refuse(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }

// An etcd that accepts connections but does not answer in time is left to its probes; the maintenance does not fail.
func TestBusyEtcdIsNotReplaced(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
	}
	in, _, _ := etcdInput(t, 1, nil)
	r := &taskRecord{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if changed, err := keepEtcd(ctx, r.clients(dial), in); changed || err != nil {
		t.Errorf("changed %v, %v", changed, err)
	}
}

// Maintenance is due when all members serve, and immediately when a member has lost its disk.
func TestEtcdUpkeepIsDue(t *testing.T) {
	plan := func(words, state map[string]string) Effect {
		in, _, _ := etcdInput(t, 3, words)
		in.State[etcdName] = state
		return in.setup(in.Cluster.Components[etcdName], "etcd-upkeep")
	}
	well := plan(nil, nil)
	if !well.Aside || len(well.Needs) != 1 || well.Needs[0] != etcdName {
		t.Errorf("with all well: %+v", well)
	}
	if other := plan(map[string]string{"default-etcd-1": "panic: something else"}, nil); other.Hash != well.Hash {
		t.Error("a member that fails otherwise makes it due")
	}
	lost := plan(map[string]string{"default-etcd-1": alreadyMember}, nil)
	joining := plan(nil, map[string]string{component.EtcdInitialState: "existing"})
	if lost.Hash == well.Hash || joining.Hash == well.Hash || lost.Needs != nil || joining.Needs != nil {
		t.Errorf("lost: %+v\njoining: %+v", lost, joining)
	}
}

func TestEtcdUnreachable(t *testing.T) {
	var r taskRecord
	in, _, _ := etcdInput(t, 3, nil)
	if changed, err := keepEtcd(t.Context(), r.clients(refuse), in); changed || err != nil {
		t.Errorf("with all well as far as is known: %v, %v", changed, err)
	}
	one := map[string]string{"default-etcd-1": alreadyMember}
	in, _, _ = etcdInput(t, 3, one)
	if _, err := keepEtcd(t.Context(), r.clients(refuse), in); err == nil {
		t.Error("a member waits for a place, and nothing is said")
	}
	one["default-etcd-2"] = alreadyMember
	in, _, _ = etcdInput(t, 3, one)
	_, err := keepEtcd(t.Context(), r.clients(refuse), in)
	if err == nil || !strings.Contains(err.Error(), "2 of 3 members have lost their disks") || !strings.Contains(err.Error(), "delete --wait=false pvc,pod -l ") {
		t.Errorf("without a majority: %v", err)
	}
}

const foundNone = `{"level":"fatal","msg":"discovery failed","error":"cannot fetch cluster info from peer urls: could not retrieve cluster information from the given URLs"}`

// Members that all have no data form a new cluster instead of joining one. As long as one may have data, nothing changes.
func TestEmptyEtcdStartsAnew(t *testing.T) {
	words := map[string]string{"default-etcd-0": foundNone, "default-etcd-1": foundNone}
	for _, third := range []string{"", "panic: something else", alreadyMember, foundNone} {
		in, _, _ := etcdInput(t, 3, words)
		in.State[etcdName] = map[string]string{component.EtcdInitialState: "existing"}
		before := in.setup(in.Cluster.Components[etcdName], "etcd-upkeep")
		words["default-etcd-2"] = third
		now := in.setup(in.Cluster.Components[etcdName], "etcd-upkeep")
		r := taskRecord{state: in.State[etcdName]}
		_, err := keepEtcd(t.Context(), r.clients(refuse), in)
		anew := third == foundNone
		if (r.state == nil) != anew || anew && (err != nil || now.Hash == before.Hash) {
			t.Errorf("the third says %q: state %v, %v", third, r.state, err)
		}
		delete(words, "default-etcd-2")
	}
	in, _, _ := etcdInput(t, 3, map[string]string{"default-etcd-0": foundNone, "default-etcd-1": foundNone, "default-etcd-2": foundNone})
	if emptyEtcd(in) {
		t.Error("there is nothing to clear")
	}
}

// A full etcd with the cloud's certificates accepts writes again.
func TestEtcdNoSpace(t *testing.T) {
	in, reqs, ca := etcdInput(t, 1, nil)
	program, err := binaries.Path(t.Context(), "etcd")
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, data, 0o600))
		return file
	}
	server, err := pki.Issue(ca, reqs.Server)
	require.NoError(t, err)
	key, err := server.KeyPEM()
	require.NoError(t, err)
	var at [2]string
	for i := range at {
		port, err := freeport.Take("127.0.0.1")
		require.NoError(t, err)
		at[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	peer := "https://" + in.Cluster.PodHost(etcdName, 0) + ":2380"
	cmd := exec.Command(program, "--name=default-etcd-0", "--data-dir="+filepath.Join(dir, "data"),
		"--listen-client-urls=https://"+at[0], "--advertise-client-urls=https://"+in.Cluster.PodHost(etcdName, 0)+":2379",
		"--listen-peer-urls=http://"+at[1], "--initial-advertise-peer-urls="+peer, "--initial-cluster=default-etcd-0="+peer,
		fmt.Sprintf("--quota-backend-bytes=%d", 8<<20), "--client-cert-auth=true", "--trusted-ca-file="+write("ca.crt", ca.CertPEM()),
		"--cert-file="+write("server.crt", server.CertPEM()), "--key-file="+write("server.key", key), "--log-level=warn")
	etcd, err := child.Start(cmd, filepath.Join(dir, "log"))
	require.NoError(t, err)
	t.Cleanup(etcd.Kill)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at[0])
	}
	var r taskRecord
	until(t, "etcd answers", func() bool {
		c, err := openEtcd(t.Context(), r.clients(dial), in)
		if err != nil {
			return false
		}
		defer c.Close()
		joining, err := c.Joining(t.Context())
		return err == nil && len(joining) == 0
	})
	kv := etcdClient(t, in, dial)
	if _, err := keepEtcd(t.Context(), r.clients(dial), in); err != nil || len(r.notices) != 0 {
		t.Fatalf("with nothing to do: %v, notices %q", err, r.notices)
	}
	full := func() (err error) {
		for range 20 {
			if _, err = kv.Put(t.Context(), "filler", strings.Repeat("x", 1<<20)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := full(); err == nil || !strings.Contains(err.Error(), "space exceeded") {
		t.Fatalf("filling etcd: %v", err)
	}
	changed, err := keepEtcd(t.Context(), r.clients(dial), in)
	if err != nil || !changed || !slices.Equal(r.notices, []string{"EtcdNoSpace"}) {
		t.Fatalf("%v, %v, notices %q", changed, err, r.notices)
	}
	if _, err := kv.Put(t.Context(), "filler", "x"); err != nil {
		t.Errorf("writing afterwards: %v", err)
	}
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 600 {
		if done() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("it never happened that %s", what)
}

func etcdClient(t *testing.T, in Input, dial func(context.Context, string, string) (net.Conn, error)) *clientv3.Client {
	t.Helper()
	tlsConfig, err := etcdTLS(in)
	require.NoError(t, err)
	kv, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + in.Cluster.PodHost(etcdName, 0) + ":2379"}, TLS: tlsConfig, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) })},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = kv.Close() })
	return kv
}
