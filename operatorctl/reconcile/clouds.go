// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/secrets"
)

// cloud is the state of one cloud between reconciles. Losing it costs a few requests and milliseconds, nothing else.
type cloud struct {
	// mu is held during a reconcile.
	mu          sync.Mutex
	effects     *effects.Memory
	connections *effects.Connections
	memos       memos
	// valid is true if the spec was valid when last checked. own is the revision that equals what this build renders.
	valid bool
	own   int
	// provided is a certificate Secret that a user provides.
	provided *corev1.Secret
	// written is the response to the last write of the cloud, until the cache has caught up.
	written *v1alpha1.OnecloudCluster
	// access is a hash of the connection settings of databases and services.
	access string
	// conflicts counts the consecutive reconciles that a conflict stopped.
	conflicts int
	last      last
}

// memos caches results for an unchanged cloud.
type memos struct {
	desired memo[string, *Desired]
	judged  memo[judgedSpec, *judgement]
	// index is the index of the release in a Secret, by UID and version of the Secret.
	index memo[string, *release.Release]
	// from holds the objects of the release that an operation moves the cloud from.
	from   memo[string, map[string][]release.Object]
	issued memo[string, secrets.Certificates]
}

// judgedSpec identifies a spec: another cloud of the same name counts its generations anew.
type judgedSpec struct {
	uid        types.UID
	generation int64
}

// last is what the last reconcile of a cloud saw and left undone.
type last struct {
	nextAudit time.Time
	// refusals counts the consecutive reconciles in which the API server rejected something.
	refusals int
	// served holds the hash of the CA certificates that all pods ran with, by Secret.
	served map[string]string
	// lost holds the nodes of the cloud that were not Ready, and why; nil before the first reconcile.
	lost map[string]string
	// leaving lists the components that a cloud being deleted still had; orphans its pods without a workload, and when they were first seen. released is
	// the cloud whose deletion was completed.
	leaving  []string
	orphans  map[types.UID]time.Time
	released types.UID
}

// clouds holds all clouds that this process has seen.
type clouds struct {
	at *atomic.Int64 // when the last reconcile ended, in nanoseconds since 1970
	mu *sync.Mutex
	of map[types.NamespacedName]*cloud
	// instances maps namespace and label app.kubernetes.io/instance to clouds.
	instances map[types.NamespacedName]string
}

func newClouds() clouds {
	return clouds{at: &atomic.Int64{}, mu: &sync.Mutex{}, of: map[types.NamespacedName]*cloud{}, instances: map[types.NamespacedName]string{}}
}

func (c clouds) enter(key types.NamespacedName, firstAudit time.Time) *cloud {
	c.mu.Lock()
	m := c.of[key]
	if m == nil {
		m = &cloud{effects: effects.NewMemory(), last: last{nextAudit: firstAudit}}
		c.of[key] = m
	}
	c.mu.Unlock()
	m.mu.Lock()
	return m
}

func (c clouds) leave(m *cloud) {
	m.mu.Unlock()
	c.at.Store(time.Now().UnixNano())
}

// learn records the cloud of an instance label: pods have no other hint.
func (c clouds) learn(namespace, instance, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[types.NamespacedName{Namespace: namespace, Name: instance}] = name
}

// memo caches one value between reconciles. The value is valid while its key is equal.
type memo[K comparable, V any] struct {
	key   K
	value V
	valid bool
}

// get returns the value for a key. It computes it if the key changed, and keeps nothing if that fails.
func (m *memo[K, V]) get(key K, compute func() (V, error)) (V, error) {
	if m.valid && m.key == key {
		return m.value, nil
	}
	value, err := compute()
	m.drop()
	if err == nil {
		m.keep(key, value)
	}
	return value, err
}

func (m *memo[K, V]) keep(key K, value V) { *m = memo[K, V]{key: key, value: value, valid: true} }

// drop forgets the value.
func (m *memo[K, V]) drop() { *m = memo[K, V]{} }
