// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
)

// Recipients parses public keys: age1… from age-keygen, ssh-ed25519 or ssh-rsa. It skips empty lines and comments (#).
func Recipients(lines ...string) ([]age.Recipient, error) {
	var out []age.Recipient
	for _, line := range strings.Split(strings.Join(lines, "\n"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "AGE-SECRET-KEY-") {
			return nil, errors.New("reading a recipient: it is a secret key; give its public key, which begins with age1")
		}
		var r age.Recipient
		var err error
		if strings.HasPrefix(line, "ssh-") {
			r, err = agessh.ParseRecipient(line)
		} else {
			var keys []age.Recipient
			if keys, err = age.ParseRecipients(strings.NewReader(line)); err == nil {
				r = keys[0]
			}
		}
		if err != nil {
			return nil, fmt.Errorf("reading recipient %q: it is neither an age nor an SSH public key", line)
		}
		out = append(out, r)
	}
	return out, nil
}

// Passphrase returns the recipient and the identity of a passphrase. It must be the only recipient of a file.
func Passphrase(secret string) (age.Recipient, age.Identity, error) {
	r, err := age.NewScryptRecipient(secret)
	if err != nil {
		return nil, nil, fmt.Errorf("using the passphrase: %w", err)
	}
	i, err := age.NewScryptIdentity(secret)
	if err != nil {
		return nil, nil, fmt.Errorf("using the passphrase: %w", err)
	}
	return r, i, nil
}

// Identities parses secret keys: the output file of age-keygen, or an SSH private key without a passphrase.
func Identities(file []byte) ([]age.Identity, error) {
	if strings.HasPrefix(strings.TrimSpace(string(file)), "-----BEGIN") {
		i, err := agessh.ParseIdentity(file)
		if err != nil {
			return nil, fmt.Errorf("reading the SSH key: %w", err)
		}
		return []age.Identity{i}, nil
	}
	ids, err := age.ParseIdentities(strings.NewReader(string(file)))
	if err != nil {
		return nil, errors.New("reading the secret key: it is neither a file from age-keygen nor an SSH private key")
	}
	return ids, nil
}
