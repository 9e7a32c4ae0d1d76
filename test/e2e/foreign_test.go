// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// foreignRules are packet rules of other programs: docker, nerdctl and podman on a CNI network with a published port, and a user's own.
const foreignRules = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:CNI-FORWARD - [0:0]
:CNI-foreign - [0:0]
:DOCKER-USER - [0:0]
:KUBE-MINE - [0:0]
-A INPUT -p tcp -m comment --comment "not KUBE-SERVICES, nor -j CNI-" -m tcp --dport 22 -j ACCEPT
-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A FORWARD -j DOCKER-USER
-A OUTPUT -j CNI-foreign
-A CNI-foreign -d 198.51.100.7/32 -j DROP
-A DOCKER-USER -j RETURN
-A KUBE-MINE -s 192.0.2.0/24 -j RETURN
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:CNI-DN-1111111111111111111 - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-DN-1111111111111111111 -p tcp -m tcp --dport 9000 -j DNAT --to-destination 10.4.0.2:80
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"mynet\" id: \"abc\"" -m multiport --dports 9000 -j CNI-DN-1111111111111111111
COMMIT
`

// foreignNFT is a user's own nftables table.
const foreignNFT = `table inet theirs {
	chain in { type filter hook input priority 10; policy accept; tcp dport 8443 accept comment "kube-proxy"; }
	chain KUBE-SERVICES { ip saddr 192.0.2.9 drop; }
}
`

// foreignFiles returns files among a node's own. None is in /var/log/pods, where every kubelet removes files of unknown pods each minute (evictPodLogsDirectories).
func foreignFiles() map[string]string {
	return map[string]string{
		"/etc/kubernetes/other.conf": "other\n", "/etc/kubernetes/pki/mine.crt": "a certificate\n", "/var/lib/kubelet/config.json": "{}\n",
		"/var/lib/etcd/notes": "about the other etcd\n", "/var/lib/cni/networks/mynet/10.4.0.2": "abc\n",
		"/etc/cni/net.d/nerdctl/mynet.conflist": "{}\n",
		"/var/lib/cni/results/mynet-abc-eth0":   `{"kind":"cniCacheV1","containerId":"abc","networkName":"mynet","cniArgs":[["IgnoreUnknown","1"]]}` + "\n",
	}
}

// otherEtcd and otherContainerd run beside the node's own, with the ports, sockets and directories that users choose.
const (
	otherEtcd = "/opt/other/etcd --name other --data-dir /var/lib/etcd/default --listen-client-urls http://127.0.0.1:12379 " +
		"--advertise-client-urls http://127.0.0.1:12379 --listen-peer-urls http://127.0.0.1:12380"
	otherEtcdctl    = "/opt/other/etcdctl --endpoints http://127.0.0.1:12379 "
	otherContainerd = "/opt/other/containerd --root /var/lib/other-containerd --state /run/other-containerd --address /run/other-containerd/c.sock"
	otherCtr        = "/opt/other/ctr -a /run/other-containerd/c.sock -n theirs "
)

// TestResetKeepsForeign creates a cluster of machines with other programs, resets the worker and then the control plane, and compares.
func TestResetKeepsForeign(t *testing.T) {
	if err := scenario.Root(); err != nil {
		if os.Getenv("OCADM_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	s := newSuite(t, machines(t, 2))
	scans := map[int]map[string]string{}
	for _, node := range []int{1, 2} {
		s.plant(t, node)
		scans[node], s.fresh[node] = s.scan(t, node), s.lookAround(t, node)
	}
	require.NoError(t, s.Init(t.Context(), "--ingress", "none", "--skip-phases", "storage,database,operator,cloud-settings,operator-ready,cloud"))
	require.NoError(t, s.Join(t.Context(), 2))
	// Another user's image in the containerd that ocadm installed, on the worker.
	const image = `ctr -n k8s.io images export --local --platform linux/amd64 - registry.k8s.io/pause:3.10.2 > /run/pause.tar && ctr -n mine images import /run/pause.tar && rm /run/pause.tar`
	if _, err := s.On(t.Context(), 2, "sh", "-c", image); err != nil {
		t.Fatal(err)
	}
	for _, node := range []int{2, 1} {
		if _, err := s.On(t.Context(), node, resetCommand...); err != nil {
			t.Fatal(err)
		}
		after, around := s.scan(t, node), s.lookAround(t, node)
		if node == 2 {
			for _, seen := range []map[string]string{after, around} {
				kept := false
				for name := range seen {
					if strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "file:"), "directory:"), "/var/lib/containerd") || name == "run:/run/containerd" {
						delete(seen, name)
						kept = true
					}
				}
				if !kept {
					t.Error("the images of others in ocadm's containerd are gone")
				}
			}
		}
		compare(t, "files and rules", scans[node], after)
		compare(t, "the machine", s.fresh[node], around)
		s.alive(t, node)
	}
}

// plant installs other programs' files on a machine.
func (s *suite) plant(t *testing.T, node int) {
	t.Helper()
	n := s.Lab.Node(node)
	if _, err := s.On(t.Context(), node, "mkdir", "-p", "/opt/other"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "etcdctl", "containerd", "ctr"} {
		program, err := binaries.Path(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, n.CopyIn(t.Context(), program, "/opt/other/"+name))
	}
	for name, text := range foreignFiles() {
		if _, err := s.On(t.Context(), node, "mkdir", "-p", path.Dir(name)); err != nil {
			t.Fatal(err)
		}
		require.NoError(t, n.Write(t.Context(), name, 0o600, strings.NewReader(text)))
	}
	// Empty directories among those that pods of the cloud use.
	if _, err := s.On(t.Context(), node, "mkdir", "-p", "/opt/cloud/workspace/disks2", "/etc/openvswitch", "/etc/telegraf/mine.d"); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"/run/rules": foreignRules, "/run/nft": foreignNFT} {
		require.NoError(t, n.Write(t.Context(), name, 0o600, strings.NewReader(text)))
	}
	script := `chmod 755 /opt/other/*
iptables-nft-restore </run/rules; ip6tables-nft-restore --noflush </dev/null; nft -f /run/nft
mkdir -p /run/other-containerd
systemd-run --quiet --unit other-etcd ` + otherEtcd + `
systemd-run --quiet --unit other-containerd ` + otherContainerd + `
for i in $(seq 100); do ` + otherEtcdctl + `put key theirs >/dev/null 2>&1 && break; sleep 0.2; done
for i in $(seq 100); do echo data | ` + otherCtr + `content ingest blob >/dev/null 2>&1 && break; sleep 0.2; done
rm /run/rules /run/nft`
	if node == 2 { // also the other back end, about which iptables-nft warns
		script = "iptables-legacy-restore </run/rules\n" + script
	}
	if _, err := s.On(t.Context(), node, "sh", "-ec", script); err != nil {
		t.Fatal(err)
	}
	s.alive(t, node)
}

// alive checks that the other etcd and the other containerd run and have their data.
func (s *suite) alive(t *testing.T, node int) {
	t.Helper()
	out, err := s.On(t.Context(), node, "sh", "-c", otherEtcdctl+"get key --print-value-only; "+otherCtr+"content ls -q; systemctl is-active other-etcd other-containerd")
	const want = "theirs\nsha256:6667b2d1aab6a00caa5aee5af8ad9f1465e567abf1c209d15727d57b3e8f6e5f\nactive\nactive\n"
	if err != nil || out != want {
		t.Errorf("node %d: the others answer %q, %v", node, out, err)
	}
}

// changing returns the directories to which the other etcd and containerd write constantly; alive checks those instead.
func changing() []string {
	return []string{"/var/lib/etcd/default", "/var/lib/other-containerd", "/var/lib/systemd", "/opt/local-path-provisioner", "/root/.kube"}
}

func (s *suite) lookAround(t *testing.T, node int) map[string]string {
	t.Helper()
	return s.look(t, node, changing()...)
}

// scan returns the content of every file in places where a node has files, and every packet rule, by name. It omits what has no meaning: the kernel's
// chains and tables without a rule, counters, comments in the output.
func (s *suite) scan(t *testing.T, node int) map[string]string {
	t.Helper()
	var prune []string
	for _, d := range changing() {
		prune = append(prune, "-path "+d)
	}
	files, err := s.On(t.Context(), node, "sh", "-c", `find /etc /opt /root /home /srv /var/lib \( `+strings.Join(prune, " -o ")+
		` \) -prune -o -type f -exec sha256sum {} + | awk '{print "file:" $2, $1}'; sha256sum /var/log/pods/* | awk '{print "file:" $2, $1}'`)
	require.NoError(t, err)
	out := fields(files)
	for _, command := range []string{"iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save"} {
		text, err := s.On(t.Context(), node, command)
		require.NoError(t, err)
		out[command] = meaningfulRules(text)
	}
	text, err := s.On(t.Context(), node, "nft", "-s", "list", "ruleset")
	require.NoError(t, err)
	out["nft list ruleset"] = meaningfulTables(text)
	return out
}

// meaningfulRules returns the output of iptables-save without comments, counters and tables that have neither rules nor user-defined chains.
func meaningfulRules(save string) string {
	var out, table []string
	for line := range strings.Lines(save) {
		line = strings.TrimSpace(line)
		if i := strings.Index(line, " ["); strings.HasPrefix(line, ":") && i > 0 {
			line = line[:i]
		}
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "COMMIT":
			if slices.ContainsFunc(table, func(l string) bool {
				return strings.HasPrefix(l, "-A") || strings.HasPrefix(l, ":") && strings.HasSuffix(l, " -")
			}) {
				// Empty built-in chains appear together with their table.
				out = append(out, slices.DeleteFunc(table, func(l string) bool { return strings.HasPrefix(l, ":") && strings.HasSuffix(l, " ACCEPT") })...)
			}
			table = nil
		default:
			table = append(table, line)
		}
	}
	return strings.Join(out, "\n")
}

// meaningfulTables returns nft's output without tables that contain only empty built-in chains.
func meaningfulTables(ruleset string) string {
	var out []string
	for block := range strings.SplitSeq(ruleset, "\n}\n") {
		says := false
		var kept []string
		var chain []string
		for line := range strings.Lines(block) {
			line = strings.TrimRight(line, "\n")
			text := strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(text, "#") || text == "":
			case strings.HasPrefix(text, "chain "):
				chain = []string{line}
			case text == "}" && len(chain) == 2 && strings.Contains(chain[1], " policy accept;"):
				chain = nil // an empty built-in chain
			case text == "}":
				kept, chain, says = append(append(kept, chain...), line), nil, true
			case chain != nil:
				chain = append(chain, line)
			default:
				kept = append(kept, line)
				says = says || !strings.HasPrefix(text, "table ")
			}
		}
		if says {
			out = append(out, strings.Join(kept, "\n"))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
