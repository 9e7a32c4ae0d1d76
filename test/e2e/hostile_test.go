// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// quoted returns arguments as a shell command line.
func quoted(argv []string) string {
	var out []string
	for _, a := range argv {
		out = append(out, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
	}
	return strings.Join(out, " ")
}

// initKills are the points at which an init is killed, with a condition for each.
var initKills = []struct{ name, reached string }{
	{"in the middle of a file", "[ -e /usr/local/bin/.containerd.ocadm ] || [ -e /usr/local/bin/containerd ]"},
	{"before the kubelet starts", "[ -e /etc/kubernetes/manifests/kube-apiserver.yaml ]"},
	{"while etcd starts", "[ -e /var/lib/etcd/member ]"},
	{"while objects are applied", "kubectl --kubeconfig /etc/kubernetes/admin.conf get namespace kube-flannel >/dev/null 2>&1"},
}

// killed kills "ocadm init" at several points, as in a power cut. Each run continues where the previous one was killed. The init after this step must
// finish. While one is running, a second one is refused.
func (s *suite) killed(t *testing.T) {
	command := quoted(s.initArgs(1, s.database(t, 1)...))
	for _, point := range initKills {
		t.Run(point.name, func(t *testing.T) {
			script := fmt.Sprintf(`%[1]s >/run/first.log 2>&1 & pid=$!
until %[2]s; do kill -0 $pid || { cat /run/first.log; exit 1; }; done
%[1]s >/run/second.log 2>&1 && exit 2
grep -q OCA-1050 /run/second.log || { cat /run/second.log; exit 3; }
kill -9 $pid; wait $pid; test $? = 137`, command, point.reached)
			if out, err := s.On(t.Context(), 1, "sh", "-c", script); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// dryRunAfter compares the machine, the database and the cluster before and after the dry runs of every command that has one.
func (s *suite) dryRunAfter(t *testing.T) {
	alive := []string{"/var/lib/containerd", "/var/lib/etcd", "/var/lib/kubelet", "/var/lib/ocadm/etcd"}
	before, objects, database := s.look(t, 1, alive...), s.objects(t), s.schemata(t)
	for _, argv := range [][]string{
		s.initArgs(1, append(s.database(t, 1), "--onecloud-version", version, "--dry-run")...),
		{scenario.Ocadm, "reset", "--dry-run"},
		{scenario.Ocadm, "token", "create", "--dry-run"},
	} {
		if _, err := s.On(t.Context(), 1, argv...); err != nil {
			t.Error(err)
		}
	}
	compare(t, "the machine", before, s.look(t, 1, alive...))
	compare(t, "the cluster", objects, s.objects(t))
	if after := s.schemata(t); after != database {
		t.Errorf("a dry run changed the database: %s → %s", database, after)
	}
}

// noSecret searches for the passwords where many may read: in what ocadm wrote on the machine, and in what the API server shows except Secrets.
func (s *suite) noSecret(t *testing.T) {
	said, err := s.On(t.Context(), 1, "sh", "-c", "cd / && cat /var/log/ocadm/* /var/lib/ocadm/*.jsonl $(find /etc/ocadm /etc/systemd/system -type f); journalctl --no-pager")
	require.NoError(t, err)
	objects, err := s.Kubectl(t.Context(), "get", "configmaps,pods,events,deployments,statefulsets,onecloudclusters,crd", "-A", "-o", "yaml")
	require.NoError(t, err)
	for place, text := range map[string]string{"logs, journal or files": said, "objects": objects} {
		if len(text) < 1000 {
			t.Errorf("%s are too short to have been read: %q", place, text)
		}
		for _, secret := range []string{s.db.RootPassword, secret} {
			if strings.Contains(text, secret) {
				t.Errorf("%s hold a password", place)
			}
		}
	}
}

// objects returns the cluster's objects by kind and name, with their resource versions, or only the generation for objects that change by themselves.
func (s *suite) objects(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for kinds, field := range map[string]string{
		"namespaces,crd,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,configmaps,secrets,services,storageclasses": "resourceVersion",
		"nodes,deployments,daemonsets,statefulsets,persistentvolumeclaims,onecloudclusters":                                             "generation",
	} {
		text, err := s.Kubectl(t.Context(), "get", kinds, "-A", "-o",
			`jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name} {.metadata.uid}:{.metadata.`+field+`}{"\n"}{end}`)
		require.NoError(t, err)
		maps.Copy(out, fields(text))
	}
	return out
}

// fields returns the lines of a text by their first word.
func fields(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "" {
			out[name] = rest
		}
	}
	return out
}

func compare(t *testing.T, what string, before, after map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now, ok := after[name]; !ok {
			t.Errorf("%s: %s is gone", what, name)
		} else if now != before[name] {
			t.Errorf("%s: %s was %s and is %s", what, name, before[name], now)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[name]; !ok {
			t.Errorf("%s: %s is new: %s", what, name, after[name])
		}
	}
}

// script lists what an installer could leave on a machine: files, links, mounts, packet rules, units, processes, kernel parameters. It omits logs,
// the volumes that reset promises to keep, and what kubectl keeps for its user.
const script = `find /etc /opt /usr /root /home /srv /var -xdev \( -path /var/log -o -path /var/lib/systemd -o -path /var/cache ` +
	`-o -path /var/tmp -o -path /opt/local-path-provisioner -o -path /root/.kube %s \) -prune -o -type d -printf 'directory:%%p %%m\n' -o -printf 'file:%%p %%m:%%s:%%T@\n'
ls -d /run/containerd /run/flannel /run/nri /run/netns/* 2>/dev/null | sed 's/^/run:/'
ip -o link | awk '{print "link:" $2}' | sed 's/@.*//'
ip route | sed 's/ /_/g; s/^/route:/'
awk '{print "mount:" $2}' /proc/self/mounts
nft list tables | grep -E 'kube|flannel' | sed 's/ /_/g'
(iptables-save; ip6tables-save) | grep -E '^[:-].*(KUBE|FLANNEL|CNI|flanneld)' | sed 's/\[.*//; s/ /_/g; s/^/rule:/'
systemctl list-unit-files --no-legend --no-pager --type=service | awk '{print "unit:" $1, $2}'
systemctl list-units --no-legend --no-pager --plain --state=failed | awk '{print "failed:" $1}'
ps -eo comm= | grep -E '^(kubelet|containerd|etcd|kube-|flanneld|coredns|pause|mariadb|ocadm|local-path)' | sed 's/^/process:/'
for p in ip_forward tcp_retries2 tcp_keepalive_time; do echo "sysctl:$p $(sysctl -n net.ipv4.$p)"; done`

// look runs script, leaving out some directories.
func (s *suite) look(t *testing.T, node int, without ...string) map[string]string {
	t.Helper()
	var paths strings.Builder
	for _, p := range without {
		paths.WriteString(" -o -path " + p)
	}
	out, err := s.On(t.Context(), node, "sh", "-c", fmt.Sprintf(script, paths.String()))
	require.NoError(t, err)
	return fields(out)
}
