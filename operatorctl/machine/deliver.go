// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/callin"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
	"yunion.io/x/ocadm/operatorctl/machine/pairs"
)

// The functions in this file work on a machine with an open login. They need no cluster: ocadm fleet also calls them.

// Precheck runs the checks of a script of package bootstrap and returns their findings. word is the script's name for them. It changes nothing.
func Precheck(ctx context.Context, name string, c *ssh.Conn, script, word string) (finding.List, error) {
	var out strings.Builder
	result, err := c.Script(ctx, script, []string{word}, func(l string) {
		if out.Len() < maxOutput {
			out.WriteString(l + "\n")
		}
	})
	if err != nil {
		return nil, err
	}
	return checked(name, out.String(), result)
}

// clock reads the clock of a machine and compares it with that of this process. If the machine does not report it, the checks of join cover it.
func clock(ctx context.Context, name string, c *ssh.Conn) (finding.List, error) {
	var printed string
	before := time.Now()
	after := before
	if _, err := c.Script(ctx, "date +%s.%N\n", []string{"clock"}, func(l string) { printed, after = l, time.Now() }); err != nil {
		return nil, err
	}
	return pairs.CheckClock(name, pairs.Offset(printed, before, after)), nil
}

// Probe returns a function that runs the probe of package pairs on the machine that dial logs in to, which must have ocadm.
func Probe(dial func(context.Context) (*ssh.Conn, error)) func(ctx context.Context, in io.Reader, onLine func(string)) error {
	return func(ctx context.Context, in io.Reader, onLine func(string)) error {
		c, err := dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		r, err := c.Feed(ctx, bootstrap.ProbeScript, nil, in, onLine)
		if err == nil && r.Exit != 0 {
			err = fmt.Errorf("running the probe: status %d: %s", r.Exit, r.Stderr)
		}
		return err
	}
}

// Join runs the script of a machine's bootstrap data.
func Join(ctx context.Context, name string, c *ssh.Conn, script string, report workflow.Reporter) error {
	return Follow(ctx, name, c, stepJoin, script, []string{"join"}, report)
}

// Reset removes a machine from its cluster, and verifies that nothing is left. args are additional arguments of ocadm reset.
func Reset(ctx context.Context, name string, c *ssh.Conn, report workflow.Reporter, args ...string) error {
	return Follow(ctx, name, c, stepReset, bootstrap.ResetScript, args, report)
}

// plain runs a script that prints nothing but errors. what names the work in them.
func plain(ctx context.Context, name, what string, c *ssh.Conn, text string, args ...string) error {
	r, err := c.Script(ctx, text, args, nil)
	if err == nil && r.Exit != 0 {
		err = failed(name, what, r)
	}
	return err
}

// maxOutput limits the stored output of a check in bytes, maxFindings the number of findings per machine: they go to its status and to that of the
// operation. The machine is not trusted.
const maxOutput, maxFindings = 1 << 20, 32

// checked parses the output of ocadm preflight.
func checked(name, out string, result ssh.Result) (finding.List, error) {
	var answer struct {
		Passed   *bool        `json:"passed"`
		Findings finding.List `json:"findings"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.Passed == nil {
		return nil, failed(name, "precheck", result)
	}
	answer.Findings = bound(answer.Findings)
	if !*answer.Passed && answer.Findings.Err() == nil || *answer.Passed && result.Exit != 0 {
		return nil, failed(name, "precheck", result)
	}
	return answer.Findings, nil
}

const codeTokenRefused = "OCA-7651"

// codeNoResult is the code of the finding about a script that failed without a finding of ocadm, as when it could not download ocadm.
const codeNoResult = "OCA-7607"

// failed returns the error about a script that failed without a finding of ocadm.
func failed(name, what string, r ssh.Result) error {
	remedy := "log in to the machine and see /var/log/ocadm"
	switch r.Exit {
	case bootstrap.ExitNoCurl:
		remedy = "install curl on the machine"
	case bootstrap.ExitArchitecture:
		remedy = "use a machine with amd64 or arm64"
	case bootstrap.ExitNoDownload:
		remedy = "allow connections from the machine to port 6444 of the control plane, and add ocadm for its architecture to the depot: ocadm depot add FILE"
	case bootstrap.ExitExpired:
		return finding.New(codeTokenRefused, "The control plane rejects the join token of machine "+name, r.Stderr,
			"the next attempt gets a new token; if that is rejected too, compare the clocks of the machine and of the control plane")
	case bootstrap.ExitNoProgram:
		remedy = "reinstall ocadm on the machine; the operator retries automatically"
	case bootstrap.ExitGuests:
		return finding.New("OCA-7608", "Virtual machines run on machine "+name, r.Stderr,
			"migrate or stop them in the cloud; the operator retries automatically. To leave the machine unchanged: ocadm machine remove "+name+" --abandon")
	}
	return finding.New(codeNoResult, fmt.Sprintf("The %s on machine %s ended with status %d", what, name, r.Exit),
		cmp.Or(r.Stderr, "it printed nothing"), remedy)
}

// Follow runs a script that prints events of ocadm, and reports the important ones. what names the work in an error.
func Follow(ctx context.Context, name string, c *ssh.Conn, what, text string, args []string, report workflow.Reporter) error {
	var found finding.List
	result, err := c.Script(ctx, text, args, func(l string) {
		var e workflow.Event
		if json.Unmarshal([]byte(l), &e) != nil {
			return
		}
		switch e.Type {
		case workflow.PhaseStarted:
			report.Info("phase %s", callin.Text(e.Phase))
		case workflow.PhaseChanged, workflow.PhaseFailed:
			report.Output(callin.Text(e.Phase + ": " + e.Message))
		}
		if len(e.Findings) > 0 { // also those of a run that was refused before its first phase
			found = bound(e.Findings)
		}
	})
	switch {
	case err != nil:
		return err
	case result.Exit == 0:
		return nil
	case found.Err() != nil:
		return found
	}
	return failed(name, what, result)
}
