// SPDX-License-Identifier: Apache-2.0

// Package snapshotfile creates etcd snapshots without an etcd, for tests that use them.
package snapshotfile

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"yunion.io/x/ocadm/test/require"
)

// Write writes a snapshot with one key to a directory. It has the name and the digest of a complete one.
func Write(t testing.TB, dir string, at time.Time, revision int64) (file string) {
	t.Helper()
	return WriteWith(t, dir, at, revision, map[string][]byte{"/registry/secrets/n/s": []byte("secret")})
}

// WriteWith is like Write, with the given values by key.
func WriteWith(t testing.TB, dir string, at time.Time, revision int64, values map[string][]byte) (file string) {
	t.Helper()
	file = filepath.Join(dir, fmt.Sprintf("etcd-%s-r%d.db", at.UTC().Format("20060102T150405Z"), revision))
	Database(t, file, revision, values)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	sum := sha256.Sum256(content)
	require.NoError(t, os.WriteFile(file, append(content, sum[:]...), 0o600))
	return file
}

// Database writes the database of a member, which has no digest. Its revision is that of the last key.
func Database(t testing.TB, file string, revision int64, values map[string][]byte) {
	t.Helper()
	require.NoError(t, database(file, revision, values))
}

func database(file string, revision int64, values map[string][]byte) error {
	db, err := bbolt.Open(file, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucket([]byte("meta")); err != nil {
			return err
		}
		b, err := tx.CreateBucket([]byte("key"))
		if err != nil {
			return err
		}
		keys := slices.Sorted(maps.Keys(values))
		for i, name := range keys {
			kv, err := (&mvccpb.KeyValue{Key: []byte(name), Value: values[name]}).Marshal()
			if err != nil {
				return err
			}
			key := binary.BigEndian.AppendUint64(nil, uint64(revision-int64(len(keys)-1-i)))
			if err := b.Put(binary.BigEndian.AppendUint64(append(key, '_'), 0), kv); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return db.Close()
}
