// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/executor"
	"yunion.io/x/ocadm/internal/finding"
)

func (m *machine) calledWith(verb string) bool {
	return slices.Contains(m.rec.Calls(), "systemctl "+verb+" "+executor.UnitName)
}

func TestExecutorIsInstalledAndUpgraded(t *testing.T) {
	m := newMachine(t)
	m.must(t, executorPhase())
	if m.read(t, executorProgram) != "the program" || !m.active[executor.UnitName] || !m.enabled[executor.UnitName] {
		t.Fatalf("changes %v, calls %v", m.changes, m.rec.Calls())
	}
	unit := m.read(t, executorUnit)
	for _, want := range []string{"ExecStart=" + executorProgram + " executor", "KillMode=process"} {
		if !strings.Contains(unit, want) {
			t.Errorf("the unit lacks %q:\n%s", want, unit)
		}
	}
	m.boot(t)
	if ran, err := m.run(t, executorPhase()); err != nil || len(ran) > 0 {
		t.Errorf("a second run does %v, %v", ran, err)
	}
	// A new release only restarts the unit: stopping it or killing its processes would end virtual machines.
	m.put(t, "/ocadm", "the next program", 0o755)
	m.boot(t)
	m.rec.Reset()
	m.must(t, executorPhase())
	if m.read(t, executorProgram) != "the next program" || !m.calledWith("restart") {
		t.Errorf("calls %v", m.rec.Calls())
	}
	for _, c := range m.rec.Calls() {
		if strings.Contains(c, " stop ") || strings.Contains(c, " kill ") {
			t.Errorf("called %s", c)
		}
	}
	m.boot(t)
	m.put(t, "/proc/4711/cmdline", "/usr/bin/qemu-system-x86_64\x00-name\x00vm", 0o444)
	m.must(t, ResetPhases()...)
	if m.active[executor.UnitName] || m.enabled[executor.UnitName] || m.Files.Exists(executorProgram) || m.Files.Exists(executorUnit) {
		t.Errorf("left after reset: %v, %v", m.active, m.files(t))
	}
	if !strings.Contains(strings.Join(m.said, "\n"), "1 virtual machines keep running on this node") {
		t.Errorf("says %q", m.said)
	}
}

// A run that is killed after it has written the unit leaves systemd with the old one, which a restart alone would use again.
func TestExecutorTakesUpItsUnit(t *testing.T) {
	m := newMachine(t)
	m.must(t, executorPhase())
	m.put(t, executorUnit, "the unit of an earlier release", 0o644)
	m.boot(t)
	m.fails["systemctl daemon-reload"] = true
	if _, err := m.run(t, executorPhase()); err == nil {
		t.Fatal("systemd was not told of the new unit, and yet there is no error")
	}
	clear(m.fails)
	m.boot(t)
	m.rec.Reset()
	m.must(t, executorPhase())
	if !slices.Contains(m.rec.Calls(), "systemctl daemon-reload") || !m.calledWith("restart") {
		t.Errorf("calls %v", m.rec.Calls())
	}
	m.boot(t)
	if ran, err := m.run(t, executorPhase()); err != nil || len(ran) > 0 {
		t.Errorf("a further run does %v, %v", ran, err)
	}
}

func TestForeignExecutorIsUsedAndKept(t *testing.T) {
	m := newMachine(t)
	m.put(t, "/usr/lib/systemd/system/"+executor.UnitName, "theirs", 0o644)
	if _, err := m.run(t, executorPhase()); code(err) != CodeExecutor {
		t.Errorf("it does not run: %v", err)
	}
	m.active[executor.UnitName] = true
	if ran, err := m.run(t, executorPhase()); err != nil || len(ran) > 0 {
		t.Errorf("it runs: %v, %v", ran, err)
	}
	m.boot(t)
	m.must(t, ResetPhases()...)
	if !m.active[executor.UnitName] || m.read(t, "/usr/lib/systemd/system/"+executor.UnitName) != "theirs" {
		t.Error("reset touched it")
	}
}

// Someone else's executor may lack KillMode=process: its restart would end virtual machines.
func TestKillModeOfAnotherExecutor(t *testing.T) {
	m := newMachine(t)
	mode, asked := "control-group\n", m.rec.Answer
	m.rec.Answer = func(c exec.Command) (exec.Result, error) {
		if slices.Equal(c.Args, []string{"show", executor.UnitName, "--property=KillMode", "--value"}) {
			return exec.Result{Stdout: mode}, nil
		}
		return asked(c)
	}
	if f := ForeignExecutor(t.Context(), m.Host); len(f) > 0 {
		t.Errorf("there is none, and yet: %+v", f)
	}
	m.put(t, "/usr/lib/systemd/system/"+executor.UnitName, "theirs", 0o644)
	f := ForeignExecutor(t.Context(), m.Host)
	const remedy = "mkdir -p /etc/systemd/system/yunion-executor.service.d && " +
		`printf '[Service]\nKillMode=process\n' >/etc/systemd/system/yunion-executor.service.d/kill-mode.conf && systemctl daemon-reload`
	if len(f) != 1 || f[0].Code != CodeKillMode || f[0].Severity != finding.Warning || !strings.Contains(f[0].Cause, "control-group") || !strings.HasSuffix(f[0].Remedy, remedy) {
		t.Errorf("%+v", f)
	}
	mode = "process\n"
	if f := ForeignExecutor(t.Context(), m.Host); len(f) > 0 {
		t.Errorf("it spares them, and yet: %+v", f)
	}
}

func TestExecutorDoesNotStart(t *testing.T) {
	m := newMachine(t)
	m.fails["systemctl restart "+executor.UnitName] = true
	if _, err := m.run(t, executorPhase()); code(err) != CodeExecutor {
		t.Errorf("ends with %v", err)
	}
}
