// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yunion.io/x/ocadm/test/require"
)

// slowRecord is an identity service with a delay between reading and writing a record of options.
type slowRecord struct{ options map[string]any }

func (s *slowRecord) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(body any) (*http.Response, error) {
		b, err := json.Marshal(body)
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"X-Subject-Token": {"t"}}, Body: io.NopCloser(strings.NewReader(string(b)))}, err
	}
	if !strings.HasSuffix(r.URL.Path, "/config") {
		return answer(map[string]any{"token": map[string]any{}})
	}
	if r.Method == http.MethodPost {
		var input struct {
			Service struct {
				Action string
				Config ServiceConfig
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&input); err != nil {
			return nil, err
		}
		now := maps.Clone(s.options)
		time.Sleep(time.Second)
		for k, v := range input.Service.Config["default"] {
			if now[k] = v; input.Service.Action == "remove" {
				delete(now, k)
			}
		}
		s.options = now
	}
	return answer(map[string]any{"service": map[string]any{"config": ServiceConfig{"default": s.options}}})
}

// One edit may set an option and remove another: neither change undoes the other.
func TestOptionsSetAndRemovedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &slowRecord{options: map[string]any{"old": "1"}}
		c, err := New(Options{AuthURL: "https://identity.test/v3", Username: "u", Password: "p", Transport: service})
		require.NoError(t, err)
		require.NoError(t, c.Login(t.Context()))
		var both sync.WaitGroup
		both.Go(func() {
			if changed, err := c.EnsureServiceConfig(t.Context(), "region2", map[string]any{"new": "1"}); err != nil || !changed {
				t.Errorf("setting: %v, %v", changed, err)
			}
		})
		both.Go(func() {
			if changed, err := c.RemoveServiceConfig(t.Context(), "region2", "old"); err != nil || !changed {
				t.Errorf("removing: %v, %v", changed, err)
			}
		})
		both.Wait()
		if want := map[string]any{"new": "1"}; !maps.Equal(service.options, want) {
			t.Errorf("stored is %v, want %v", service.options, want)
		}
	})
}
