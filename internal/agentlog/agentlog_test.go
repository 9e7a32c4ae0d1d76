// SPDX-License-Identifier: Apache-2.0

package agentlog

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
)

// Log lines of the agents, each with the code and part of the text of its finding.
var excerpts = []struct{ line, code, what string }{
	{`[error 2026-11-20 08:14:02 hostinfo.(*SHostInfo).onFail(hostinfo.go:1309)] register failed: ensureMasterNetworks: getNetworkInfo: try create network: find_matched == false: InvalidStatusError`, "OCA-7130", "no network for the address"},
	{`[error 2026-11-20 08:14:02 hostinfo.(*SHostInfo).onFail(hostinfo.go:1309)] register failed: find multiple match network (3) for access network: ConflictError`, "OCA-7131", "has 3 networks"},
	{`[error 2026-11-20 08:14:02 hostutils.GetWireOfIp(hostutils.go:179)] Fail to get network info: no networks`, "OCA-7132", "another address"},
	{`[error 2026-11-20 08:14:02 hostinfo.onFail(hostinfo.go:1309)] register failed: {"error":{"class":"InternalServerError","code":500,"details":"No auto_alloc network found of wire: bcast0(4c1e3f), netTypes: [baremetal]"}}`, "OCA-7133", "Wire bcast0(4c1e3f)"},
	{`[error 2026-11-20 08:14:02 hostinfo.onFail(hostinfo.go:1309)] register failed: {"error":{"class":"InsufficientResourceError","code":507,"details":"Out of IP address"}}`, "OCA-7133", "no free address"},
	{`[error 2026-11-20 08:14:02 hostinfo.onFail(hostinfo.go:1309)] register failed: {"error":{"class":"BadRequestError","code":400,"details":"IP 10.0.1.5 not attach to wire 4c1e3f"}}`, "OCA-7134", "10.0.1.5 belongs to a different wire"},
	{`[error 2026-11-20 08:14:02 hostinfo.onFail(hostinfo.go:1309)] register failed: SetWireId eth1: expect wire bcast1 != assign wire bcast0: ConflictError`, "OCA-7134", "on wire bcast0 in the cloud and on bcast1"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: Parse config: Ip 10.0.0.5 is not configure on br0/eth0 ?, wait 3 minutes to retry`, "OCA-7135", "10.0.0.5 is not on br0/eth0"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: Parse config: NewNIC: eth7 not exists, wait 3 minutes to retry`, "OCA-7135", "interface eth7 does not exist"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: bridge br0 exists, but not created by this driver????, wait 3 minutes to retry`, "OCA-7136", "br0 exists and is not an Open vSwitch bridge"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: bridge br0 IP 10.0.0.5 is not expected IP 10.0.0.6, mismatch, wait 3 minutes to retry`, "OCA-7137", "br0 has the address 10.0.0.5, and host.conf has 10.0.0.6"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: interface eth0 should have no address, wait 3 minutes to retry`, "OCA-7137", "eth0 still has an address"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: Neither eth0 nor br0 owner address 10.0.0.5, wait 3 minutes to retry`, "OCA-7137", "Neither eth0 nor br0 has the address 10.0.0.5"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: parseConfig: bridge br0 (2001:db8::10) shoud have no ipv6 address, wait 3 minutes to retry`, "OCA-7137", "br0 has the IPv6 address 2001:db8::10"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: interface eth0 should have no ipv6 address, wait 3 minutes to retry`, "OCA-7137", "eth0 still has an address"},
	{`[fatal 2026-11-20 08:14:02 main.main(main.go:30)] Listen interface eth0 master have no IP`, "OCA-7138", "listen interface eth0 has no address"},
	{`[fatal 2026-11-20 08:14:02 main.main(main.go:30)] No interface suitable to be master NIC`, "OCA-7138", "No interface in host.conf"},
	{`[error 2026-11-20 08:14:02 hostinfo.onFail(hostinfo.go:1309)] register failed: access nic ip  mask 0: InvalidStatusError`, "OCA-7138", "has no address"},
	{`[error 2026-11-20 08:14:02 hostinfo.AppendHostError(hostinfo.go:2710)] dhcp client is enabled before host agent start, please disable it`, "OCA-7139", "DHCP client"},
	{`[error 2026-11-20 08:14:02 hostinfo.onFail(hostinfo.go:1309)] register failed: {"error":{"class":"ConflictError","code":409,"details":"duplicate manager_uri https://10.0.0.5:8885"}}`, "OCA-7140", "address https://10.0.0.5:8885"},
	{`[error 2026-11-20 08:14:02 hostinfo.onFail(hostinfo.go:1309)] register failed: {"error":{"class":"ConflictError","code":409,"details":"duplicate access_mac 52:54:00:12:34:56"}}`, "OCA-7141", "MAC address 52:54:00:12:34:56"},
	{`[error 2026-11-20 08:14:02 hostinfo.onFail(hostinfo.go:1309)] register failed: find multiple hosts match access mac 52:54:00:12:34:56: ConflictError`, "OCA-7141", "MAC address 52:54:00:12:34:56"},
	{`[error 2026-11-20 08:14:02 hostinfo.onFail(hostinfo.go:1309)] register failed: {"error":{"class":"InputParameterError","code":400,"details":"name starts with letter, and contains letter, number and - only"}}`, "OCA-7142", "cannot be the name of a host"},
	{`panic: Setup OVN Chassis: normalize db host: dns lookup default-ovn-north: lookup default-ovn-north on 8.8.8.8:53: no such host`, "OCA-7116", "cannot resolve"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: service openvswitch not installed and wait ovs service timeout, please check ovs service status, wait 3 minutes to retry`, "OCA-7115", "does not answer"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: Prepare environment: Failed to load openvswitch kernel modules: exit status 1, wait 3 minutes to retry`, "OCA-7112", "openvswitch cannot be loaded"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: Prepare environment: Failed to activate tun/tap device: grpc dial error: context deadline exceeded, wait 3 minutes to retry`, "OCA-7110", "cannot reach the executor"},
	{`[error 2026-11-20 08:14:02 models.(*SImage).OnSaveSuccess(images.go:900)] save: procutils.NewRemoteCommandAsFarAsPossible with stat [-c %s]: exit status 1`, "OCA-7110", "cannot run a program"},
	{`[fatal 2026-11-20 08:14:02 main.main(main.go:30)] Storage manager init error: Not enough storage space!`, "OCA-7117", "no space for disks"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: Prepare environment: hugepage 1024 nr 0, wait 3 minutes to retry`, "OCA-7118", "1024 MB"},
	{`[error 2026-11-20 08:14:02 hostinfo.(*SHostInfo).probeSyncIsolatedDevices(hostinfo.go:2400)] Sync device 0001:1d6b error: {"error":{"code":400,"details":"dev addr 001:002 registed"}}`, "OCA-7143", "001:002 is registered already"}, //nolint:misspell // the cloud's spelling
	{`2026-11-20T08:14:02Z E! stat /etc/telegraf/telegraf.conf: no such file or directory`, "OCA-7123", "Telegraf waits"},
	{`sh: line 1: virtlogd: command not found`, "OCA-7123", "virtlogd"},
	{`Container host failed startup probe, will be restarted`, "OCA-7120", "took too long to start"},
	{`[fatal 2026-11-20 08:14:02 host.(*SHostService).InitService(host_services.go:90)] NewHostInfo: New kubelet config by dir: /var/lib/kubelet: Get docker info: Run command 'docker info --format {{json .}}': executable file not found`, "OCA-7111", "Docker"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: Prepare environment: Failed to activate ifb device: exit status 1, wait 3 minutes to retry`, "OCA-7112", "module for ifb"},
	{`[fatal 2026-11-20 08:14:02 host.(*SHostService).RunService(host_services.go:121)] Guest manager init python path No python/python2/python3 found in PATH`, "OCA-7113", "no python3"},
	{`[error 2026-11-20 08:14:02 main.main(main.go:30)] Host instance init error: Prepare environment: Cannot initialize control group subsystem: mount net_cls: exit status 32, wait 3 minutes to retry`, "OCA-7114", "control groups"},
	{`[error 2026-11-20 08:14:02 hostinfo.AppendHostError(hostinfo.go:2710)] detect qemu version: Qemu not installed`, "OCA-7119", "no QEMU"},
	{`[error 2026-11-20 08:14:02 guestman.(*SKVMGuestInstance).StartGuest(qemu-kvm.go:1300)] generate start script: Qemu comand driver 7.2.0 x86_64 not registered`, "OCA-7119", "QEMU 7.2.0"},
	{`MountVolume.SetUp failed for volume "cloud" : hostPath type check failed: /opt/cloud is not a directory`, "OCA-7121", "/opt/cloud is missing"},
	{`[fatal 2026-11-20 08:14:02 deployserver.(*SDeployService).PrepareEnv(deployserver.go:470)] stat /usr/bin/chntpw.static: no such file or directory`, "OCA-7122", "chntpw.static"},
	{`[fatal 2026-11-20 08:14:02 host_health.StartService(service.go:77)] Init host health manager failed failed get k8s master nodes`, "OCA-7144", "does not find a control plane"},
	{`[error 2026-11-20 08:14:02 options.parseOptions(options.go:400)] Configuration file /etc/yunion/host.conf not exist`, "OCA-7145", "/etc/yunion/host.conf is missing"},
}

func TestEveryLineIsExplained(t *testing.T) {
	used := map[string]bool{}
	for _, e := range excerpts {
		got := Explain([]Log{{Source: "pod default-host-x, container host", Lines: []string{"[info] starting", e.line, "[info] going on"}}})
		if len(got) != 1 {
			t.Errorf("%d findings for %s", len(got), e.line)
			continue
		}
		f := got[0]
		if f.Code != e.code || !strings.Contains(f.What, e.what) {
			t.Errorf("%s\n  is %s %q, want %s %q", e.line, f.Code, f.What, e.code, e.what)
		}
		if f.Cause == "" || f.Remedy == "" || strings.Contains(f.What+f.Remedy, "${") || strings.Contains(f.What, "  ") || strings.ContainsAny(f.What, `"{}`) {
			t.Errorf("%s: %+v", e.line, f)
		}
		if len(f.Evidence) != 1 || !strings.HasPrefix(f.Evidence[0], "pod default-host-x, container host (once): ") {
			t.Errorf("evidence %q", f.Evidence)
		}
		for i, r := range rules {
			if r.Match.MatchString(e.line) {
				used[rules[i].Match.String()] = true
				break
			}
		}
	}
	for _, r := range Rules() {
		if !used[r.Match.String()] {
			t.Errorf("no excerpt for %s %s", r.Code, r.Match)
		}
	}
}

func TestOrdinaryLinesAreNoFindings(t *testing.T) {
	if got := Explain([]Log{{Lines: []string{
		"", "[info 2026-11-20 08:14:02 hostinfo.(*SHostInfo).parseConfig(hostinfo.go:1392)] Get access nic ip 10.0.0.5 and mask 24",
		"[warning] Service ntpd not installed", "[info] Load existing guests complete...", "guest 1 anonymous dev addr 00:02 in use",
	}}}); len(got) > 0 {
		t.Errorf("%+v", got)
	}
}

func TestPastProblemsAreNotReported(t *testing.T) {
	failed, done := excerpts[0].line, "[info 2026-11-20 08:20:00 hostinfo.onSucc(hostinfo.go:2449)] Host registration process success...."
	if got := Explain([]Log{{Lines: []string{failed, failed, done}}}); len(got) > 0 {
		t.Errorf("%+v", got)
	}
	if got := Explain([]Log{{Lines: []string{failed, done, failed}}}); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestRecurringLinesAreOneFinding(t *testing.T) {
	a, b := excerpts[0].line, strings.Replace(excerpts[0].line, "08:14:02", "08:14:32", 1)
	got := Explain([]Log{{Source: "first", Lines: []string{a, a}}, {Source: "second", Lines: []string{b}}})
	if len(got) != 1 || !strings.HasPrefix(got[0].Evidence[0], "second (3 times): ") || !strings.Contains(got[0].Evidence[0], "08:14:32") {
		t.Errorf("%+v", got)
	}
	// Another address is another finding.
	c, d := strings.Replace(excerpts[7].line, "10.0.0.5", "10.0.0.9", 1), excerpts[7].line
	if got := Explain([]Log{{Lines: []string{c, d}}}); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestSeverity(t *testing.T) {
	got := Explain([]Log{{Lines: []string{"virtlogd: command not found"}}})
	if got.Err() != nil || len(got.Warnings()) != 1 {
		t.Errorf("a harmless line: %+v", got)
	}
}

func FuzzExplain(f *testing.F) {
	for _, e := range excerpts {
		f.Add(e.line)
	}
	f.Add("\x1b[31mduplicate manager_uri https://\x1b[2Jx\xff")
	f.Fuzz(func(t *testing.T, line string) {
		for _, got := range Explain([]Log{{Lines: []string{line, line}}}) {
			if got.Severity != finding.Error && got.Severity != finding.Warning || len(got.Evidence) != 1 || len(got.Evidence[0]) > lineBytes+100 {
				t.Errorf("%+v", got)
			}
			for _, s := range append(got.Evidence, got.What, got.Remedy) {
				if strings.ContainsAny(s, "\x1b\n\r\x00") {
					t.Errorf("a terminal would obey %q", s)
				}
			}
		}
	})
}
