// SPDX-License-Identifier: Apache-2.0

package callin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"yunion.io/x/ocadm/internal/callin"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

// A report arrives as it was sent, without its evidence.
func TestReport(t *testing.T) {
	want := callin.Report{State: callin.Failed, Try: 3, Phase: "node/software", Exit: 20, Message: "no",
		Findings: finding.List{finding.New("OCA-2001", "Port 10250 is taken", "by socat", "stop it")}}
	sent := want
	sent.Findings = finding.List{finding.Warn("OCA-1008", "few", "", ""), want.Findings[0].With("evidence")}
	data, err := sent.Data()
	require.NoError(t, err)
	if got := callin.Read(data); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if keys := slices.Sorted(maps.Keys(data)); !slices.Equal(keys, []string{"exit", "findings", "message", "phase", "state", "try"}) {
		t.Errorf("%q", keys)
	}
}

// The operator accepts nothing from a machine that ocadm could not have reported.
func TestReadTrustsNothing(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	for name, data := range map[string]map[string]string{
		"nothing":          nil,
		"another state":    {"state": "Running"},
		"a number":         {"try": "-1", "exit": "1e9"},
		"a phase":          {"phase": "a\nb"},
		"a long phase":     {"phase": long},
		"findings":         {"findings": "{"},
		"too many":         {"findings": "[" + long + "]"},
		"another code":     {"findings": `[{"code":"NodeExists","severity":"error"}]`},
		"a code in a text": {"findings": `[{"code":"OCA-1\n234","severity":"error"}]`},
	} {
		if got := callin.Read(data); !reflect.DeepEqual(got, callin.Report{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	r := callin.Read(map[string]string{"message": "a\x1b[31m\nb" + long, "try": "99", "findings": `[{"code":"OCA-2001","severity":"warning","what":"a\u001b[0m"}]`})
	if strings.ContainsAny(r.Message, "\x1b\n") || len(r.Message) > 1100 || r.Try != callin.Tries || len(r.Findings.Errors()) != 1 || strings.Contains(r.Findings[0].What, "\x1b") {
		t.Errorf("%+v", r)
	}
}

// A shortened list of findings begins with errors, and what ocadm reports is unchanged.
func TestBound(t *testing.T) {
	whole := finding.Finding{Code: "OCA-6012", Check: "MySQL-5.7_x", Severity: finding.Error, What: "w", Cause: "c", Remedy: "r", Evidence: []string{"one", "two"}}
	warning := finding.Warn("OCA-1008", "few", "", "")
	if got := callin.Bound(finding.List{warning, whole}, 2); !reflect.DeepEqual(got, finding.List{warning, whole}) {
		t.Errorf("%+v", got)
	}
	if got := callin.Bound(finding.List{warning, {Code: "NodeExists"}, whole, warning}, 2); !reflect.DeepEqual(got, finding.List{whole, warning}) {
		t.Errorf("%+v", got)
	}
	got := callin.Bound(finding.List{{Code: "OCA-2001", Check: "a\nb", Severity: "fatal", Evidence: slices.Repeat([]string{"x"}, 1000)}}, 2)
	if len(got) != 1 || got[0].Check != "" || got[0].Severity != finding.Error || len(got[0].Evidence) > 10 {
		t.Errorf("%+v", got)
	}
}

// Follow reports phases, and the failure with its code, to a server; its status is that of the command, even if reporting fails.
func TestFollow(t *testing.T) {
	var mu sync.Mutex
	var got []callin.Report
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var patch struct{ Data map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || r.Method != http.MethodPatch || r.Header.Get("Authorization") != "Bearer t" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, callin.Read(patch.Data))
	}))
	defer s.Close()
	client := callin.Client{URL: s.URL, Token: "t", HTTP: s.Client()}
	const events = `{"type":"phase-started","phase":"preflight"}
{"type":"phase-failed","phase":"preflight","findings":[{"code":"OCA-2001","severity":"error","what":"Port 10250 is taken"}]}
`
	for name, c := range map[string]struct {
		script string
		status int
		want   callin.Report
	}{
		"it fails": {"printf '" + strings.ReplaceAll(events, "\n", `\n`) + "'; echo late >&2; exit 20", 20,
			callin.Report{State: callin.Failed, Try: 2, Phase: "preflight", Exit: 20, Message: "late", Findings: finding.List{finding.New("OCA-2001", "Port 10250 is taken", "", "")}}},
		"it joins": {`printf '{"type":"phase-started","phase":"preflight"}\nno event\n'`, 0, callin.Report{State: callin.Joined, Try: 2, Phase: "preflight"}},
	} {
		got = nil
		var out bytes.Buffer
		status, err := callin.Follow(t.Context(), exec.Machine{}, exec.Command{Path: "sh", Args: []string{"-c", c.script}}, 2, &out, client.Send)
		if err != nil || status != c.status || len(got) < 1 || !reflect.DeepEqual(got[len(got)-1], c.want) || !strings.Contains(out.String(), "phase-started") {
			t.Errorf("%s: status %d, %v, %+v\n%s", name, status, err, got, out.String())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	status, _ := callin.Follow(ctx, exec.Machine{}, exec.Command{Path: "sh", Args: []string{"-c", "exit 7"}}, 1, &bytes.Buffer{},
		func(ctx context.Context, r callin.Report) error { cancel(); return context.Canceled })
	if status != 7 {
		t.Errorf("without reports: status %d", status)
	}
}
