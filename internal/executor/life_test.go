// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/executor/apis"
	"yunion.io/x/ocadm/test/require"
)

// soon is a short time after which commands are abandoned.
const soon = time.Second

// begin registers and starts a command, again if the number was abandoned in between.
func begin(t *testing.T, e apis.ExecutorClient, in *apis.StartInput, path string, args ...string) *apis.Sn {
	t.Helper()
	for {
		sn := register(t, e, path, args...)
		in.Sn = sn.GetSn()
		res, err := e.Start(t.Context(), in)
		if status.Code(err) == codes.NotFound {
			continue
		}
		if err != nil || !res.GetSuccess() || len(res.GetError()) > 0 {
			t.Fatalf("start: %v %v", res, err)
		}
		return sn
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func fileNames(t testing.TB) (names []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		name, _ := os.Readlink("/proc/self/fd/" + e.Name())
		names = append(names, name)
	}
	return names
}

// children returns this process's children, including zombies.
func children(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(files) == 0 {
		t.Fatal("the kernel lists no children", err)
	}
	var all []string
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err == nil {
			all = append(all, strings.Fields(string(raw))...)
		}
	}
	return all
}

// A thousand commands, most of which clients abandon at some stage, leave nothing behind: no number, file, goroutine or process.
func TestNothingLeaks(t *testing.T) {
	socket := serve(t, Options{AbandonAfter: 50 * time.Millisecond})
	use := func(leave int) {
		e, conn := connectClosable(t, socket)
		defer conn.Close() //nolint:errcheck // leaving is what is tested
		// On a slow machine a number may be abandoned before its next call; that is one more way to leave it.
		if err := leaveAt(t, e, leave); err != nil && status.Code(err) != codes.NotFound {
			t.Fatal(err)
		}
	}
	use(7)
	eventually(t, "the first command's end", func() bool { return len(children(t)) == 0 })
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for i := range 1000 {
		use(i % 8)
	}
	eventually(t, "the last process's end", func() bool { return len(children(t)) == 0 })
	defer func() {
		if t.Failed() {
			t.Log(fileNames(t))
		}
	}()
	eventually(t, "the last file's end", func() bool { return openFiles(t) <= files })
	eventually(t, "the last goroutine's end", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// leaveAt takes a command through the stages up to leave.
func leaveAt(t *testing.T, e apis.ExecutorClient, leave int) error {
	path := "cat"
	if leave == 5 {
		path = "no-such-program"
	}
	sn := register(t, e, path)
	if leave == 0 {
		return nil
	}
	res, err := e.Start(t.Context(), &apis.StartInput{Sn: sn.GetSn(), HasStdin: true, HasStdout: true, HasStderr: leave%2 == 0})
	if err != nil || leave == 1 || !res.GetSuccess() {
		return err
	}
	out, err := e.FetchStdout(t.Context(), sn)
	if err != nil {
		return err
	}
	if m, err := out.Recv(); err != nil || !m.GetStart() || leave == 2 {
		return err
	}
	in, err := e.SendInput(t.Context())
	if err != nil {
		return err
	}
	if err := in.Send(&apis.Input{Sn: sn.GetSn(), Input: []byte("hello")}); err != nil || leave == 3 {
		return err
	}
	if _, err := in.CloseAndRecv(); err != nil || leave == 4 {
		return err
	}
	for m := (&apis.Stdout{}); !m.GetClosed(); {
		if m, err = out.Recv(); err != nil {
			return err
		}
	}
	if leave == 7 {
		_, err = e.Wait(t.Context(), sn)
	}
	return err
}

// A number that no client uses is forgotten, even while its connection is open.
func TestUnusedNumberIsForgotten(t *testing.T) {
	e := connect(t, serve(t, Options{AbandonAfter: soon}))
	registered := register(t, e, "true")
	ended := begin(t, e, &apis.StartInput{}, "true")
	running := begin(t, e, &apis.StartInput{HasStdin: true}, "cat")
	time.Sleep(2 * soon)
	for name, sn := range map[string]*apis.Sn{"registered": registered, "ended": ended} {
		// Each query counts as use and restarts the timer.
		eventually(t, name, func() bool {
			time.Sleep(2 * soon)
			_, err := e.Kill(t.Context(), sn)
			return status.Code(err) == codes.NotFound
		})
	}
	if res, err := e.Kill(t.Context(), running); err != nil || len(res.GetError()) > 0 {
		t.Errorf("the program that runs while its client is connected: %v %v", res, err)
	}
}

// The process of a departed client is killed. A daemon that it started is not, and can continue to write.
func TestProcessOfAClientThatIsGone(t *testing.T) {
	socket := serve(t, Options{AbandonAfter: soon})
	dir := t.TempDir()
	e, conn := connectClosable(t, socket)
	const script = `cd "$1"; echo $$ >parent.new; mv parent.new parent
		setsid sh -c 'echo $$ >daemon.new; mv daemon.new daemon; while test -e parent; do echo noise; sleep 0.01; done; echo still here >after; exec sleep 1000' &
		exec sleep 1000`
	sn := begin(t, e, &apis.StartInput{HasStdout: true, HasStderr: true}, "sh", "-c", script, "sh", dir)
	out, err := e.FetchStdout(t.Context(), sn)
	require.NoError(t, err)
	for m := (&apis.Stdout{}); len(m.GetStdout()) == 0; {
		if m, err = out.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	parent, daemon := pidIn(t, filepath.Join(dir, "parent")), pidIn(t, filepath.Join(dir, "daemon"))
	_ = conn.Close()
	eventually(t, "the end of the process", func() bool { return !alive(parent) })
	// The daemon keeps writing for a while; a broken pipe would kill it.
	time.Sleep(2 * soon)
	require.NoError(t, os.Remove(filepath.Join(dir, "parent")))
	eventually(t, "the daemon's sign of life", func() bool { _, err := os.Stat(filepath.Join(dir, "after")); return err == nil })
	if !alive(daemon) {
		t.Error("the daemon was killed")
	}
}

// A process whose client is connected is left alone, however long it takes.
func TestProcessOfAConnectedClient(t *testing.T) {
	e := connect(t, serve(t, Options{AbandonAfter: time.Nanosecond}))
	sn := register(t, e, "sleep", "2") // longer than Wait may need to arrive
	res, err := e.Start(t.Context(), &apis.StartInput{Sn: sn.GetSn()})
	if status.Code(err) == codes.NotFound {
		t.Skip("the number was forgotten before the start")
	}
	if err != nil || !res.GetSuccess() {
		t.Fatal(res, err)
	}
	w, err := e.Wait(t.Context(), sn)
	if err != nil || w.GetExitStatus() != 0 {
		t.Errorf("%v %v", w, err)
	}
}

func TestNumberOfCommandsIsBounded(t *testing.T) {
	socket := serve(t, Options{MaxCommands: 5})
	e := connect(t, socket)
	var err error
	var last *apis.Sn
	for n := 0; err == nil; n++ {
		if n > 5 {
			t.Fatal("no end")
		}
		var sn *apis.Sn
		if sn, err = e.ExecCommand(t.Context(), spec("true")); err == nil {
			last = sn
		}
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "5 commands are registered") {
		t.Error(err)
	}
	// A freed number can be used again.
	if _, err := e.Wait(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	register(t, e, "true")
}

// Stopping lets a running command finish, and its client receives the result.
func TestStopWaitsForRunningCommands(t *testing.T) {
	socket := tempSocket(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, Options{Socket: socket, StopTimeout: patience, AbandonAfter: patience}) }()
	waitForSocket(t, socket)
	e, conn := connectClosable(t, socket)
	sn := register(t, e, "cat")
	start(t, e, &apis.StartInput{Sn: sn.GetSn(), HasStdin: true, HasStdout: true})
	cancel()
	eventually(t, "the socket's end", func() bool { _, err := os.Stat(socket); return errors.Is(err, os.ErrNotExist) })
	in, err := e.SendInput(t.Context())
	require.NoError(t, err)
	require.NoError(t, in.Send(&apis.Input{Sn: sn.GetSn(), Input: []byte("late")}))
	if _, err := in.CloseAndRecv(); err != nil {
		t.Fatal(err)
	}
	if got := stdout(t, e, sn); got != "late" {
		t.Errorf("output %q", got)
	}
	if res, err := e.Wait(t.Context(), sn); err != nil || res.GetExitStatus() != 0 {
		t.Error(res, err)
	}
	_ = conn.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestClient(t *testing.T) {
	c := Client{serve(t, Options{})}
	r, err := c.Run(t.Context(), exec.Command{Path: "sh", Args: []string{"-c", "cat; echo oops >&2"}, Stdin: strings.NewReader("input")})
	if err != nil || r.Stdout != "input" || r.Stderr != "oops\n" || r.ExitCode != 0 {
		t.Errorf("%+v %v", r, err)
	}
	var e *exec.Error
	if r, err = c.Run(t.Context(), exec.Command{Path: "sh", Args: []string{"-c", "exit 3"}}); !errors.As(err, &e) || e.ExitCode != 3 || r.ExitCode != 3 {
		t.Errorf("%+v %v", r, err)
	}
	if _, err = c.Run(t.Context(), exec.Command{Path: "no-such-program"}); err == nil || !strings.Contains(err.Error(), "executable file not found") {
		t.Error(err)
	}
	if _, err = (Client{c.Socket + "2"}).Run(t.Context(), exec.Command{Path: "true"}); status.Code(errors.Unwrap(err)) != codes.Unavailable {
		t.Error(err)
	}
	// The end of the context kills the program.
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "pid")
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, exec.Command{Path: "sh", Args: []string{"-c", `echo $$ >"$1"; exec sleep 1000`, "sh", file}})
		done <- err
	}()
	pid := pidIn(t, file)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "the program's end", func() bool { return !alive(pid) })
}

func TestUnit(t *testing.T) {
	got, err := Unit{Program: "/usr/local/bin/ocadm"}.Render()
	require.NoError(t, err)
	for _, want := range []string{
		"ExecStart=/usr/local/bin/ocadm executor --socket-path /var/run/onecloud/exec.sock", "KillMode=process", "User=root", "Restart=always", "OOMPolicy=continue",
		"ManagedOOMPreference=omit", "TasksMax=infinity", "LimitNOFILE=500000", "LimitNPROC=500000", "WantedBy=multi-user.target",
	} {
		if !strings.Contains(string(got), "\n"+want+"\n") {
			t.Errorf("%q is missing", want)
		}
	}
	// A memory limit, or a score that children inherit, would apply to the virtual machines.
	for _, never := range []string{"MemoryMax", "MemoryHigh", "OOMScoreAdjust", "UMask", "KillMode=control-group"} {
		if strings.Contains(string(got), never) {
			t.Errorf("%q is there", never)
		}
	}
}

func TestListen(t *testing.T) {
	socket := tempSocket(t)
	l, err := listen(t.Context(), socket)
	require.NoError(t, err)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if info, err := os.Stat(filepath.Dir(socket)); err != nil || info.Mode().Perm() != 0o755&^os.FileMode(umask()) {
		t.Errorf("%v %v", info, err)
	}
	if _, err := listen(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "Another server listens") {
		t.Errorf("a second server: %v", err)
	}
	// A killed server leaves its socket behind.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if l, err = listen(t.Context(), socket); err != nil {
		t.Fatal(err)
	}
	l.Close()
	require.NoError(t, os.WriteFile(socket, []byte("precious"), 0o600))
	if _, err := listen(t.Context(), socket); err == nil {
		t.Error("a file was replaced")
	}
	if raw, err := os.ReadFile(socket); err != nil || string(raw) != "precious" {
		t.Error(string(raw), err)
	}
}

func umask() int {
	old := syscall.Umask(0o022)
	syscall.Umask(old)
	return old
}
