// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// Replication is the replication state of a MariaDB server, as a source and as a replica.
type Replication struct {
	// Binlog is the last event in its binary log, such as 0-1-42; "" if there is none. State has the last event of each server that wrote.
	Binlog, State string
	// SemiSync is true if a commit waits until a replica has received it. Clients is the number of connected replicas that acknowledge, Waiting the
	// number of waiting commits, and Acknowledged how many commits were acknowledged so far.
	SemiSync                       bool
	Clients, Waiting, Acknowledged int64

	// Connected is true while it is connected to its source, Applying while it applies events.
	Connected, Applying bool
	// Received and Applied are the last events that it has received and applied.
	Received, Applied string
	// Error is the reason why it does not replicate. Code is the server's error number.
	Error string
	Code  int
}

// Sequence returns the sequence number of a GTID: 42 for 0-1-42, and 0 for "". With gtid_strict_mode and one domain it only grows.
func Sequence(gtid string) int64 {
	n, err := strconv.ParseInt(gtid[strings.LastIndex(gtid, "-")+1:], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Contains reports whether a server with this state of the binary log has written or received an event.
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
	r.Received = col["gtid_io_pos"]
	r.Connected, r.Applying = col["slave_io_running"] == "Yes", col["slave_sql_running"] == "Yes"
	for _, thread := range []string{"sql", "io"} {
		if n, _ := strconv.Atoi(col["last_"+thread+"_errno"]); n != 0 { // always a number
			r.Error, r.Code = oneLine(col["last_"+thread+"_error"]), n
			break
		}
	}
	return nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Source is the server that a replica gets its changes from, and the account to log in with. Connections are encrypted, and the name in the certificate is verified.
type Source struct {
	Host           string
	Port           int
	User, Password string
	// CAFile is the file with the trusted CA certificates on the replica's machine.
	CAFile string
}

// Follow makes the server a replica of another one, starting after the event at, or after the last event that it has applied if at is "".
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

// Begin makes the binary log of a server that was filled by a copy start after the event at.
func (a *Admin) Begin(ctx context.Context, at string) error {
	statements := []string{"STOP SLAVE", "RESET SLAVE ALL", "RESET MASTER"}
	if at != "" {
		statements = append(statements, "SET GLOBAL gtid_binlog_state = "+QuoteString(at))
	}
	return a.each(ctx, "resetting the binary log", append(statements, "SET GLOBAL gtid_slave_pos = "+QuoteString(at)))
}

// StopReceiving closes the connection of a replica to its source, so that no more commits there are acknowledged.
func (a *Admin) StopReceiving(ctx context.Context) error {
	return a.each(ctx, "closing the connection to the source", []string{"STOP SLAVE IO_THREAD"})
}

// StartReceiving resumes a replica.
func (a *Admin) StartReceiving(ctx context.Context) error {
	return a.each(ctx, "resuming replication", []string{"START SLAVE"})
}

// Unfollow ends replication, and forgets the source.
func (a *Admin) Unfollow(ctx context.Context) error {
	return a.each(ctx, "stopping replication", []string{"STOP SLAVE", "RESET SLAVE ALL"})
}

// SetSemiSync turns semi-synchronous replication on or off. Turning it off releases the commits that wait.
func (a *Admin) SetSemiSync(ctx context.Context, on bool) error {
	return a.each(ctx, "setting semi-synchronous replication", []string{"SET GLOBAL rpl_semi_sync_master_enabled = " + map[bool]string{true: "ON", false: "OFF"}[on]})
}

// ReloadCertificates makes the server reload its certificate. LOCAL keeps the statement out of the binary log.
func (a *Admin) ReloadCertificates(ctx context.Context) error {
	return a.each(ctx, "reloading the certificate", []string{"FLUSH LOCAL SSL"})
}

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

// AccountStatements returns the statements that create all roles and accounts, except the server's own and root, with their privileges. They contain
// password hashes.
func (a *Admin) AccountStatements(ctx context.Context) ([]string, error) {
	const op = "reading the accounts"
	accounts, err := a.Accounts(ctx)
	if err != nil {
		return nil, err
	}
	var roles, out []string
	for _, u := range accounts {
		if u.Host == "" { // a role, which accounts may have
			name := QuoteString(u.User)
			if u.User == "PUBLIC" { // it always exists, and its name is a keyword
				name = u.User
			} else {
				roles = append(roles, "CREATE OR REPLACE ROLE "+name)
			}
			grants, err := strings1(ctx, a.cfg, a.db, "SHOW GRANTS FOR "+name)
			if err != nil {
				return nil, a.fail(op, err, NoCreate)
			}
			out = append(out, grants...)
			continue
		}
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
	return append(roles, out...), nil
}

// MakeAccounts runs the statements from AccountStatements.
func (a *Admin) MakeAccounts(ctx context.Context, statements []string) error {
	return a.each(ctx, "creating the accounts", statements, statements...)
}

func (a *Admin) each(ctx context.Context, op string, statements []string, secrets ...string) error {
	for _, s := range statements {
		if err := exec(ctx, a.cfg, a.db, s); err != nil {
			return a.fail(op, err, NoCreate, secrets...)
		}
	}
	return nil
}
