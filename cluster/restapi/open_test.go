// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// A token may have a limited number of open streams, events and logs together. A stream that ends makes room.
func TestOpenStreams(t *testing.T) {
	s := &server{Options: Options{Local: "t", Rate: 1000, Burst: 1000}, own: fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()}
	h, err := s.handler()
	require.NoError(t, err)
	api := httptest.NewServer(h)
	defer api.Close()
	defer api.CloseClientConnections()
	open := func(path string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+prefix+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer t")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	var all []*http.Response
	for i := range openOfToken {
		one := open("/namespaces/n/events")
		if line, err := bufio.NewReader(one.Body).ReadString('\n'); one.StatusCode != http.StatusOK || err != nil || !strings.HasPrefix(line, ":") {
			t.Fatalf("stream %d: %d %q %v", i, one.StatusCode, line, err)
		}
		all = append(all, one)
	}
	for _, path := range []string{"/namespaces/n/events", "/namespaces/n/operations/o/log"} {
		more := open(path)
		var p Problem
		if err := json.NewDecoder(more.Body).Decode(&p); err != nil || more.StatusCode != http.StatusTooManyRequests || p.Code != "OCA-7619" ||
			more.Header.Get("Retry-After") == "" || more.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %+v %v %v", path, more.StatusCode, p, more.Header, err)
		}
	}
	if other := open("/namespaces/n/clouds"); other.StatusCode == http.StatusTooManyRequests {
		t.Errorf("a request that is no stream: %d", other.StatusCode)
	}
	all[0].Body.Close()
	for deadline := time.Now().Add(10 * time.Second); open("/namespaces/n/events").StatusCode != http.StatusOK; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the end of a stream makes no room")
		}
	}
}

// All tokens together may have a limited number of open streams, and a token without any is forgotten.
func TestOpenStreamsOfAll(t *testing.T) {
	var o openStreams
	var leave []func()
	for i := range openOfAll {
		l, full := o.enter(fmt.Sprint(i))
		if full != "" {
			t.Fatalf("stream %d: %s", i, full)
		}
		leave = append(leave, l)
	}
	if _, full := o.enter("new"); full == "" {
		t.Error("there is no limit for all")
	}
	for l := range slices.Values(leave) {
		l()
	}
	if _, full := o.enter("new"); full != "" || o.all != 1 || len(o.ofToken) != 1 {
		t.Errorf("%q, %+v", full, &o)
	}
}
