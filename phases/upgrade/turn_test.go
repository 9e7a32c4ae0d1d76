// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"yunion.io/x/ocadm/test/require"
)

// lease is a lease in an API server that may be down.
type lease struct {
	record *resourcelock.LeaderElectionRecord
	down   bool
}

func (l *lease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.down {
		return nil, nil, errors.New("connection refused")
	}
	if l.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, turnLease)
	}
	raw, err := json.Marshal(l.record)
	return l.record, raw, err
}

func (l *lease) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

func (l *lease) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	if l.down {
		return errors.New("connection refused")
	}
	l.record = &r
	return nil
}

func (l *lease) RecordEvent(string) {}
func (l *lease) Identity() string   { return "cp1" }
func (l *lease) Describe() string   { return turnLease }

// The exchange of a static pod may take longer than a lease lives without renewal. Other nodes must still wait after that.
func TestTurnSurvivesASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{}
		taken, release, err := hold(t.Context(), l, make(chan string, 1))
		require.NoError(t, err)
		<-taken
		synctest.Wait()
		l.down = true
		time.Sleep(turnDuration + time.Minute)
		synctest.Wait()
		l.down = false
		time.Sleep(2 * turnRetry)
		synctest.Wait()
		if age := time.Since(l.record.RenewTime.Time); l.record.HolderIdentity != "cp1" || age > 2*turnRetry {
			t.Errorf("after the silence the lease belongs to %q and was renewed %s ago", l.record.HolderIdentity, age)
		}
		release()
		if l.record.HolderIdentity != "" {
			t.Errorf("a released lease belongs to %q", l.record.HolderIdentity)
		}
	})
}
