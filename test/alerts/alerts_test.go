// SPDX-License-Identifier: Apache-2.0

// Package alerts tests the alert rules of docs/monitoring with Prometheus' own engine. It is a separate module, because the engine is large and nothing else needs it.
package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"gopkg.in/yaml.v2"
)

const docs = "../../docs/monitoring"

// rule is an alert rule.
type rule struct {
	Alert       string
	Expr        string
	For         model.Duration
	Labels      map[string]string
	Annotations map[string]string
}

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

// scenario holds measurements and the alerts that must fire.
type scenario struct {
	Name     string
	Interval model.Duration
	Series   []struct{ Series, Values string } `yaml:"input_series"`
	Checks   []struct {
		Alert    string         `yaml:"alertname"`
		At       model.Duration `yaml:"eval_time"`
		Expected []struct {
			Labels map[string]string `yaml:"exp_labels"`
		} `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, name))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".json") {
		err = json.Unmarshal(text, into)
	} else {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func rules(t *testing.T) map[string]rule {
	t.Helper()
	var file ruleFile
	read(t, "alerts.yaml", &file)
	out := map[string]rule{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if _, double := out[r.Alert]; double {
				t.Errorf("%s is there twice", r.Alert)
			}
			out[r.Alert] = r
		}
	}
	return out
}

// TestRulesSayWhatToDo checks that every rule parses, uses metrics that README.md lists, and explains what to do.
func TestRulesSayWhatToDo(t *testing.T) {
	all := rules(t)
	if len(all) < 12 {
		t.Errorf("only %d rules", len(all))
	}
	known := listed(t)
	for name, r := range all {
		for _, m := range metricsIn(t, r.Expr) {
			if !known[m] && m != "ALERTS" { // Prometheus writes it
				t.Errorf("%s asks for %s, which README.md does not list", name, m)
			}
		}
		for _, a := range []string{"summary", "cause", "command"} {
			if r.Annotations[a] == "" {
				t.Errorf("%s has no %s", name, a)
			}
		}
		if strings.Contains(r.Annotations["command"], "get events") {
			t.Errorf("%s: the API server deletes events after an hour, and the alert lasts longer", name)
		}
		if !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", name, r.Labels["severity"])
		}
	}
}

// TestDashboardAsksForMetricsThatExist checks every query of the dashboard.
func TestDashboardAsksForMetricsThatExist(t *testing.T) {
	var dashboard any
	read(t, "dashboard.json", &dashboard)
	known := listed(t)
	queries := 0
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, child := range v {
				text, isText := child.(string)
				if key != "expr" || !isText {
					walk(child)
					continue
				}
				queries++
				text = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h").Replace(text)
				for _, m := range metricsIn(t, text) {
					if !known[m] {
						t.Errorf("the dashboard asks for %s, which README.md does not list", m)
					}
				}
			}
		case []any:
			for _, child := range v {
				walk(child)
			}
		}
	}
	walk(dashboard)
	if queries < 10 {
		t.Errorf("only %d queries", queries)
	}
}

// listed returns the metrics in README.md.
func listed(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\|").FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = true
		if m[2] == "histogram" {
			out[m[1]+"_bucket"], out[m[1]+"_count"], out[m[1]+"_sum"] = true, true, true
		}
	}
	return out
}

func metricsIn(t *testing.T, expr string) []string {
	t.Helper()
	tree, err := parser.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	var out []string
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			out = append(out, s.Name)
		}
		return nil
	})
	return out
}

// TestRulesFire runs alerts_test.yaml. Every rule must fire in one scenario and be silent in another. No alert about a cloud has a label of the
// operator's pod: another pod would restart its waiting time.
func TestRulesFire(t *testing.T) {
	all := rules(t)
	var file struct {
		Rules    []string       `yaml:"rule_files"`
		Interval model.Duration `yaml:"evaluation_interval"`
		Tests    []scenario
	}
	read(t, "alerts_test.yaml", &file)
	fired, silent := map[string]bool{}, map[string]bool{}
	for _, s := range file.Tests {
		t.Run(s.Name, func(t *testing.T) {
			load := "load " + s.Interval.String() + "\n"
			for _, series := range s.Series {
				name := series.Series
				if strings.HasPrefix(name, "ocadm_") && !strings.Contains(name, "pod=") {
					name = strings.Replace(name, "{", `{pod="a", instance="10.0.0.1:8080", job="ocadm-operator", `, 1)
				}
				load += fmt.Sprintf("\t%s %s\n", name, series.Values)
			}
			db := promqltest.LoadedStorage(t, load)
			defer db.Close()
			engine := promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery)
			for _, c := range s.Checks {
				r, known := all[c.Alert]
				if !known {
					t.Fatalf("there is no rule %s", c.Alert)
				}
				got := firing(t, engine, db, r, time.Duration(file.Interval), time.Duration(c.At))
				want := []string{}
				for _, e := range c.Expected {
					want = append(want, labels.FromMap(e.Labels).String())
				}
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s at %v: %q, want %q", c.Alert, c.At, got, want)
				}
				if len(want) > 0 {
					fired[c.Alert] = true
				} else {
					silent[c.Alert] = true
				}
			}
		})
	}
	for name := range all {
		if !fired[name] || !silent[name] {
			t.Errorf("%s: fires in a scenario %v, is silent in one %v", name, fired[name], silent[name])
		}
	}
}

// firing returns the label sets for which the rule has been true, at every evaluation, for its whole waiting time. Labels in the annotations must exist.
func firing(t *testing.T, engine *promql.Engine, db storage.Queryable, r rule, every, at time.Duration) []string {
	t.Helper()
	since := map[string]time.Duration{}
	for now := time.Duration(0); now <= at; now += every {
		q, err := engine.NewInstantQuery(context.Background(), db, nil, r.Expr, time.Unix(0, 0).Add(now))
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		vector, err := q.Exec(context.Background()).Vector()
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		active := map[string]time.Duration{}
		for _, sample := range vector {
			l := labels.NewBuilder(sample.Metric).Del(labels.MetricName).Labels()
			begun, was := since[l.String()]
			if !was {
				begun = now
			}
			active[l.String()] = begun
			quotes(t, r, l)
		}
		since = active
		q.Close()
	}
	out := []string{}
	for l, begun := range since {
		if at-begun >= time.Duration(r.For) {
			out = append(out, l)
		}
	}
	slices.Sort(out)
	return out
}

func quotes(t *testing.T, r rule, l labels.Labels) {
	t.Helper()
	for key, text := range r.Annotations {
		for _, m := range regexp.MustCompile(`\$labels\.([a-z_]+)`).FindAllStringSubmatch(text, -1) {
			if l.Get(m[1]) == "" {
				t.Errorf("%s: %s quotes the label %s, which %s has not", r.Alert, key, m[1], l)
			}
		}
	}
}
