// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/mariadb"
)

// SQL runs statements as root of a database server and returns their output.
func (e *Env) SQL(on *mariadb.Server, statements ...string) string {
	e.Helper()
	out, err := on.Execute(context.WithoutCancel(e.Context()), statements...) // also while a test cleans up
	e.Must(err)
	return strings.TrimSpace(out)
}

// Admin connects to a database server as root until the test ends, on behalf of the cloud if there is one.
func (e *Env) Admin(on *mariadb.Server) *mysql.Admin {
	e.Helper()
	cfg, s := mysql.Config{Host: on.Host, Port: on.Port, User: "root", Password: on.RootPassword}, &corev1.Secret{}
	e.check(e.Client.Get(e.Context(), client.ObjectKey{Namespace: e.Namespace, Name: Name + "-" + v1alpha1.SecretCredentials}, s))
	if id := string(s.Data[component.CloudID]); id != "" {
		cfg.Owner = mysql.Owner{ID: id, Namespace: e.Namespace, Name: Name}
	}
	a, err := mysql.Open(e.Context(), cfg)
	e.Must(err)
	e.Cleanup(func() { _ = a.Close() })
	return a
}

// Databases returns the definitions of the cloud's databases on a server, and a summary of their rows.
func (e *Env) Databases(on *mariadb.Server) (definitions map[string]string, rows dump.Summary) {
	e.Helper()
	a := e.Admin(on)
	names, err := backup.Databases(e.Context(), a)
	if err == nil {
		definitions, err = dump.Definitions(e.Context(), a, names)
	}
	if err == nil {
		rows, err = dump.Examine(e.Context(), a, names)
	}
	e.Must(err)
	return definitions, rows
}
