// SPDX-License-Identifier: Apache-2.0

// Package agekey makes key pairs for tests of backups.
package agekey

import (
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"

	"yunion.io/x/ocadm/test/require"
)

// Write generates a key pair and writes the secret key to key.txt in a directory.
func Write(t testing.TB, dir string) (file string, key *age.X25519Identity) {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	file = filepath.Join(dir, "key.txt")
	require.NoError(t, os.WriteFile(file, []byte(key.String()+"\n"), 0o600))
	return file, key
}
