// SPDX-License-Identifier: Apache-2.0

// Package effects implements what the operator does outside Kubernetes: databases and accounts in MySQL and ClickHouse; policies, users, services and
// endpoints in the identity service; bootstrap tasks in the services. An Effect is a value with a hash. The engine skips it while status holds the same
// hash, so no request is sent at rest.
package effects

import (
	"context"
	"strings"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// Target is what an effect acts on. If one effect finds its target down, the other effects on that target are not tried in the same pass.
type Target string

const (
	MySQL      Target = "mysql"
	ClickHouse Target = "clickhouse"
	Identity   Target = "identity"
)

// Stage is the point in a component's life at which an effect happens.
type Stage string

// The stages: Before the workload is created, After it is Available.
const (
	Before Stage = "before"
	After  Stage = "after"
)

// Effect is an idempotent change outside Kubernetes.
type Effect struct {
	// Key is unique in a cloud: "database/keystone", "clickhouse/region", "account/region", "endpoints/glance", "setup/region-topology".
	Key       string
	Component string
	Target    Target
	Stage     Stage
	// Hash covers everything on which the effect depends, including secrets (salted, so that it reveals nothing about them).
	Hash string
	// Needs lists the components that must be Available first ("keystone" for every identity effect but keystone's own).
	Needs []string
	// Follows lists the keys of effects that must be done first.
	Follows []string
	// Once excludes the effect from the audit: users may undo it.
	Once bool
	// Aside effects block nothing: dependents of their component do not wait for them. The status shows their state.
	Aside bool
	// TryFirst effects of stage After are tried once before the workload is changed, even if they fail.
	TryFirst bool
	// Within is how long the effect may take; zero means ten seconds.
	Within time.Duration
	// Note effects send no request: they are only recorded, and nothing waits for them.
	Note bool
	// OwnEvents effects record their own events about their changes.
	OwnEvents bool
	// Do performs the effect. changed is true if it wrote anything.
	Do func(ctx context.Context, c Clients) (changed bool, err error)
}

// DatabaseKey returns the key of the effect that creates a component's database and account.
func DatabaseKey(component string) string { return "database/" + strings.ToLower(component) }

// OnServer reports whether an effect changes the database server itself, not the databases of services.
func OnServer(key string) bool {
	return strings.HasPrefix(key, "database/") || strings.HasPrefix(key, "clickhouse/")
}

// Lasts reports whether an effect stays true when older databases are restored: that the identity service has served, and that the cloud has a public
// address.
func Lasts(key string) bool { return key == v1alpha1.EffectServed || key == addressKnown }

// Waiting is an error that means "not yet": the effect is retried after the delay, and the component is Waiting, not Degraded.
type Waiting struct {
	For   string
	Retry time.Duration
}

func (w Waiting) Error() string { return "waiting for " + w.For }
