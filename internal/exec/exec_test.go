// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/require"
)

// parentRole makes this test binary run a bound program until it is killed.
const parentRole = "EXEC_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentRole) != "" {
		_, _ = Machine{}.Run(context.Background(), Command{Path: "sh", Args: []string{"-c", "echo $$; exec sleep 600"}, Stdout: os.Stdout, Bound: true})
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A killed run's kubeadm must not continue while the next run works.
func TestBoundProgramDiesWithAKilledParent(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.CommandContext(t.Context(), self)
	parent.Env = append(os.Environ(), parentRole+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait() // it was killed
	for range 500 {
		if gone(child) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = syscall.Kill(child, syscall.SIGKILL)
	t.Error("the program goes on")
}

// gone reports whether a process has ended, even if it was not reaped.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ")
}

func TestChildrenDoNotGetOurSettings(t *testing.T) {
	t.Setenv("OCADM_MYSQL_PASSWORD", "canary")
	t.Setenv("SOMETHING_ELSE", "stays")
	res, err := Machine{}.Run(t.Context(), Command{Path: "env", Env: []string{"MORE=1"}})
	require.NoError(t, err)
	if strings.Contains(res.Stdout, "canary") || !strings.Contains(res.Stdout, "SOMETHING_ELSE=stays\n") || !strings.Contains(res.Stdout, "MORE=1\n") {
		t.Errorf("the environment of a child:\n%s", res.Stdout)
	}
}

// A program that is still open for writing somewhere, as in a forked child that has not called exec yet, cannot be run immediately.
func TestBusyProgramIsRetried(t *testing.T) {
	raw, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o700)
	require.NoError(t, err)
	if _, err := f.Write(raw); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(3*busyDelay, func() { _ = f.Close() })
	if _, err := (Machine{}).Run(t.Context(), Command{Path: path}); err != nil {
		t.Error(err)
	}
}

// "ufw status" prints "状态： 激活" to a Chinese administrator, and Python programs ask LANGUAGE before LC_ALL.
func TestProgramsPrintEnglish(t *testing.T) {
	t.Setenv("LANG", "zh_CN.UTF-8")
	t.Setenv("LC_ALL", "zh_CN.UTF-8")
	t.Setenv("LANGUAGE", "zh_CN:zh")
	res, err := Machine{}.Run(t.Context(), Command{Path: "sh", Args: []string{"-c", "echo $LC_ALL $LANGUAGE"}})
	if err != nil || strings.TrimSpace(res.Stdout) != "C.UTF-8 C" {
		t.Errorf("got %q: %v", res.Stdout, err)
	}
}
