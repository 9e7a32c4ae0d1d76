// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/scenario"
)

// etcdOf returns digests of etcd's CA, and of the certificates that it has signed, of all control-plane nodes.
func (s *rotating) etcdOf(t *testing.T, files string) string {
	t.Helper()
	var out strings.Builder
	for node := 1; node <= s.planes; node++ {
		out.WriteString(s.shell(t, node, "cd /etc/kubernetes/pki; sha256sum "+files))
	}
	return out.String()
}

// withEtcd also replaces etcd's CA: forward, back, forward again with kills in the middle, and to the end. Requests fail while the API server that
// holds the address restarts.
func (s *rotating) withEtcd(t *testing.T) {
	t.Helper()
	const authority, certs = "etcd/ca.crt etcd/ca.key", "etcd/server.crt etcd/peer.crt etcd/healthcheck-client.crt apiserver-etcd-client.crt"
	was, signed := s.etcdOf(t, authority), s.etcdOf(t, certs)
	s.shell(t, 1, "mkdir -p /root/old; cp /etc/kubernetes/pki/etcd/healthcheck-client.* /root/old/")
	s.rotate(t, 1, "--etcd")
	if st := s.status(t, s.planes); st.Record == nil || !slices.Contains(st.Record.Authorities, kubernetes.EtcdAuthority) {
		t.Errorf("the rotation is %+v", st.Record)
	}
	s.rotate(t, s.planes, "--revert")
	if now := s.etcdOf(t, authority); now != was {
		t.Errorf("the way back did not end where it began:\n%s\nbecame\n%s", was, now)
	}
	s.members(t)
	argv := []string{scenario.Ocadm, "certs", "rotate-ca", "--etcd", "--yes"}
	for _, p := range []point{{event: workflow.PhaseStarted, phase: "trust/nodes"}, {event: workflow.PhaseDone, phase: "trust/nodes"}} {
		s.killedAtEntry(t, 1, p, argv...)
		for _, moment := range []string{"4", "9", "15", "25"} { // in the middle of restarts
			if _, err := s.quietly(t, 1, append([]string{"timeout", "-s", "KILL", moment}, argv...)...); err == nil {
				t.Logf("it ended within %s s", moment)
				break
			}
		}
	}
	s.rotate(t, s.planes) // the record contains its CAs
	s.shell(t, 1, "cp /etc/kubernetes/admin.conf /root/.kube/config")
	s.killedAtEntry(t, 1, point{event: workflow.PhaseStarted, phase: "drop/nodes"}, scenario.Ocadm, "certs", "rotate-ca", "--finish", "--yes")
	s.rotate(t, 1, "--finish")
	for _, changed := range []struct{ files, was string }{{authority, was}, {certs, signed}} {
		now := s.etcdOf(t, changed.files)
		for line := range strings.Lines(changed.was) {
			if strings.Contains(now, line) {
				t.Errorf("not replaced: %s", line)
			}
		}
	}
	for node := 1; node <= s.planes; node++ {
		s.shell(t, node, "cd /etc/kubernetes/pki; test $(grep -c BEGIN etcd/ca.crt) = 1; for c in "+certs+"; do openssl verify -CAfile etcd/ca.crt $c || exit 1; done")
	}
	s.members(t)
	const ask = "curl -sS --max-time 5 --cacert /etc/kubernetes/pki/etcd/ca.crt --cert %[1]s/healthcheck-client.crt --key %[1]s/healthcheck-client.key https://127.0.0.1:2379/health"
	s.shell(t, 1, fmt.Sprintf(ask, "/etc/kubernetes/pki/etcd"))
	if out, err := s.quietly(t, 1, "sh", "-c", fmt.Sprintf(ask, "/root/old")); err == nil {
		t.Errorf("etcd takes a client of the old authority: %s", out)
	}
}

// members checks that all members of etcd answer.
func (s *rotating) members(t *testing.T) {
	t.Helper()
	if out, err := s.On(t.Context(), s.planes, scenario.Ocadm, "etcd", "status"); err != nil {
		t.Errorf("etcd: %s, %v", out, err)
	}
}
