// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"context"
	"net"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/resolve"
)

// Dial replaces the usual dialer, unless it is nil.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// patience bounds each statement of a dump or load: an index on a large table takes long.
const patience = 2 * time.Hour

// Connect connects to a database server as the administrator of a cloud. A password in a Secret is read from namespace.
func Connect(ctx context.Context, c client.Reader, namespace string, server v1alpha1.DatabaseServer, owner backup.Cloud, dial Dial) (*mysql.Admin, error) {
	cfg, err := Login(ctx, c, namespace, server, owner, dial)
	if err != nil {
		return nil, err
	}
	return mysql.Open(ctx, cfg)
}

// Login returns the configuration of such a connection.
func Login(ctx context.Context, c client.Reader, namespace string, server v1alpha1.DatabaseServer, owner backup.Cloud, dial Dial) (mysql.Config, error) {
	password, err := effects.AdminPassword(ctx, effects.Secrets(c, namespace), server)
	if err != nil {
		return mysql.Config{}, err
	}
	return mysql.Config{
		Host: server.Host, Port: int(server.Port), User: cmp.Or(server.Username, resolve.DefaultMysqlUser), Password: password,
		TLS: mysql.TLSMode(server.TLS.Mode), CA: server.TLS.CA, Patience: patience,
		Owner: mysql.Owner{ID: owner.ID, Namespace: owner.Namespace, Name: owner.Name}, Dial: dial,
	}, nil
}
