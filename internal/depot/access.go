// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// ErrNoToken is the error of Tokens for an invalid token.
var ErrNoToken = errors.New("there is no such token")

// Access authorizes readers: clients with a certificate that TLS has verified, and clients with a bootstrap token, as a Bearer token or as the
// password of the Authorization header. Clients that send wrong tokens are rate-limited.
type Access struct {
	// Tokens returns nil for a valid bootstrap token and ErrNoToken for an invalid one. After another error the client may soon try again. It is
	// called for well-formed tokens only.
	Tokens func(ctx context.Context, token string) error
	// Groups lists the groups of which a client's certificate must name one; if empty, any certificate is accepted.
	Groups []string
	// Authority is the server's CA certificate in PEM, which anybody may read at AuthorityPath. It is not served if empty.
	Authority []byte

	mu       sync.Mutex
	failures map[string]*rate.Limiter // by address
}

// A client may send wrongTokens wrong tokens in a burst, and one more every wrongTokenPause.
const (
	wrongTokens     = 10
	wrongTokenPause = 6 * time.Second
	// maxClients bounds the memory used for wrong tokens from many addresses.
	maxClients = 4096
)

var tokenForm = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// allow reports whether a request is allowed, and answers it if not.
func (a *Access) allow(w http.ResponseWriter, r *http.Request) bool {
	if a.certified(r) {
		return true
	}
	token := tokenOf(r)
	if token == "" { // registry clients first ask without credentials
		unauthorized(w)
		return false
	}
	limit := a.limit(r.RemoteAddr)
	if limit.Tokens() < 1 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wrongTokenPause.Seconds())))
		refuse(w, http.StatusTooManyRequests, "TOOMANYREQUESTS")
		return false
	}
	err := a.check(r.Context(), token)
	switch {
	case err == nil:
		return true
	case errors.Is(err, ErrNoToken):
		limit.Allow()
		unauthorized(w)
	default:
		slog.Warn("the depot cannot look up a token", "err", err)
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusServiceUnavailable, "UNKNOWN")
	}
	return false
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="ocadm depot"`)
	refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
}

func tokenOf(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

func (a *Access) certified(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return false
	}
	of := r.TLS.VerifiedChains[0][0].Subject.Organization
	return len(a.Groups) == 0 || slices.ContainsFunc(a.Groups, func(g string) bool { return slices.Contains(of, g) })
}

// nodeGroup is the organization in kubelets' certificates: https://kubernetes.io/docs/reference/access-authn-authz/node/
const nodeGroup = "system:nodes"

// isNode reports whether the client has presented a node's certificate.
func (a *Access) isNode(r *http.Request) bool {
	return a.certified(r) && slices.Contains(r.TLS.VerifiedChains[0][0].Subject.Organization, nodeGroup)
}

func (a *Access) check(ctx context.Context, token string) error {
	if a.Tokens == nil || !tokenForm.MatchString(token) {
		return ErrNoToken
	}
	return a.Tokens(ctx, token)
}

// OneToken returns a function for Access.Tokens that accepts a single token.
func OneToken(valid string) func(context.Context, string) error {
	want := sha256.Sum256([]byte(valid))
	return func(_ context.Context, token string) error {
		// Digests have the same length, so the comparison does not reveal the token's length.
		if got := sha256.Sum256([]byte(token)); subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			return ErrNoToken
		}
		return nil
	}
}

// limit returns the rate limiter of a client. If there are too many to remember, all are reset.
func (a *Access) limit(address string) *rate.Limiter {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.failures[host]; l != nil {
		return l
	}
	if a.failures == nil || len(a.failures) >= maxClients {
		a.failures = map[string]*rate.Limiter{}
	}
	l := rate.NewLimiter(rate.Every(wrongTokenPause), wrongTokens)
	a.failures[host] = l
	return l
}
