// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/wait"
)

// DatabaseStatus is the known state of the embedded database.
type DatabaseStatus struct {
	Namespace string `json:"namespace"`
	// Redundant is true if losing any one node loses no acknowledged row.
	Redundant bool `json:"redundant"`
	// Message explains why it is redundant or not.
	Message string           `json:"message"`
	Record  *dbpair.Record   `json:"record,omitempty"`
	Servers []DatabaseMember `json:"servers"`

	version string // of the record
}

// Promotion is a request for another primary.
type Promotion struct {
	// Server is the one to promote; "" means the replica.
	Server string
	// Force accepts the loss of what it has not received, if the primary is not serving.
	Force   bool
	Confirm func(question string) error
	Waiting func(what, why string)
}

// DatabaseMember is one database server.
type DatabaseMember struct {
	Name string `json:"name"`
	Pod  string `json:"pod"`
	// Role is primary or replica.
	Role string `json:"role"`
	Node string `json:"node,omitempty"`
	// Ready is the readiness of the pod in Kubernetes. It turns false about a minute after a node is lost.
	Ready bool          `json:"ready"`
	State dbpair.Member `json:"state"`
	// Behind is the number of events the replica has not received yet, as last reported by the agents.
	Behind int64 `json:"behind"`
}

// EmbeddedDatabase reads the state of the embedded database of a namespace.
func EmbeddedDatabase(ctx context.Context, c client.Reader, namespace string) (DatabaseStatus, error) {
	s := DatabaseStatus{Namespace: namespace}
	found, err := kube.Find(ctx, c, client.ObjectKey{Namespace: namespace, Name: dbpair.First}, &appsv1.StatefulSet{}, "the embedded database")
	if err != nil {
		return s, err
	}
	if !found {
		return s, finding.New("OCA-7430", "There is no embedded database", "namespace "+namespace+" has no StatefulSet "+dbpair.First,
			"if the cloud uses another database server, its administrator is responsible for redundancy; otherwise name the namespace with -n")
	}
	l := &coordinationv1.Lease{}
	if found, err = kube.Find(ctx, c, client.ObjectKey{Namespace: namespace, Name: dbpair.RecordName}, l, "which server is the primary"); err != nil {
		return s, err
	}
	if !found {
		m, err := member(ctx, c, namespace, dbpair.First)
		m.Role = dbpair.RolePrimary
		s.Servers = []DatabaseMember{m}
		s.judge()
		return s, err
	}
	r := dbpair.ReadRecord(l)
	s.Record, s.version = &r, l.ResourceVersion
	for _, name := range dbpair.Servers() {
		m, err := member(ctx, c, namespace, name)
		if err != nil {
			return s, err
		}
		m.Role = map[bool]string{true: dbpair.RolePrimary, false: dbpair.RoleReplica}[name == r.Primary]
		s.Servers = append(s.Servers, m)
	}
	s.judge()
	return s, nil
}

// DatabaseLine describes in one line whether the database of a cloud survives the loss of a node; "" for a cloud with its own database server.
func DatabaseLine(ctx context.Context, c client.Client, key client.ObjectKey) (string, error) {
	u, err := get(ctx, c, key)
	if err != nil {
		return "", err
	}
	host, _, _ := unstructured.NestedString(u.Object, "spec", "mysql", "host")
	if !dbpair.Embedded(host) {
		return "", nil
	}
	s, err := EmbeddedDatabase(ctx, c, key.Namespace)
	if err != nil {
		return "unknown: " + err.Error(), nil //nolint:nilerr // the line says so; an account may lack the privileges
	}
	return map[bool]string{true: "redundant: ", false: "not redundant: "}[s.Redundant] + s.Message, nil
}

func member(ctx context.Context, c client.Reader, namespace, name string) (DatabaseMember, error) {
	m := DatabaseMember{Name: name, Pod: dbpair.PodName(name)}
	pod, l := &corev1.Pod{}, &coordinationv1.Lease{}
	if _, err := kube.Find(ctx, c, client.ObjectKey{Namespace: namespace, Name: m.Pod}, pod, "pod "+m.Pod); err != nil {
		return m, err
	}
	m.Node, m.Ready = pod.Spec.NodeName, kube.PodReady(pod)
	found, err := kube.Find(ctx, c, client.ObjectKey{Namespace: namespace, Name: dbpair.MemberName(name)}, l, "the report of "+name)
	if !found {
		return m, err
	}
	m.State, err = dbpair.ReadMember(l)
	return m, err
}

// judge decides whether the database survives the loss of a node. It is pure.
func (s *DatabaseStatus) judge() {
	if s.Record == nil {
		s.Message = "one copy, which runs on no node"
		if node := s.Servers[0].Node; node != "" {
			s.Message = "one copy, on node " + node + "; if that node is lost, so is everything newer than the last backup"
		}
		return
	}
	primary, replica := &s.Servers[0], &s.Servers[1]
	if s.Record.Primary == replica.Name {
		primary, replica = replica, primary
	}
	replica.Behind = max(0, mysql.Sequence(primary.State.Last)-mysql.Sequence(replica.State.Last))
	switch {
	case s.Record.Unsettled != "":
		s.Message = s.unsettled()
	case s.Record.InSync == "" && replica.State.Error != "":
		s.Message = "the replica is not in sync: " + replica.State.Error
	case s.Record.InSync == "" && replica.Node == "":
		s.Message = "the replica has no node to run on"
	case s.Record.InSync == "":
		s.Message = "the replica is not in sync: " + cmp.Or(replica.State.Doing, "its agent has not reported yet")
	case !primary.Ready:
		s.Message = "the primary is not ready"
	case !replica.Ready:
		s.Message = "the replica is not ready"
	default:
		s.Redundant, s.Message = true, "each of the two servers has every row that was acknowledged"
	}
}

// PromoteDatabase requests another primary and waits for the switch.
func PromoteDatabase(ctx context.Context, c client.Client, namespace string, p Promotion) (DatabaseStatus, error) {
	const what = "The replica was not promoted"
	s, err := EmbeddedDatabase(ctx, c, namespace)
	if err != nil {
		return s, err
	}
	if s.Record == nil {
		return s, finding.New("OCA-7431", what, "there is none", "ocadm cluster database add-replica")
	}
	if s.Record.Unsettled != "" {
		return chooseDatabase(ctx, c, s, p)
	}
	force, target := p.Force, dbpair.Peer(s.Record.Primary)
	primary, replica := s.member(s.Record.Primary), s.member(target)
	inSync := s.Record.InSync == target
	serves := primary.Ready && primary.State.Mode == dbpair.Primary
	// A restarted replica drops what it had received but not applied, and can no longer ask the primary for it.
	unverified := inSync && !serves && !(replica.State.Connected && replica.State.Applying)
	switch {
	case p.Server == s.Record.Primary && serves: // the command was repeated
		return s, nil
	case p.Server == s.Record.Primary:
		return s, finding.New("OCA-7432", what, p.Server+" is the primary, and does not serve", "ocadm cluster database status")
	case !replica.State.Complete:
		return s, finding.New("OCA-7432", what, "it has no complete copy: "+replica.State.Doing, "bring back the node of the primary, "+primary.Node+", or restore a backup")
	case !inSync && serves:
		cause := fmt.Sprintf("the primary on node %s serves, and the replica is %s behind: %s", primary.Node, lists.Counted(replica.Behind, "event"), s.Message)
		return s, finding.New("OCA-7432", what, cause, "wait until the replica is in sync: ocadm cluster database status")
	case !inSync && !force:
		return s, finding.New("OCA-7432", what, fmt.Sprintf("it is not in sync; at least %s of the primary would be lost, from %s to %s", lists.Counted(replica.Behind, "event"),
			replica.State.Last, primary.State.Last), "bring back the node of the primary, "+primary.Node+"; or accept the loss: ocadm cluster database promote --force")
	case unverified && !force:
		return s, finding.New("OCA-7432", what, fmt.Sprintf("the primary on node %s does not serve, and whether the replica has every change is not verified: %s", primary.Node,
			cmp.Or(replica.State.Error, "it is not connected to the primary")), "if it has every change, it takes over by itself within a minute; "+
			"otherwise bring back the node of the primary, "+primary.Node+", or accept that changes may be lost: ocadm cluster database promote --force")
	}
	if serves {
		if err := undisturbed(ctx, c, namespace, what); err != nil {
			return s, err
		}
	}
	question := fmt.Sprintf("This makes %s on node %s the primary instead of %s on node %s; connections to the database break", target, replica.Node, s.Record.Primary, primary.Node)
	if !inSync {
		question = fmt.Sprintf("This makes the server on node %s the primary. Events after %s are lost: at least %d that the primary on node %s reported", replica.Node,
			replica.State.Last, replica.Behind, primary.Node)
	}
	if unverified {
		question = fmt.Sprintf("This makes the server on node %s the primary. It was in sync, but whether it still has every change is not verified: changes after %s that "+
			"were acknowledged may be lost", replica.Node, cmp.Or(replica.State.Applied, replica.State.Last, "its last start"))
	}
	if err := p.Confirm(question); err != nil {
		return s, err
	}
	// A working primary hands over, and nothing may be lost.
	if err := changeRecord(ctx, c, namespace, func(r *dbpair.Record) { r.Promote, r.Force = target, !inSync || force && !serves }); err != nil {
		return s, err
	}
	return waitDatabase(ctx, c, namespace, p.Waiting, func(s DatabaseStatus) (bool, error) {
		if s.Record.Primary == target {
			return s.member(target).State.Mode == dbpair.Primary && s.member(target).Ready, nil
		}
		if s.Record.Promote == "" {
			return false, finding.New("OCA-7432", what, s.Message, "ocadm cluster database status, then run the command again")
		}
		return false, nil
	})
}

// CopyDatabase makes the replica copy the primary again.
func CopyDatabase(ctx context.Context, c client.Client, namespace string, waiting func(what, why string)) (DatabaseStatus, error) {
	s, err := EmbeddedDatabase(ctx, c, namespace)
	if err != nil {
		return s, err
	}
	if s.Record == nil {
		return s, finding.New("OCA-7431", "Nothing was copied", "there is no replica", "ocadm cluster database add-replica")
	}
	if s.Record.InSync != "" {
		return s, finding.New("OCA-7433", "Nothing was copied", "the replica is in sync", "nothing: "+s.Message)
	}
	target := dbpair.Peer(s.Record.Primary)
	if err := changeRecord(ctx, c, namespace, func(r *dbpair.Record) { r.Copy = target }); err != nil {
		return s, err
	}
	return WaitReplica(ctx, c, namespace, waiting)
}

// WaitReplica waits until the replica is in sync.
func WaitReplica(ctx context.Context, c client.Client, namespace string, waiting func(what, why string)) (DatabaseStatus, error) {
	return waitDatabase(ctx, c, namespace, waiting, func(s DatabaseStatus) (bool, error) { return s.Redundant, nil })
}

const lookAgain = 2 * time.Second

func waitDatabase(ctx context.Context, c client.Client, namespace string, waiting func(what, why string), done func(DatabaseStatus) (bool, error)) (DatabaseStatus, error) {
	const what = "the embedded database"
	var last DatabaseStatus
	var final error
	err := wait.Until(ctx, what, lookAgain, func(ctx context.Context) (end bool, why string, _ error) {
		s, err := EmbeddedDatabase(ctx, c, namespace)
		if err != nil {
			return false, "", err // it is repeated
		}
		last = s
		end, final = done(s)
		return end || final != nil, s.Message, nil
	}, func(why string) { waiting(what, why) })
	if errors.Is(err, context.Canceled) {
		return last, fmt.Errorf("the embedded database continues by itself (ocadm cluster database status): %w", err)
	}
	if err != nil {
		final = finding.New("OCA-7434", "The embedded database has not reached the requested state yet", wait.Why(err), "it continues by itself: ocadm cluster database status")
	}
	return last, final
}

func (s *DatabaseStatus) member(name string) DatabaseMember {
	return lists.First(s.Servers, func(m DatabaseMember) bool { return m.Name == name })
}

func changeRecord(ctx context.Context, c client.Client, namespace string, change func(*dbpair.Record)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		l := &coordinationv1.Lease{}
		if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: dbpair.RecordName}, l); err != nil {
			return err
		}
		r := dbpair.ReadRecord(l)
		change(&r)
		r.Write(l)
		return c.Update(ctx, l)
	})
	if err != nil {
		return fmt.Errorf("writing Lease %s/%s: %w", namespace, dbpair.RecordName, err)
	}
	return nil
}

// undisturbed returns an error if an operation works on the databases: it would lose its connection, and a restore would leave them half replaced.
func undisturbed(ctx context.Context, c client.Client, namespace, what string) error {
	list, err := Operations(ctx, c, namespace, "")
	if err != nil {
		return nil //nolint:nilerr // without operators, there are no operations; an account may lack the privileges
	}
	using := []string{v1alpha1.ActionUpdate, v1alpha1.ActionRollback, v1alpha1.ActionRehearse, v1alpha1.ActionBackup, v1alpha1.ActionRestore, v1alpha1.ActionMoveDatabase}
	for _, o := range list {
		runs := o.Status.Phase == v1alpha1.OperationRunning || o.Status.Phase == v1alpha1.OperationReverting
		if runs && slices.Contains(using, o.Spec.Action) {
			return finding.New("OCA-7421", what, fmt.Sprintf("operation %s (%s) uses the database, and would lose its connection", o.Name, o.Spec.Action),
				"ocadm operation show "+o.Name+"; once it has ended, run the command again")
		}
	}
	return nil
}

// ReplicaFits returns an error if no second node could run the replica of a namespace's database, or restarting the first server would end an operation.
func ReplicaFits(ctx context.Context, c client.Client, s DatabaseStatus) error {
	if s.Record == nil {
		if err := undisturbed(ctx, c, s.Namespace, "The replica was not added"); err != nil {
			return err
		}
	}
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes, client.MatchingLabels{v1alpha1.NodeRolePrefix + RoleController: v1alpha1.Enable}); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	ready := lists.Count(nodes.Items, func(n corev1.Node) bool { return kube.NodeReady(&n) && !n.Spec.Unschedulable })
	if ready < 2 {
		return finding.New("OCA-7435", "The replica was not added", fmt.Sprintf("ready nodes with the role controller: %d; two are needed", ready),
			"ocadm join --control-plane, or ocadm join --as-onecloud-controller, on another machine")
	}
	return nil
}
