// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// TestCAIsExchangedInSteps checks that a CA that is seven years old is replaced step by step, until every service uses the new one.
func TestCAIsExchangedInSteps(t *testing.T) {
	e := installed(t, env.Options{Workloads: env.Programs}, "keystone", "region")
	old, err := pki.NewCA(time.Now().Add(-7*365*24*time.Hour), "aged", nil)
	require.NoError(e, err)
	key, err := old.KeyPEM()
	require.NoError(e, err)
	ctx, cancel := context.WithTimeout(e.Context(), env.Patience)
	defer cancel()
	changes, err := e.Client.Watch(ctx, &corev1.SecretList{}, client.InNamespace(namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", "default-certs")})
	require.NoError(e, err)
	defer changes.Stop()
	starts := e.Pods.Starts("default-region")
	secret := &corev1.Secret{}
	e.Get(secret, "default-certs")
	e.EditObject(secret, secret.GetName(), fmt.Sprintf(`{"data":{"ca.crt":%q,"ca.key":%q}}`,
		base64.StdEncoding.EncodeToString(old.CertPEM()), base64.StdEncoding.EncodeToString(key)))
	var steps []string
	for done := false; !done; {
		change, more := <-changes.ResultChan()
		s, ok := change.Object.(*corev1.Secret)
		if !more {
			e.Fatalf("the CA was not exchanged in time: %q", steps)
		}
		if !ok {
			continue
		}
		step, err := standing(s.Data, old)
		require.NoError(e, err)
		if len(steps) == 0 || steps[len(steps)-1] != step {
			steps = append(steps, step)
		}
		done = step == "new leaf new" && len(steps) > 2 // the first step is the initial state
	}
	want := []string{"aged+new leaf aged", "new+aged leaf new", "new leaf new"}
	if i := slices.Index(steps, want[0]); i < 0 || !slices.Equal(steps[i:], want) {
		e.Errorf("steps %q, want %q", steps, want)
	}
	// Wait for the status of the pass that made the last step: what is Ready after that has all pods rolled.
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return cr.Status.Certificates.Message == "" && cr.Status.Certificates.CANotAfter.After(time.Now().Add(9*365*24*time.Hour))
	})
	e.UntilReady()
	if rolled := e.Pods.Starts("default-region") - starts; rolled < 3 {
		e.Errorf("region was started %d times, want once for each step", rolled)
	}
	e.identity() // it logs in under the new CA
}

// standing describes which CAs a Secret contains, and which of them signed its certificate.
func standing(data map[string][]byte, old pki.Pair) (string, error) {
	trusted, err := pki.ParseCerts(data["ca.crt"])
	if err != nil {
		return "", err
	}
	leaf, err := pki.ParseCerts(data["service.crt"])
	if err != nil {
		return "", err
	}
	var names []string
	signer := "none"
	for _, ca := range trusted {
		name := "new"
		if ca.Equal(old.Cert) {
			name = "aged"
		}
		names = append(names, name)
		if pki.SignedBy(leaf[0], ca) {
			signer = name
		}
	}
	return strings.Join(names, "+") + " leaf " + signer, nil
}
