// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gossh "golang.org/x/crypto/ssh"
	"google.golang.org/grpc/test/bufconn"

	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/sshserver"
)

// TestMaxStartups checks that many connections at once reach a jump host whose sshd closes those beyond its MaxStartups.
func TestMaxStartups(t *testing.T) {
	_, target := machine(t, nil)
	_, jump := machine(t, func(s *sshserver.Server) { s.Passwords["root"] = "jump" })
	jump.Key, jump.Password = nil, "jump"
	target.Jump = &jump
	var open, closed atomic.Int32
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if open.Add(1) > 3 {
			closed.Add(1)
			open.Add(-1)
			_ = c.Close()
			near, far := net.Pipe()
			go func() {
				_, _ = far.Read(make([]byte, 64)) // the client's version
				_, _ = io.WriteString(far, "Exceeded MaxStartups\r\n")
				_ = far.Close()
			}()
			return near, nil
		}
		time.AfterFunc(50*time.Millisecond, func() { open.Add(-1) })
		return c, nil
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			c, err := Dial(t.Context(), target, dial)
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
		})
	}
	all.Wait()
	if closed.Load() == 0 {
		t.Error("no connection was closed")
	}
}

// TestClosedAtOnce checks that a machine that closes every connection is reported, with the reason.
func TestClosedAtOnce(t *testing.T) {
	t.Parallel()
	target := listen(t, func(c net.Conn) { _ = c.Close() })
	_, err := Dial(t.Context(), target, nil)
	wantCode(t, err, "OCA-7601", "handshake failed")
}

// TestSilent checks that a machine that does not answer is reported as such.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := Dial(t.Context(), Target{Address: "192.0.2.1", Credentials: Credentials{Password: "x"}}, func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
		})
		wantCode(t, err, "OCA-7601", "no answer within 20s")
	})
}

// TestSlowLogin checks that a login may take longer than a connection: sshd waits for name servers that do not answer.
func TestSlowLogin(t *testing.T) {
	private, _ := sshserver.NewKey(t)
	host, err := gossh.ParsePrivateKey(private)
	require.NoError(t, err)
	for takes, code := range map[time.Duration]string{45 * time.Second: "", time.Hour: "OCA-7601"} {
		synctest.Test(t, func(t *testing.T) {
			cfg := &gossh.ServerConfig{PublicKeyCallback: func(gossh.ConnMetadata, gossh.PublicKey) (*gossh.Permissions, error) {
				time.Sleep(takes)
				return nil, nil
			}}
			cfg.AddHostKey(host)
			server := bufconn.Listen(1 << 16) // a connection without the kernel, whose waits the test's clock skips
			go func() {
				if far, err := server.Accept(); err == nil {
					_, _, _, _ = gossh.NewServerConn(far, cfg)
				}
			}()
			c, err := Dial(t.Context(), Target{Address: "192.0.2.1", Credentials: Credentials{Key: private}}, func(ctx context.Context, _, _ string) (net.Conn, error) {
				return server.DialContext(ctx)
			})
			if code != "" {
				wantCode(t, err, code, "does not complete a login")
			} else if err != nil {
				t.Errorf("a login of %s: %v", takes, err)
			} else {
				c.Close()
			}
			time.Sleep(2 * takes) // the server ends
		})
	}
}
