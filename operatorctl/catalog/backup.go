// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

// backup dumps the databases of the cloud every night. It is ours, not the cloud's.
func backup() component.Component {
	return component.Component{
		Name: "backup", SpecKey: "backup", Summary: "dumps the databases of the cloud every night",
		OffByDefault: true, NeedsAdminPassword: true,
		Image: component.Image{Reference: "mariadb"},
		Workload: component.Workload{
			Kind: component.CronJob, Schedule: "0 2 * * *", NoCerts: true, NodeRole: "any", CPU: "100m", Memory: "64Mi",
			Command: []string{"sh", "/etc/backup/backup.sh"},
			Env:     backupEnv,
			Mounts:  []component.Mount{{Name: "dumps", Path: "/backup", Storage: true}},
		},
		Config:  &component.Config{Plain: "backup.sh.tmpl", File: "backup.sh", Dir: "/etc/backup", Files: backupFiles},
		Storage: &component.Storage{Size: "20Gi", Backups: true},
	}
}

func backupEnv(in component.Inputs) []corev1.EnvVar {
	keep := int32(7)
	if k := in.Cluster.Spec.Backup.Keep; k != nil {
		keep = *k
	}
	return []corev1.EnvVar{{Name: "KEEP", Value: fmt.Sprint(keep)}}
}

func backupFiles(in component.Inputs) map[string]string {
	files := map[string]string{"my.cnf": fmt.Sprintf("[client]\nhost=%s\nport=%d\nuser=%s\npassword=%q\n",
		in.Cluster.MysqlHost, in.Cluster.MysqlPort, in.Cluster.MysqlUser, in.Credentials[component.AdminPassword])}
	switch t := in.Cluster.Spec.MySQL.TLS; t.Mode {
	case "", "disabled", "preferred": // MariaDB's client cannot try without
	default:
		files["my.cnf"] += "ssl\n"
		if t.CA != "" {
			files["ca.pem"] = t.CA
			files["my.cnf"] += "ssl-ca=/etc/backup/ca.pem\n"
		}
		if t.Mode == "verify-identity" {
			files["my.cnf"] += "ssl-verify-server-cert\n"
		}
	}
	return files
}
