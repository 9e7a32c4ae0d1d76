// SPDX-License-Identifier: Apache-2.0

// Package secrets plans and creates the credentials and certificates of a cloud. Plans are pure; Apply functions generate passwords and keys.
package secrets

import (
	"cmp"
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
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// CredentialsSecret returns the name of the Secret with the passwords of a cloud.
func CredentialsSecret(cluster string) string { return cluster + "-" + v1alpha1.SecretCredentials }

// Values holds the wanted content of Secret <cluster>-credentials.
type Values struct {
	// Keys are the passwords that a cloud needs, including those of disabled components: enabling one must not touch the Secret of a running cloud.
	Keys []string
	// ID is the ID of the cloud, for a new Secret.
	ID string
	// Chosen holds passwords set by the spec. They replace those in the Secret, where pods that log in read them.
	Chosen map[string]string
	// Names holds the names of the cloud's databases and accounts when it had a Secret, for a new one.
	Names map[string]string
	// Earlier holds passwords and names of an earlier operator.
	Earlier map[string]string
}

// Missing returns the keys that Secret s (nil if there is none) lacks, or holds with another value than the chosen one.
func (v Values) Missing(s *corev1.Secret) []string {
	data := dataOf(s)
	var out []string
	if len(data[component.CloudID]) == 0 {
		out = append(out, component.CloudID)
	}
	return append(out, lists.Filter(v.Keys, func(k string) bool {
		return len(data[k]) == 0 || v.Chosen[k] != "" && string(data[k]) != v.Chosen[k]
	})...)
}

// fill sets every missing key to the chosen value, else that of the earlier operator, else a new one. It also copies the names of the earlier
// operator, which come with their passwords.
func (v Values) fill(data map[string][]byte, missing []string) error {
	for _, k := range missing {
		value := v.Chosen[k]
		if k == component.CloudID {
			value = v.ID
			v.nameAgain(data)
		}
		value = cmp.Or(value, v.Earlier[k])
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

// nameAgain sets the names that a new Secret lacks. Under the usual names, the services would start with empty databases.
func (v Values) nameAgain(data map[string][]byte) {
	for k, name := range v.Names {
		if component.IsName(k) && len(data[k]) == 0 {
			data[k] = []byte(name)
		}
	}
}

// Apply writes only what is missing: an existing password is only replaced by one that the spec chooses. A Secret that the cache lacks is created,
// never overwritten; an existing one is read directly and written with its resourceVersion. So neither a second operator nor a stale cache can lose a
// password. It returns the Secret and the keys that were missing.
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
		return s, nil, nil // the cache was stale
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
		return v.Apply(ctx, c, direct, meta, true) // the cache was stale, or the label is gone
	}
	if err != nil {
		return nil, nil, fmt.Errorf("generating credentials: %w", err)
	}
	return s, missing, nil
}

// Split returns the passwords in a Secret, and the names of the cloud's databases and accounts (see component.Renamed).
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

// passwordLength returns the length of a generated password in characters. People log in as sysadmin at the API gateway, which first takes a password
// for AES-CBC text: it panics on more than 16 bytes that are not a multiple of 16 (Cloudpods, pkg/util/seclib2/aes_cbc.go).
func passwordLength(key string) int {
	if key == component.BootstrapPassword {
		return 32
	}
	return 24
}

// Password returns a password of letters and digits without look-alikes, and a dash. It starts with a letter and has a lower-case letter, a capital and
// a digit, so it passes the password policies of databases and needs no quoting (':' and '/' break the services' database addresses).
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
		case length / 2:
			set = "-"
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
