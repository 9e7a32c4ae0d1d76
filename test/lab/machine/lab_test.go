// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
)

// TestMachines boots real machines, which requires root. Without root it is skipped, or fails with OCADM_TEST_REQUIRE=1.
func TestMachines(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("OCADM_TEST_REQUIRE") != "" {
			t.Fatal("machines need root")
		}
		t.Skip("machines need root")
	}
	t.Setenv("OCADM_LAB_DIR", "/var/lib/ocadm-lab-test")
	ctx := t.Context()
	o := machine.Options{Name: "unit", Nodes: 2, Logf: t.Logf}
	lab, err := machine.Up(ctx, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := lab.Down(ctx); err != nil {
			t.Error(err)
		}
		if left, err := lab.Residue(); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, error %v", left, err)
		}
	})
	first, second := lab.Node(1), lab.Node(2)

	t.Run("a second up finds it running", func(t *testing.T) {
		again, err := machine.Up(t.Context(), o)
		if err != nil || again.Index != lab.Index {
			t.Errorf("index %v, error %v", again, err)
		}
		more := o
		more.Nodes = 3
		if _, err := machine.Up(t.Context(), more); err == nil {
			t.Error("another number of machines was accepted")
		}
	})
	t.Run("a share of the processors", func(t *testing.T) {
		for share, want := range map[float64]string{0.5: "50000", 0: "-1"} {
			require.NoError(t, first.Share(share))
			if out, _, err := first.Exec(t.Context(), "cat", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"); err != nil || strings.TrimSpace(out) != want {
				t.Errorf("with a share of %g the quota is %s, error %v", share, out, err)
			}
		}
	})
	t.Run("a node is fresh", func(t *testing.T) {
		for _, program := range []string{"containerd", "kubelet", "runc"} {
			if out, _, err := first.Exec(t.Context(), "sh", "-c", "command -v "+program); err == nil {
				t.Errorf("%s is there: %s", program, out)
			}
		}
	})
	t.Run("network is cut and restored", func(t *testing.T) {
		ping(t, first, second, true)
		require.NoError(t, second.CutNetwork())
		ping(t, first, second, false)
		require.NoError(t, second.RestoreNetwork())
		ping(t, first, second, true)
	})
	t.Run("a killed machine keeps its disk", func(t *testing.T) {
		require.NoError(t, second.Write(t.Context(), "/var/lib/kept", 0o600, strings.NewReader("kept")))
		require.NoError(t, second.Kill(t.Context()))
		if _, _, err := second.Exec(t.Context(), "true"); err == nil {
			t.Error("a killed machine runs a command")
		}
		require.NoError(t, second.Start(t.Context()))
		if out, _, err := second.Exec(t.Context(), "cat", "/var/lib/kept"); err != nil || out != "kept" {
			t.Errorf("content %q, error %v", out, err)
		}
		ping(t, first, second, true)
	})
	t.Run("mounts stay inside", func(t *testing.T) {
		_, _, err := first.Exec(t.Context(), "sh", "-c", "mkdir -p /var/lib/kubelet/only-inside && mount -t tmpfs tmpfs /var/lib/kubelet/only-inside")
		require.NoError(t, err)
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		require.NoError(t, err)
		if strings.Contains(string(mounts), "/only-inside") {
			t.Errorf("a mount of a machine shows on the host:\n%s", mounts)
		}
	})
}

func TestUnknownLab(t *testing.T) {
	t.Setenv("OCADM_LAB_DIR", t.TempDir())
	if _, err := machine.Open("nobody", t.Logf); !errors.Is(err, machine.ErrNoLab) {
		t.Errorf("error %v", err)
	}
}

// ping retries until it gets the wanted result: a network that has just come up, or a loaded machine, may lose the first packets.
func ping(t *testing.T, from, to *machine.Node, want bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		_, _, err := from.Exec(t.Context(), "ping", "-c", "1", "-W", "2", to.Name)
		if (err == nil) == want {
			return
		}
		if !want || time.Now().After(end) {
			t.Fatalf("ping from %s to %s: error %v, want an answer: %v", from.Name, to.Name, err, want)
		}
	}
}
