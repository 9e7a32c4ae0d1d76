// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
)

const (
	// sampleEvery is the interval between samples.
	sampleEvery = 15 * time.Second
	// samplesKept is the number of samples kept: an hour.
	samplesKept = 240
)

// Series is a figure over time.
type Series struct {
	Name   string    `json:"name" enum:"available,pods,writes,requests,memory" doc:"available components, ready pods, objects written and requests sent each minute, memory"`
	Unit   string    `json:"unit" enum:"components,pods,per minute,bytes"`
	Times  []int64   `json:"times" doc:"seconds since 1970"`
	Values []float64 `json:"values"`
}

// figure defines how to compute a series from metrics. cloud means per cloud, by its labels; rate means the growth of a counter.
type figure struct {
	name, unit, metric, label, value string
	cloud, rate                      bool
}

var figures = []figure{
	{name: "available", unit: "components", metric: "ocadm_component_state", label: "state", value: "Available", cloud: true},
	{name: "pods", unit: "pods", metric: "ocadm_component_pods", label: "which", value: "ready", cloud: true},
	{name: "writes", unit: "per minute", metric: "ocadm_object_writes_total", rate: true},
	{name: "requests", unit: "per minute", metric: "rest_client_requests_total", rate: true},
	{name: "memory", unit: "bytes", metric: "process_resident_memory_bytes"},
}

// process identifies what was measured: the counters of another process, or those after a failed read, have not grown since.
var process = figure{name: "process", metric: "process_start_time_seconds"}

// cloudKey identifies a cloud, or the operator itself when it is zero.
type cloudKey struct{ namespace, name string }

// sample holds the figures at one time, by figure and cloud.
type sample struct {
	time   time.Time
	values map[string]map[cloudKey]float64
}

// samples keeps the figures of the last hour in memory, so that the page needs no monitoring system.
type samples struct {
	from prometheus.Gatherer
	mu   sync.Mutex
	all  []sample
}

// run takes samples until ctx ends.
func (s *samples) run(ctx context.Context, log *slog.Logger) error {
	if s.from == nil {
		return nil
	}
	for ctx.Err() == nil {
		families, err := s.from.Gather()
		if err != nil { // the families that could be read are there
			log.Debug("reading metrics for the page", "err", err)
		}
		s.add(read(time.Now(), families))
		_ = wait.Sleep(ctx, sampleEvery) // the loop ends with ctx
	}
	return nil
}

func (s *samples) add(one sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all = append(s.all, one); len(s.all) > samplesKept {
		s.all = slices.Clone(s.all[len(s.all)-samplesKept:])
	}
}

// read sums each figure over the labels that it does not name.
func read(now time.Time, families []*dto.MetricFamily) sample {
	out := sample{now, map[string]map[cloudKey]float64{}}
	for _, f := range slices.Concat(figures, []figure{process}) {
		for _, family := range families {
			if family.GetName() != f.metric {
				continue
			}
			out.values[f.name] = map[cloudKey]float64{}
			for _, m := range family.GetMetric() {
				label := func(name string) string {
					return lists.First(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == name }).GetValue()
				}
				if f.label != "" && label(f.label) != f.value {
					continue
				}
				key := cloudKey{}
				if f.cloud {
					key = cloudKey{label("namespace"), label("cluster")}
				}
				out.values[f.name][key] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return out
}

func (s *samples) series(namespace, name string) []Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Series
	for _, f := range figures {
		key := cloudKey{}
		if f.cloud {
			key = cloudKey{namespace, name}
		}
		one := Series{Name: f.name, Unit: f.unit, Times: []int64{}, Values: []float64{}}
		for i, now := range s.all {
			value, there := now.values[f.name][key]
			if f.rate {
				if i == 0 || s.all[i-1].values[process.name][cloudKey{}] != now.values[process.name][cloudKey{}] {
					continue
				}
				before := s.all[i-1]
				value = max(0, value-before.values[f.name][key]) / now.time.Sub(before.time).Minutes()
			}
			if there {
				one.Times, one.Values = append(one.Times, now.time.Unix()), append(one.Values, value)
			}
		}
		if len(one.Times) > 0 {
			out = append(out, one)
		}
	}
	return out
}
