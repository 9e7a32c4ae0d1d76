// SPDX-License-Identifier: Apache-2.0

package owned

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/test/require"
)

// theirRules are other programs' rules on a machine: docker, nerdctl with published ports, podman's CNI, a person's own.
const theirRules = `*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:CNI-ADMIN - [0:0]
:CNI-FORWARD - [0:0]
:CNI-foreign - [0:0]
:DOCKER-USER - [0:0]
:KUBE-MINE - [0:0]
-A INPUT -p tcp -m comment --comment "see KUBE-SERVICES and CNI- -j KUBE-FORWARD" -m tcp --dport 22 -j ACCEPT
-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A FORWARD -j DOCKER-USER
-A OUTPUT -j CNI-foreign
-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
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
:CNI-HOSTPORT-MASQ - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:CNI-aaaaaaaaaaaaaaaaaaaaaaaa - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A POSTROUTING -s 10.4.0.2/32 -m comment --comment "name: \"mynet\" id: \"abc\"" -j CNI-aaaaaaaaaaaaaaaaaaaaaaaa
-A CNI-DN-1111111111111111111 -p tcp -m tcp --dport 9000 -j DNAT --to-destination 10.4.0.2:80
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"mynet\" id: \"abc\"" -m multiport --dports 9000 -j CNI-DN-1111111111111111111
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000
-A CNI-aaaaaaaaaaaaaaaaaaaaaaaa -d 10.4.0.0/24 -m comment --comment "name: \"mynet\" id: \"abc\"" -j ACCEPT
COMMIT
`

// ourRules are the rules that kubelet, kube-proxy, flannel and portmap add.
const ourRules = `*filter
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:FLANNEL-FWD - [0:0]
-A INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A FLANNEL-FWD -s 10.40.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-ERIFXISQEP7F7OF4 - [0:0]
:KUBE-MARK-MASQ - [0:0]
:FLANNEL-POSTRTG - [0:0]
:CNI-DN-2222222222222222222 - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"cbr0\" id: \"def\"" -m multiport --dports 80 -j CNI-DN-2222222222222222222
-A CNI-DN-2222222222222222222 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.40.0.9:80
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "kube-system/kube-dns:dns-tcp cluster IP" -m tcp --dport 53 -j KUBE-SVC-ERIFXISQEP7F7OF4
-A KUBE-SVC-ERIFXISQEP7F7OF4 ! -s 10.40.0.0/16 -d 10.96.0.10/32 -p tcp -m tcp --dport 53 -j KUBE-MARK-MASQ
-A FLANNEL-POSTRTG -s 10.40.0.0/16 -d 10.40.0.0/16 -m comment --comment "flanneld masq" -j RETURN
COMMIT
`

func TestRulesOfOthersHaveNothingToClean(t *testing.T) {
	if got := cleanRules(theirRules, true); got.script != "" || len(got.stuck) > 0 {
		t.Errorf("got %+v", got)
	}
}

// The portmap plugin's own chains are removed only with their last user.
func TestPortmapChains(t *testing.T) {
	const alone = "*nat\n:PREROUTING ACCEPT [0:0]\n:CNI-HOSTPORT-DNAT - [0:0]\n:CNI-DN-2 - [0:0]\n-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n" +
		`-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"cbr0\" id: \"d\"" -j CNI-DN-2` + "\nCOMMIT\n"
	want := "*nat\n-D PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n" +
		"-F CNI-HOSTPORT-DNAT\n-F CNI-DN-2\n-X CNI-HOSTPORT-DNAT\n-X CNI-DN-2\nCOMMIT\n"
	if d := cmp.Diff(want, cleanRules(alone, false).script); d != "" {
		t.Errorf("alone (-want +got):\n%s", d)
	}
	for name, got := range map[string]string{
		"another user of CNI": cleanRules(alone, true).script,
		"another chain":       cleanRules(strings.Replace(alone, ":CNI-DN-2 - [0:0]\n", ":CNI-DN-2 - [0:0]\n:CNI-x - [0:0]\n", 1), false).script,
	} {
		if strings.Contains(got, "-X CNI-HOSTPORT-DNAT") || !strings.Contains(got, "-X CNI-DN-2") || !strings.Contains(got, "-D CNI-HOSTPORT-DNAT") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

func TestChainThatOthersNeedStays(t *testing.T) {
	got := cleanRules("*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-MARK-MASQ - [0:0]\n:KUBE-SERVICES - [0:0]\n:MINE - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n"+
		"-A MINE -j KUBE-MARK-MASQ\nCOMMIT\n", false)
	if d := cmp.Diff("*nat\n-D PREROUTING -j KUBE-SERVICES\n-F KUBE-SERVICES\n-X KUBE-SERVICES\nCOMMIT\n", got.script); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(got.stuck) != 1 || !strings.Contains(got.stuck[0], "KUBE-MARK-MASQ") {
		t.Errorf("stuck %q", got.stuck)
	}
}

// On a real kernel: after our rules were added and removed, the others' rules are the same, byte for byte.
func TestRulesOnAKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network name space of its own")
	}
	for _, backend := range []string{"iptables-nft", "iptables-legacy"} {
		t.Run(backend, func(t *testing.T) {
			for _, p := range []string{"unshare", backend + "-save"} {
				if _, err := exec.LookPath(p); err != nil {
					t.Skip(err)
				}
			}
			// One name space for the whole test: a shell that reads files.
			dir := t.TempDir()
			file := func(name, data string) string {
				p := dir + "/" + name
				require.NoError(t, os.WriteFile(p, []byte(data), 0o600))
				return p
			}
			inside := func(script string) []string {
				cmd := exec.Command("unshare", "--net", "sh", "-ec", script)
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%v\n%s", err, stderr.String())
				}
				return strings.Split(string(out), "=====\n")
			}
			theirs, ours := file("theirs", theirRules), file("ours", ourRules)
			save := backend + "-save | grep -v '^#'; echo =====; "
			restore := backend + "-restore "
			seen := inside(restore + theirs + "; " + save + restore + "--noflush " + ours + "; " + save)
			before, with := seen[0], seen[1]
			if before == with || !strings.Contains(with, "KUBE-SERVICES") {
				t.Fatal("the rules of a node did not get in")
			}
			clean := file("clean", cleanRules(with, true).script)
			seen = inside(restore + theirs + "; " + save + restore + "--noflush " + ours + "; " + restore + "--noflush --wait=5 " + clean + "; " + save)
			if d := cmp.Diff(seen[0], seen[1]); d != "" {
				t.Errorf("the others' rules (-before +after):\n%s", d)
			}
			if left := cleanRules(seen[1], true); left.script != "" {
				t.Errorf("left: %q", left.what)
			}
		})
	}
}

func FuzzRules(f *testing.F) {
	f.Add(theirRules, true)
	f.Add(ourRules, false)
	f.Fuzz(func(t *testing.T, save string, shared bool) {
		// Whatever the input, it deletes only rules that it contains.
		for line := range strings.Lines(cleanRules(save, shared).script) {
			if rest, ok := strings.CutPrefix(line, "-D"); ok && !strings.Contains(save, "-A"+strings.TrimSuffix(rest, "\n")) {
				t.Errorf("deletes %q, which was not there", line)
			}
		}
	})
}
