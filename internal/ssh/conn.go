// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/wait"
)

// A machine that does not answer within dialTimeout counts as unreachable; one that misses two keep-alives counts as gone. sshd may take long for a login: it looks up
// the name of the client at name servers that do not answer, and PAM waits for its own services. It gives up after 120 s. Source: sshd_config(5).
const (
	dialTimeout  = 20 * time.Second
	loginTimeout = 100 * time.Second
	aliveEvery   = 15 * time.Second
	aliveTimeout = 30 * time.Second
)

// DialFunc opens a connection, like net.Dialer.DialContext.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Conn is a connection to a machine.
type Conn struct {
	target        Target
	client        *ssh.Client
	jump          *ssh.Client
	key, jumpsKey string
	stop          context.CancelFunc
}

// HostKey returns the key that the machine presented, as TYPE BASE64.
func (c *Conn) HostKey() string { return c.key }

// JumpHostKey returns the key that the jump host presented, "" without one.
func (c *Conn) JumpHostKey() string { return c.jumpsKey }

func (c *Conn) Close() {
	c.stop()
	_ = c.client.Close()
	if c.jump != nil {
		_ = c.jump.Close()
	}
}

// DialContext opens a connection from the machine, as net.Dialer.DialContext does from here.
func (c *Conn) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.client.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s through %s: %w", address, c.target, err)
	}
	return conn, nil
}

// Dial connects to a machine and logs in. If dial is nil, it uses TCP.
func Dial(ctx context.Context, t Target, dial DialFunc) (*Conn, error) {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	c := &Conn{target: t}
	if t.Jump != nil {
		var err error
		if c.jump, err = login(ctx, *t.Jump, dial, &c.jumpsKey); err != nil {
			return nil, err
		}
		jump := c.jump
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			return jump.DialContext(ctx, network, address)
		}
	}
	var err error
	if c.client, err = login(ctx, t, dial, &c.key); err != nil {
		if c.jump != nil {
			_ = c.jump.Close()
		}
		return nil, err
	}
	var alive context.Context
	alive, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	go keepAlive(alive, c.client)
	return c, nil
}

// login logs in. A machine has keys of several types, and a fingerprint does not show the type: login then asks for one type after another, until one fits.
func login(ctx context.Context, t Target, dial DialFunc, shown *string) (*ssh.Client, error) {
	cfg, err := t.config(shown)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	c, err := handshake(ctx, t, dial, cfg)
	var first *errHostKey
	if cfg.HostKeyAlgorithms != nil || !errors.As(err, &first) {
		return c, explain(ctx, t, err)
	}
	left := ssh.SupportedAlgorithms().HostKeys
	for other := first; errors.As(err, &other); {
		n := len(left)
		if left = without(left, other.kind); len(left) == 0 || len(left) == n {
			break
		}
		cfg.HostKeyAlgorithms = left
		c, err = handshake(ctx, t, dial, cfg)
	}
	if err != nil && noCommonKey(err) {
		err = first
	}
	return c, explain(ctx, t, err)
}

// noCommonKey reports whether a machine has no key of the types that were asked for.
func noCommonKey(err error) bool {
	return strings.Contains(err.Error(), "no common algorithm for host key")
}

// The pauses between attempts to connect to a server that closes connections: sshd does so while it has MaxStartups connections without a login.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 2 * time.Second
)

func handshake(ctx context.Context, t Target, dial DialFunc, cfg *ssh.ClientConfig) (*ssh.Client, error) {
	for pause := firstPause; ; pause *= 2 {
		c, err := connect(ctx, t, dial, cfg)
		closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
		if !closed || pause > lastPause || wait.Sleep(ctx, pause+rand.N(pause)) != nil {
			return c, err
		}
	}
}

func connect(ctx context.Context, t Target, dial DialFunc, cfg *ssh.ClientConfig) (*ssh.Client, error) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	conn, err := dial(dialing, "tcp", t.hostPort())
	cancel()
	if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
		err = fmt.Errorf("no answer within %s", dialTimeout)
	}
	if err != nil {
		return nil, err
	}
	// The handshake takes no context: closing the connection cancels it.
	unhook := context.AfterFunc(ctx, func() { _ = conn.Close() })
	sc, chans, reqs, err := ssh.NewClientConn(conn, t.hostPort(), cfg)
	if !unhook() && err == nil {
		_ = sc.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return ssh.NewClient(sc, chans, reqs), nil
}

// explain converts a connection error into a finding.
func explain(ctx context.Context, t Target, err error) error {
	var other *errHostKey
	switch {
	case err == nil:
		return nil
	case errors.As(err, &other), noCommonKey(err):
		cause := "it has no key of the pinned type"
		if other != nil {
			cause = other.Error()
		}
		return finding.New("OCA-7602", fmt.Sprintf("%s has a different host key", t), cause,
			"if the machine was reinstalled, write its new key to spec.infrastructure.ssh.hostKey; otherwise another machine may have taken its place")
	case strings.Contains(err.Error(), "unable to authenticate"):
		return finding.New("OCA-7603", fmt.Sprintf("%s refuses the login", t), "it accepts neither the key nor the password of the Secret",
			"add the public key to authorized_keys of the user, or correct the Secret")
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	} else if cause != nil {
		return finding.New("OCA-7601", fmt.Sprintf("%s accepts connections, but does not complete a login", t), fmt.Sprintf("it did not within %s", loginTimeout),
			"on the machine, find what sshd waits for: journalctl -u ssh -u sshd; often it is a name server that does not answer: set UseDNS no in /etc/ssh/sshd_config")
	}
	return finding.Errorf("OCA-7601", fmt.Sprintf("%s cannot be reached over SSH", t),
		"check that the machine runs, its address and port, and that no firewall blocks the connection", "%w", err)
}

// keepAlive closes a connection whose other end is gone.
func keepAlive(ctx context.Context, c *ssh.Client) {
	for wait.Sleep(ctx, aliveEvery) == nil {
		answered := make(chan error, 1)
		go func() {
			_, _, err := c.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		}()
		select {
		case <-ctx.Done():
			return
		case err := <-answered:
			if err != nil {
				return
			}
		case <-time.After(aliveTimeout):
			_ = c.Close()
			return
		}
	}
}
