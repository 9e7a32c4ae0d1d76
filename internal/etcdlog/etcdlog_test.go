// SPDX-License-Identifier: Apache-2.0

package etcdlog

import "testing"

// Lines as etcd, raft and bbolt log them and the log files of a pod contain them.
func TestDamage(t *testing.T) {
	for line, want := range map[string]bool{
		`{"level":"fatal","caller":"etcdserver/bootstrap.go:631","msg":"failed to read WAL, cannot be repaired","error":"walpb: crc mismatch: expected: 1 computed: 2"}`: true,
		`{"level":"fatal","caller":"etcdserver/bootstrap.go:634","msg":"failed to repair WAL","error":"unexpected EOF"}`:                                                 true,
		`{"level":"fatal","msg":"failed to open WAL","error":"[openAtIndex] selectWALFiles failed: wal: file not found which matches the snapshot index '10001'"}`:       true,
		`{"level":"panic","caller":"raft@v3.6.0/log.go:324","msg":"tocommit(120) is out of range [lastIndex(80)]. Was the raft log corrupted, truncated, or lost?"}`:     true,
		`{"level":"panic","msg":"a1 state.commit 120 is out of range [80, 90]"}`:                                                                                         true,
		`{"level":"error","caller":"embed/etcd.go:276","msg":"checkInitialHashKV failed","error":"8e9e05c52164694d found data inconsistency with peers"}`:                true,
		`{"level":"panic","caller":"etcdserver/server.go:1184","msg":"consistent_index(7) is older than snapshot index (9)"}`:                                            true,
		`{"level":"panic","msg":"failed to recover v3 backend from snapshot","error":"failed to find database snapshot file (snap: snapshot file doesn't exist)"}`:       true,
		`{"level":"panic","caller":"backend/backend.go:205","msg":"failed to open database","path":"/var/lib/etcd/member/snap/db","error":"checksum error"}`:             true,
		`panic: assertion failed: Page expected to be: 118, but self identifies as 0`:                                                                                    true,
		`panic: pgid (1180) above high water mark (700)`:                                                                                                               true,
		`panic: freepages: failed to get all reachable pages (page 3: multiple references)`:                                                                            true,
		`reading /var/lib/etcd/member/snap/db: it is damaged: runtime error: index out of range`:                                                                       true,
		`reading /var/lib/etcd/member/snap/db: checksum error`:                                                                                                         true,
		`reading /var/lib/etcd/member/snap/db: timeout`:                                                                                                                false,
		`unexpected fault address 0x7f2d4c1f5000`:                                                                                                                      true,
		`{"level":"info","caller":"etcdserver/bootstrap.go:636","msg":"repaired WAL","error":"unexpected EOF"}`:                                                        false,
		`{"level":"info","caller":"wal/repair.go:99","msg":"repaired","path":"/var/lib/etcd/member/wal/0.wal","error":"unexpected EOF"}`:                               false,
		`{"level":"panic","msg":"failed to open database","path":"/var/lib/etcd/member/snap/db","error":"open /var/lib/etcd/member/snap/db: no space left on device"}`: false,
		`{"level":"fatal","caller":"etcdserver/raft.go:255","msg":"failed to save Raft hard state and entries","error":"write 0.wal: no space left on device"}`:        false,
		`{"level":"warn","msg":"rejected stream from remote peer because it was removed"}`:                                                                             false,
		`{"level":"info","msg":"initial corruption checking passed; no corruption"}`:                                                                                   false,
		`{"level":"info","msg":"recovered v3 backend from snapshot","backend-size-bytes":20480}`:                                                                       false,
		`{"level":"info","msg":"established TCP streaming connection with remote peer"}`:                                                                               false,
		`{"level":"warn","msg":"failed to reach the peer URL","error":"dial tcp 10.0.0.2:2380: connect: connection refused"}`:                                          false,
		`{"level":"info","msg":"starting initial corruption check","timeout":"15s"}`:                                                                                   false,
		`{"level":"warn","msg":"cannot fetch hashKV from peer for initial corruption check","error":"context deadline exceeded"}`:                                      false,
	} {
		if got := Damage.MatchString(line); got != want {
			t.Errorf("%t, want %t: %s", got, want, line)
		}
	}
}
