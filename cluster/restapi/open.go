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

// How many streams may be open, of one token and of all together: each holds watches, and lives for an hour. retryStream is after how many seconds another
// one may be asked for.
const (
	openOfToken, openOfAll = 20, 500
	retryStream            = 30
)

// tokenKey is that of the digest of the token in the context of a request.
type tokenKey struct{}

// openStreams counts the streams that are open, by the digests of their tokens.
type openStreams struct {
	mu      sync.Mutex
	all     int
	ofToken map[string]int
}

// enter takes a place for a stream. It returns how to give the place back, or why there is none.
func (o *openStreams) enter(token string) (leave func(), full string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ofToken[token] >= openOfToken:
		return nil, fmt.Sprintf("the token has %d open streams, and may have no more", openOfToken)
	case o.all >= openOfAll:
		return nil, fmt.Sprintf("%d streams are open, and there may be no more", openOfAll)
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

// bound lets a stream begin only if there are not too many. It comes before the handler, which watches, and ends after the last message.
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
