// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/test/require"
)

// lonely is the API of an etcd's only member.
type lonely struct {
	etcdserverpb.UnimplementedClusterServer
	etcdserverpb.UnimplementedMaintenanceServer
	peer, client string
}

const lonelyID = 7

func (l *lonely) MemberList(context.Context, *etcdserverpb.MemberListRequest) (*etcdserverpb.MemberListResponse, error) {
	return &etcdserverpb.MemberListResponse{Header: &etcdserverpb.ResponseHeader{},
		Members: []*etcdserverpb.Member{{ID: lonelyID, Name: "node1", PeerURLs: []string{l.peer}, ClientURLs: []string{l.client}}}}, nil
}

func (l *lonely) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{}, Leader: lonelyID}, nil
}

// A machine that lost its address while running reaches its member, which holds the lock of the database, at the loopback address. The certificate is for
// the former address.
func TestMemberOfALostAddress(t *testing.T) {
	const lost = "192.0.2.1" // no machine's address
	h := fakeHost(t, nil)
	ca := issue(t, nil, time.Now().Add(time.Hour), "etcd-ca")
	server, client := issue(t, &ca, time.Now().Add(time.Hour), lost), issue(t, &ca, time.Now().Add(time.Hour), "healthcheck-client")
	write(t, h, pkiDir+"/etcd/ca.crt", ca.pem)
	write(t, h, etcdClientCert+".crt", client.pem)
	write(t, h, etcdClientCert+".key", client.keyPEM(t))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	member := &lonely{peer: "https://" + lost + ":2380", client: fmt.Sprintf("https://%s:%d", lost, port)}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{server.cert.Raw}, PrivateKey: server.key}}})))
	etcdserverpb.RegisterClusterServer(s, member)
	etcdserverpb.RegisterMaintenanceServer(s, member)
	go func() { _ = s.Serve(l) }() // Stop ends it
	t.Cleanup(s.Stop)
	write(t, h, manifest(constants.Etcd), fmt.Sprintf("spec: {containers: [{command: [etcd, --name=node1, --data-dir=/var/lib/etcd, "+
		"\"--listen-client-urls=https://127.0.0.1:%[2]d,https://%[1]s:%[2]d\", --advertise-client-urls=https://%[1]s:%[2]d, --initial-advertise-peer-urls=https://%[1]s:2380]}]}",
		lost, port))
	ctx, cancel := context.WithTimeout(t.Context(), removalTimeout)
	defer cancel()
	if peers, err := EtcdMembers(ctx, h); err != nil || !slices.Equal(peers, []string{member.peer}) {
		t.Errorf("the members are %q, %v", peers, err)
	}
	all, err := ObserveOwnEtcd(ctx, h)
	if err != nil || len(all) != 1 || !all[0].Answers || !all[0].Leader {
		t.Errorf("as its members report: %+v, %v", all, err)
	}
}

// Only this machine's member counts, not that of another machine that has the address now.
func TestAccepts(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	here, nowhere := ln.Addr().String(), gone.Addr().String()
	for name, c := range map[string]struct {
		loopback, advertised string
		want                 bool
	}{
		"it runs":                             {here, nowhere, true},
		"another machine has the address":     {nowhere, here, false},
		"it runs, without a loopback address": {"", here, true},
		"it does not run":                     {"", nowhere, false},
	} {
		m := EtcdMember{loopback: c.loopback}
		m.ClientURL = "https://" + c.advertised
		if got := m.Accepts(t.Context()); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestLoopbackOf(t *testing.T) {
	for urls, want := range map[string]string{
		"https://127.0.0.1:2379,https://10.0.0.1:2379": "127.0.0.1:2379",
		"https://[fd00::1]:2379,https://[::1]:2379":    "[::1]:2379",
		"https://10.0.0.1:2379":                        "",
		"":                                             "",
	} {
		if at := loopbackOf(urls); at != want {
			t.Errorf("of %q: %q", urls, at)
		}
	}
}
