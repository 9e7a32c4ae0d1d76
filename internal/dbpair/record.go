// SPDX-License-Identifier: Apache-2.0

// Package dbpair keeps two copies of the embedded database: a primary, and a replica on another node that takes its place. An agent in each pod
// starts and stops the server there. Who is the primary stands in one Lease, the record. Decide is pure; Agent acts.
//
// Commits of the primary wait without a time limit until the replica has them, while the record says that the replica is in sync. So the replica may
// take over only then, and nothing that was acknowledged is lost; and a former primary that cannot be reached cannot acknowledge anything. Before the
// primary goes on alone it writes that into the record: a replica that takes over and a primary that goes on alone exclude each other.
package dbpair

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// The names of the objects in the namespace of the database. Servers are named as their StatefulSets; each has a Service of its own.
const (
	First  = "ocadm-mysql"
	Second = "ocadm-mysql-2"
	// RecordName is the Lease that says who is the primary.
	RecordName = "ocadm-mysql"
	// SecretName is the Secret with the password of the replication's account and the authority of its certificates.
	SecretName = "ocadm-mysql-replication"
	// RoleLabel of a pod decides which one the Service leads to.
	RoleLabel   = "ocadm.yunion.io/database-role"
	RolePrimary = "primary"
	RoleReplica = "replica"
)

// The annotations of the Lease.
const (
	syncAnnotation    = "ocadm.yunion.io/in-sync"
	promoteAnnotation = "ocadm.yunion.io/promote"
	forceAnnotation   = "ocadm.yunion.io/promote-force"
	copyAnnotation    = "ocadm.yunion.io/copy"
	stateAnnotation   = "ocadm.yunion.io/state"
	// unsettledAnnotation says why nobody may become the primary by the record.
	unsettledAnnotation = "ocadm.yunion.io/unsettled"
)

// Embedded reports whether a host of databases is the server that init installs.
func Embedded(host string) bool {
	service, _, _ := strings.Cut(host, ".")
	return service == First
}

// Servers are both.
func Servers() []string { return []string{First, Second} }

// Peer is the other server.
func Peer(server string) string {
	if server == First {
		return Second
	}
	return First
}

// ID is the number of a server in replication.
func ID(server string) int {
	if server == First {
		return 1
	}
	return 2
}

// PodName is the only pod of a server.
func PodName(server string) string { return server + "-0" }

// ClaimName is the claim of the volume of a server.
func ClaimName(server string) string { return "data-" + PodName(server) }

// ServiceName is the Service of one server, for replication.
func ServiceName(server string) string { return "ocadm-mysql-server-" + strconv.Itoa(ID(server)) }

// MemberName is the Lease in which the agent of a server reports.
func MemberName(server string) string { return "ocadm-mysql-server-" + strconv.Itoa(ID(server)) }

// Record says who is the primary.
type Record struct {
	Primary string `json:"primary"`
	// InSync is the replica without which the primary acknowledges nothing; "" while the primary goes on alone.
	InSync string `json:"inSync,omitempty"`
	// Term counts the changes of the primary and of InSync. 0 is before the first primary has started.
	Term int `json:"term"`
	// Promote is the server that a user wants as the primary. Force accepts the loss of what it has not received.
	Promote string `json:"promote,omitempty"`
	Force   bool   `json:"force,omitempty"`
	// Copy is the server that a user wants to be copied anew.
	Copy string `json:"copy,omitempty"`
	// Unsettled is why the record may be older than what the servers know: nobody becomes the primary until both have said what they remember.
	Unsettled string `json:"unsettled,omitempty"`
}

// Restored is why the record is unsettled after etcd went back to a snapshot.
const Restored = "etcd was restored from a snapshot"

// Doubted is the record with a reason for which it may be old. What users asked for before is forgotten with it.
func (r Record) Doubted(why string) Record {
	return Record{Primary: r.Primary, InSync: r.InSync, Term: r.Term, Unsettled: why}
}

// ReadRecord reads it from its Lease.
func ReadRecord(l *coordinationv1.Lease) Record {
	r := Record{
		InSync: l.Annotations[syncAnnotation], Promote: l.Annotations[promoteAnnotation], Force: l.Annotations[forceAnnotation] != "",
		Copy: l.Annotations[copyAnnotation], Unsettled: l.Annotations[unsettledAnnotation],
	}
	if l.Spec.HolderIdentity != nil {
		r.Primary = *l.Spec.HolderIdentity
	}
	if l.Spec.LeaseTransitions != nil {
		r.Term = int(*l.Spec.LeaseTransitions)
	}
	return r
}

// Write puts it into its Lease.
func (r Record) Write(l *coordinationv1.Lease) {
	term := int32(r.Term) //nolint:gosec // it counts changes of the roles
	l.Spec.HolderIdentity, l.Spec.LeaseTransitions = &r.Primary, &term
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	for key, value := range map[string]string{
		syncAnnotation: r.InSync, promoteAnnotation: r.Promote, copyAnnotation: r.Copy, forceAnnotation: map[bool]string{true: "true"}[r.Force],
		unsettledAnnotation: r.Unsettled,
	} {
		if value == "" {
			delete(l.Annotations, key)
			continue
		}
		l.Annotations[key] = value
	}
}

// Member is what an agent reports of its server.
type Member struct {
	Node string `json:"node,omitempty"`
	Mode Mode   `json:"mode"`
	// Doing is what the agent does or waits for, in words.
	Doing string `json:"doing,omitempty"`
	// Last is the last event in the log of a primary, or that a replica has received; Applied the last one that a replica has applied.
	Last    string `json:"last,omitempty"`
	Applied string `json:"applied,omitempty"`
	// Connected and Applying are those of a replica, Complete whether it has a whole copy.
	Connected bool `json:"connected,omitempty"`
	Applying  bool `json:"applying,omitempty"`
	Complete  bool `json:"complete,omitempty"`
	// Error is why it does not replicate.
	Error string `json:"error,omitempty"`
	// Kept is the directory with what the server had before it was copied anew.
	Kept string `json:"kept,omitempty"`
	// Known is the latest record that the server remembers. Seen is the version of the unsettled record to which it answers with that.
	Known Known  `json:"known,omitzero"`
	Seen  string `json:"seen,omitempty"`
}

// ReadMember reads a report from its Lease.
func ReadMember(l *coordinationv1.Lease) (Member, error) {
	var m Member
	text := l.Annotations[stateAnnotation]
	if text == "" {
		return m, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return m, fmt.Errorf("reading the state in Lease %s: %w", l.Name, err)
	}
	return m, nil
}

// Write puts a report into its Lease.
func (m Member) Write(l *coordinationv1.Lease) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("writing the state of a server: %w", err)
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	l.Annotations[stateAnnotation] = string(text)
	return nil
}
