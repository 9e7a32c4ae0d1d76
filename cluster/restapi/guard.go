// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/metrics"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
)

// The default limits: for each token that the API server knows, for all of these together, and for unknown tokens, per address and together. Unknown
// tokens also cost a request to the API server; invalid tokens from one address must not block other clients.
const (
	usualRate, usualBurst                   = 20, 40
	allRate, allBurst                       = 200, 400
	strangerRate, strangerBurst             = 20, 40
	allStrangersRate, allStrangersBurst     = 100, 200
	knownTokens, knownAddresses         int = 4096, 1024
)

type limits struct {
	perToken rate.Limit
	burst    int

	all, strangers *rate.Limiter

	mu                sync.Mutex
	tokens, addresses *lru.Cache // of *rate.Limiter
}

func newLimits(perToken rate.Limit, burst int) *limits {
	if perToken == 0 {
		perToken, burst = usualRate, usualBurst
	}
	return &limits{perToken: perToken, burst: burst, tokens: lru.New(knownTokens), addresses: lru.New(knownAddresses),
		all: rate.NewLimiter(allRate, allBurst), strangers: rate.NewLimiter(allStrangersRate, allStrangersBurst)}
}

// of returns the limiters for a request with a token, by its digest, from an address.
func (l *limits) of(token, address string) []*rate.Limiter {
	if own, known := l.tokens.Get(token); known {
		return []*rate.Limiter{own.(*rate.Limiter), l.all}
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	own, seen := l.addresses.Get(address)
	if !seen {
		own = rate.NewLimiter(strangerRate, strangerBurst)
		l.addresses.Add(address, own)
	}
	return []*rate.Limiter{own.(*rate.Limiter), l.strangers}
}

// knows gives a token its own limiter, once the API server has accepted it.
func (l *limits) knows(token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.tokens.Get(token); !known {
		first := rate.NewLimiter(l.perToken, l.burst)
		first.Allow()
		l.tokens.Add(token, first)
	}
}

// guard requires a token and enforces the rate limits. It also bounds bodies; that of a resource is bounded again where it is read.
func (s *server) guard(next http.Handler) http.Handler {
	count := newLimits(rate.Limit(s.Rate), s.Burst)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !strings.HasPrefix(r.URL.Path, prefix+"/") {
			next.ServeHTTP(w, r)
			return
		}
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if token = strings.TrimSpace(token); !ok || token == "" {
			write(w, problem(http.StatusUnauthorized, "the request has no token"))
			return
		}
		name := fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
		for _, l := range count.of(name, r.RemoteAddr) {
			if !l.Allow() {
				w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(1/float64(l.Limit())))))
				write(w, problem(http.StatusTooManyRequests, "there are more requests than the limit allows"))
				return
			}
		}
		c, err := s.clientOf(token, func() { count.knows(name) })
		if err != nil {
			var p *Problem
			if !errors.As(err, &p) {
				p = problem(http.StatusInternalServerError, err.Error())
			}
			write(w, p)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		ctx := context.WithValue(context.WithValue(r.Context(), sessionKey{}, c), tokenKey{}, name)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// CountOwnRequests leaves requests with the permissions of users out of the metrics of requests to the API server: what it refuses them says nothing
// about the operator's roles. It is called once per process.
func CountOwnRequests() { metrics.RequestResult = ownRequests{metrics.RequestResult} }

type ownRequests struct{ metrics.ResultMetric }

func (o ownRequests) Increment(ctx context.Context, code, method, host string) {
	if of(ctx) == nil {
		o.ResultMetric.Increment(ctx, code, method, host)
	}
}

// clientOf returns a client with the permissions of a token. It calls knows when the API server accepts the token.
func (s *server) clientOf(token string, knows func()) (client.WithWatch, error) {
	if s.Local != "" {
		if subtle.ConstantTimeCompare([]byte(token), []byte(s.Local)) == 1 {
			knows()
			return s.own, nil
		}
		return nil, problem(http.StatusUnauthorized, "the token is not valid for this server")
	}
	cfg := rest.AnonymousClientConfig(s.Config)
	cfg.BearerToken = token
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return letIn{next, knows} })
	return s.client(kube.Unlimited(cfg))
}

// letIn calls knows after an answer that shows that the API server accepted the token.
type letIn struct {
	http.RoundTripper
	knows func()
}

func (l letIn) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := l.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode < http.StatusInternalServerError {
		l.knows()
	}
	return answer, err
}
