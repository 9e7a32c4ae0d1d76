// SPDX-License-Identifier: Apache-2.0

// Package snapshotfile makes snapshots of an etcd without one, for tests of what is done with them.
package snapshotfile

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Write writes a snapshot with one key into a directory, with the name and the digest of a whole one.
func Write(t testing.TB, dir string, at time.Time, revision int64) (file string) {
	t.Helper()
	file = filepath.Join(dir, fmt.Sprintf("etcd-%s-r%d.db", at.UTC().Format("20060102T150405Z"), revision))
	if err := write(file, revision); err != nil {
		t.Fatal(err)
	}
	return file
}

func write(file string, revision int64) error {
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
		kv, err := (&mvccpb.KeyValue{Key: []byte("/registry/secrets/n/s"), Value: []byte("secret")}).Marshal()
		if err != nil {
			return err
		}
		key := binary.BigEndian.AppendUint64(nil, uint64(revision))
		return b.Put(binary.BigEndian.AppendUint64(append(key, '_'), 0), kv)
	})
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	return os.WriteFile(file, append(content, sum[:]...), 0o600)
}
