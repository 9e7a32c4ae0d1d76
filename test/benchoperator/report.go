// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/operatorctl/admission"
	"yunion.io/x/ocadm/templates"
)

// row is one line of the table.
type row struct {
	ID, Metric, Goal, Result string
	// Met reports whether the goal is met; nil if there is no goal.
	Met *bool
	// Ratio is the ratio to a client without logic in the same run.
	Ratio string
	// Anchor is the cost of the earlier operator, or another reference.
	Anchor string
}

type machine struct {
	CPU, Kernel string
	Cores       int
	// Load is the load average when the program started.
	Load string
}

func (b *bench) add(r row, met ...bool) {
	if len(met) > 0 {
		r.Met = &met[0]
	}
	b.rows = append(b.rows, r)
	b.Logf("%s %s: %s (goal %s) %s", r.ID, r.Metric, r.Result, r.Goal, r.Ratio)
}

func (b *bench) report(to io.Writer) {
	fmt.Fprintf(to, "%s, %d cores, Linux %s, load %s at the start and %s at the end\n\n", b.machine.CPU, b.machine.Cores, b.machine.Kernel,
		b.machine.Load, load())
	fmt.Fprintln(to, "| | what | goal | measured | met | ratio to a raw client | the earlier operator |\n|---|---|---|---|---|---|---|")
	for _, r := range b.rows {
		met := "–"
		if r.Met != nil {
			met = map[bool]string{true: "yes", false: "**no**"}[*r.Met]
		}
		fmt.Fprintf(to, "| %s | %s | %s | %s | %s | %s | %s |\n", r.ID, r.Metric, r.Goal, r.Result, met, cmp.Or(r.Ratio, "–"), cmp.Or(r.Anchor, "–"))
	}
}

// times are samples of a duration.
type times []time.Duration

func (t times) median() time.Duration { return t.quantile(0.5) }

func (t times) quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(t))
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

// String returns the median with the minimum and the maximum.
func (t times) String() string {
	if len(t) == 0 {
		return "nothing measured"
	}
	return fmt.Sprintf("%s (%s–%s)", short(t.median()), short(slices.Min(t)), short(slices.Max(t)))
}

func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// ratio returns the ratio of the medians.
func ratio(a, b times) float64 {
	if b.median() == 0 {
		return 0
	}
	return a.median().Seconds() / b.median().Seconds()
}

func thisMachine() machine {
	m := machine{Cores: runtime.NumCPU(), Load: load()}
	if data, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(data))
	}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if key, value, _ := strings.Cut(s.Text(), ":"); strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	return m
}

// load returns the machine's load average of the last minute.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

// static measures everything that needs no cluster.
func (b *bench) static() {
	crd, err := fs.ReadFile(templates.Files(), admission.Definition)
	b.no(err)
	b.add(row{ID: "P23", Metric: "size of the CRD", Goal: "≤ 200 KiB", Result: fmt.Sprintf("%d KiB", len(crd)/1024), Anchor: "no schema"}, len(crd) <= 200*1024)
}
