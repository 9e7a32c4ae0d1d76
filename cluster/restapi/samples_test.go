// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"yunion.io/x/ocadm/test/require"
)

func families(t *testing.T, text string) []*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(t, err)
	var out []*dto.MetricFamily
	for _, f := range all {
		out = append(out, f)
	}
	return out
}

func TestSeries(t *testing.T) {
	var s samples
	start := time.Unix(1000, 0)
	for i, text := range []string{
		`# TYPE ocadm_component_state gauge
ocadm_component_state{namespace="n",cluster="c",component="keystone",state="Available"} 1
ocadm_component_state{namespace="n",cluster="c",component="region",state="Waiting"} 1
ocadm_component_state{namespace="n",cluster="other",component="region",state="Available"} 1
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="200"} 10
rest_client_requests_total{code="404"} 2
`, `# TYPE ocadm_component_state gauge
ocadm_component_state{namespace="n",cluster="c",component="keystone",state="Available"} 1
ocadm_component_state{namespace="n",cluster="c",component="region",state="Available"} 1
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="200"} 20
rest_client_requests_total{code="404"} 4
`, `# TYPE rest_client_requests_total counter
rest_client_requests_total{code="200"} 1
`, // the operator restarted, and has no cloud yet
	} {
		s.add(read(start.Add(time.Duration(i)*30*time.Second), families(t, text)))
	}
	got := map[string]Series{}
	for _, one := range s.series("n", "c") {
		got[one.Name] = one
	}
	for name, want := range map[string]struct {
		times  []int64
		values []float64
	}{"available": {[]int64{1000, 1030}, []float64{1, 2}}, "requests": {[]int64{1030, 1060}, []float64{24, 0}}} {
		if g := got[name]; !slices.Equal(g.Times, want.times) || !slices.Equal(g.Values, want.values) {
			t.Errorf("%s: %v %v, want %v", name, g.Times, g.Values, want)
		}
	}
	if len(got) != 2 {
		t.Errorf("%v", got)
	}
	for range 2 * samplesKept {
		s.add(sample{time: start})
	}
	if len(s.all) != samplesKept {
		t.Errorf("%d samples are kept", len(s.all))
	}
}

// Counters that were not read, or are of a replica that took over, do not look like thousands of requests within seconds.
func TestSeriesAcrossProcesses(t *testing.T) {
	const text = "# TYPE rest_client_requests_total counter\nrest_client_requests_total %d\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %d\n"
	var s samples
	for i, text := range []string{
		fmt.Sprintf(text, 100, 1), fmt.Sprintf(text, 110, 1),
		"", // the API server did not answer in time
		fmt.Sprintf(text, 130, 1), fmt.Sprintf(text, 140, 1),
		fmt.Sprintf(text, 90000, 2), fmt.Sprintf(text, 90005, 2), // another replica leads
	} {
		s.add(read(time.Unix(int64(i)*60, 0), families(t, text)))
	}
	got := s.series("n", "c")
	if len(got) != 1 || !slices.Equal(got[0].Times, []int64{60, 240, 360}) || !slices.Equal(got[0].Values, []float64{10, 10, 5}) {
		t.Errorf("%+v", got)
	}
}
