// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// The limits on open streams, per token and for all together: each holds watches, and lives for an hour. retryStream is the delay in seconds before
// another attempt.
const (
	openOfToken, openOfAll = 20, 500
	retryStream            = 30
)

// tokenKey is the context key of the digest of a request's token.
type tokenKey struct{}

// openStreams counts the open streams by the digests of their tokens.
type openStreams struct {
	mu      sync.Mutex
	all     int
	ofToken map[string]int
}

// enter reserves a stream. It returns a function that releases it, or the reason why there is none left.
func (o *openStreams) enter(token string) (leave func(), full string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ofToken[token] >= openOfToken:
		return nil, fmt.Sprintf("the token has %d open streams, which is the limit", openOfToken)
	case o.all >= openOfAll:
		return nil, fmt.Sprintf("%d streams are open, which is the limit", openOfAll)
	}
	if o.ofToken == nil {
		o.ofToken = map[string]int{}
	}
	o.all++
	o.ofToken[token]++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all--
		if o.ofToken[token]--; o.ofToken[token] == 0 {
			delete(o.ofToken, token)
		}
	}, ""
}

// bound limits the number of streams. It wraps the handler, which starts watches, and ends after the last message.
func (o *openStreams) bound(h huma.Context, next func(huma.Context)) {
	token, _ := h.Context().Value(tokenKey{}).(string)
	leave, full := o.enter(token)
	if full != "" {
		_, w := humago.Unwrap(h)
		w.Header().Set("Retry-After", strconv.Itoa(retryStream))
		write(w, problem(http.StatusTooManyRequests, full))
		return
	}
	defer leave()
	next(h)
}
