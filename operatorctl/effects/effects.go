// SPDX-License-Identifier: Apache-2.0

// Package effects is what the operator does outside Kubernetes: databases and accounts in MySQL and ClickHouse, policies, users, services and
// endpoints in the identity service, bootstrap tasks in the services themselves. An Effect is a value with a hash; the engine skips
// it while the hash in status holds, so at rest no request is sent.
package effects

import (
	"context"
	"strings"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// Target is what an effect acts on. When one effect finds its target down, the others of that target are not tried in the same pass.
type Target string

// The targets.
const (
	MySQL      Target = "mysql"
	ClickHouse Target = "clickhouse"
	Identity   Target = "identity"
)

// Stage says when in a component's life an effect happens.
type Stage string

// The stages: Before the workload is made, After it is Available.
const (
	Before Stage = "before"
	After  Stage = "after"
)

// Effect is one idempotent thing to do outside Kubernetes.
type Effect struct {
	// Key is unique in a cloud: "database/keystone", "clickhouse/region", "account/region", "endpoints/glance", "setup/region-topology".
	Key       string
	Component string
	Target    Target
	Stage     Stage
	// Hash of everything the effect depends on, secrets included (salted, so that it reveals nothing about them).
	Hash string
	// Needs are the components that must be Available first ("keystone" for every identity effect but keystone's own).
	Needs []string
	// Follows are keys of effects that must be done first.
	Follows []string
	// Once effects are not repeated by the audit: users may undo what they did.
	Once bool
	// Aside effects block nothing: what needs their component goes on without them. The status shows how they stand.
	Aside bool
	// TryFirst effects of stage After are tried once before the workload is changed, even if they fail.
	TryFirst bool
	// Within is how long the effect may take; zero is ten seconds.
	Within time.Duration
	// Note effects send no request: they are only recorded, and nothing waits for them.
	Note bool
	// OwnEvents effects make their own events of what they change.
	OwnEvents bool
	// Do performs it. changed is true if anything was written.
	Do func(ctx context.Context, c Clients) (changed bool, err error)
}

// DatabaseKey is the key of the effect that gives a component its database and account.
func DatabaseKey(component string) string { return "database/" + strings.ToLower(component) }

// OnServer reports whether what an effect does lies on the database server itself, not in the databases of services.
func OnServer(key string) bool {
	return strings.HasPrefix(key, "database/") || strings.HasPrefix(key, "clickhouse/")
}

// Lasts reports whether an effect says of a cloud what stays so when its databases become older: that its identity service has served, and that it has a public
// address.
func Lasts(key string) bool { return key == v1alpha1.EffectServed || key == addressKnown }

// Waiting is an error that means "not yet": the effect is tried again after the delay, and the component is Waiting, not Degraded.
type Waiting struct {
	For   string
	Retry time.Duration
}

func (w Waiting) Error() string { return "waiting for " + w.For }
