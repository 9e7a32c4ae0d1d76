// SPDX-License-Identifier: Apache-2.0

// Package etcdlog recognises messages of etcd.
package etcdlog

import "regexp"

// Damage matches a log line of an etcd whose files are damaged or inconsistent, as after a power cut with a disk that loses confirmed writes. A torn
// end of the log that etcd has repaired ("repaired WAL", "unexpected EOF") is not damage: any power cut may leave one. Neither is a full disk. The
// messages are those of etcd 3.6.8, raft 3.6.0 and bbolt 1.4.3.
var Damage = regexp.MustCompile(`walpb: crc|crc mismatch|wal: .*(broken|corrupt|mismatch|out of range|not found|do not increase)|failed to read WAL, cannot be repaired|` +
	`failed to repair WAL|failed to (recover|load) .*(backend|snapshot|db)|"error":"(invalid database|checksum error|version mismatch)"|invalid database|file is not a (bolt|bbolt)|` +
	`/snap/db: (it is damaged|checksum error|version mismatch)|` + // ocadm's own message about the file
	`panic: .*(bbolt|freelist|freepages|[Pp]age|invalid childAt|high water mark|bucket header)|fault address|` +
	`(tocommit\(\d+\)|state\.commit \d+) is out of range|consistent_index\(\d+\) is older than|` +
	`data corruption|data inconsistency with peers|checkInitialHashKV failed`)
