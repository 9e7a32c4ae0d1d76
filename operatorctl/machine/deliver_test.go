// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/sshserver"
)

// liar returns a machine that prints a text for every script, and fails.
func liar(t *testing.T, text string) *ssh.Conn {
	t.Helper()
	private, public := sshserver.NewKey(t)
	s := &sshserver.Server{Keys: []gossh.PublicKey{public}, Run: func(c *sshserver.Call) int {
		_, _ = io.Copy(io.Discard, c.Stdin)
		fmt.Fprintln(c.Stdout, text)
		return 1
	}}
	s.Start(t)
	c, err := ssh.Dial(t.Context(), ssh.Target{Address: "127.0.0.1", Port: s.Port(), Credentials: ssh.Credentials{Key: private}}, nil)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// said records the reports.
type said struct {
	workflow.Reporter
	text strings.Builder
}

func (s *said) Info(format string, args ...any) { fmt.Fprintf(&s.text, format+"\n", args...) }
func (s *said) Output(line string)              { s.text.WriteString(line + "\n") }

// A remedy of ocadm join names flags. The user of a machine needs its fields.
func TestRemediesNameTheFieldsOfAMachine(t *testing.T) {
	for remedy, want := range map[string]string{
		"name it: --node-ip ADDRESS":                           "name it: --node-ip ADDRESS; for a machine, --node-ip is settings.ip",
		"give --mirror URL, or --mirror and --https-proxy URL": "give --mirror URL, or --mirror and --https-proxy URL; for a machine, --mirror is settings.mirror; for a machine, --https-proxy is settings.httpsProxy",
		"systemctl enable --now chronyd":                       "systemctl enable --now chronyd",
	} {
		if got := bound(finding.List{{Code: "OCA-2002", Remedy: remedy}})[0].Remedy; got != want {
			t.Errorf("%s: %s", remedy, got)
		}
	}
}

// A machine's output goes to statuses and terminals: it is bounded, and only codes of ocadm pass.
func TestFindingsOfMachineAreBounded(t *testing.T) {
	long := "\x1b[31m" + strings.Repeat("x", 4000)
	var many finding.List
	for range 100 {
		many = append(many, finding.New("OCA-2001", long, long, long), finding.New("NodeExists", "w", "", ""))
	}
	check := func(what string, list finding.List) {
		t.Helper()
		if text := fmt.Sprint(list); len(list) == 0 || len(list) > maxFindings || len(text) > 200<<10 || strings.Contains(text, "\x1b") || strings.Contains(text, "NodeExists") {
			t.Errorf("%s: %d findings, %d bytes", what, len(list), len(text))
		}
	}
	answer, err := json.MarshalIndent(map[string]any{"passed": false, "findings": many[:80]}, "", " ")
	require.NoError(t, err)
	list, err := Precheck(t.Context(), "w", liar(t, string(answer)), "", "precheck")
	require.NoError(t, err)
	check("precheck", list)
	list, err = checked("w", `{"passed":false,"findings":[{"code":"NodeExists","severity":"error","what":"w"}]}`, ssh.Result{Exit: 1})
	if l := finding.Of(err); len(list) > 0 || len(l) != 1 || l[0].Code != "OCA-7607" {
		t.Errorf("a code that ocadm does not have: %v, %v", list, err)
	}
	event, err := json.Marshal(workflow.Event{Type: workflow.PhaseFailed, Phase: "p", Message: long, Findings: many[:4]})
	require.NoError(t, err)
	var told said
	err = Join(t.Context(), "w", liar(t, string(event)), "", &told)
	check("join", finding.Of(err))
	if text := told.text.String(); len(text) > 2000 || strings.Contains(text, "\x1b") || !strings.HasPrefix(text, "p: ") {
		t.Errorf("%d bytes were reported", len(text))
	}
}
