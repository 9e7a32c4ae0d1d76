// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/big"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/adopt"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// ensureCredentials generates what is missing in Secret <cluster>-credentials, and nothing else: a password that exists is never made
// anew, it only gives way to one that the spec chooses. A Secret that the cache does not know is created, and nothing but created; one
// that exists is read past the cache and written with its resourceVersion. So neither two operators nor a stale cache can lose one.
func (p *pass) ensureCredentials(ctx context.Context) error {
	name := p.cr.Name + "-" + v1alpha1.SecretCredentials
	secret := p.live.secret(name)
	missing := p.missingCredentials(secret)
	if len(missing) > 0 {
		var err error
		if secret, err = p.generate(ctx, name, secret != nil); err != nil {
			return fmt.Errorf("generating credentials: %w", err)
		}
	}
	p.setCredentials(secret)
	return nil
}

// setCredentials takes the secrets from the Secret.
func (p *pass) setCredentials(secret *corev1.Secret) {
	p.creds, p.names = component.Credentials{}, map[string]string{}
	for k, v := range secret.Data {
		if component.IsName(k) || k == component.CloudID {
			p.names[k] = string(v)
		} else {
			p.creds[k] = string(v)
		}
	}
}

// chosenPassword is what the spec says of a credential: sysadmin's password may be chosen there. It is kept in the Secret like the
// others, because pods that log in as sysadmin read it there.
func (p *pass) chosenPassword(key string) string {
	if key == component.BootstrapPassword {
		return p.cr.Spec.Keystone.BootstrapPassword
	}
	return ""
}

func (p *pass) missingCredentials(secret *corev1.Secret) []string {
	var out []string
	if secret == nil || len(secret.Data[component.CloudID]) == 0 {
		out = append(out, component.CloudID)
	}
	for _, k := range credentialKeys(p.r.catalog) {
		chosen := p.chosenPassword(k)
		if secret == nil || len(secret.Data[k]) == 0 || chosen != "" && string(secret.Data[k]) != chosen {
			out = append(out, k)
		}
	}
	return out
}

// credentialKeys are what a cloud needs, disabled components included: switching one on must not touch the Secret of a running cloud.
func credentialKeys(all []component.Component) []string {
	var keys []string
	for _, c := range all {
		keys = append(keys, component.CredentialKeys(c)...)
	}
	return keys
}

// generate writes what is missing. exists tells whether there is a Secret; where there is one although the cache knows none, creating it
// tells.
func (p *pass) generate(ctx context.Context, name string, exists bool) (*corev1.Secret, error) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.cr.Namespace, Labels: p.labels()}}
	if exists {
		s = &corev1.Secret{}
		if err := p.r.direct.Get(ctx, client.ObjectKey{Namespace: p.cr.Namespace, Name: name}, s); err != nil {
			return nil, err
		}
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	missing := p.missingCredentials(s)
	if exists && len(missing) == 0 {
		return s, nil // the cache was behind
	}
	var known map[string]string
	if missing[0] != component.CloudID || len(missing) > 1 {
		var err error
		if known, err = p.earlierCredentials(ctx, missing); err != nil {
			return nil, err
		}
	}
	if err := p.fill(s.Data, missing, known); err != nil {
		return nil, err
	}
	var err error
	if exists {
		err = p.r.client.Update(ctx, s, client.FieldOwner(engine.FieldManager))
	} else {
		err = p.r.client.Create(ctx, s, client.FieldOwner(engine.FieldManager))
		if apierrors.IsAlreadyExists(err) {
			return p.generate(ctx, name, true) // the cache was behind, or the label is lost
		}
	}
	if err != nil {
		return nil, err
	}
	p.log.Info("wrote credentials", "secret", name, "taken over", len(known))
	if len(known) > 0 {
		p.event(wholeCloud, corev1.EventTypeNormal, ReasonAdopted,
			"took over the passwords of the earlier operator into Secret %s; when you will not go back to it, delete ConfigMap %s", name, p.cr.Name+"-"+adopt.ClusterConfig)
	}
	p.tellReplaced(name, slices.DeleteFunc(missing, func(key string) bool { _, kept := known[key]; return kept }))
	return s, nil
}

// fill gives every missing credential a value: what the spec says, what the cloud has already, else a new one. A name is only taken
// over together with the password that belongs to it.
func (p *pass) fill(data map[string][]byte, missing []string, known map[string]string) error {
	for _, k := range missing {
		pw := p.chosenPassword(k)
		if k == component.CloudID {
			pw = string(p.cr.UID)
		}
		if pw == "" {
			pw = known[k]
		}
		if pw == "" {
			var err error
			if pw, err = Password(passwordLength(k)); err != nil {
				return err
			}
		}
		data[k] = []byte(pw)
	}
	for k, v := range known {
		if component.IsName(k) {
			data[k] = []byte(v)
		}
	}
	return nil
}

// passwordLength is how many characters a generated password has. People log in as sysadmin at the API gateway, which takes a password for a
// text in AES-CBC first: it panics on more than 16 bytes that are no whole number of blocks of 16 (Cloudpods, pkg/util/seclib2/aes_cbc.go).
func passwordLength(key string) int {
	if key == component.BootstrapPassword {
		return 32
	}
	return 24
}

// Password makes a password of letters and digits without look-alikes, the first a letter, with a lower-case letter, a capital and a digit:
// it passes the password policies of databases and needs quoting nowhere (':' and '/' break the services' database addresses).
func Password(length int) (string, error) {
	const (
		lower  = "abcdefghijkmnpqrstuvwxyz"
		upper  = "ABCDEFGHJKLMNPQRSTUVWXYZ"
		digits = "23456789"
	)
	pick := func(set string) (byte, error) {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(set))))
		if err != nil {
			return 0, fmt.Errorf("reading random numbers: %w", err)
		}
		return set[n.Int64()], nil
	}
	out := make([]byte, length)
	for i := range out {
		set := lower + upper + digits
		switch i {
		case 0:
			set = lower
		case length / 3:
			set = upper
		case 2 * length / 3:
			set = digits
		}
		c, err := pick(set)
		if err != nil {
			return "", err
		}
		out[i] = c
	}
	return string(out), nil
}
