// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// labSettings are scenario.MachineFlags in the form in which a machine sets them for every login (pam_env).
const labSettings = "OCADM_ALLOW_CGROUP_V1=true\nOCADM_RESTRICT_OOM_SCORE_ADJ=true\nOCADM_CONNTRACK_MAX_PER_CORE=0\n"

// TestMachinesJoin joins lab machines that have only OpenSSH, as resources, from a control plane that init created.
func TestMachinesJoin(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_MACHINES") == "" {
		t.Skip("make machines runs it: it takes minutes")
	}
	log := logf(t)
	ocadm, bundle, err := scenario.Build(t.Context(), repository, version, "", log)
	require.NoError(t, err)
	l := up(t, machine.Options{Nodes: 7, Ocadm: ocadm, Bundle: bundle, Packages: []string{"openssh-server", "sudo", "cloud-init"}, Logf: log})
	s := newSuite(t, l)
	s.reachable(t)
	s.walk(t, s.explainMachines,
		step{"init and a cloud", s.initForMachines},
		step{"pairs of machines that do not fit", s.machinePairs},
		step{"one machine", s.oneMachine},
		step{"five machines, two of them bad", s.manyMachines},
		step{"the bad ones recover, one of them after a loss of power", s.recovered},
		step{"remove a machine", s.removeMachine},
		step{"a machine boots with user data of cloud-init and calls in", s.callsIn},
	)
}

// freshScript lets the key in its first argument log in to a machine, and removes everything of ocadm from it.
const freshScript = `rm -f /etc/ssh/ssh_host_* /usr/local/bin/ocadm /bundle/ocadm.bundle && ssh-keygen -q -A && systemctl restart ssh
useradd --create-home --shell /bin/bash debian && printf '%s\n' 'debian ALL=(ALL) NOPASSWD: ALL' 'Defaults env_keep += "OCADM_*"' >/etc/sudoers.d/debian
for home in /root /home/debian; do mkdir -p -m 0700 $home/.ssh; echo "$1" >$home/.ssh/authorized_keys; done
chown -R debian:debian /home/debian/.ssh
printf '%s' "$2" >>/etc/environment`

// reachable lets the user log in from machine 1 to the others, and removes everything of ocadm from those.
func (s *suite) reachable(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	key, err := s.On(ctx, 1, "sh", "-c", "ssh-keygen -q -t ed25519 -N '' -f /root/fleet && cat /root/fleet.pub")
	require.NoError(t, err)
	for i := 2; i <= len(s.Lab.Nodes()); i++ {
		if _, err := s.On(ctx, i, "sh", "-ec", freshScript, "sh", strings.TrimSpace(key), labSettings); err != nil {
			t.Fatal(err)
		}
		s.fresh[i] = s.look(t, i)
	}
}

func (s *suite) initForMachines(t *testing.T) {
	require.NoError(t, s.Init(t.Context(), "--ingress", "none", "--offline"))
	s.cloud(t)
	if _, err := s.Kubectl(t.Context(), "-n", "onecloud", "create", "secret", "generic", "fleet", "--from-file=ssh-privatekey=/root/fleet"); err != nil {
		t.Fatal(err)
	}
}

// file writes a file of machines.
func (s *suite) file(t *testing.T, nodes ...int) string {
	t.Helper()
	var out strings.Builder
	for _, n := range nodes {
		user := "root"
		if n%2 == 0 {
			user = "debian" // with sudo
		}
		fmt.Fprintf(&out, "---\napiVersion: onecloud.yunion.io/v1alpha1\nkind: OnecloudMachine\nmetadata: {name: %s, namespace: onecloud}\nspec:\n  cloud: default\n"+
			"  labels: {example.org/rack: r1}\n  infrastructure: {ssh: {address: %s, user: %s, credentialsSecretName: fleet}}\n", s.Lab.Node(n).Name, s.Lab.Node(n).Address, user)
	}
	const name = "/root/machines.yaml"
	require.NoError(t, s.Lab.Node(1).Write(t.Context(), name, 0o600, strings.NewReader(out.String())))
	return name
}

// arrives waits until a machine is as it should be.
func (s *suite) arrives(t *testing.T, node int, what string, is func(*v1alpha1.OnecloudMachine) bool) *v1alpha1.OnecloudMachine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*arrival)
	defer cancel()
	m := &v1alpha1.OnecloudMachine{}
	name := s.Lab.Node(node).Name
	err := wait.Until(ctx, "machine "+name+" that "+what, time.Second, func(ctx context.Context) (bool, string, error) {
		out, _, err := s.Lab.Node(1).Exec(ctx, scenario.Ocadm, "machine", "get", name, "-o", "json")
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // the reason to keep waiting
		}
		m = &v1alpha1.OnecloudMachine{}
		err = json.Unmarshal([]byte(out), m)
		return err == nil && is(m), fmt.Sprintf("%s %s", m.Status.Phase, m.Status.Message), err
	}, func(why string) { t.Logf("%s: %s", name, why) })
	if err != nil {
		s.explainMachines(t)
		t.Fatal(err)
	}
	return m
}

// run waits until machines are running, with one watch: a request each second would cost as much as a part of what is measured.
func (s *suite) run(t *testing.T, nodes ...int) error {
	t.Helper()
	argv := []string{"-n", "onecloud", "wait", "--for=jsonpath={.status.phase}=Running", "--timeout=" + (2 * arrival).String()}
	for _, n := range nodes {
		argv = append(argv, "onecloudmachine/"+s.Lab.Node(n).Name)
	}
	_, err := s.Kubectl(t.Context(), argv...)
	return err
}

// left waits for the end of the script, after the Node is Ready, and lists the files that it leaves.
const left = "while ls -d /root/.ocadm/run.* >/dev/null 2>&1; do sleep 0.2; done; find /root/.ocadm -type f"

func running(m *v1alpha1.OnecloudMachine) bool {
	return m.Status.Phase == v1alpha1.MachineRunning && m.Status.NodeRef != nil
}

func (s *suite) oneMachine(t *testing.T) {
	err := s.cost(t, "one machine joins", []int{2}, func() error {
		if _, err := s.On(t.Context(), 1, scenario.Ocadm, "machine", "resume", "node2"); err != nil {
			return err
		}
		return s.run(t, 2)
	})
	require.NoError(t, err)
	s.arrives(t, 2, "runs", running)
	// The Node is Ready before the script on the machine has ended, which then removes its files.
	if _, err := s.Kubectl(t.Context(), "-n", "onecloud", "wait", "onecloudoperations", "--all", "--for=condition=Complete", "--timeout=180s"); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"cmp /usr/local/bin/ocadm /lab/bin/ocadm && echo same":                           "same",
		"find /root/.ocadm -type f":                                                      "/root/.ocadm/delivered",
		"journalctl -u ssh -o cat | grep -c 'Accepted publickey for debian' | grep -c .": "1",
	} {
		if out, err := s.On(t.Context(), 2, "sh", "-c", command+"; true"); err != nil || strings.TrimSpace(out) != want {
			t.Errorf("%s on node 2 prints %q, want %q (%v)", command, out, want, err)
		}
	}
	out, err := s.Kubectl(t.Context(), "get", "node", "node2", "-o", `jsonpath={.metadata.labels.example\.org/rack} {.spec.providerID}`)
	if err != nil || out != "r1 ocadm://onecloud/node2" {
		t.Errorf("node2 has %q, %v", out, err)
	}
}

// manyMachines adds five machines with one file: the cable of one is unplugged, and a port of the kubelet is taken on another.
func (s *suite) manyMachines(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, s.Lab.Node(6).CutNetwork())
	if _, err := s.On(ctx, 7, "systemd-run", "--unit=other", "socat", "TCP-LISTEN:10250,fork", "SYSTEM:true"); err != nil {
		t.Fatal(err)
	}
	err := s.cost(t, "three machines join", []int{3, 4, 5}, func() error {
		if _, err := s.On(ctx, 1, scenario.Ocadm, "machine", "add", "-f", s.file(t, 3, 4, 5, 6, 7)); err != nil {
			return err
		}
		for _, name := range []string{"node3", "node4", "node5"} { // they were added for the comparison
			if _, err := s.On(ctx, 1, scenario.Ocadm, "machine", "resume", name); err != nil {
				return err
			}
		}
		return s.run(t, 3, 4, 5)
	})
	require.NoError(t, err)
	for _, n := range []int{3, 4, 5} {
		s.arrives(t, n, "runs", running)
	}
	m := s.arrives(t, 6, "cannot be reached", func(m *v1alpha1.OnecloudMachine) bool { return strings.Contains(m.Status.Message, "OCA-7601") })
	if m.Status.Phase != v1alpha1.MachinePending {
		t.Errorf("%s", m.Status.Phase)
	}
	m = s.arrives(t, 7, "fails its checks", func(m *v1alpha1.OnecloudMachine) bool { return m.Status.Phase == v1alpha1.MachineFailed })
	if m.Status.FailureReason != "OCA-2001" || !strings.Contains(m.Status.FailureMessage, "10250") {
		t.Errorf("%s: %s", m.Status.FailureReason, m.Status.FailureMessage)
	}
	if _, err := s.On(ctx, 1, scenario.Ocadm, "machine", "list"); err != nil {
		t.Error(err)
	}
}

// recovered repairs what is wrong. The unplugged machine is plugged in, and powered off while it installs its software.
func (s *suite) recovered(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, s.Lab.Node(6).RestoreNetwork())
	if _, err := s.On(ctx, 7, "systemctl", "stop", "other"); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"node6", "node7"} {
		if _, err := s.On(ctx, 1, scenario.Ocadm, "machine", "retry", node); err != nil {
			t.Fatal(err)
		}
	}
	limited, cancel := context.WithTimeout(ctx, 2*arrival)
	defer cancel()
	if _, err := s.On(limited, 6, "sh", "-c", "until [ -e /usr/local/bin/kubelet ]; do sleep 0.1; done"); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, s.Lab.Node(6).Kill(ctx))
	require.NoError(t, s.Lab.Node(6).Start(ctx))
	err := s.Timed("recovery after a loss of power", func() error {
		s.arrives(t, 6, "runs", running)
		return nil
	})
	require.NoError(t, err)
	s.arrives(t, 7, "runs", running)
	if out, err := s.On(ctx, 6, "sh", "-c", left); err != nil || strings.TrimSpace(out) != "/root/.ocadm/delivered" {
		t.Errorf("node 6 has %q, %v", out, err)
	}
}

// removeMachine removes machines whose pods must be evicted first. The machines are then as before.
func (s *suite) removeMachine(t *testing.T) {
	ctx := t.Context()
	pods := []string{"-n", "default", "create", "deployment", "moves", "--image=registry.k8s.io/pause:3.10.2", "--replicas=6"}
	if _, err := s.Kubectl(ctx, pods...); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kubectl(ctx, "-n", "default", "rollout", "status", "deployment/moves", "--timeout=180s"); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2, 6} {
		name := s.Lab.Node(n).Name
		err := s.Timed("remove "+name, func() error {
			_, err := s.On(ctx, 1, scenario.Ocadm, "machine", "remove", name, "--yes", "--wait")
			return err
		})
		require.NoError(t, err)
		compare(t, name+" after it was removed", s.fresh[n], s.look(t, n))
		if out, err := s.Kubectl(ctx, "get", "node", name, "--ignore-not-found", "-o", "name"); err != nil || out != "" {
			t.Errorf("node %s: %q, %v", name, out, err)
		}
	}
	out, err := s.Kubectl(ctx, "-n", "default", "get", "pods", "-o", `jsonpath={range .items[*]}{.spec.nodeName}={.status.phase} {end}`)
	if err != nil || strings.Count(out, "=Running") != 6 || strings.Contains(out, "node2=") || strings.Contains(out, "node6=") {
		t.Errorf("pods: %s, %v", out, err)
	}
}

// callsIn boots machine 2 with the operator's user data, from a NoCloud seed. Nothing logs in to it: it reports by itself that a port is taken, joins
// when the port is free, and is reset by a user.
func (s *suite) callsIn(t *testing.T) {
	ctx := t.Context()
	if _, err := s.On(ctx, 1, scenario.Ocadm, "machine", "add", "node2", "--callback"); err != nil {
		t.Fatal(err)
	}
	s.arrives(t, 2, "has data", func(m *v1alpha1.OnecloudMachine) bool { return m.Status.DataSecretName != "" })
	var data strings.Builder // it contains a token, which must not be logged
	require.NoError(t, s.Lab.Node(1).Run(ctx, machine.Streams{Out: &data, Err: os.Stderr}, scenario.Ocadm, "machine", "bootstrap-data", "node2"))
	const seed = "/var/lib/cloud/seed/nocloud/"
	node := s.Lab.Node(2)
	for name, content := range map[string]string{
		seed + "user-data": data.String(), seed + "meta-data": "instance-id: i-2\nlocal-hostname: node2\n",
		"/etc/systemd/system.conf.d/site.conf": "[Manager]\nDefaultEnvironment=" + strings.Join(strings.Fields(labSettings), " ") + "\n",
		// The lab sets the address of the machine.
		"/etc/cloud/cloud.cfg.d/lab.cfg": "datasource_list: [NoCloud, None]\nnetwork: {config: disabled}\n",
		"/etc/systemd/system/other.service": "[Service]\nExecStart=/usr/bin/socat TCP-LISTEN:10250,fork SYSTEM:true\n" +
			"[Install]\nWantedBy=basic.target\n",
	} {
		require.NoError(t, node.Write(ctx, name, 0o600, strings.NewReader(content)))
	}
	if out, err := s.On(ctx, 2, "sh", "-c", "systemctl enable other && cloud-init schema --config-file "+seed+"user-data"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	require.NoError(t, node.Kill(ctx))
	if err := node.PowerOn(ctx); err != nil { // do not wait for its boot, which ends after it has joined: cloud-init runs until then
		t.Fatal(err)
	}
	explain := func() {
		_, _ = s.On(context.WithoutCancel(ctx), 2, "sh", "-c", "cloud-init status --long; tail -50 /var/log/cloud-init.log /var/log/cloud-init-output.log")
	}
	t.Cleanup(func() {
		if t.Failed() {
			explain()
		}
	})
	err := s.Timed("a boot with cloud-init reports a taken port", func() error {
		m := s.arrives(t, 2, "reports a failure", func(m *v1alpha1.OnecloudMachine) bool { return strings.Contains(m.Status.Message, "OCA-2001") })
		if m.Status.Phase != v1alpha1.MachineProvisioning || !strings.Contains(m.Status.Message, "10250") {
			t.Errorf("%s: %s", m.Status.Phase, m.Status.Message)
		}
		return nil
	})
	require.NoError(t, err)
	if _, err := s.On(ctx, 2, "systemctl", "disable", "--now", "other"); err != nil {
		t.Fatal(err)
	}
	err = s.Timed("and joins when it is free", func() error {
		s.arrives(t, 2, "runs", running)
		return nil
	})
	require.NoError(t, err)
	s.callerLeaves(t)
}

// callerLeaves removes the machine to which nothing logs in.
func (s *suite) callerLeaves(t *testing.T) {
	ctx := t.Context()
	if _, err := s.On(ctx, 1, scenario.Ocadm, "machine", "remove", "node2", "--yes"); err != nil {
		t.Fatal(err)
	}
	s.arrives(t, 2, "waits for its reset", func(m *v1alpha1.OnecloudMachine) bool { return strings.Contains(m.Status.Message, "OCA-7625") })
	if out, err := s.On(ctx, 2, "ocadm", "reset", "--yes"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, kind := range []string{"onecloudmachine", "node"} {
		if out, err := s.Kubectl(ctx, "-n", "onecloud", "wait", kind+"/node2", "--for=delete", "--timeout=120s"); err != nil {
			t.Errorf("%s: %v: %s", kind, err, out)
		}
	}
}

// explainMachines prints details about machines that do not join.
func (s *suite) explainMachines(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, argv := range [][]string{
		{"-n", "onecloud", "get", "ocm", "-o", "wide"}, {"-n", "onecloud", "get", "onecloudoperations", "-o", "wide"}, {"get", "nodes", "-o", "wide"},
		{"-n", "onecloud", "logs", "-l", "app=onecloud-operator", "--prefix", "--tail=60"},
	} {
		out, err := s.Kubectl(ctx, argv...)
		t.Logf("$ kubectl %s\n%s%v", strings.Join(argv, " "), out, err)
	}
}
