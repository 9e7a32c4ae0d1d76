// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// MoveDatabase moves the databases of a cloud to another server.
type MoveDatabase struct {
	Key client.ObjectKey
	// To is the new server, with its password. Empty TLS settings keep the current values.
	To      v1alpha1.DatabaseServer
	Confirm func(question string) error
	Recorded
}

// Moved is the result of a move.
type Moved struct {
	From    string  `json:"from"`
	To      string  `json:"to"`
	Tables  int     `json:"tables"`
	Rows    int64   `json:"rows"`
	Changed bool    `json:"changed"`
	Seconds float64 `json:"seconds"`
}

// movedSecret is a suffix: Secret <cloud>-database holds the password of a server that the databases were moved to, or <cloud>-database-2 if the cloud
// still uses the former.
const movedSecret = "-database"

// Apply stops the services, copies the databases, compares every row, and switches. If anything fails before the switch, the services start on the
// old server again; after the switch, they start on the new one. The old databases are kept.
func (m MoveDatabase) Apply(ctx context.Context, c client.WithWatch) (Moved, error) {
	began := time.Now()
	u, cr, err := load(ctx, c, m.Key)
	if err != nil {
		return Moved{}, err
	}
	x := &moving{MoveDatabase: m, halting: halting{client: c, key: m.Key, from: cr.Spec.MySQL}, cloud: u, out: Moved{From: address(cr.Spec.MySQL), To: address(m.To)}}
	if x.out.From == x.out.To {
		if cr.Spec.MySQL.MovedFrom == "" { // the move is complete; if the cloud is stopped, then by someone else
			return x.out, nil
		}
		x.cloud = u // an earlier run may have been interrupted between the switch and the start
		return x.out, x.start(ctx, workflow.Discard{})
	}
	defer x.close()
	if err := x.open(ctx, cr); err != nil {
		return x.out, err
	}
	size, err := x.list(ctx)
	if err != nil {
		return x.out, err
	}
	question := fmt.Sprintf("This stops cloud %s, copies %s (about %d MiB) from %s to %s, and starts it there", m.Key, lists.Counted(len(x.databases), "database"), size>>20,
		x.out.From, x.out.To)
	if have, err := backup.Databases(ctx, x.target); err != nil {
		return x.out, databaseFinding(err)
	} else if len(have) > 0 {
		question += "; it replaces the " + lists.Counted(len(have), "database") + " that the cloud has there"
	}
	if err := m.Confirm(question); err != nil {
		return x.out, err
	}
	spec := v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionMoveDatabase, MoveDatabase: &v1alpha1.MoveDatabaseParameters{To: x.out.To}}
	back := workflow.Phase[*moving]{Name: "start-again", Short: "Start the services on the old server", Run: step((*moving).startAgain)}
	work := operation.Work[*moving]{Steps: moveSteps(), Final: "switch", Revert: []workflow.Phase[*moving]{back}}
	runner := m.runner(c, m.Key, spec)
	x.operation = runner.Operation
	err = operation.Perform(ctx, runner, work, x, nil)
	x.out.Seconds = time.Since(began).Seconds()
	return x.out, err
}

type moving struct {
	MoveDatabase
	halting
	cloud       *unstructured.Unstructured
	old, target *mysql.Admin
	databases   []string
	out         Moved
}

func (x *moving) open(ctx context.Context, cr *v1alpha1.OnecloudCluster) error {
	id, err := archive.CredentialsID(ctx, x.client, x.key)
	if err != nil {
		return err
	}
	id = cmp.Or(id, string(cr.UID))
	if x.To.TLS.Mode == "" {
		x.To.TLS = cr.Spec.MySQL.TLS
	}
	if x.old, err = openDatabases(ctx, x.client, cr, cr.Spec.MySQL, id); err != nil {
		return err
	}
	if err = tryDatabases(ctx, x.client, cr, x.To, id); err != nil { // before any service stops
		return err
	}
	if x.target, err = openDatabases(ctx, x.client, cr, x.To, id); err != nil {
		return err
	}
	if err = x.target.Apart(ctx, x.old); mysql.ClassOf(err) == mysql.Refused {
		patch := fmt.Sprintf(`{"spec":{"mysql":{"host":%q,"port":%d,"movedFrom":%q}}}`, x.To.Host, port(x.To), cr.Spec.MySQL.Host)
		return finding.Errorf("OCA-7411", "The databases were not moved: "+x.out.To+" is the server in use, under another address",
			fmt.Sprintf("to change only the address: kubectl -n %s patch oc %s --type merge -p '%s', then run the command again", x.key.Namespace, x.key.Name, patch), "%w", err)
	} else if err != nil {
		return databaseFinding(err)
	}
	_, err = operation.Recorded(ctx, x.old, cr) // a database that is not copied would be left behind
	return err
}

// list lists the databases to copy, and checks that the new server has room for them and knows their collations.
func (x *moving) list(ctx context.Context) (size int64, err error) {
	if x.databases, err = backup.Databases(ctx, x.old); err == nil {
		size, err = x.old.CopySize(ctx, x.databases...)
	}
	if err == nil {
		err = x.target.Accepts(ctx, x.old, x.databases...)
	}
	if err == nil {
		err = x.target.Fit(ctx, "copying the databases", size)
	}
	return size, databaseFinding(err)
}

func (x *moving) look(ctx context.Context, _ workflow.Reporter) (err error) {
	x.cloud, _, err = unmoved(ctx, x.client, x.key, x.from)
	return err
}

// stop stops the services, and lists the databases again: an earlier operation may have created one.
func (x *moving) stop(ctx context.Context, r workflow.Reporter) error {
	if err := x.halting.stop(ctx, r); err != nil {
		return err
	}
	_, err := x.list(ctx)
	return err
}

func (x *moving) close() {
	for _, a := range []*mysql.Admin{x.old, x.target} {
		if a != nil {
			a.Close()
		}
	}
}

func moveSteps() []workflow.Phase[*moving] {
	return []workflow.Phase[*moving]{
		{Name: "look", Short: "Check that the cloud has not changed since you confirmed", ReadOnly: true, Run: step((*moving).look)},
		{Name: "stop", Short: "Stop the services", Timeout: longStep, Run: step((*moving).stop)},
		{Name: "copy", Short: "Copy the databases, and compare every row", Timeout: longStep, Run: step((*moving).copy)},
		{Name: "switch", Short: "Switch the cloud to the new server", Run: step((*moving).change)},
		{Name: "start", Short: "Start the services", Run: step((*moving).start)},
	}
}

// change switches the cloud to the new server. If the API server refuses that, the services start on the old one. An error whose request took effect
// nevertheless is ignored.
func (x *moving) change(ctx context.Context, r workflow.Reporter) error {
	if err := x.stillStopped(ctx); err != nil { // the copies lack what was written since
		return err
	}
	err := x.switchTo(ctx, x.client, x.cloud)
	if err == nil {
		return x.switched(r)
	}
	var began error
	if now, reading := get(ctx, x.client, x.key); reading != nil {
		began = reading
	} else if cr, reading := typed(now); reading != nil {
		began = reading
	} else if server := address(cr.Spec.MySQL); server == x.out.To {
		return x.switched(r)
	} else if server != x.out.From {
		began = errors.New("the cloud uses " + server + " now")
	} else if started, starting := startAgain(ctx, x.client, x.key, x.operation.Name, r); starting != nil {
		began = starting
	} else {
		state := "the services run on "
		if !started {
			state = "the services are stopped, as before, on "
		}
		return finding.Errorf("OCA-7411", "The databases were not moved; "+state+x.out.From, "correct the cause, then run the command again", "%w", err)
	}
	return finding.Errorf("OCA-7411", "The cloud was not switched to its new database server; its services are stopped",
		"run the command again; or start the cloud where it is: ocadm cluster start", "%w; %w", err, began)
}

// switched records that the cloud uses the new server.
func (x *moving) switched(r workflow.Reporter) error {
	x.out.Changed = true
	r.Changed("spec.mysql: %s → %s", x.out.From, x.out.To)
	return nil
}

func (x *moving) copy(ctx context.Context, r workflow.Reporter) error {
	data, err := backup.Copy(ctx, r, x.old, x.target, x.databases)
	if err != nil {
		err = databaseFinding(err)
		remedy := "run the command again: it copies the databases again"
		if of := finding.Of(err); len(of) > 0 && of[0].Remedy != "" {
			remedy = of[0].Remedy + "; then " + remedy
		}
		return finding.Errorf("OCA-7411", "The databases were not moved; the cloud still belongs to "+x.out.From, remedy, "%w", err)
	}
	x.out.Tables, x.out.Rows = data.Count()
	r.Changed("%s copied", data)
	return nil
}

// start starts the services. It also removes the name of the old server from the cloud, so that the next change of the server is refused again.
func (x *moving) start(ctx context.Context, r workflow.Reporter) error {
	now, err := get(ctx, x.client, x.key)
	if err != nil {
		return err
	}
	if left, _, _ := unstructured.NestedString(now.Object, "spec", "mysql", "movedFrom"); left != "" {
		if err := endPause(ctx, x.client, x.key, r.Changed); err != nil {
			return err
		}
	}
	if err := Start(ctx, x.client, x.key); err != nil {
		return err
	}
	if err := merge(ctx, x.client, x.cloud, map[string]any{"spec": map[string]any{"mysql": map[string]any{"movedFrom": nil}}}); err != nil {
		return finding.Errorf("OCA-7411", "The cloud runs on "+address(x.To)+", but spec.mysql.movedFrom is still set", "run the command again", "%w", err)
	}
	return nil
}

// switchTo sets the new server in the cloud. The CRD allows a different host only together with the name of the old one.
func (m MoveDatabase) switchTo(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
	secret := client.ObjectKey{Namespace: m.Key.Namespace, Name: m.Key.Name + movedSecret}
	if used, _, _ := unstructured.NestedString(u.Object, "spec", "mysql", "passwordSecretRef", "name"); used == secret.Name {
		secret.Name += "-2" // the old one is read until the switch
	}
	if err := PutSecret(ctx, c, secret, map[string][]byte{DatabaseSecretKey: []byte(m.To.Password)}); err != nil {
		return fmt.Errorf("storing the password of the new server: %w", err)
	}
	left, _, _ := unstructured.NestedString(u.Object, "spec", "mysql", "host")
	server := map[string]any{"host": m.To.Host, "port": nil, "username": nil, "password": nil, "movedFrom": left,
		"passwordSecretRef": map[string]any{"name": secret.Name, "key": DatabaseSecretKey}, "tls": map[string]any{"mode": m.To.TLS.Mode, "ca": m.To.TLS.CA}}
	if m.To.Port != 0 {
		server["port"] = m.To.Port
	}
	if m.To.Username != "" {
		server["username"] = m.To.Username
	}
	if m.To.TLS.CA == "" {
		server["tls"] = map[string]any{"mode": m.To.TLS.Mode, "ca": nil}
	}
	if m.To.TLS.Mode == "" {
		delete(server, "tls")
	}
	if err := merge(ctx, c, u, map[string]any{"spec": map[string]any{"mysql": server}}); err != nil {
		return fmt.Errorf("switching cloud %s to its new database server: %w", m.Key, err)
	}
	return nil
}

func address(s v1alpha1.DatabaseServer) string {
	return net.JoinHostPort(s.Host, strconv.Itoa(int(port(s))))
}
