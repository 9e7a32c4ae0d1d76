// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	authentication "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
)

// Bootstrappers is the group of users authenticated with bootstrap tokens.
const Bootstrappers = "system:bootstrappers"

const (
	reviewTimeout = 5 * time.Second
	// reviewedFor is how long a valid token is accepted without asking the API server again.
	reviewedFor = time.Minute
	// rememberedFor is how long a valid token is accepted while the API server does not answer: the default lifetime of tokens.
	rememberedFor = 24 * time.Hour
	maxRemembered = 1024
)

type reviewer struct {
	server *rest.Config
	now    func() time.Time
	valid  *cache.LRUExpireCache // time of the last successful review, by token digest
}

// Reviewed returns a function for Access.Tokens that presents the token to an API server and asks for its user, so the depot needs no permission to
// read Secrets. A valid token is accepted for a minute without asking again, and for a day while the API server does not answer. From server it uses
// only address and CA.
func Reviewed(server *rest.Config) func(context.Context, string) error {
	r := &reviewer{server: rest.AnonymousClientConfig(server), now: time.Now, valid: cache.NewLRUExpireCache(maxRemembered)}
	r.server.Timeout = reviewTimeout
	r.server.QPS = -1 // each client sends one request
	return r.check
}

func (r *reviewer) check(ctx context.Context, token string) error {
	key := sha256.Sum256([]byte(token))
	last, _ := r.valid.Get(key)
	at, known := last.(time.Time)
	age := r.now().Sub(at)
	if known && age < reviewedFor {
		return nil
	}
	err := r.review(ctx, token)
	switch {
	case err == nil:
		r.valid.Add(key, r.now(), rememberedFor)
	case errors.Is(err, ErrNoToken):
		r.valid.Remove(key)
	case known && age < rememberedFor:
		return nil
	}
	return err
}

func (r *reviewer) review(ctx context.Context, token string) error {
	config := rest.CopyConfig(r.server)
	config.BearerToken = token
	c, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return err
	}
	got, err := c.SelfSubjectReviews().Create(ctx, &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return ErrNoToken
	case err != nil:
		return err
	case !slices.Contains(got.Status.UserInfo.Groups, Bootstrappers):
		return ErrNoToken
	}
	return nil
}
