// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"yunion.io/x/ocadm/test/require"
)

// Of two replicas of the operator, the one with the lease counts the clouds.
func TestMetricsOfTheLeader(t *testing.T) {
	const text = "# TYPE leader_election_master_status gauge\nleader_election_master_status{name=\"ocadm-operator\"} %d\n# TYPE pod_%s gauge\npod_%s 1\n"
	for name, c := range map[string]struct {
		pods map[string]int // 1 leads, -1 is refused, -2 does not answer
		want string
	}{
		"the second leads":            {map[string]int{"a": 0, "b": 1}, "pod_b"},
		"the first does not answer":   {map[string]int{"a": -1, "b": 1}, "pod_b"},
		"the first is on a lost node": {map[string]int{"a": -2, "b": 1}, "pod_b"},
		"none leads":                  {map[string]int{"a": 0}, "pod_a"},
		"none answers":                {map[string]int{"a": -1}, ""},
		"none is there":               {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if strings.HasSuffix(r.URL.Path, "/pods") {
					var items []string
					for _, p := range []string{"a", "b"} {
						if _, there := c.pods[p]; there {
							items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"onecloud"}}`, p))
						}
					}
					fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","items":[%s]}`, strings.Join(items, ","))
					return
				}
				_, rest, _ := strings.Cut(r.URL.Path, "/pods/http:")
				pod, _, _ := strings.Cut(rest, ":")
				if c.pods[pod] == -2 {
					<-r.Context().Done()
				}
				if c.pods[pod] < 0 {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				fmt.Fprintf(w, text, c.pods[pod], pod, pod)
			}))
			defer s.Close()
			m, err := newOperatorMetrics(t.Context(), &rest.Config{Host: s.URL})
			require.NoError(t, err)
			families, err := m.Gather()
			var names []string
			for _, f := range families {
				names = append(names, f.GetName())
			}
			if got := strings.Join(names, " "); !strings.Contains(got, c.want) || (err != nil) != (c.want == "") {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// The page of a cloud in another namespace shows figures, too: the operator stays where it is.
func TestMetricsForAnotherNamespace(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	asked := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.Path:
		default:
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer s.Close()
	o := Options{Config: &rest.Config{Host: s.URL}, Log: slog.New(slog.DiscardHandler), Address: "127.0.0.1:0"}
	ended := make(chan error, 1)
	go func() { ended <- ServeLocal(ctx, o, "elsewhere", func(string) {}) }()
	select {
	case path := <-asked:
		if path != "/api/v1/namespaces/onecloud/pods" {
			t.Error(path)
		}
	case <-ctx.Done():
		t.Error("the operator was not looked for")
	}
	cancel()
	require.NoError(t, <-ended)
}
