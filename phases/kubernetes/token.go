// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	bootstraptokenv1 "k8s.io/kubernetes/cmd/kubeadm/app/apis/bootstraptoken/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
)

// Token lets machines join the cluster for a limited time. Its String is a secret.
type Token struct {
	ID          string    `json:"id"`
	Secret      string    `json:"-"`
	Description string    `json:"description,omitempty"`
	Expires     time.Time `json:"expires,omitzero"` // zero: never
	Usages      []string  `json:"usages,omitempty"`
	Groups      []string  `json:"groups,omitempty"`
}

// String returns the token in the form that join expects.
func (t Token) String() string { return t.ID + "." + t.Secret }

// Joins reports whether a machine can join with the token at this time.
func (t Token) Joins(now time.Time) bool {
	return (t.Expires.IsZero() || t.Expires.After(now)) && t.Usable() && slices.Contains(t.Groups, defaultTokenGroup)
}

// Usable reports whether the token has the usages with which a machine joins.
func (t Token) Usable() bool {
	return slices.Contains(t.Usages, "signing") && slices.Contains(t.Usages, "authentication")
}

const defaultTokenGroup = bootstrapapi.BootstrapDefaultGroup + ":kubeadm:default-node-token"

func tokenUsages() []string { return []string{"signing", "authentication"} }

func tokenGroups() []string { return []string{defaultTokenGroup} }

// TokenOptions holds the settings of a new token; the zero value gives a random one for 24 hours.
type TokenOptions struct {
	Token       string // empty: random
	TTL         time.Duration
	Forever     bool // no expiry, regardless of TTL
	Description string
	Usages      []string
	Groups      []string
}

// GenerateToken returns a random token without creating it in a cluster.
func GenerateToken() (string, error) {
	t, err := bootstraputil.GenerateBootstrapToken()
	if err != nil {
		return "", fmt.Errorf("generating a bootstrap token: %w", err)
	}
	return t, nil
}

// CreateToken creates a token in the cluster.
func CreateToken(ctx context.Context, c client.Client, o TokenOptions, now time.Time) (Token, error) {
	t, err := PlanToken(o, now)
	if err != nil {
		return Token{}, err
	}
	if err := c.Create(ctx, bootstraptokenv1.BootstrapTokenToSecret(t.bootstrap())); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return Token{}, finding.Errorf("OCA-4120", fmt.Sprintf("A token with the ID %q exists already", t.ID),
				"ocadm token delete "+t.ID, "creating the token's Secret: %w", err)
		}
		return Token{}, fmt.Errorf("creating the Secret of token %q: %w", t.ID, err)
	}
	return t, nil
}

// PlanToken returns the token that CreateToken would create.
func PlanToken(o TokenOptions, now time.Time) (Token, error) {
	if o.Token == "" {
		var err error
		if o.Token, err = GenerateToken(); err != nil {
			return Token{}, err
		}
	}
	id, err := bootstraptokenv1.NewBootstrapTokenString(o.Token)
	if err != nil {
		return Token{}, finding.New("OCA-0301", "The token is malformed", "a token is [a-z0-9]{6}.[a-z0-9]{16}", "ocadm token generate")
	}
	t := Token{ID: id.ID, Secret: id.Secret, Description: o.Description, Usages: o.Usages, Groups: o.Groups}
	if len(t.Usages) == 0 {
		t.Usages = tokenUsages()
	}
	if len(t.Groups) == 0 {
		t.Groups = tokenGroups()
	}
	// The API server stores a token with other values, and then ignores it.
	err = bootstraputil.ValidateUsages(t.Usages)
	for _, group := range t.Groups {
		err = errors.Join(err, bootstraputil.ValidateBootstrapGroupName(group))
	}
	if err != nil {
		return Token{}, finding.New("OCA-0301", "The token's usages or groups are not valid", err.Error(), "ocadm token create --help")
	}
	if !o.Forever {
		t.Expires = now.Add(cmp.Or(max(o.TTL, 0), defaultTokenTTL)).UTC().Truncate(time.Second)
	}
	return t, nil
}

// bootstrap returns the token in kubeadm's form.
func (t Token) bootstrap() *bootstraptokenv1.BootstrapToken {
	out := &bootstraptokenv1.BootstrapToken{
		Token: &bootstraptokenv1.BootstrapTokenString{ID: t.ID, Secret: t.Secret}, Description: t.Description, Usages: t.Usages, Groups: t.Groups,
	}
	if !t.Expires.IsZero() {
		out.Expires = &metav1.Time{Time: t.Expires}
	}
	return out
}

// ListTokens returns the cluster's tokens by ID, skipping malformed Secrets.
func ListTokens(ctx context.Context, c client.Client) ([]Token, error) {
	var secrets corev1.SecretList
	if err := c.List(ctx, &secrets, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return nil, fmt.Errorf("listing bootstrap tokens: %w", err)
	}
	out := []Token{} // scripts get a list, even if empty
	for i := range secrets.Items {
		if secrets.Items[i].Type != bootstrapapi.SecretTypeBootstrapToken {
			continue
		}
		if t, err := bootstraptokenv1.BootstrapTokenFromSecret(&secrets.Items[i]); err == nil {
			out = append(out, tokenOf(*t))
		}
	}
	slices.SortFunc(out, func(a, b Token) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// DeleteToken deletes a token from the cluster, given the token or its ID.
func DeleteToken(ctx context.Context, c client.Client, token string) error {
	id, _, _ := strings.Cut(token, ".")
	if !bootstraputil.IsValidBootstrapTokenID(id) {
		return finding.New("OCA-0301", "The token ID is malformed", "an ID is six characters of [a-z0-9]", "ocadm token list")
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: bootstraputil.BootstrapTokenSecretName(id)}}
	if err := c.Delete(ctx, s); err != nil {
		if apierrors.IsNotFound(err) {
			return finding.Errorf("OCA-4121", fmt.Sprintf("There is no token %q", id), "ocadm token list", "deleting its Secret: %w", err)
		}
		return fmt.Errorf("deleting the Secret of token %q: %w", id, err)
	}
	return nil
}

func tokenOf(t bootstraptokenv1.BootstrapToken) Token {
	out := Token{ID: t.Token.ID, Secret: t.Token.Secret, Description: t.Description, Usages: t.Usages, Groups: t.Groups}
	if t.Expires != nil {
		out.Expires = t.Expires.Time
	}
	return out
}

// usableToken returns the longest-lived of the tokens with which a machine can join.
func usableToken(tokens []Token, now time.Time) (Token, bool) {
	var best Token
	found := false
	for _, t := range tokens {
		if !t.Joins(now) {
			continue
		}
		longer := t.Expires.IsZero() || !best.Expires.IsZero() && t.Expires.After(best.Expires)
		if !found || longer {
			best, found = t, true
		}
	}
	return best, found
}
