// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// refused is a command that must fail, report what, why and what next, and change nothing.
type refused struct {
	name string
	argv []string
	// prepare is a script that creates the situation; restore reverts it.
	prepare string
	restore string
	// want lists parts of the output.
	want []string
	// exit is the exit status; 0 means any but 0.
	exit int
	// running means that the machine is a node at the time.
	running bool
}

// changes lists the files that are newer than the mark, except logs.
const changes = `find /etc /opt /usr /var /root -xdev -newer /run/mark \( -type f -o -type d -o -type l \) ` +
	`! -path '/var/log*' ! -path '/var/lib/systemd*' ! -path '/var/cache*' ! -path '/var/tmp*' | sort`

// lively filters out what the programs of a node write constantly.
const lively = ` | grep -vE '^/var/lib/(containerd|kubelet)(/|$)'; true`

func (s *suite) refuse(t *testing.T, node int, c refused) {
	t.Helper()
	ctx := t.Context()
	if c.prepare != "" {
		if _, err := s.On(ctx, node, "sh", "-c", c.prepare); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if c.restore != "" {
			if _, err := s.On(context.WithoutCancel(ctx), node, "sh", "-c", c.restore); err != nil {
				t.Error(err)
			}
		}
	}()
	if _, err := s.On(ctx, node, "sh", "-c", "sleep 0.05; touch /run/mark; sleep 0.05"); err != nil {
		t.Fatal(err)
	}
	var out, errOut strings.Builder
	err := s.Lab.Node(node).Run(ctx, machine.Streams{Out: &out, Err: &errOut}, c.argv...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("want a failure, got %v\n%s%s", err, out.String(), errOut.String())
	}
	if c.exit != 0 && exit.ExitCode() != c.exit {
		t.Errorf("exit status %d, want %d", exit.ExitCode(), c.exit)
	}
	said := out.String() + errOut.String()
	for _, w := range c.want {
		if !strings.Contains(said, w) {
			t.Errorf("it does not say %q", w)
		}
	}
	if strings.Contains(said, s.db.RootPassword) || strings.Contains(said, secret) {
		t.Error("it says a password")
	}
	list := changes
	if c.running {
		list += lively
	}
	changed, err := s.On(ctx, node, "sh", "-c", list)
	require.NoError(t, err)
	if strings.TrimSpace(changed) != "" {
		t.Errorf("it changed\n%s", changed)
	}
	if t.Failed() {
		t.Logf("it said\n%s", said)
	}
}

// secret must never be printed.
const secret = "Canary-5f2b9c7e"

func (s *suite) initArgs(node int, extra ...string) []string {
	return append([]string{scenario.Ocadm, "init", "--bundle", scenario.Bundle, "--allow-cgroup-v1",
		"--restrict-oom-score-adj", "--conntrack-max-per-core", "0", "--node-ip", s.Lab.Node(node).Address.String()}, extra...)
}

func (s *suite) badInput(t *testing.T) {
	const pw = "/run/canary"
	require.NoError(t, s.Lab.Node(1).Write(t.Context(), pw, 0o600, strings.NewReader(secret)))
	db := s.database(t, 1)
	s.createAccount(t, "nogrant")
	port := db[3]
	for _, c := range []refused{
		{name: "wrong database password", argv: s.initArgs(1, "--mysql-host", s.db.Host, "--mysql-port", port, "--mysql-password-file", pw),
			want: []string{"OCA-60", s.db.Host, "root", "GRANT"}},
		{name: "unreachable database", argv: s.initArgs(1, "--mysql-host", s.Lab.Host().String(), "--mysql-port", "1", "--mysql-password-file", pw),
			want: []string{"OCA-60", s.Lab.Host().String()}},
		{name: "account without grant option", argv: s.initArgs(1, "--mysql-host", s.db.Host, "--mysql-port", port, "--mysql-user", "nogrant", "--mysql-password-file", pw),
			want: []string{"OCA-60", "nogrant", "WITH GRANT OPTION"}},
		{name: "port taken", argv: s.initArgs(1, db...), prepare: "systemd-run --quiet --collect --unit=squatter socat TCP-LISTEN:6443,fork /dev/null; until ss -Hltn 'sport = :6443' | grep -q .; do sleep 0.1; done",
			restore: "systemctl stop squatter", want: []string{"6443"}},
		{name: "not root", argv: append([]string{"setpriv", "--reuid=65534", "--clear-groups"}, s.initArgs(1)...), want: []string{"root"}},
		{name: "unknown phase", argv: s.initArgs(1, "--skip-phases", "preflihgt"), want: []string{"preflihgt", "preflight"}, exit: 4},
		{name: "unknown flag", argv: s.initArgs(1, "--mysql-hsot", "x"), want: []string{"mysql-hsot"}, exit: 4},
		{name: "cgroup v1 without consent", argv: []string{scenario.Ocadm, "init", "--bundle", scenario.Bundle}, want: []string{"cgroup", "--allow-cgroup-v1"}},
		{name: "truncated bundle", argv: append([]string{scenario.Ocadm, "init", "--bundle", "/run/cut.bundle", "--allow-cgroup-v1"}, db...),
			prepare: "head -c 30000000 " + scenario.Bundle + " > /run/cut.bundle", restore: "rm /run/cut.bundle", want: []string{"OCA-23", "cut.bundle"}},
		{name: "no bundle file", argv: []string{scenario.Ocadm, "init", "--bundle", "/nowhere", "--allow-cgroup-v1"}, want: []string{"/nowhere"}},
		{name: "image missing in the bundle", argv: s.initArgs(1, append(db, "--onecloud-version", "v4.0.99")...), want: []string{"OCA-", "v4.0.99"}},
		{name: "disk too small", argv: s.initArgs(1, db...), prepare: "mkdir -p /var/lib/etcd && mount -t tmpfs -o size=20m none /var/lib/etcd",
			restore: "umount /var/lib/etcd; rmdir /var/lib/etcd", want: []string{"/var/lib/etcd"}},
		{name: "unknown key in the configuration", argv: append(s.initArgs(1), "--config", "/run/bad.yaml"),
			prepare: "printf 'apiVersion: ocadm.yunion.io/v1\\nkind: Configuration\\nclsuter: {}\\n' > /run/bad.yaml", restore: "rm /run/bad.yaml", want: []string{"clsuter"}, exit: 3},
	} {
		t.Run(c.name, func(t *testing.T) { s.refuse(t, 1, c) })
	}
}

// createAccount creates a database account without privileges.
func (s *suite) createAccount(t *testing.T, name string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "mariadb", "--no-defaults", "--socket", s.db.Socket, "-u", "root")
	c.Env = append(c.Environ(), "MYSQL_PWD="+s.db.RootPassword)
	c.Stdin = strings.NewReader("CREATE USER '" + name + "'@'%' IDENTIFIED BY '" + secret + "'; GRANT ALL ON *.* TO '" + name + "'@'%';")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("creating a database account: %v\n%s", err, out)
	}
}

// dryRun compares the machine and the database before and after; there is no cluster yet.
func (s *suite) dryRun(t *testing.T) {
	ctx := t.Context()
	databases := s.schemata(t)
	argv := s.initArgs(1, append(s.database(t, 1), "--onecloud-version", version, "--dry-run")...)
	before := s.look(t, 1)
	out, err := s.On(ctx, 1, argv...)
	require.NoError(t, err)
	for _, w := range []string{"/etc/systemd/system/kubelet.service", "create OnecloudCluster"} {
		if !strings.Contains(out, w) {
			t.Errorf("the plan lacks %q\n%s", w, out)
		}
	}
	compare(t, "the machine", before, s.look(t, 1))
	if after := s.schemata(t); after != databases {
		t.Errorf("a dry run changed the database: %s → %s", databases, after)
	}
}

// schemata counts databases and accounts.
func (s *suite) schemata(t *testing.T) string {
	t.Helper()
	return s.query(t, "SELECT COUNT(*), (SELECT COUNT(*) FROM mysql.user) FROM information_schema.schemata")
}

func (s *suite) query(t *testing.T, sql string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "mariadb", "--no-defaults", "--socket", s.db.Socket, "-u", "root", "-N", "-e", sql)
	c.Env = append(c.Environ(), "MYSQL_PWD="+s.db.RootPassword)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("asking the database: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// badJoins joins a machine that has already joined, and joins with wrong credentials.
func (s *suite) badJoins(t *testing.T) {
	argv, err := s.JoinCommand(t.Context(), 1)
	require.NoError(t, err)
	with := func(flag, value string) []string {
		out := append([]string{}, argv...)
		for i, a := range out {
			if a == flag {
				out[i+1] = value
			}
		}
		return append(out, "--allow-cgroup-v1", "--ignore-preflight-errors", "ComputeModules")
	}
	if _, err := s.On(t.Context(), 2, scenario.Ocadm, "reset", "--yes"); err != nil {
		t.Fatal(err)
	}
	t.Run("unknown token", func(t *testing.T) {
		s.refuse(t, 2, refused{argv: with("--token", "abcdef.0123456789abcdef"), want: []string{"OCA-41", "ocadm token create --print-join-command"}})
	})
	t.Run("expired token", func(t *testing.T) {
		token, err := s.On(t.Context(), 1, scenario.Ocadm, "token", "create", "--ttl", "1s")
		require.NoError(t, err)
		if _, err := s.On(t.Context(), 1, "sh", "-c", "while kubectl --kubeconfig /etc/kubernetes/admin.conf -n kube-system get secret bootstrap-token-"+
			strings.TrimSpace(token)[:6]+" 2>/dev/null; do sleep 0.2; done"); err != nil {
			t.Fatal(err)
		}
		s.refuse(t, 2, refused{argv: with("--token", strings.TrimSpace(token)), want: []string{"OCA-41", "ocadm token create --print-join-command"}})
	})
	t.Run("malformed token", func(t *testing.T) {
		s.refuse(t, 2, refused{argv: with("--token", "secret"), want: []string{"--token"}, exit: 3})
	})
	t.Run("wrong CA hash", func(t *testing.T) {
		s.refuse(t, 2, refused{argv: with("--discovery-token-ca-cert-hash", "sha256:"+strings.Repeat("0", 64)), want: []string{"OCA-41"}})
	})
	t.Run("unreachable control plane", func(t *testing.T) {
		bad := with("", "")
		bad[2] = s.Lab.Node(1).Address.String() + ":1"
		s.refuse(t, 2, refused{argv: bad, want: []string{"OCA-", bad[2]}})
	})
	t.Run("unreachable depot", func(t *testing.T) {
		depot := s.Lab.Node(1).Address.String() + ":1"
		s.refuse(t, 2, refused{argv: append(with("", ""), "--depot", depot), want: []string{"OCA-2313", depot, "--bundle FILE"}})
	})
	t.Run("joins again after reset", func(t *testing.T) {
		require.NoError(t, s.Join(t.Context(), 2))
	})
	t.Run("init on a node of a cluster", func(t *testing.T) {
		// Wait until the pod network has written its files.
		if _, err := s.Kubectl(t.Context(), "wait", "node/node2", "--for=condition=Ready", "--timeout=600s"); err != nil {
			t.Fatal(err)
		}
		s.refuse(t, 2, refused{running: true, argv: s.initArgs(2), want: []string{"OCA-1006", "ocadm reset"}})
	})
}

// malformed checks that the API server rejects malformed clouds and names the field.
func (s *suite) malformed(t *testing.T) {
	for name, c := range map[string]struct{ patch, want string }{
		"negative replicas":       {`{"spec":{"glance":{"replicas":-1}}}`, "spec.glance.replicas"},
		"wrong type":              {`{"spec":{"keystone":{"replicas":"two"}}}`, "spec.keystone.replicas"},
		"unknown product version": {`{"spec":{"productVersion":"Everything"}}`, "spec.productVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := s.Kubectl(t.Context(), "-n", "onecloud", "patch", "oc", "default", "--type=merge", "-p", c.patch)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want a refusal that names %s, got %q, %v", c.want, out, err)
			}
		})
	}
}
