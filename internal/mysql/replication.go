// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// Replication is what a MariaDB server says of replication, as a source and as a replica.
type Replication struct {
	// Binlog is the last event in its binary log, such as 0-1-42; "" if there is none. State has the last event of each server that wrote.
	Binlog, State string
	// SemiSync is true while a commit waits until a replica has received it. Clients is how many such replicas are connected, Waiting how many
	// commits wait, and Acknowledged how many were received so far.
	SemiSync                       bool
	Clients, Waiting, Acknowledged int64

	// Source is the host that it replicates from; "" if it is no replica.
	Source string
	// Connected is true while it is connected to its source, Applying while it applies what it receives.
	Connected, Applying bool
	// Received and Applied are the last events that were received and applied.
	Received, Applied string
	// Error is why it does not replicate. Code is the server's number of it.
	Error string
	Code  int
}

// Sequence is the number of an event in its domain: 42 of 0-1-42, and 0 of "". With gtid_strict_mode and one domain it only grows.
func Sequence(gtid string) int64 {
	n, err := strconv.ParseInt(gtid[strings.LastIndex(gtid, "-")+1:], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Contains reports whether a server whose log has the state has written or received an event.
func Contains(state, gtid string) bool {
	if gtid == "" {
		return true
	}
	domainAndServer := gtid[:strings.LastIndex(gtid, "-")+1]
	for g := range strings.SplitSeq(state, ",") {
		if rest, ok := strings.CutPrefix(g, domainAndServer); ok && !strings.Contains(rest, "-") && Sequence(g) >= Sequence(gtid) {
			return true
		}
	}
	return false
}

// Replication asks a MariaDB server.
func (a *Admin) Replication(ctx context.Context) (Replication, error) {
	const op = "reading the state of replication"
	var r Replication
	err := query(ctx, a.cfg, a.db, "SELECT @@gtid_binlog_pos, @@gtid_binlog_state, @@gtid_slave_pos, @@rpl_semi_sync_master_enabled", nil, func(rows *sql.Rows) error {
		return rows.Scan(&r.Binlog, &r.State, &r.Applied, &r.SemiSync)
	})
	if err != nil {
		return r, a.fail(op, err, NoCreate)
	}
	counters := map[string]*int64{"clients": &r.Clients, "wait_sessions": &r.Waiting, "yes_tx": &r.Acknowledged}
	err = query(ctx, a.cfg, a.db, "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_master_%'", nil, func(rows *sql.Rows) error {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		if to := counters[strings.TrimPrefix(strings.ToLower(name), "rpl_semi_sync_master_")]; to != nil {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			*to = n
		}
		return nil
	})
	if err != nil {
		return r, a.fail(op, err, NoCreate)
	}
	if err := query(ctx, a.cfg, a.db, "SHOW SLAVE STATUS", nil, r.asReplica); err != nil {
		return r, a.fail(op, err, NoCreate)
	}
	return r, nil
}

// asReplica reads the row of SHOW SLAVE STATUS, whose columns depend on the version.
func (r *Replication) asReplica(rows *sql.Rows) error {
	col, err := Record(rows)
	if err != nil {
		return err
	}
	r.Source, r.Received = col["master_host"], col["gtid_io_pos"]
	r.Connected, r.Applying = col["slave_io_running"] == "Yes", col["slave_sql_running"] == "Yes"
	for _, thread := range []string{"sql", "io"} {
		if n, _ := strconv.Atoi(col["last_"+thread+"_errno"]); n != 0 { // the server writes a number
			r.Error, r.Code = oneLine(col["last_"+thread+"_error"]), n
			break
		}
	}
	return nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Source is where a replica gets its changes, and how it logs in there. Connections are encrypted, and the name in the certificate is verified.
type Source struct {
	Host           string
	Port           int
	User, Password string
	// CAFile holds the authorities that are trusted, on the machine of the replica.
	CAFile string
}

// Follow makes the server a replica of another one, from the event after at, or after what it has applied if at is "".
func (a *Admin) Follow(ctx context.Context, s Source, at string) error {
	statements := []string{"STOP SLAVE"}
	if at != "" {
		statements = append(statements, "SET GLOBAL gtid_slave_pos = "+QuoteString(at))
	}
	statements = append(statements, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = %s, MASTER_PORT = %d, MASTER_USER = %s, MASTER_PASSWORD = %s, MASTER_SSL = 1, "+
		"MASTER_SSL_CA = %s, MASTER_SSL_VERIFY_SERVER_CERT = 1, MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_HEARTBEAT_PERIOD = 1",
		QuoteString(s.Host), s.Port, QuoteString(s.User), QuoteString(s.Password), QuoteString(s.CAFile)), "START SLAVE")
	return a.each(ctx, fmt.Sprintf("replicating from %s", s.Host), statements, s.Password)
}

// Begin makes the log of a server that was filled by a copy begin after an event.
func (a *Admin) Begin(ctx context.Context, at string) error {
	statements := []string{"STOP SLAVE", "RESET SLAVE ALL", "RESET MASTER"}
	if at != "" {
		statements = append(statements, "SET GLOBAL gtid_binlog_state = "+QuoteString(at))
	}
	return a.each(ctx, "beginning the binary log", append(statements, "SET GLOBAL gtid_slave_pos = "+QuoteString(at)))
}

// StopReceiving ends the connection of a replica to its source: no commit there is acknowledged any more.
func (a *Admin) StopReceiving(ctx context.Context) error {
	return a.each(ctx, "ending the connection to the source", []string{"STOP SLAVE IO_THREAD"})
}

// StartReceiving continues a replica.
func (a *Admin) StartReceiving(ctx context.Context) error {
	return a.each(ctx, "continuing to replicate", []string{"START SLAVE"})
}

// Unfollow makes a server that is no replica, and forgets where it replicated from.
func (a *Admin) Unfollow(ctx context.Context) error {
	return a.each(ctx, "ending replication", []string{"STOP SLAVE", "RESET SLAVE ALL"})
}

// SetSemiSync makes commits wait for a replica, or no longer. Commits that wait are released when it is switched off.
func (a *Admin) SetSemiSync(ctx context.Context, on bool) error {
	return a.each(ctx, "switching semi-synchronous replication", []string{"SET GLOBAL rpl_semi_sync_master_enabled = " + map[bool]string{true: "ON", false: "OFF"}[on]})
}

// ReloadCertificates makes the server read its certificate again. LOCAL keeps it out of the binary log.
func (a *Admin) ReloadCertificates(ctx context.Context) error {
	return a.each(ctx, "reading the certificate again", []string{"FLUSH LOCAL SSL"})
}

// MakeDatabases creates empty databases.
func (a *Admin) MakeDatabases(ctx context.Context, names []string) error {
	for _, n := range names {
		quoted, err := QuoteIdent(n)
		if err != nil {
			return err
		}
		if err := a.each(ctx, fmt.Sprintf("creating database %q", n), []string{"CREATE DATABASE IF NOT EXISTS " + quoted}); err != nil {
			return err
		}
	}
	return nil
}

// AccountStatements returns the statements that make all accounts but the server's own and root, with their privileges. They hold hashes of passwords.
func (a *Admin) AccountStatements(ctx context.Context) ([]string, error) {
	const op = "reading the accounts"
	accounts, err := a.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, u := range accounts {
		if u.User == "" || u.User == "root" || u.User == "mysql" || u.User == "mariadb.sys" {
			continue
		}
		create, err := strings1(ctx, a.cfg, a.db, "SHOW CREATE USER "+u.String())
		if err != nil {
			return nil, a.fail(op, err, NoCreate)
		}
		grants, err := strings1(ctx, a.cfg, a.db, "SHOW GRANTS FOR "+u.String())
		if err != nil {
			return nil, a.fail(op, err, NoCreate)
		}
		for _, c := range create {
			out = append(out, strings.Replace(c, "CREATE USER ", "CREATE OR REPLACE USER ", 1))
		}
		out = append(out, grants...)
	}
	return out, nil
}

// MakeAccounts runs what AccountStatements returned.
func (a *Admin) MakeAccounts(ctx context.Context, statements []string) error {
	return a.each(ctx, "making the accounts", statements, statements...)
}

func (a *Admin) each(ctx context.Context, op string, statements []string, secrets ...string) error {
	for _, s := range statements {
		if err := exec(ctx, a.cfg, a.db, s); err != nil {
			return a.fail(op, err, NoCreate, secrets...)
		}
	}
	return nil
}
