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

// ErrNoToken is the error of Tokens for a token that is not valid.
var ErrNoToken = errors.New("there is no such token")

// Access decides who may read: a client whose certificate TLS has verified, or one with a bootstrap token, as the Bearer or as the password
// of the header Authorization. A client that shows wrong tokens may soon show none for a while.
type Access struct {
	// Tokens returns nil for a valid bootstrap token, and ErrNoToken for one that is not. After another error the client may try again soon.
	// It is called for well-formed tokens only.
	Tokens func(ctx context.Context, token string) error
	// Groups are those that the certificate of a client must name one of; none stands for every certificate.
	Groups []string
	// Authority is what everybody may read at AuthorityPath: the authority of the server in PEM. Empty, it is not served.
	Authority []byte

	mu       sync.Mutex
	failures map[string]*rate.Limiter // by address
}

// A client may show wrongTokens wrong tokens at once, and one more every wrongTokenPause.
const (
	wrongTokens     = 10
	wrongTokenPause = 6 * time.Second
	// maxClients bounds the memory that wrong tokens from many addresses take.
	maxClients = 4096
)

var tokenForm = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

// allow answers those requests that are not allowed.
func (a *Access) allow(w http.ResponseWriter, r *http.Request) bool {
	if a.certified(r) {
		return true
	}
	token := tokenOf(r)
	if token == "" { // registry clients ask without credentials first
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

// nodeGroup is what the certificates of kubelets name: https://kubernetes.io/docs/reference/access-authn-authz/node/
const nodeGroup = "system:nodes"

// isNode reports whether a client has shown the certificate of a node.
func (a *Access) isNode(r *http.Request) bool {
	return a.certified(r) && slices.Contains(r.TLS.VerifiedChains[0][0].Subject.Organization, nodeGroup)
}

func (a *Access) check(ctx context.Context, token string) error {
	if a.Tokens == nil || !tokenForm.MatchString(token) {
		return ErrNoToken
	}
	return a.Tokens(ctx, token)
}

// OneToken is for Access.Tokens: the only valid token is this one.
func OneToken(valid string) func(context.Context, string) error {
	want := sha256.Sum256([]byte(valid))
	return func(_ context.Context, token string) error {
		// Digests have one length, so the comparison does not reveal how long the token is.
		if got := sha256.Sum256([]byte(token)); subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			return ErrNoToken
		}
		return nil
	}
}

// limit is what a client has left. Where there are too many to remember, all begin anew.
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
