// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/phases/config"
)

func databaseChecks() []Check {
	codes := append([]string{otherDatabase}, lists.Map(databaseCodes(), func(c databaseCode) string { return c.code })...)
	return []Check{{
		Name: "MySQL", Short: "the cloud's database server can be reached and used", Codes: codes, Timeout: 20 * time.Second,
		Applies: func(k Kind, c *config.Config) bool {
			return c.Database.Host != "" && (k == Init || k == Install && c.Database.Password != "") // the password may be stored in the cluster
		},
		run: checkDatabase,
	}}
}

const otherDatabase = "OCA-6099"

type databaseCode struct {
	class mysql.Class
	code  string
	what  string // the %s is host:port
}

func databaseCodes() []databaseCode {
	return []databaseCode{
		{mysql.Unreachable, "OCA-6001", "The database server %s cannot be reached"},
		{mysql.AccessDenied, "OCA-6002", "The database server %s refuses the account"},
		{mysql.HostNotAllowed, "OCA-6003", "The database server %s does not allow connections from this machine"},
		{mysql.HostBlocked, "OCA-6004", "The database server %s has blocked this machine"},
		{mysql.AccountLocked, "OCA-6005", "The account is locked on the database server %s"},
		{mysql.PasswordExpired, "OCA-6006", "The account's password has expired on the database server %s"},
		{mysql.UnsupportedAuth, "OCA-6007", "The database server %s requires an authentication that is not supported"},
		{mysql.TLSFailed, "OCA-6008", "No TLS connection to the database server %s can be established"},
		{mysql.TooManyConnections, "OCA-6009", "The database server %s has no connection left"},
		{mysql.TooOld, "OCA-6010", "The database server %s is too old"},
		{mysql.ReadOnly, "OCA-6011", "The database server %s is read-only"},
		{mysql.NoCreate, "OCA-6012", "The account is not allowed to create databases on %s"},
		{mysql.NoCreateUser, "OCA-6013", "The account is not allowed to create users on %s"},
		{mysql.NoGrantOption, "OCA-6014", "The account is not allowed to grant privileges on %s"},
		{mysql.NoTable, "OCA-6015", "The account is not allowed to create or change tables on %s"},
		{mysql.WeakPassword, "OCA-6016", "The password policy of the database server %s refuses generated passwords"},
		{mysql.NeedsKeys, "OCA-6017", "The database server %s refuses tables without a primary key"},
	}
}

func checkDatabase(ctx context.Context, m *machine) []finding.Finding {
	d := m.h.Config.Database
	cfg := mysql.Config{Host: d.Host, Port: d.Port, User: d.User, Password: d.Password, TLS: mysql.TLSMode(d.TLS), CA: d.CA, Timeout: 5 * time.Second}
	probe := mysql.Probe
	if m.h.Config.Run.DryRun {
		probe = mysql.Inspect // a dry run creates nothing, not even temporarily
	}
	rep, _ := probe(ctx, cfg) // the error joins the problems
	return lists.Map(rep.Problems, func(p *mysql.Error) finding.Finding { return databaseFinding(m.kind, p) })
}

// databaseFinding returns a warning if the problem may not exist on the nodes of a cluster that is installed from elsewhere.
func databaseFinding(kind Kind, p *mysql.Error) finding.Finding {
	f := finding.New(otherDatabase, fmt.Sprintf("The database server %s cannot be used", p.Server), p.Detail, cmp.Or(p.Remedy(), "see the database server's log"))
	if c := lists.First(databaseCodes(), func(c databaseCode) bool { return c.class == p.Class }); c.code != "" {
		f.Code, f.What = c.code, fmt.Sprintf(c.what, p.Server)
	}
	if p.Account != "" {
		f.What += " (" + p.Account + ")"
	}
	if kind == Install && (p.Class == mysql.Unreachable || p.Class == mysql.HostNotAllowed) {
		f.Severity = finding.Warning
		f.Remedy = "nothing to do if the nodes of the cluster can reach the server; otherwise: " + f.Remedy
	}
	f.Evidence, f.Err = []string{p.Error()}, p
	return f
}
