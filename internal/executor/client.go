// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/executor/apis"
	"yunion.io/x/ocadm/internal/lists"
)

// Dial returns a connection to the executor at a socket. It connects on the first call.
func Dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// Client runs programs through the executor at Socket. Like the services, it opens a connection for each.
type Client struct{ Socket string }

var _ exec.Runner = Client{}

// Run starts the program and waits for it. When ctx ends, the program is killed. Command.Env replaces the environment instead of adding to it; OnLine
// is not supported. If the program fails, the error is an *exec.Error with its exit status, or -1 for a signal.
func (cl Client) Run(ctx context.Context, c exec.Command) (exec.Result, error) {
	conn, err := Dial(cl.Socket)
	if err != nil {
		return exec.Result{}, fmt.Errorf("connecting to the executor at %s: %w", cl.Socket, err)
	}
	defer conn.Close() //nolint:errcheck // all answers have been received
	r, status, err := run(ctx, apis.NewExecutorClient(conn), c)
	if err != nil {
		return r, fmt.Errorf("running %s through the executor at %s: %w", c.Path, cl.Socket, err)
	}
	if status == 0 {
		return r, nil
	}
	err = fmt.Errorf("exit status %d", status.ExitStatus())
	if r.ExitCode = status.ExitStatus(); status.Signaled() {
		err = fmt.Errorf("signal: %s", status.Signal())
	}
	return r, &exec.Error{Argv: append([]string{c.Path}, c.Args...), ExitCode: r.ExitCode, Output: r.Stdout + r.Stderr, Err: err}
}

func run(ctx context.Context, e apis.ExecutorClient, c exec.Command) (exec.Result, syscall.WaitStatus, error) {
	var r exec.Result
	sn, err := e.ExecCommand(ctx, &apis.Command{Path: []byte(c.Path), Args: byteSlices(c.Args), Env: byteSlices(c.Env), Dir: []byte(c.Dir)})
	if err != nil {
		return r, 0, err
	}
	// From here on a process may exist: clean up even if ctx ends, so that it is not left behind. A server that does not answer delays this by
	// killDelay only.
	rest, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	over := context.AfterFunc(ctx, func() { time.AfterFunc(killDelay, cancel) })
	defer over()
	res, err := e.Start(rest, &apis.StartInput{Sn: sn.GetSn(), HasStdin: c.Stdin != nil, HasStdout: true, HasStderr: true})
	if err != nil {
		return r, 0, err
	}
	if !res.GetSuccess() {
		return r, 0, errors.New(string(res.GetError()))
	}
	stop := context.AfterFunc(ctx, func() {
		// The connection may be gone, and the program with it.
		_, _ = e.Kill(rest, sn)
	})
	defer stop()
	if c.Stdin != nil {
		go func() {
			// A program that exits early reads no more input; only its exit status counts.
			_ = sendInput(rest, e, sn.GetSn(), c.Stdin)
		}()
	}
	var out, errOut bytes.Buffer
	var w io.Writer = &out
	if c.Stdout != nil {
		w = c.Stdout
	}
	fetch, done := context.WithCancel(rest)
	defer done()
	stderr := make(chan error, 1)
	go func() {
		s, err := e.FetchStderr(fetch, sn)
		stderr <- receive(s, err, func(p *apis.Stderr) ([]byte, bool, []byte) { return p.GetStderr(), p.GetClosed(), p.GetRuntimeError() }, &errOut)
	}()
	s, err := e.FetchStdout(fetch, sn)
	err = receive(s, err, func(p *apis.Stdout) ([]byte, bool, []byte) { return p.GetStdout(), p.GetClosed(), p.GetRuntimeError() }, w)
	if err != nil {
		done()
	}
	err = errors.Join(err, <-stderr)
	done()
	end, waitErr := e.Wait(rest, sn)
	r.Stdout, r.Stderr = out.String(), errOut.String()
	if err = errors.Join(err, waitErr); err != nil {
		return r, 0, err
	}
	if msg := end.GetErrContent(); len(msg) > 0 {
		return r, 0, errors.New(string(msg))
	}
	if ctx.Err() != nil {
		return r, 0, context.Cause(ctx)
	}
	return r, syscall.WaitStatus(end.GetExitStatus()), nil
}

// killDelay is how long a killed program may take to exit.
const killDelay = 5 * time.Second

func byteSlices(in []string) [][]byte {
	return lists.Map(in, func(s string) []byte { return []byte(s) })
}

func sendInput(ctx context.Context, e apis.ExecutorClient, sn uint32, from io.Reader) error {
	s, err := e.SendInput(ctx)
	if err != nil {
		return err
	}
	buf := make([]byte, pieceBytes)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := s.Send(&apis.Input{Sn: sn, Input: buf[:n]}); err != nil {
				return err
			}
		}
		if err != nil {
			_, closeErr := s.CloseAndRecv()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return errors.Join(err, closeErr)
		}
	}
}

// receive copies an output stream until its closing message.
func receive[P any](s grpc.ServerStreamingClient[P], err error, read func(*P) (data []byte, closed bool, failure []byte), to io.Writer) error {
	for err == nil {
		var p *P
		if p, err = s.Recv(); err != nil {
			break
		}
		data, closed, failure := read(p)
		if len(failure) > 0 {
			return errors.New(string(failure))
		}
		if _, err = to.Write(data); closed {
			return err
		}
	}
	return err
}
