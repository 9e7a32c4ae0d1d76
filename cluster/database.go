// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/archive"
)

// dial connects as usual, but replaces the name of a Service, which only cluster DNS resolves, with its cluster IP, which a node can reach.
func dial(c client.Reader, namespace string) archive.Dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if unknown := (*net.DNSError)(nil); !errors.As(err, &unknown) {
			return conn, err
		}
		host, port, split := net.SplitHostPort(addr)
		parts := strings.Split(strings.TrimSuffix(host, "."), ".")
		if split != nil || len(parts) > 2 && parts[2] != "svc" {
			return nil, err
		}
		key := client.ObjectKey{Namespace: namespace, Name: parts[0]}
		if len(parts) > 1 {
			key.Namespace = parts[1]
		}
		s := &corev1.Service{}
		if c.Get(ctx, key, s) != nil || net.ParseIP(s.Spec.ClusterIP) == nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(s.Spec.ClusterIP, port))
	}
}

// openDatabases opens a cloud's database server as its administrator.
func openDatabases(ctx context.Context, c client.Reader, cr *v1alpha1.OnecloudCluster, server v1alpha1.DatabaseServer, id string) (*mysql.Admin, error) {
	owner := backup.Cloud{Namespace: cr.Namespace, Name: cr.Name, ID: id}
	a, err := archive.Connect(ctx, c, cr.Namespace, server, owner, dial(c, cr.Namespace))
	return a, databaseFinding(err)
}

// unmoved reads a cloud again when its operation starts, as earlier operations may have changed it. It fails if the databases are no longer on the
// server that the user confirmed.
func unmoved(ctx context.Context, c client.Client, key client.ObjectKey, was v1alpha1.DatabaseServer) (*unstructured.Unstructured, *v1alpha1.OnecloudCluster, error) {
	u, cr, err := load(ctx, c, key)
	if err != nil {
		return nil, nil, err
	}
	if now := address(cr.Spec.MySQL); now != address(was) {
		return nil, nil, changedMeanwhile(key, fmt.Sprintf("its databases are on %s now, and were on %s", now, address(was)))
	}
	return u, cr, nil
}

// changedMeanwhile returns the finding for a cloud that has changed since the user confirmed.
func changedMeanwhile(key client.ObjectKey, cause string) error {
	return finding.New("OCA-7425", fmt.Sprintf("Cloud %s changed while the command waited for its turn", key), cause, "run the command again to confirm the present state")
}

const reachInterval = 500 * time.Millisecond

// reach opens a server that may be unreachable for a while. An error from the server itself is final.
func reach(ctx context.Context, patience time.Duration, waiting func(what, why string), open func() (*mysql.Admin, error)) (a *mysql.Admin, err error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const what = "the database server"
	report := func(why string) {
		if waiting != nil {
			waiting(what, why)
		}
	}
	_ = wait.Until(limited, what, reachInterval, func(context.Context) (bool, string, error) { // its error says less than the server's
		if a, err = open(); mysql.ClassOf(err) == mysql.Unreachable {
			return false, err.Error(), nil
		}
		return true, "", nil
	}, report)
	return a, err
}

// tryDatabases does on a database server what the operator does for the services of a cloud, then undoes it.
func tryDatabases(ctx context.Context, c client.Reader, cr *v1alpha1.OnecloudCluster, server v1alpha1.DatabaseServer, id string) error {
	cfg, err := archive.Login(ctx, c, cr.Namespace, server, backup.Cloud{Namespace: cr.Namespace, Name: cr.Name, ID: id}, dial(c, cr.Namespace))
	if err != nil {
		return err
	}
	_, err = mysql.Probe(ctx, cfg)
	return databaseFinding(err)
}

func databaseFinding(err error) error {
	e, is := errors.AsType[*mysql.Error](err)
	if !is || e.Class == mysql.Canceled { // by a signal, not by the server
		return err
	}
	if e.Class == mysql.Foreign {
		return finding.Errorf("OCA-7403", "A database on the server belongs to another cloud, or has no owner",
			"use another database server, or remove or rename the databases that the message names", "%w", err)
	}
	remedy := cmp.Or(e.Remedy(), "check the log of the database server, then run the command again")
	return finding.Errorf("OCA-7401", "The database server did not complete a request", remedy, "%w", err)
}
