// SPDX-License-Identifier: Apache-2.0

package reconcile

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
