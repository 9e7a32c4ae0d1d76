// SPDX-License-Identifier: Apache-2.0

// Package sshserver is an SSH server for tests. It speaks the real protocol with the library that the client uses, and runs functions instead of a
// shell for command lines.
package sshserver

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"yunion.io/x/ocadm/test/require"
)

// Call is a command that a client runs.
type Call struct {
	context.Context
	// User is the login name. Line is the command for the shell, without the sudo that the server handled.
	User, Line string
	// Root reports whether the command runs as root.
	Root bool
	// Stdin is the input after the password for sudo.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Drop closes the connection immediately, as if the machine had failed.
	Drop func()
}

// Server plays a machine.
type Server struct {
	// Passwords are the users' passwords; Keys are the public keys that may log in as any user.
	Passwords map[string]string
	Keys      []ssh.PublicKey
	// Sudo defines sudo for users other than root: "free" asks for no password, "true" allows only that program, another text is the password, "" refuses.
	Sudo string
	// Greeting is what the login shell prints before it runs a command.
	Greeting string
	// Run handles a command and returns its exit status.
	Run func(*Call) int

	host ssh.Signer
	l    net.Listener
	wg   sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]bool
	logins   int
	commands int
}

// T is the part of testing.T that a server needs. The benchmark, which is not a test, implements it too.
type T interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Fatal(...any)
}

// NewKey generates a key pair: the private key in PEM for a client, and the public key for the server.
func NewKey(t T) (private []byte, public ssh.PublicKey) {
	t.Helper()
	key, signer := newSigner(t)
	block, err := ssh.MarshalPrivateKey(key, "")
	require.NoError(t, err)
	return pem.EncodeToMemory(block), signer.PublicKey()
}

func newSigner(t T) (ed25519.PrivateKey, ssh.Signer) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	return key, signer
}

// Start listens on loopback until the test ends.
func (s *Server) Start(t T) *Server {
	t.Helper()
	s.Reinstall(t)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.conns = map[net.Conn]bool{}
	s.listen(t, l)
	return s
}

func (s *Server) listen(t T, l net.Listener) {
	s.l = l
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s.wg.Go(func() { s.accept(ctx, l) })
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		s.DropAll()
		s.wg.Wait()
	})
}

// Down closes every connection and refuses new ones, like a machine that boots. Up listens again on the same port.
func (s *Server) Down() {
	_ = s.l.Close()
	s.DropAll()
}

// Up ends Down.
func (s *Server) Up(t T) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", s.l.Addr().String())
	require.NoError(t, err)
	s.listen(t, l)
}

// Reinstall changes the host key of the machine.
func (s *Server) Reinstall(t T) {
	t.Helper()
	_, host := newSigner(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.host = host
}

// HostKey returns the machine's host key as TYPE BASE64.
func (s *Server) HostKey() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.host.PublicKey())))
}

// Port returns its port on 127.0.0.1.
func (s *Server) Port() int { return s.l.Addr().(*net.TCPAddr).Port }

// Logins returns the number of logins.
func (s *Server) Logins() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logins
}

// Commands returns the number of commands that were run.
func (s *Server) Commands() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands
}

// DropAll closes every connection.
func (s *Server) DropAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

func (s *Server) accept(ctx context.Context, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Go(func() {
			s.serve(ctx, c)
			_ = c.Close()
			s.mu.Lock()
			delete(s.conns, c)
			s.mu.Unlock()
		})
	}
}

var errRefused = errors.New("refused")

func (s *Server) config() *ssh.ServerConfig {
	cfg := &ssh.ServerConfig{
		PasswordCallback: func(c ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			if want := s.Passwords[c.User()]; want == "" || want != string(password) {
				return nil, errRefused
			}
			return nil, nil //nolint:nilnil // no limits
		},
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if slices.ContainsFunc(s.Keys, func(k ssh.PublicKey) bool { return string(k.Marshal()) == string(key.Marshal()) }) {
				return nil, nil //nolint:nilnil // no limits
			}
			return nil, errRefused
		},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg.AddHostKey(s.host)
	return cfg
}

func (s *Server) serve(ctx context.Context, c net.Conn) {
	conn, channels, requests, err := ssh.NewServerConn(c, s.config())
	if err != nil {
		return
	}
	s.mu.Lock()
	s.logins++
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go ssh.DiscardRequests(requests)
	for ch := range channels {
		switch ch.ChannelType() {
		case "session":
			s.wg.Go(func() { s.session(ctx, conn, ch) })
		case "direct-tcpip":
			s.wg.Go(func() { forward(ctx, ch) })
		default:
			_ = ch.Reject(ssh.UnknownChannelType, "only sessions")
		}
	}
}

func (s *Server) session(ctx context.Context, conn *ssh.ServerConn, ch ssh.NewChannel) {
	channel, requests, err := ch.Accept()
	if err != nil {
		return
	}
	defer channel.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for r := range requests {
		switch r.Type {
		case "exec":
			_ = r.Reply(true, nil)
			var line struct{ Text string }
			_ = ssh.Unmarshal(r.Payload, &line)
			call := &Call{Context: ctx, User: conn.User(), Line: line.Text, Root: conn.User() == "root", Stdin: channel, Stdout: channel,
				Stderr: channel.Stderr(), Drop: func() { _ = conn.Close() }}
			s.wg.Go(func() {
				status := make([]byte, 4) //nolint:mnd // a number of the protocol
				binary.BigEndian.PutUint32(status, uint32(s.answer(call)))
				_, _ = channel.SendRequest("exit-status", false, status)
				_ = channel.Close()
			})
		case "signal":
			cancel()
		default:
			_ = r.Reply(false, nil)
		}
	}
}

// answer plays sudo and runs the command.
func (s *Server) answer(c *Call) int {
	s.mu.Lock()
	s.commands++
	s.mu.Unlock()
	_, _ = io.WriteString(c.Stdout, s.Greeting)
	if words, rest, chained := strings.Cut(c.Line, "; exec "); chained && strings.HasPrefix(words, "echo ") {
		_, _ = io.WriteString(c.Stdout, strings.TrimPrefix(words, "echo ")+"\n")
		c.Line = rest
	}
	line, free := strings.CutPrefix(c.Line, "sudo -n ")
	rest, asks := strings.CutPrefix(c.Line, "sudo -k -S -p '' ")
	switch {
	case free && s.Sudo != "free" && (s.Sudo != "true" || line != "true"):
		_, _ = io.WriteString(c.Stderr, "sudo: a password is required\n")
		return 1
	case free:
		c.Line, c.Root = line, true
	case asks:
		if s.Sudo == "" || readLine(c.Stdin) != s.Sudo {
			_, _ = io.WriteString(c.Stderr, "Sorry, try again.\n")
			return 1
		}
		c.Line, c.Root = rest, true
	}
	if c.Line == "true" || c.Line == "sh -c :" {
		return 0
	}
	return s.Run(c)
}

// readLine reads at most one line, as sudo does.
func readLine(in io.Reader) string {
	var line []byte
	one := make([]byte, 1)
	for {
		if _, err := io.ReadFull(in, one); err != nil || one[0] == '\n' {
			return string(line)
		}
		line = append(line, one[0])
	}
}

func forward(ctx context.Context, ch ssh.NewChannel) {
	var to struct {
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(ch.ExtraData(), &to); err != nil {
		_ = ch.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	out, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = ch.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	channel, requests, err := ch.Accept()
	if err != nil {
		_ = out.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(out, channel)
		_ = out.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(channel, out)
		_ = channel.Close()
	})
	both.Wait()
}
