// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// Tokens that do not exist use up the limit of those alone: a sender with a token that the API server knows goes on, at its own limit.
func TestGuard(t *testing.T) {
	s := &server{Options: Options{Config: &rest.Config{Host: "https://127.0.0.1:1"}, Burst: 3, Rate: 0.001}}
	asked := 0
	h := s.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch r.Header.Get("Authorization") {
		case "Bearer good":
			_, _ = w.Write([]byte("{}"))
		case "Bearer weak":
			w.WriteHeader(http.StatusForbidden)
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	ask := func(token string) int {
		r := httptest.NewRequest(http.MethodGet, prefix+"/namespaces/n/clouds", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	if a, b := ask("good"), ask("weak"); a != http.StatusOK || b != http.StatusForbidden {
		t.Fatal(a, b)
	}
	for i := range 10 * strangeBurst {
		ask(fmt.Sprintf("bad%d", i))
	}
	if asked > 2*strangeBurst {
		t.Errorf("%d requests with unknown tokens were asked about", asked)
	}
	if code := ask("bad"); code != http.StatusTooManyRequests {
		t.Errorf("an unknown token: %d", code)
	}
	for token, want := range map[string]int{"good": http.StatusOK, "weak": http.StatusForbidden} {
		for i, want := range []int{want, want, http.StatusTooManyRequests} {
			if code := ask(token); code != want {
				t.Errorf("request %d of %s: %d, want %d", i, token, code, want)
			}
		}
	}
}
