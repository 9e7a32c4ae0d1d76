// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"crypto"
	"fmt"
	"time"

	"yunion.io/x/ocadm/internal/pki"
)

// keys are made ahead: the first pass of a cloud waits for its two large keys, a tenth of a second each, more than for anything else.
type keys chan crypto.Signer

// keysAhead is how many are kept: those of the CA and of the service certificate of one cloud.
const keysAhead = 2

// keysAfter is how long after its start an operator begins with them, and keysAgain after keys were taken: what a cloud needs now comes first.
const (
	keysAfter = 300 * time.Millisecond
	keysAgain = 5 * time.Second
)

func newKeys() keys { return make(keys, keysAhead) }

// fill makes keys whenever one was taken, until ctx ends.
func (k keys) fill(ctx context.Context) error {
	wait := time.NewTimer(keysAfter)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wait.C:
		}
		for full := false; !full; {
			key, err := within(ctx, pki.NewKey)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				return fmt.Errorf("making keys ahead: %w", err)
			}
			select {
			case k <- key:
				continue
			default:
				full = true
			}
			select { // one more is at hand for when one is taken
			case <-ctx.Done():
				return nil
			case k <- key:
			}
		}
		wait.Reset(keysAgain)
	}
}

// take gives a key that nobody else has, one that was made ahead if there is one.
func (k keys) take(ctx context.Context) (crypto.Signer, error) {
	select {
	case key := <-k:
		return key, nil
	default:
		return within(ctx, pki.NewKey)
	}
}

// within makes a key or ends with ctx, which the making cannot: a tenth of a second, now and then three, and ten times that on a busy
// machine, when an operator has two seconds to stop. What nobody waits for any longer is dropped when it is made.
func within(ctx context.Context, generate func() (crypto.Signer, error)) (crypto.Signer, error) {
	made := make(chan struct{})
	var k crypto.Signer
	var failed error
	go func() {
		defer close(made)
		k, failed = generate()
	}()
	select {
	case <-made:
		return k, failed
	case <-ctx.Done():
		return nil, fmt.Errorf("generating a key: %w", context.Cause(ctx))
	}
}
