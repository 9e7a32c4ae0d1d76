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

// cloud is what is kept of one cloud between reconciles. Losing it costs a few requests and milliseconds, and nothing else.
type cloud struct {
	// mu is held during a reconcile.
	mu          sync.Mutex
	effects     *effects.Memory
	connections *effects.Connections
	memos       memos
	// valid is true if nothing was wrong with the spec when it was judged last. own is the revision that is just what this build renders.
	valid bool
	own   int
	// provided is a Secret of certificates that a user provides.
	provided *corev1.Secret
	// written is the answer to the last write of the cloud, until the cache has caught up.
	written *v1alpha1.OnecloudCluster
	// access is a hash of how databases and services are reached.
	access string
	last   last
}

// memos are what need not be worked out again for the same cloud.
type memos struct {
	desired memo[string, *Desired]
	judged  memo[int64, *judgement]
	// index is that of the release that a Secret holds, by UID and version of the Secret.
	index memo[string, *release.Release]
	// from are the objects of the release that an operation moves the cloud from.
	from   memo[string, map[string][]release.Object]
	issued memo[string, secrets.Certificates]
}

// last is what the last reconcile of a cloud saw and left undone.
type last struct {
	nextAudit time.Time
	// refusals is in how many reconciles on end the API server refused something.
	refusals int
	// served is, by Secret, the hash of the CA certificates that all pods ran with.
	served map[string]string
	// lost are the nodes of the cloud that were not Ready, and why; nil before the first reconcile.
	lost map[string]string
	// leaving are the components that were still there of a cloud that is being deleted, orphans its pods whose workload is gone, and since
	// when that is known. released is the cloud whose deletion has been completed.
	leaving  []string
	orphans  map[types.UID]time.Time
	released types.UID
}

// clouds are all that this process has seen.
type clouds struct {
	at *atomic.Int64 // when the last reconcile ended, in nanoseconds since 1970
	mu *sync.Mutex
	of map[types.NamespacedName]*cloud
	// instances are the clouds by namespace and label app.kubernetes.io/instance.
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

// learn notes which cloud a label means: pods have no other hint.
func (c clouds) learn(namespace, instance, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances[types.NamespacedName{Namespace: namespace, Name: instance}] = name
}

// memo keeps one value between reconciles. The value is valid while its key is equal.
type memo[K comparable, V any] struct {
	key   K
	value V
	valid bool
}

// get returns the value for a key, and computes it if the key is another than last time. It keeps nothing if that fails.
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

// keep stores a value.
func (m *memo[K, V]) keep(key K, value V) { *m = memo[K, V]{key: key, value: value, valid: true} }

// drop forgets the value.
func (m *memo[K, V]) drop() { *m = memo[K, V]{} }
