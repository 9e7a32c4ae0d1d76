// SPDX-License-Identifier: Apache-2.0

package why

import (
	"fmt"
	"regexp"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
)

func databaseCauses() []Cause {
	return []Cause{
		{ID: "database-unreachable", Code: "OCA-6001", Layer: Database, On: string(database), Title: "The database server cannot be reached",
			Why: "it does not run, or a firewall or a wrong address prevents the nodes from reaching it",
			Next: "kubectl -n ${namespace} get oc ${cloud} -o jsonpath='{.spec.mysql.host}:{.spec.mysql.port}'; from a node: timeout 3 bash -c '</dev/tcp/HOST/3306' && echo reachable; " +
				"the embedded one: kubectl -n ${namespace} get pods,svc -l app=ocadm-mysql; its HOST is the CLUSTER-IP",
			Says: regexp.MustCompile(`connection refused|i/o timeout|no route to host|network is unreachable|deadline exceeded|(invalid|bad) connection|driver: bad|WSREP has not`),
			Of:   aboutDatabase},
		{ID: "database-password", Code: "OCA-6002", Layer: Database, On: string(database), Title: "The database server refuses the administrator's account",
			Why:  "the password in the Secret does not match the account, or the account is not allowed to log in from here",
			Next: "kubectl -n ${namespace} get oc ${cloud} -o jsonpath='{.spec.mysql}'; correct the Secret, or ALTER USER in the server: docs/troubleshooting.md, Error 1045",
			Says: regexp.MustCompile(`Error 1045|Access denied for user \S+ \(using|OCA-6002`), In: Message, Of: ofEffect("database/")},
		{ID: "database-account", Code: "OCA-6101", Layer: Database, Title: "The database server refuses a service's own account",
			What: "The database server refuses the account of ${component}",
			Why:  "the account's password was changed in the server; most likely another cloud uses the same server",
			Next: "kubectl -n ${namespace} patch secret ${cloud}-credentials --type json -p '[{\"op\":\"remove\",\"path\":\"/data/${component}.database-password\"}]'",
			Says: regexp.MustCompile(`Error 1045|Access denied for user \S+ \(using`), In: LogLine | Message,
			Of: func(f *facts, t Text) bool { return !ofEffect("database/")(f, t) }},
		{ID: "database-host-refused", Code: "OCA-6003", Layer: Database, On: string(database), Title: "The database server does not accept connections from a node",
			Why: "the server has no account for the address of the node", Next: "in the server: SELECT user, host FROM mysql.user; CREATE USER …@'%'",
			Says: regexp.MustCompile(`Error 1130|is not allowed to connect to this (MySQL|MariaDB) server`)},
		{ID: "database-host-blocked", Code: "OCA-6004", Layer: Database, On: string(database), Title: "The database server has blocked a node",
			Why: "too many connections from it failed", Next: "in the server: FLUSH HOSTS", Says: regexp.MustCompile(`Error 1129|is blocked because of many connection errors`)},
		{ID: "database-connections", Code: "OCA-6009", Layer: Database, On: string(database), Title: "The database server has no free connection",
			Why: "max_connections, or max_user_connections of the account, is reached", Next: "in the server: SHOW PROCESSLIST; SET GLOBAL max_connections = 2000",
			Says: regexp.MustCompile(`Error (1040|1203|1226)|Too many connections|max_user_connections`)},
		{ID: "database-read-only", Code: "OCA-6011", Layer: Database, On: string(database), Title: "The database server is read-only",
			Why: "it is a replica, or was set to read-only", Next: "name the primary: ocadm cluster move-database; only if this is the primary, in the server: SET GLOBAL read_only = OFF",
			Says: regexp.MustCompile(`Error (1290|1836).*read.only|running with the --read-only option|super-read-only`)},
		{ID: "database-tls", Code: "OCA-6008", Layer: Database, On: string(database), Title: "The TLS connection to the database server fails",
			Why:  "the server's certificate is not from the expected CA, or it does not offer TLS",
			Next: "kubectl -n ${namespace} get oc ${cloud} -o jsonpath='{.spec.mysql.tls}'",
			Says: regexp.MustCompile(`x509: |TLS requested but server does not support TLS|tls: `),
			In:   Message, Of: ofEffect("database/")},
		{ID: "database-secret", Code: "OCA-6102", Layer: Database, On: string(database), Title: "The password of the database is missing",
			Why:  "spec.mysql.passwordSecretRef names a Secret, or a key of one, that does not exist",
			Next: "kubectl -n ${namespace} get oc ${cloud} -o jsonpath='{.spec.mysql.passwordSecretRef}'; kubectl -n ${namespace} get secrets",
			Says: regexp.MustCompile(`secrets "[^"]+" not found|Secret "[^"]+" has no key`), In: Message, Of: ofEffect("database/")},
		{ID: "database-rights", Code: "OCA-6012", Layer: Database, On: string(database), Title: "The administrator's account lacks privileges",
			Why: "it needs all privileges WITH GRANT OPTION", Next: "in the server: GRANT ALL PRIVILEGES ON *.* TO 'ACCOUNT'@'%' WITH GRANT OPTION",
			Says: regexp.MustCompile(`Error (1044|1142|1227)|command denied to user`), Of: aboutDatabase},
		{ID: "database-owned", Code: "OCA-7403", Layer: Database, Title: "A database belongs to another cloud",
			What: "The database of ${component} belongs to another cloud, or to none",
			Why:  "the server has a database or account of that name that this cloud did not create",
			Next: "read the message of ${component}: it names the annotation that lets the cloud take it over; docs/operate.md, Databases that exist",
			Says: regexp.MustCompile(`(database or account|database|account) "?[^ "]+"? .*(exists|belongs to)`), In: Message, Of: ofEffect("database/")},
		{ID: "database-schema", Code: "OCA-6103", Layer: Container, Title: "The tables of a database do not match the release of its service",
			What: "The tables of ${component} do not match its release",
			Why:  "its init container did not migrate them: it failed, or the image is from an older release",
			Next: "kubectl -n ${namespace} logs ${pod} --all-containers --prefix   # if no init container failed, compare the versions: ocadm cluster history",
			Says: regexp.MustCompile(`database schema not in sync`), In: LogLine | Message},
		{ID: "database-gone", Code: "OCA-6104", Layer: Database, Title: "The database of a service is gone", What: "The database of ${component} does not exist",
			Why:  "it was dropped; the operator's audit recreates it, empty",
			Next: "ocadm cluster backup list; restore it, then ocadm component restart ${component}", Says: regexp.MustCompile(`Error 1049|Unknown database`),
			In: LogLine | Message},
		{ID: "database-table", Code: "OCA-6105", Layer: Database, On: string(database), Title: "A table of the database is damaged",
			Why: "the server or its disk was not stopped cleanly", Next: "in the server: CHECK TABLE, REPAIR TABLE; otherwise restore a backup",
			Says: regexp.MustCompile(`Error (145|1194|1034|126)\b|marked as crashed|is corrupt(ed)?; try to repair|` +
				`Database page corruption|InnoDB:.*(corrupt|log sequence number .* is in the future)`),
			In: LogLine | Message},
		{ID: "database-full", Code: "OCA-6106", Layer: Database, On: string(database), Title: "The database server has no space", Why: "the disk of its data is full",
			Next: "on the machine of the server: df -h; if its binary logs fill the disk, in the server: PURGE BINARY LOGS BEFORE NOW() - INTERVAL 1 DAY",
			Says: regexp.MustCompile(`Error (1021|1114)\b|The table '[^']+' is full|Disk full`), In: LogLine | Message},
		{ID: "database-down", Code: "OCA-6107", Layer: Symptom, Title: "The embedded database does not run", What: "${what}", Why: "its pod is not ready",
			Next: "kubectl -n ${namespace} logs ${pod} --previous; kubectl -n ${namespace} describe pod ${pod}",
			When: func(f *facts) []Hit {
				var out []Hit
				pods := f.databasePods()
				all := f.allUnwell(pods)
				for _, p := range pods {
					if !f.unwell(p) {
						continue
					}
					what := "The embedded database does not run"
					if !all {
						what = "A server of the embedded database does not run: pod " + p.Name
					}
					out = append(out, Hit{On: podSubject(p), Evidence: []string{f.podLine(p)}, Values: map[string]string{"what": what}})
				}
				return out
			}},
		{ID: "database-not-redundant", Code: "OCA-7437", Layer: Database, Warning: true, Title: "The embedded database has lost its redundancy",
			Why:  "the replica does not follow the primary: the loss of the primary's node would lose what is newer than the last backup",
			Next: "ocadm cluster database status", When: ofCondition(database, v1alpha1.ConditionDatabaseRedundant, "NotInSync")},
		{ID: "clickhouse-unreachable", Code: "OCA-6108", Layer: Database, On: "clickhouse", Title: "The ClickHouse server cannot be used",
			Why:  "it does not run, or refuses the account",
			Next: "kubectl -n ${namespace} get oc ${cloud} -o jsonpath='{.spec.clickhouse}'",
			Says: regexp.MustCompile(`connection refused|i/o timeout|no route to host|Authentication failed|deadline exceeded`), In: Message, Of: ofEffect("clickhouse/")},
	}
}

// ofEffect selects messages of the operator about a kind of effect: "database/region: …".
func ofEffect(kind string) func(*facts, Text) bool {
	re := regexp.MustCompile(`(^|[\s;])` + regexp.QuoteMeta(kind))
	return func(_ *facts, t Text) bool { return t.In == Message && re.MatchString(t.Line) }
}

// aboutDatabase selects texts about the database server: messages of the operator, and lines with its address or port.
func aboutDatabase(f *facts, t Text) bool {
	return ofEffect("database/")(f, t) || (t.In == LogLine || t.In == Message) && f.toDatabase(t.Line)
}

func (f *facts) toDatabase(line string) bool {
	host, port := "", "3306"
	if f.Cloud != nil {
		host = f.Cloud.Spec.MySQL.Host
		if p := f.Cloud.Spec.MySQL.Port; p != 0 {
			port = fmt.Sprint(p)
		}
	}
	return strings.Contains(line, ":"+port+":") || host != "" && strings.Contains(line, host+":"+port) || strings.Contains(line, "[mysql]")
}
