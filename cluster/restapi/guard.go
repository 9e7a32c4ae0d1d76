// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
)

// The usual limits: of one token that the API server knows, of all of these together, and of all others. The API server must be asked about those,
// too; who sends many of them keeps nobody else from working.
const (
	usualRate, usualBurst       = 20, 40
	allRate, allBurst           = 200, 400
	strangersRate, strangeBurst = 20, 40
	// knownTokens is how many tokens have a count of their own.
	knownTokens = 4096
)

// guard lets in who shows a token and does not send too much. It bounds bodies; that of a resource is bounded again where it is read.
func (s *server) guard(next http.Handler) http.Handler {
	perToken, burst := rate.Limit(s.Rate), s.Burst
	if s.Rate == 0 {
		perToken, burst = usualRate, usualBurst
	}
	all, strangers, each := rate.NewLimiter(allRate, allBurst), rate.NewLimiter(strangersRate, strangeBurst), lru.New(knownTokens)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !strings.HasPrefix(r.URL.Path, prefix+"/") {
			next.ServeHTTP(w, r)
			return
		}
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if token = strings.TrimSpace(token); !ok || token == "" {
			write(w, problem(http.StatusUnauthorized, "the request shows no token"))
			return
		}
		sum := sha256.Sum256([]byte(token))
		name := hex.EncodeToString(sum[:])
		limits := []*rate.Limiter{strangers}
		own, known := each.Get(name)
		if known {
			limits = []*rate.Limiter{own.(*rate.Limiter), all}
		} else {
			w = &watched{ResponseWriter: w, knows: func() {
				first := rate.NewLimiter(perToken, burst)
				first.Allow()
				each.Add(name, first)
			}}
		}
		for _, l := range limits {
			if !l.Allow() {
				w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(1/float64(l.Limit())))))
				write(w, problem(http.StatusTooManyRequests, "there are more requests than the limit allows"))
				return
			}
		}
		c, err := s.clientOf(token)
		if err != nil {
			var p *Problem
			if !errors.As(err, &p) {
				p = problem(http.StatusInternalServerError, err.Error())
			}
			write(w, p)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, c)))
	})
}

// watched calls knows when the answer shows that the API server knows the token: it gave something, or refused it to a user it named.
type watched struct {
	http.ResponseWriter
	knows func()
	begun bool
}

// WriteHeader implements http.ResponseWriter.
func (w *watched) WriteHeader(status int) {
	if !w.begun && (status/100 == 2 || status == http.StatusNotModified || status == http.StatusForbidden) {
		w.knows()
	}
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *watched) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// clientOf is a client with the rights of a token.
func (s *server) clientOf(token string) (client.WithWatch, error) {
	if s.Local != "" {
		if subtle.ConstantTimeCompare([]byte(token), []byte(s.Local)) == 1 {
			return s.own, nil
		}
		return nil, problem(http.StatusUnauthorized, "the token is not that of this server")
	}
	cfg := rest.AnonymousClientConfig(s.Config)
	cfg.BearerToken = token
	return s.client(kube.Unlimited(cfg))
}
