// SPDX-License-Identifier: Apache-2.0

package callin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
)

const (
	// sendTimeout bounds one report. A join does not depend on its reports.
	sendTimeout = 10 * time.Second
	// lastTries is how often the last report is tried, lastPause the pause after each attempt: the API server may be unavailable for a moment.
	lastTries = 5
	lastPause = 5 * time.Second
)

// Client sends reports.
type Client struct {
	// URL is that of the ConfigMap, Token that of the machine.
	URL, Token string
	HTTP       *http.Client
}

func (c Client) Send(ctx context.Context, r Report) error {
	data, err := r.Data()
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, c.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.Header.Set("Content-Type", "application/merge-patch+json")
	res, err := c.HTTP.Do(req)
	if err != nil {
		return fmt.Errorf("reporting to the cluster: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("reporting to the cluster: the API server answered %s", res.Status)
	}
	return nil
}

// Follow runs a command that prints ocadm events, passes its output on, and reports its progress. It returns the command's exit status, whether or
// not reports get through. Only the latest report is sent, and the last one always is.
func Follow(ctx context.Context, run exec.Runner, c exec.Command, try int, out io.Writer, send func(context.Context, Report) error) (int, error) {
	latest := make(chan Report, 1)
	var sender sync.WaitGroup
	sender.Go(func() {
		for r := range latest {
			_ = send(ctx, r) // the next report supersedes it
		}
	})
	w := &watcher{now: Report{State: Joining, Try: try}, latest: latest}
	c.Stdout = io.MultiWriter(&exec.LineWriter{Emit: w.see}, out)
	result, err := run.Run(ctx, c)
	close(latest)
	sender.Wait()
	end := w.now
	status := 0
	var failed *exec.Error
	switch {
	case err == nil:
		end.State, end.Findings = Joined, nil
	case errors.As(err, &failed) && failed.ExitCode > 0:
		status = failed.ExitCode
		end.State, end.Exit, end.Message = Failed, status, lastLine(result.Stderr)
	default:
		return 1, err
	}
	for range lastTries {
		if send(ctx, end) == nil {
			break
		}
		if err := wait.Sleep(ctx, lastPause); err != nil {
			return status, err
		}
	}
	return status, nil
}

// watcher reads events line by line.
type watcher struct {
	now    Report
	latest chan Report
}

func (w *watcher) see(line string) {
	var e workflow.Event
	if json.Unmarshal([]byte(line), &e) != nil {
		return
	}
	switch e.Type {
	case workflow.PhaseStarted:
		w.now.Phase, w.now.Findings = e.Phase, nil
	case workflow.PhaseFailed, workflow.RunFailed:
		if found := e.Findings.Errors(); len(found) > 0 {
			w.now.Findings = append(finding.List{}, found...)
		}
		return
	default:
		return
	}
	select {
	case <-w.latest: // superseded
	default:
	}
	w.latest <- w.now
}

// lastLine returns the last line of a program's output.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
