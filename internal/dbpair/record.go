// SPDX-License-Identifier: Apache-2.0

// Package dbpair keeps two copies of the embedded database: a primary, and a replica on another node that can replace it. An agent in each pod starts
// and stops the server there. One Lease, the record, names the primary. Decide is pure; Agent acts.
//
// While the record says that the replica is in sync, commits of the primary wait for it without a time limit. So the replica may take over only then,
// and nothing that was acknowledged is lost; and a former primary that cannot be reached cannot acknowledge anything. The primary writes to the
// record before it goes on alone, so a takeover by the replica and a primary that goes on alone exclude each other.
package dbpair

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Names of the objects in the namespace of the database. Servers are named after their StatefulSets; each has its own Service.
const (
	First  = "ocadm-mysql"
	Second = "ocadm-mysql-2"
	// RecordName is the Lease that names the primary.
	RecordName = "ocadm-mysql"
	// SecretName is the Secret with the password of the replication account and the CA of the certificates.
	SecretName = "ocadm-mysql-replication"
	// RoleLabel is the pod label by which the Service selects a pod.
	RoleLabel   = "ocadm.yunion.io/database-role"
	RolePrimary = "primary"
	RoleReplica = "replica"
)

const (
	syncAnnotation    = "ocadm.yunion.io/in-sync"
	promoteAnnotation = "ocadm.yunion.io/promote"
	forceAnnotation   = "ocadm.yunion.io/promote-force"
	copyAnnotation    = "ocadm.yunion.io/copy"
	stateAnnotation   = "ocadm.yunion.io/state"
	// unsettledAnnotation says why the record must not decide who becomes the primary.
	unsettledAnnotation = "ocadm.yunion.io/unsettled"
)

// Embedded reports whether a database host is the server that init installs.
func Embedded(host string) bool {
	service, _, _ := strings.Cut(host, ".")
	return service == First
}

// Servers returns both servers.
func Servers() []string { return []string{First, Second} }

// Peer returns the other server.
func Peer(server string) string {
	if server == First {
		return Second
	}
	return First
}

// ID returns the server ID in replication.
func ID(server string) int {
	if server == First {
		return 1
	}
	return 2
}

// PodName returns the name of a server's only pod.
func PodName(server string) string { return server + "-0" }

// ClaimName returns the name of the PersistentVolumeClaim of a server.
func ClaimName(server string) string { return "data-" + PodName(server) }

// ServiceName returns the name of the Service of one server, for replication.
func ServiceName(server string) string { return "ocadm-mysql-server-" + strconv.Itoa(ID(server)) }

// MemberName returns the name of the Lease in which the agent of a server reports.
func MemberName(server string) string { return "ocadm-mysql-server-" + strconv.Itoa(ID(server)) }

// Record names the primary.
type Record struct {
	Primary string `json:"primary"`
	// InSync is the replica that commits of the primary wait for; "" while the primary goes on alone.
	InSync string `json:"inSync,omitempty"`
	// Term counts the changes of the primary and of InSync. It is 0 before the first primary has started.
	Term int `json:"term"`
	// Promote is the server that a user wants to be the primary. Force accepts the loss of what it has not received.
	Promote string `json:"promote,omitempty"`
	Force   bool   `json:"force,omitempty"`
	// Copy is the server that a user wants to be copied again.
	Copy string `json:"copy,omitempty"`
	// Unsettled is the reason why the record may be older than what the servers know: no server becomes the primary until both have reported what they remember.
	Unsettled string `json:"unsettled,omitempty"`
}

// Restored is the reason why the record is unsettled after etcd was restored from a snapshot.
const Restored = "etcd was restored from a snapshot"

// Doubted returns the record with a reason why it may be old. It drops earlier requests of users.
func (r Record) Doubted(why string) Record {
	return Record{Primary: r.Primary, InSync: r.InSync, Term: r.Term, Unsettled: why}
}

// ReadRecord reads the record from its Lease.
func ReadRecord(l *coordinationv1.Lease) Record {
	return Record{
		Primary: ptr.Deref(l.Spec.HolderIdentity, ""), Term: int(ptr.Deref(l.Spec.LeaseTransitions, 0)),
		InSync: l.Annotations[syncAnnotation], Promote: l.Annotations[promoteAnnotation], Force: l.Annotations[forceAnnotation] != "",
		Copy: l.Annotations[copyAnnotation], Unsettled: l.Annotations[unsettledAnnotation],
	}
}

func (r Record) Write(l *coordinationv1.Lease) {
	term := int32(r.Term) //nolint:gosec // a small counter
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

// Member is the report of an agent about its server.
type Member struct {
	Node string `json:"node,omitempty"`
	Mode Mode   `json:"mode"`
	// Doing is what the agent does or waits for, in words.
	Doing string `json:"doing,omitempty"`
	// Last is the last event in the log of a primary, or the last one that a replica has received; Applied is the last one that a replica has applied.
	Last    string `json:"last,omitempty"`
	Applied string `json:"applied,omitempty"`
	// Connected and Applying are for a replica. Complete is true if it has a complete copy.
	Connected bool `json:"connected,omitempty"`
	Applying  bool `json:"applying,omitempty"`
	Complete  bool `json:"complete,omitempty"`
	// Error is the reason why it does not replicate.
	Error string `json:"error,omitempty"`
	// Kept is the directory with the data that the server had before it was copied again.
	Kept string `json:"kept,omitempty"`
	// Known is the latest record that the server remembers. Seen is the version of the unsettled record that this answers.
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

func (m Member) Write(l *coordinationv1.Lease) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("writing the state of a server: %w", err)
	}
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, stateAnnotation, string(text))
	return nil
}
