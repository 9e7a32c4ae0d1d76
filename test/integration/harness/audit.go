// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/wait"
)

// harnessAgent is the user agent of the harness itself; its requests are never counted.
const harnessAgent = "ocadm-integration-harness"

// Mark is a position in the audit log.
type Mark int64

// Request is one line of the audit log.
type Request struct {
	Verb, URI, UserAgent, User                    string
	Group, Resource, Subresource, Namespace, Name string
	Code                                          int
	Time                                          time.Time
}

func (r Request) String() string {
	return fmt.Sprintf("%s %s %d (%s, %s)", r.Verb, r.URI, r.Code, r.User, r.UserAgent)
}

// Filter selects requests. The zero value selects all except watches, leases and the harness' own.
type Filter struct {
	// UserAgent, if set, must be part of the request's user agent.
	UserAgent string
	// User, if set, must be the user or the impersonated user.
	User string
	// Watches and Leases also select those.
	Watches, Leases bool
}

// Mark sends a request that marks a position in the audit log and waits until it is logged. All requests that were answered before it are logged before it.
func (c *Cluster) Mark(ctx context.Context) (Mark, error) {
	word := rand.Text()
	start, err := c.auditSize()
	if err != nil {
		return 0, err
	}
	client, err := c.client()
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	if _, err := get(ctx, client, c.URL+"/version?mark="+word); err != nil {
		return 0, fmt.Errorf("making a mark: %w", err)
	}
	for {
		data, err := c.readAudit(start)
		if err != nil {
			return 0, err
		}
		if i := bytes.Index(data, []byte(word)); i >= 0 {
			if end := bytes.IndexByte(data[i:], '\n'); end >= 0 {
				return start + Mark(i+end+1), nil
			}
		}
		if err := wait.Sleep(ctx, 5*time.Millisecond); err != nil {
			return 0, fmt.Errorf("waiting for a mark in the audit log: %w", err)
		}
	}
}

// Requests returns the requests between two marks that match the filter, in the order of their completion.
func (c *Cluster) Requests(from, to Mark, f Filter) ([]Request, error) {
	data, err := c.readAudit(from)
	if err != nil {
		return nil, err
	}
	var found []Request
	for line := range bytes.Lines(data[:to-from]) {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if r, ended := e.request(); ended && f.keeps(r) {
			found = append(found, r)
		}
	}
	return found, nil
}

// Count calls do and returns the requests made meanwhile.
func (c *Cluster) Count(ctx context.Context, f Filter, do func() error) ([]Request, error) {
	from, err := c.Mark(ctx)
	if err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	to, err := c.Mark(ctx)
	if err != nil {
		return nil, err
	}
	return c.Requests(from, to, f)
}

func (f Filter) keeps(r Request) bool {
	switch {
	case strings.Contains(r.UserAgent, harnessAgent):
		return false
	case f.UserAgent != "" && !strings.Contains(r.UserAgent, f.UserAgent):
		return false
	case f.User != "" && f.User != r.User:
		return false
	case !f.Leases && r.Resource == "leases":
		return false
	}
	return f.Watches || r.Verb != "watch"
}

type event struct {
	Stage, RequestURI, Verb, UserAgent string
	StageTimestamp                     time.Time
	User, ImpersonatedUser             struct{ Username string }
	ResponseStatus                     struct{ Code int }
	ObjectRef                          struct{ APIGroup, Resource, Subresource, Namespace, Name string }
}

// request reports whether the event completes a request. A watch counts when it begins.
func (e event) request() (Request, bool) {
	stages := []string{"ResponseComplete", "Panic"}
	if e.Verb == "watch" {
		stages = []string{"ResponseStarted"}
	}
	user := e.User.Username
	if e.ImpersonatedUser.Username != "" {
		user = e.ImpersonatedUser.Username
	}
	o := e.ObjectRef
	return Request{
		Verb: e.Verb, URI: e.RequestURI, UserAgent: e.UserAgent, User: user, Code: e.ResponseStatus.Code, Time: e.StageTimestamp,
		Group: o.APIGroup, Resource: o.Resource, Subresource: o.Subresource, Namespace: o.Namespace, Name: o.Name,
	}, slices.Contains(stages, e.Stage)
}

// auditSize returns the current end of the audit log.
func (c *Cluster) auditSize() (Mark, error) {
	info, err := os.Stat(c.auditLog)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the audit log: %w", err)
	}
	return Mark(info.Size()), nil
}

func (c *Cluster) readAudit(from Mark) ([]byte, error) {
	file, err := os.Open(c.auditLog)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer file.Close()
	if _, err := file.Seek(int64(from), io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return io.ReadAll(file)
}
