// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/archive"
)

// MoveDatabase moves the databases of a cloud to another server.
type MoveDatabase struct {
	Key client.ObjectKey
	// To is the new server, with its password. TLS settings that are empty stay.
	To      v1alpha1.DatabaseServer
	Confirm func(question string) error
	Report  func(what, why string)
}

// Moved is what a move did.
type Moved struct {
	From    string  `json:"from"`
	To      string  `json:"to"`
	Tables  int     `json:"tables"`
	Rows    int64   `json:"rows"`
	Changed bool    `json:"changed"`
	Seconds float64 `json:"seconds"`
}

// movedSecret is a suffix: the Secret <cloud>-database-HASH holds the password of a server that the databases were moved to.
const movedSecret = "-database"

// Apply stops the services, copies the databases, compares every row, and switches. Until the switch the cloud belongs to the old server, and
// running it again begins anew; after it the services start on the new one. The old databases stay.
func (m MoveDatabase) Apply(ctx context.Context, c client.WithWatch) (Moved, error) {
	began := time.Now()
	u, err := get(ctx, c, m.Key)
	if err != nil {
		return Moved{}, err
	}
	cr, err := typed(u)
	if err != nil {
		return Moved{}, err
	}
	from, to := address(cr.Spec.MySQL), address(m.To)
	out := Moved{From: from, To: to}
	if from == to {
		// An earlier run may have been interrupted between the switch and the start.
		return out, Start(ctx, c, m.Key)
	}
	id, err := archive.CredentialsID(ctx, c, m.Key)
	if err != nil {
		return out, err
	}
	if id == "" {
		id = string(cr.UID)
	}
	if m.To.TLS.Mode == "" {
		m.To.TLS = cr.Spec.MySQL.TLS
	}
	old, err := openDatabases(ctx, c, cr, cr.Spec.MySQL, id)
	if err != nil {
		return out, err
	}
	defer old.Close()
	target, err := openDatabases(ctx, c, cr, m.To, id)
	if err != nil {
		return out, err
	}
	defer target.Close()
	databases, err := backup.Databases(ctx, old)
	if err != nil {
		return out, databaseFinding(err)
	}
	size, err := old.Size(ctx, databases...)
	if err != nil {
		return out, databaseFinding(err)
	}
	question := fmt.Sprintf("This stops cloud %s, copies %d databases (about %d MiB) from %s to %s, and starts it there", m.Key, len(databases), size>>20, from, to)
	if err := m.Confirm(question); err != nil {
		return out, err
	}
	m.Report("services", "stopping them")
	if err := Stop(ctx, c, m.Key, m.Report); err != nil {
		return out, err
	}
	m.Report("databases", "copying and comparing them")
	data, err := backup.Copy(ctx, old, target, databases)
	if err != nil {
		return out, finding.Errorf("OCA-7411", "The databases were not moved; the cloud still belongs to "+from,
			"run the command again, which copies anew; or start the cloud where it is: ocadm cluster start", "%w", databaseFinding(err))
	}
	out.Tables, out.Rows = data.Count()
	m.Report("cloud", "switching to "+to)
	if err := m.switchTo(ctx, c, u); err != nil {
		return out, err
	}
	out.Changed = true
	m.Report("services", "starting them")
	err = Start(ctx, c, m.Key)
	out.Seconds = time.Since(began).Seconds()
	return out, err
}

// switchTo makes the new server that of the cloud. The definition allows another host only along with the name of the one that is left.
func (m MoveDatabase) switchTo(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
	name := m.Key.Name + movedSecret
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.Key.Namespace, Name: name}}
	err := c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if used, _, _ := unstructured.NestedString(u.Object, "spec", "mysql", "passwordSecretRef", "name"); err == nil && used == name {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.Key.Namespace, Name: name + "-2"}} // the old one is read until the switch
		err = c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading Secret %s: %w", secret.Name, err)
	}
	secret.Data = map[string][]byte{DatabaseSecretKey: []byte(m.To.Password)}
	if err == nil {
		err = c.Update(ctx, secret, client.FieldOwner(kube.FieldManager))
	} else {
		err = c.Create(ctx, secret, client.FieldOwner(kube.FieldManager))
	}
	if err != nil {
		return fmt.Errorf("keeping the password of the new server: %w", err)
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
	if err := merge(ctx, c, u, map[string]any{"spec": map[string]any{"mysql": map[string]any{"movedFrom": nil}}}); err != nil {
		return fmt.Errorf("ending the move of cloud %s: %w", m.Key, err)
	}
	return nil
}

func address(s v1alpha1.DatabaseServer) string {
	return net.JoinHostPort(s.Host, strconv.Itoa(int(port(s))))
}
