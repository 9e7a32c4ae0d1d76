// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"yunion.io/x/ocadm/internal/lists"
)

// Entry is a key with its value. Version is the revision of its last change.
type Entry struct {
	Key     string
	Value   []byte
	Version int64
}

// ErrChanged means that a key has changed since it was read.
var ErrChanged = errors.New("it was changed in the meantime")

// keysTimeout limits one request for keys: the pods of a large cluster take some hundred MiB.
const keysTimeout = time.Minute

// Entries returns the keys with a prefix, as this member has them. It needs no majority.
func (c *Client) Entries(ctx context.Context, prefix string) ([]Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, keysTimeout)
	defer cancel()
	answer, err := c.v3.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithSerializable())
	if err != nil {
		return nil, fmt.Errorf("reading %s* from etcd: %w", prefix, err)
	}
	return lists.Map(answer.Kvs, func(kv *mvccpb.KeyValue) Entry {
		return Entry{Key: string(kv.Key), Value: kv.Value, Version: kv.ModRevision}
	}), nil
}

// Put changes the value of a key, unless it has changed since it was read. It drops the key's lease, so it is not for keys that have one.
func (c *Client) Put(ctx context.Context, e Entry, value []byte) error {
	return c.change(ctx, e, clientv3.OpPut(e.Key, string(value)))
}

// Delete deletes a key, unless it has changed since it was read.
func (c *Client) Delete(ctx context.Context, e Entry) error {
	return c.change(ctx, e, clientv3.OpDelete(e.Key))
}

func (c *Client) change(ctx context.Context, e Entry, op clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := c.v3.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(e.Key), "=", e.Version)).Then(op).Commit()
	if err == nil && !answer.Succeeded {
		err = ErrChanged
	}
	if err != nil {
		return fmt.Errorf("changing %s in etcd: %w", e.Key, err)
	}
	return nil
}
