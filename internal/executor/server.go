// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"yunion.io/x/ocadm/internal/executor/apis"
)

// server holds the registered commands by number.
type server struct {
	apis.UnimplementedExecutorServer
	options Options

	mu       sync.Mutex
	last     uint32
	commands map[uint32]*command
	// emptied is closed when the last command is forgotten; it is nil while nothing waits for that.
	emptied chan struct{}
}

func newServer(o Options) *server { return &server{options: o, commands: map[uint32]*command{}} }

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.commands)
}

// idle returns a channel that is closed once no command is registered.
func (s *server) idle() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.commands) == 0 {
		return always
	}
	if s.emptied == nil {
		s.emptied = make(chan struct{})
	}
	return s.emptied
}

// connection is a client's connection. Its commands are those whose numbers it has used.
type connection struct {
	commands map[*command]struct{}
	// past holds numbers of forgotten commands, see SendInput.
	past   map[uint32]struct{}
	closed bool
}

// maxPast bounds the numbers that a connection remembers. The services open a connection for each command.
const maxPast = 64

type connectionKey struct{}

// connections tracks clients as they connect and disconnect; gRPC calls it.
type connections struct{ server *server }

func (*connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (*connections) HandleRPC(context.Context, stats.RPCStats)                       {}

func (*connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{commands: map[*command]struct{}{}, past: map[uint32]struct{}{}})
}

func (h *connections) HandleConn(ctx context.Context, e stats.ConnStats) {
	if _, ended := e.(*stats.ConnEnd); !ended {
		return
	}
	s := h.server
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := ctx.Value(connectionKey{}).(*connection)
	conn.closed = true
	for c := range conn.commands {
		delete(c.connections, conn)
		s.review(c)
	}
	clear(conn.commands)
}

// link records that the connection of ctx uses c. The caller holds s.mu.
func link(ctx context.Context, c *command) {
	conn, ok := ctx.Value(connectionKey{}).(*connection)
	if ok && !conn.closed {
		conn.commands[c] = struct{}{}
		c.connections[conn] = struct{}{}
	}
}

// begin looks up a command by number for the duration of a call; the call must end with end.
func (s *server) begin(ctx context.Context, sn uint32) (*command, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.commands[sn]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "unknown sn %d", sn)
	}
	link(ctx, c)
	c.calls++
	s.review(c)
	return c, nil
}

func (s *server) end(c *command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.calls--
	s.review(c)
}

// review starts or stops the timer after which c counts as abandoned. The caller holds s.mu.
func (s *server) review(c *command) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if s.commands[c.sn] != c || c.attended() {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(s.options.AbandonAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		// Another review may have run in between.
		if c.timer == t {
			s.options.Log.Info("ending an abandoned command", "sn", c.sn, "program", c.name(), "running", c.running())
			s.forget(c)
			c.abandon()
		}
	})
	c.timer = t
}

// forget frees the command's number. The caller holds s.mu.
func (s *server) forget(c *command) {
	if s.commands[c.sn] != c {
		return
	}
	delete(s.commands, c.sn)
	for conn := range c.connections {
		delete(conn.commands, c)
		if len(conn.past) >= maxPast {
			clear(conn.past)
		}
		conn.past[c.sn] = struct{}{}
	}
	clear(c.connections)
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if len(s.commands) == 0 && s.emptied != nil {
		close(s.emptied)
		s.emptied = nil
	}
}

func (s *server) ExecCommand(ctx context.Context, in *apis.Command) (*apis.Sn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.commands) >= s.options.MaxCommands {
		return nil, status.Errorf(codes.ResourceExhausted, "%d commands are registered, which is the limit", len(s.commands))
	}
	s.last++
	for s.last == 0 || s.commands[s.last] != nil {
		s.last++
	}
	c := &command{sn: s.last, spec: in, connections: map[*connection]struct{}{}, ended: make(chan struct{})}
	s.commands[c.sn] = c
	link(ctx, c)
	s.review(c)
	return &apis.Sn{Sn: c.sn}, nil
}

// Start starts the program of a registered command.
func (s *server) Start(ctx context.Context, in *apis.StartInput) (*apis.StartResponse, error) {
	c, err := s.begin(ctx, in.GetSn())
	if err != nil {
		return nil, err
	}
	defer s.end(c)
	ended := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.review(c)
	}
	if err := c.start(in, ended); err != nil {
		return &apis.StartResponse{Error: []byte(err.Error())}, nil
	}
	s.options.Log.Debug("started", "sn", c.sn, "program", c.name())
	return &apis.StartResponse{Success: true}, nil
}

// SendInput writes to the program's standard input until the stream ends. It is no error if the program exits without reading everything: the rest is
// dropped, and Wait returns the program's result.
func (s *server) SendInput(stream apis.Executor_SendInputServer) error {
	in, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		// No piece means no number: the empty input is for the one program of this connection that still waits for input.
		if c := s.onlyReader(stream.Context()); c != nil {
			c.closeStdin()
		}
		return stream.SendAndClose(&apis.Error{})
	}
	if err != nil {
		return err
	}
	if s.isPast(stream.Context(), in.GetSn()) {
		return drop(stream)
	}
	c, err := s.begin(stream.Context(), in.GetSn())
	if err != nil {
		return err
	}
	defer s.end(c)
	w, err := c.takeStdin()
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	// A broken stream is not the end of the input: the program must not mistake half of it for the whole.
	stop := context.AfterFunc(stream.Context(), func() { _ = w.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	open := true
	for ; err == nil; in, err = stream.Recv() {
		if in.GetSn() != c.sn {
			return status.Errorf(codes.InvalidArgument, "input for sn %d in the stream of sn %d", in.GetSn(), c.sn)
		}
		if !open {
			continue
		}
		if _, err := w.Write(in.GetInput()); err != nil {
			open = false
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	c.closeStdin()
	return stream.SendAndClose(&apis.Error{})
}

// isPast reports whether the connection has used a number that is forgotten by now: a program may have exited, and been waited for, before its input
// arrives. The services' client waits until it has sent all input, so this must not be an error.
func (s *server) isPast(ctx context.Context, sn uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok || s.commands[sn] != nil {
		return false
	}
	_, past := conn.past[sn]
	return past
}

func drop(stream apis.Executor_SendInputServer) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return stream.SendAndClose(&apis.Error{})
		} else if err != nil {
			return err
		}
	}
}

// onlyReader returns the only started command of the connection whose standard input has no stream yet.
func (s *server) onlyReader(ctx context.Context) *command {
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return nil
	}
	var found *command
	for c := range conn.commands {
		if !c.wantsInput() {
			continue
		}
		if found != nil {
			return nil
		}
		found = c
	}
	return found
}

// FetchStdout sends the program's standard output.
func (s *server) FetchStdout(in *apis.Sn, stream apis.Executor_FetchStdoutServer) error {
	return s.fetch(stream.Context(), in.GetSn(), (*command).takeStdout, func(p piece) error {
		return stream.Send(&apis.Stdout{Start: p.start, Stdout: p.data, Closed: p.closed, RuntimeError: p.failure})
	})
}

// FetchStderr sends the program's standard error.
func (s *server) FetchStderr(in *apis.Sn, stream apis.Executor_FetchStderrServer) error {
	return s.fetch(stream.Context(), in.GetSn(), (*command).takeStderr, func(p piece) error {
		return stream.Send(&apis.Stderr{Start: p.start, Stderr: p.data, Closed: p.closed, RuntimeError: p.failure})
	})
}

func (s *server) fetch(ctx context.Context, sn uint32, take func(*command) (*output, error), send func(piece) error) error {
	c, err := s.begin(ctx, sn)
	if err != nil {
		return err
	}
	defer s.end(c)
	out, err := take(c)
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return out.copyTo(ctx, send)
}

// Wait returns once the output has been read and the program has exited.
func (s *server) Wait(ctx context.Context, in *apis.Sn) (*apis.WaitResponse, error) {
	c, err := s.begin(ctx, in.GetSn())
	if err != nil {
		return nil, err
	}
	defer s.end(c)
	res, err := c.wait(ctx)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	if res.first {
		s.mu.Lock()
		s.forget(c)
		s.mu.Unlock()
		c.closeStdin()
	}
	return &apis.WaitResponse{ExitStatus: res.status, ErrContent: []byte(res.failure)}, nil
}

// Kill sends SIGKILL to the process.
func (s *server) Kill(ctx context.Context, in *apis.Sn) (*apis.Error, error) {
	c, err := s.begin(ctx, in.GetSn())
	if err != nil {
		return nil, err
	}
	defer s.end(c)
	if err := c.kill(); err != nil {
		return &apis.Error{Error: []byte(err.Error())}, nil
	}
	return &apis.Error{}, nil
}
