// SPDX-License-Identifier: Apache-2.0

// Package secrets plans and makes the credentials and certificates of a cloud. Plans are pure; Apply functions make passwords and keys.
package secrets

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math/big"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// CredentialsSecret is the name of the Secret with the passwords of a cloud.
func CredentialsSecret(cluster string) string { return cluster + "-" + v1alpha1.SecretCredentials }

// Values are what Secret <cluster>-credentials has to hold.
type Values struct {
	// Keys are the passwords a cloud needs, those of disabled components included: enabling one must not touch the Secret of a running cloud.
	Keys []string
	// ID of the cloud, for a new Secret.
	ID string
	// Chosen are passwords that the spec sets. They replace the one in the Secret, where pods that log in read it.
	Chosen map[string]string
	// Earlier are passwords and names that an earlier operator used.
	Earlier map[string]string
}

// Missing are the keys that Secret s (nil if there is none) lacks, or holds with another value than the chosen one.
func (v Values) Missing(s *corev1.Secret) []string {
	data := dataOf(s)
	var out []string
	if len(data[component.CloudID]) == 0 {
		out = append(out, component.CloudID)
	}
	for _, k := range v.Keys {
		if chosen := v.Chosen[k]; len(data[k]) == 0 || chosen != "" && string(data[k]) != chosen {
			out = append(out, k)
		}
	}
	return out
}

// fill gives every missing key a value: the chosen one, else that of the earlier operator, else a new one. It takes over a name only
// together with the password that belongs to it.
func (v Values) fill(data map[string][]byte, missing []string) error {
	for _, k := range missing {
		value := v.Chosen[k]
		if k == component.CloudID {
			value = v.ID
		}
		if value == "" {
			value = v.Earlier[k]
		}
		if value == "" {
			var err error
			if value, err = Password(passwordLength(k)); err != nil {
				return err
			}
		}
		data[k] = []byte(value)
	}
	for k, value := range v.Earlier {
		if component.IsName(k) {
			data[k] = []byte(value)
		}
	}
	return nil
}

// Apply writes what is missing and nothing else: a password that exists is only replaced by one that the spec chooses. A Secret that the cache
// does not know is created and never overwritten; one that exists is read past the cache and written with its resourceVersion. So neither
// a second operator nor a stale cache can lose a password. It returns the Secret and the keys that were missing.
func (v Values) Apply(ctx context.Context, c client.Client, direct client.Reader, meta metav1.ObjectMeta,
	exists bool) (*corev1.Secret, []string, error) {
	s := &corev1.Secret{ObjectMeta: meta}
	if exists {
		s = &corev1.Secret{}
		if err := direct.Get(ctx, client.ObjectKey{Namespace: meta.Namespace, Name: meta.Name}, s); err != nil {
			return nil, nil, fmt.Errorf("generating credentials: %w", err)
		}
	}
	missing := v.Missing(s)
	if exists && len(missing) == 0 {
		return s, nil, nil // the cache was behind
	}
	s.Data = maps.Clone(s.Data)
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	if err := v.fill(s.Data, missing); err != nil {
		return nil, nil, fmt.Errorf("generating credentials: %w", err)
	}
	var err error
	if exists {
		err = c.Update(ctx, s, client.FieldOwner(engine.FieldManager))
	} else if err = c.Create(ctx, s, client.FieldOwner(engine.FieldManager)); apierrors.IsAlreadyExists(err) {
		return v.Apply(ctx, c, direct, meta, true) // the cache was behind, or the label is lost
	}
	if err != nil {
		return nil, nil, fmt.Errorf("generating credentials: %w", err)
	}
	return s, missing, nil
}

// Split returns the passwords in a Secret, and the names this cloud has for databases and accounts (see component.Renamed).
func Split(s *corev1.Secret) (component.Credentials, map[string]string) {
	passwords, names := component.Credentials{}, map[string]string{}
	for k, v := range dataOf(s) {
		if component.IsName(k) || k == component.CloudID {
			names[k] = string(v)
		} else {
			passwords[k] = string(v)
		}
	}
	return passwords, names
}

// passwordLength is the number of characters of a generated password. People log in as sysadmin at the API gateway, which takes a password for
// a text in AES-CBC first: it panics on more than 16 bytes that are no whole number of blocks of 16 (Cloudpods, pkg/util/seclib2/aes_cbc.go).
func passwordLength(key string) int {
	if key == component.BootstrapPassword {
		return 32
	}
	return 24
}

// Password makes a password of letters and digits without look-alikes, the first a letter, with a lower-case letter, a capital and a digit:
// it passes the password policies of databases and needs no quoting (':' and '/' break the services' database addresses).
func Password(length int) (string, error) {
	const (
		lower  = "abcdefghijkmnpqrstuvwxyz"
		upper  = "ABCDEFGHJKLMNPQRSTUVWXYZ"
		digits = "23456789"
	)
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
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(set))))
		if err != nil {
			return "", fmt.Errorf("reading random numbers: %w", err)
		}
		out[i] = set[n.Int64()]
	}
	return string(out), nil
}
