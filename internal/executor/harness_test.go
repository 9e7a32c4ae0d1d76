// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"yunion.io/x/ocadm/internal/executor/apis"
	"yunion.io/x/ocadm/test/require"
)

// serverVariable makes the test binary a server on the socket it names, for tests that need the server in a separate process.
const serverVariable = "TEST_EXECUTOR_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(serverVariable); socket != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err := Run(ctx, Options{Socket: socket, StopTimeout: time.Millisecond, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
		if err != nil {
			slog.Error(err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// tempSocket returns a short path: a socket's path has at most 107 bytes.
func tempSocket(t testing.TB) string {
	dir, err := os.MkdirTemp("", "x")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "exec.sock")
}

// serve runs a server until the test ends.
func serve(t testing.TB, o Options) string {
	t.Helper()
	o.Socket = tempSocket(t)
	if o.StopTimeout == 0 {
		o.StopTimeout = time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	waitForSocket(t, o.Socket)
	return o.Socket
}

func waitForSocket(t testing.TB, socket string) {
	t.Helper()
	eventually(t, "the socket", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// connect returns a client with its own connection.
func connect(t testing.TB, socket string) apis.ExecutorClient {
	t.Helper()
	e, _ := connectClosable(t, socket)
	return e
}

func connectClosable(t testing.TB, socket string) (apis.ExecutorClient, *grpc.ClientConn) {
	t.Helper()
	conn, err := Dial(socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return apis.NewExecutorClient(conn), conn
}

const patience = 30 * time.Second

// eventually waits for something that is certain to happen; the time it takes is not tested.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func register(t testing.TB, e apis.ExecutorClient, path string, args ...string) *apis.Sn {
	t.Helper()
	sn, err := e.ExecCommand(t.Context(), &apis.Command{Path: []byte(path), Args: byteSlices(args)})
	require.NoError(t, err)
	return sn
}

func start(t testing.TB, e apis.ExecutorClient, in *apis.StartInput) {
	t.Helper()
	res, err := e.Start(t.Context(), in)
	if err != nil || !res.GetSuccess() || len(res.GetError()) > 0 {
		t.Fatalf("start: %v %v", res, err)
	}
}

// messages returns all messages of a standard output stream.
func messages(t testing.TB, e apis.ExecutorClient, sn *apis.Sn) []*apis.Stdout {
	t.Helper()
	s, err := e.FetchStdout(t.Context(), sn)
	require.NoError(t, err)
	var all []*apis.Stdout
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, m)
	}
}

// stdout checks the framing of a stream and returns its content.
func stdout(t testing.TB, e apis.ExecutorClient, sn *apis.Sn) string {
	t.Helper()
	all := messages(t, e, sn)
	if len(all) < 2 || !all[0].GetStart() || !all[len(all)-1].GetClosed() {
		t.Fatalf("messages %v", all)
	}
	var b strings.Builder
	for i, m := range all {
		if m.GetStart() != (i == 0) || m.GetClosed() != (i == len(all)-1) || len(m.GetRuntimeError()) > 0 {
			t.Errorf("message %d of %d: %v", i, len(all), m)
		}
		b.Write(m.GetStdout())
	}
	return b.String()
}

// capture runs a command to its end and returns its standard output.
func capture(t testing.TB, e apis.ExecutorClient, c *apis.Command) string {
	t.Helper()
	sn, err := e.ExecCommand(t.Context(), c)
	require.NoError(t, err)
	start(t, e, &apis.StartInput{Sn: sn.GetSn(), HasStdout: true})
	out := stdout(t, e, sn)
	res, err := e.Wait(t.Context(), sn)
	if err != nil || res.GetExitStatus() != 0 || len(res.GetErrContent()) > 0 {
		t.Fatalf("%s: %v %v", c.GetPath(), res, err)
	}
	return out
}

func spec(path string, args ...string) *apis.Command {
	return &apis.Command{Path: []byte(path), Args: byteSlices(args)}
}

// alive reports whether a process is running; a zombie is not.
func alive(pid int) bool {
	raw, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(after, "Z")
}
