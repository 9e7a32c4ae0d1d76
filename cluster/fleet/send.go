// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
)

// senders holds the files to send to machines, each read once.
type senders struct {
	mu  sync.Mutex
	all map[string]*sender
}

// sender is a file with its digest. packed is its gzipped content, nil for a file that is sent as it is.
type sender struct {
	path, digest string
	size         int64
	packed       []byte
}

// get reads a file. With pack, it is kept compressed, because it goes to every machine.
func (s *senders) get(path string, pack bool) (*sender, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.all[path]; have != nil {
		return have, nil
	}
	in, err := os.Open(path)
	if err != nil {
		return nil, finding.Errorf("OCA-7646", "The file "+path+" cannot be sent", "give a file that exists", "%w", err)
	}
	defer in.Close()
	sum, out := sha256.New(), &sender{path: path}
	var packed bytes.Buffer
	var to io.Writer = sum
	var z *gzip.Writer
	if pack {
		if z, err = gzip.NewWriterLevel(&packed, gzip.BestSpeed); err != nil {
			return nil, err
		}
		to = io.MultiWriter(sum, z)
	}
	if out.size, err = io.Copy(to, in); err == nil && z != nil {
		err = z.Close()
		out.packed = packed.Bytes()
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	out.digest = hex.EncodeToString(sum.Sum(nil))
	if s.all == nil {
		s.all = map[string]*sender{}
	}
	s.all[path] = out
	return out, nil
}

func (n *node) program() (*sender, error) {
	path := n.Spec.Programs[n.facts.Architecture]
	if path == "" && n.facts.Architecture == runtime.GOARCH {
		path = n.Program
	}
	if path == "" {
		return nil, finding.New("OCA-7646", fmt.Sprintf("There is no ocadm for %s, an %s machine", n.m.Name, n.facts.Architecture), "this ocadm is for "+runtime.GOARCH,
			"name a file with it in programs."+n.facts.Architecture)
	}
	return n.sending.get(path, true)
}

// sendBundle returns the step that copies the bundle to the first node, for its checks and for init.
func sendBundle() step {
	return step{
		Name: "send-bundle", Short: "Send the bundle to the machine", ReadOnly: true, Timeout: 2 * time.Hour,
		Skip: func(n *node) string {
			if n.Spec.Bundle == "" {
				return "the file names no bundle"
			}
			if n.finished() {
				return "the machine is installed"
			}
			if n.DryRun {
				return "a dry run sends no bundle"
			}
			return ""
		},
		Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
			s, err := n.sending.get(n.Spec.Bundle, false)
			if err != nil {
				return err
			}
			sent, err := n.send(ctx, c, s, bootstrap.BundleName, report)
			if sent {
				report.Changed("sent %s to %s", n.Spec.Bundle, n.m.Name)
			}
			return err
		}),
	}
}

// send copies a file to a machine, unless it is there.
func (n *node) send(ctx context.Context, c *ssh.Conn, s *sender, name string, report workflow.Reporter) (sent bool, err error) {
	r, err := c.Script(ctx, bootstrap.HasScript, []string{name, s.digest}, nil)
	if err != nil || r.Exit == 0 {
		return false, err
	}
	var in io.Reader
	form := "plain"
	total := s.size
	if s.packed != nil {
		in, form, total = bytes.NewReader(s.packed), "gzip", int64(len(s.packed))
	} else {
		file, err := os.Open(s.path)
		if err != nil {
			return false, finding.Errorf("OCA-7646", "The file "+s.path+" cannot be sent", "give a file that exists", "%w", err)
		}
		defer file.Close()
		in = file
	}
	var done int64
	counted := fetch.Reader(ctx, in, func(n int64) {
		done += n
		report.Progress(done, total, "B")
	})
	r, err = c.Feed(ctx, bootstrap.ReceiveScript, []string{name, s.digest, form}, counted, nil)
	switch {
	case err != nil:
		return false, err
	case r.Exit != 0:
		return false, finding.New("OCA-7647", fmt.Sprintf("%s did not accept %s", n.m.Name, s.path), cmp.Or(r.Stderr, fmt.Sprintf("status %d", r.Exit)),
			"check that /root of the machine is writable and has enough space")
	}
	return true, nil
}
