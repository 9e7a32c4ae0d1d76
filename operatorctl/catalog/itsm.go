// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

// itsm is a Java program with a properties file. It has two databases.
func itsm() component.Component {
	return component.Component{
		Name: "itsm", SpecKey: "itsm", StatusKey: "itsm", Summary: "IT service management: requests, approvals, incidents",
		Single:   closedSource,
		Releases: component.Releases{First: "v3.2.0"},
		Editions: eeOnly, Products: withoutAI,
		After:     []string{"keystone"},
		Workload:  component.Workload{Command: []string{}, Env: itsmEnv, Listens: true, Security: usualRights()},
		Config:    &component.Config{NotStored: true, File: "application.properties", Dir: "/deployments/config", Properties: true, Options: itsmOptions, Secrets: itsmSecrets},
		Database:  &component.Database{Name: "itsm", More: []string{"itsm_engine"}},
		Account:   &component.Account{User: "itsm"},
		Service:   apiPort(30595),
		Endpoints: []component.Endpoint{{Service: "itsm", Type: "itsm"}},
	}
}

func itsmEnv(component.Inputs) []corev1.EnvVar {
	return []corev1.EnvVar{{Name: "JAVA_APP_JAR", Value: "itsm.jar"}, {Name: "JAVA_OPTIONS", Value: "-Xms1024M -Xmx1024M"}}
}

func itsmOptions(in component.Inputs) map[string]any {
	self := in.Cluster.Components["itsm"] // an adopted cloud may use other names
	o := map[string]any{
		"server.port":               in.Cluster.NodePort("itsm", ""),
		"camunda.bpm.database.type": "mysql",
		"yunion.rc.auth.url":        in.Cluster.AuthURL(),
		"yunion.rc.auth.domain":     "Default",
		"yunion.rc.auth.project":    "system",
		"yunion.rc.auth.username":   self.Account.User,
		"yunion.rc.auth.region":     in.Cluster.Region,
		"yunion.rc.auth.insecure":   true,
	}
	for source, database := range map[string]string{"primary": self.Database.Name, "secondary": self.Database.More[0]} {
		o["datasource."+source+".jdbc-url"] = in.JDBC(database) + "?useUnicode=true&characterEncoding=utf8&useSSL=false&serverTimezone=UTC"
		o["datasource."+source+".driver-class-name"] = "com.mysql.cj.jdbc.Driver"
		o["datasource."+source+".username"] = self.Database.Account()
	}
	o["datasource.primary.schema"], o["datasource.primary.initialization-mode"] = "classpath:sql/schema.sql", "always"
	return o
}

// itsmSecrets returns the secret options. The key that signs links in mails is derived from the account's password, so that it never changes.
func itsmSecrets(in component.Inputs) map[string]any {
	database := in.Credentials[component.DatabasePassword("itsm")]
	return map[string]any{
		"datasource.primary.password": database, "datasource.secondary.password": database,
		"yunion.rc.auth.password":             in.Credentials[component.AccountPassword("itsm")],
		"yunion.rc.email.link.encryption.key": sealOf(in.Credentials[component.AccountPassword("itsm")]),
	}
}

// sealOf derives 16 characters from a password; they cannot be computed without it.
func sealOf(password string) string {
	sum := sha256.Sum256([]byte("itsm links " + password))
	return hex.EncodeToString(sum[:8])
}
