// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"

	gossh "golang.org/x/crypto/ssh"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ssh"
)

// api connects to the API server through SSH to a control-plane node, because an administrator's machine need not reach anything else.
type api struct {
	mu     sync.Mutex
	conn   *ssh.Conn
	client client.WithWatch
}

func (a *api) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != nil {
		a.conn.Close()
	}
	a.conn, a.client = nil, nil
}

// open returns a client of the cluster with the kubeconfig in the directory.
func (f *Fleet) open() (client.WithWatch, error) {
	f.api.mu.Lock()
	defer f.api.mu.Unlock()
	if f.api.client != nil {
		return f.api.client, nil
	}
	cfg, err := kube.Config(f.kubeconfig())
	if err != nil {
		return nil, err
	}
	cfg.Dial = f.dialAPI
	f.api.client, err = kube.New(cfg)
	return f.api.client, err
}

// dialAPI connects to an API server from a control-plane node. If sshd forbids forwarding, it connects from here.
func (f *Fleet) dialAPI(ctx context.Context, network, address string) (net.Conn, error) {
	for try := 0; ; try++ {
		c, err := f.tunnel(ctx)
		if err != nil {
			return nil, err
		}
		conn, err := c.DialContext(ctx, network, address)
		var refused *gossh.OpenChannelError
		switch {
		case err == nil:
			return conn, nil
		case errors.As(err, &refused) && refused.Reason == gossh.Prohibited:
			return (&net.Dialer{}).DialContext(ctx, network, address)
		case refused != nil || try > 0 || ctx.Err() != nil:
			return nil, err
		}
		f.lost(c) // the connection is lost: try another, once
	}
}

// tunnel returns the connection to the first control-plane node that answers.
func (f *Fleet) tunnel(ctx context.Context) (*ssh.Conn, error) {
	f.api.mu.Lock()
	defer f.api.mu.Unlock()
	if f.api.conn != nil {
		return f.api.conn, nil
	}
	var errs []error
	for _, n := range f.nodes {
		if n.role == roleWorker {
			continue
		}
		c, err := f.dial(ctx, n.m)
		if err == nil {
			f.api.conn = c
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (f *Fleet) lost(c *ssh.Conn) {
	f.api.mu.Lock()
	defer f.api.mu.Unlock()
	if f.api.conn == c {
		c.Close()
		f.api.conn = nil
	}
}

// authority returns the digest of the cluster's certificate in the kubeconfig in the directory, "" if there is none.
func (f *Fleet) authority() (string, error) {
	raw, err := os.ReadFile(f.kubeconfig())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig of the fleet: %w", err)
	}
	kc, err := clientcmd.Load(raw)
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig of the fleet: %w", err)
	}
	for _, c := range kc.Clusters {
		return fmt.Sprintf("%x", sha256.Sum256(c.CertificateAuthorityData)), nil
	}
	return "", nil
}
