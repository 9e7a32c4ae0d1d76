// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// revisionLength is the length of a key in the database: two revisions of 8 bytes with a separator. The key of a deletion is one byte longer.
const revisionLength = 8 + 1 + 8

// Values returns the last values of the keys with one of the prefixes, in a snapshot or in the database of a member that does not run.
func Values(file string, prefixes ...string) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := bucket(file, "key", func(b *bolt.Bucket) error {
		return b.ForEach(func(revision, raw []byte) error { // in the order of revisions
			var kv mvccpb.KeyValue
			if err := kv.Unmarshal(raw); err != nil {
				return fmt.Errorf("revision %x: %w", revision, err)
			}
			key := string(kv.Key)
			switch {
			case !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) }):
			case len(revision) > revisionLength:
				delete(out, key)
			default:
				out[key] = kv.Value // a copy made by Unmarshal
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
