// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	driverpkg "github.com/go-sql-driver/mysql"
)

const canary = "c4n4ry-s3cr3t"

func TestServerErrors(t *testing.T) {
	cfg := Config{Host: "db.example.org", User: "root", Password: canary}
	for _, tc := range []struct {
		number  uint16
		message string
		denied  Class
		class   Class
		account string
		remedy  string
	}{
		{1045, "Access denied for user 'root'@'10.0.0.9' (using password: YES)", "", AccessDenied, "'root'@'10.0.0.9'",
			"correct the password (--mysql-password-file FILE)\nif the password is right"},
		{1045, "Access denied for user 'root'@'10.0.0.9' (using password: YES)", "", AccessDenied, "'root'@'10.0.0.9'", "ALTER USER 'root'@'%'"},
		{1045, "Access denied for user 'root'@'10.0.0.9' (using password: NO)", "", AccessDenied, "'root'@'10.0.0.9'", "no password was given: give it"},
		{1130, "Host '10.0.0.9' is not allowed to connect to this MariaDB server", "", HostNotAllowed, "'root'@'10.0.0.9'",
			"GRANT ALL PRIVILEGES ON *.* TO 'root'@'10.0.0.9' WITH GRANT OPTION;"},
		{1129, "Host '10.0.0.9' is blocked because of many connection errors", "", HostBlocked, "'root'@'10.0.0.9'", "FLUSH HOSTS;  -- MariaDB"},
		{1044, "Access denied for user 'root'@'%' to database 'glance'", NoCreate, NoCreate, "'root'@'%'", "GRANT ALL PRIVILEGES ON *.* TO 'root'@'%'"},
		{1044, "Access denied for user 'root'@'%' to database 'glance'", NoGrantOption, NoGrantOption, "'root'@'%'", "WITH GRANT OPTION"},
		{1227, "Access denied; you need (at least one of) the CREATE USER privilege(s) for this operation", NoCreateUser, NoCreateUser, "", "WITH GRANT OPTION"},
		{1290, "The MariaDB server is running with the --read-only option so it cannot execute this statement", "", ReadOnly, "", "primary"},
		{1290, "The MySQL server is running with the --skip-grant-tables option", "", Other, "", ""},
		{1114, "The table 'log' is full", "", Full, "", "make room"},
		{1030, "Got error 28 \"No space left on device\" from storage engine InnoDB", "", Full, "", "make room"},
		{1153, "Got a packet bigger than 'max_allowed_packet' bytes", "", TooLong, "", "SET GLOBAL max_allowed_packet"},
		{1819, "Your password does not satisfy the current policy requirements", "", WeakPassword, "", "validate_password"},
		{1047, "WSREP has not yet prepared node for application use", "", Unreachable, "", "wait until the server is ready"},
		{1053, "Server shutdown in progress", "", Unreachable, "", "wait until the server is ready"},
		{1040, "Too many connections", "", TooManyConnections, "", "max_connections"},
		{1862, "Your password has expired", "", PasswordExpired, "", "ALTER USER 'root'@'%'"},
		{4151, "Access denied, this account is locked", "", AccountLocked, "", "ACCOUNT UNLOCK"},
		{1064, "You have an error in your SQL syntax near '" + canary + "'", "", Other, "", ""},
		{1105, "Percona-XtraDB-Cluster prohibits use of DML command on a table (a.t) without an explicit primary key with pxc_strict_mode = ENFORCING or MASTER",
			NoGrantOption, NeedsKeys, "", "use another one"},
		{1105, "something odd about " + canary, "", Other, "", ""},
	} {
		t.Run(fmt.Sprint(tc.number, tc.class), func(t *testing.T) {
			e := cfg.newError("testing", fmt.Errorf("x: %w", &driverpkg.MySQLError{Number: tc.number, Message: tc.message}), tc.denied)
			if e.Class != tc.class || e.Account != tc.account {
				t.Errorf("class %q account %q, want %q %q", e.Class, e.Account, tc.class, tc.account)
			}
			if !strings.Contains(e.Error(), "db.example.org:3306") {
				t.Errorf("no server in %q", e)
			}
			if !strings.Contains(e.Remedy(), tc.remedy) || tc.remedy == "" && e.Remedy() != "" {
				t.Errorf("remedy %q, want %q in it", e.Remedy(), tc.remedy)
			}
			if e.Class == AccessDenied && strings.Contains(e.Remedy(), e.Account) {
				t.Errorf("remedy %q would make a second account", e.Remedy())
			}
			var my *driverpkg.MySQLError
			if errors.As(e, &my) {
				t.Error("the driver's own error can be reached")
			}
			noCanary(t, e)
		})
	}
}

func noCanary(t *testing.T, err error) {
	t.Helper()
	s := fmt.Sprintf("%v %+v %#v", err, err, err)
	if e, ok := errors.AsType[*Error](err); ok {
		s += e.Remedy()
	}
	if strings.Contains(s, canary) {
		t.Errorf("the secret is in %s", s)
	}
}

func TestNetworkErrors(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, tc := range []struct {
		err  error
		want Class
	}{
		{refused, Unreachable},
		{&net.DNSError{Err: "no such host", Name: "db"}, Unreachable},
		{context.DeadlineExceeded, Unreachable},
		{context.Canceled, Canceled},
		{driverpkg.ErrInvalidConn, Unreachable},
		{driverpkg.ErrNoTLS, TLSFailed},
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, TLSFailed},
		{driverpkg.ErrUnknownPlugin, UnsupportedAuth},
		{io.ErrNoProgress, Other},
	} {
		e := Config{Host: "h", User: "u"}.newError("testing", tc.err, "")
		if e.Class != tc.want {
			t.Errorf("%v: %q, want %q", tc.err, e.Class, tc.want)
		}
		if !errors.Is(e, tc.err) {
			t.Errorf("%v is not in the chain", tc.err)
		}
	}
}

func TestServerInfo(t *testing.T) {
	for _, tc := range []struct {
		version string
		flavour Flavour
		major   int
		minor   int
		old     bool
	}{
		{"10.11.19-MariaDB-0+deb12u1", MariaDB, 10, 11, false},
		{"5.5.5-10.3.39-MariaDB-log", MariaDB, 10, 3, false},
		{"10.2.44-MariaDB", MariaDB, 10, 2, true},
		{"11.4.2-MariaDB", MariaDB, 11, 4, false},
		{"8.0.36", MySQL, 8, 0, false},
		{"8.4.0-log", MySQL, 8, 4, false},
		{"5.7.44-log", MySQL, 5, 7, true},
		{"", MySQL, 0, 0, true},
	} {
		i := newServerInfo(tc.version, "root@%", map[string]string{"read_only": "ON", "max_allowed_packet": "500"})
		if i.Flavour != tc.flavour || i.Major != tc.major || i.Minor != tc.minor || i.TooOld() != tc.old {
			t.Errorf("%q: %+v, old %v", tc.version, i, i.TooOld())
		}
		if !i.ReadOnly || i.SuperReadOnly || i.MaxAllowedPacket != 500 || i.Account != "'root'@'%'" {
			t.Errorf("%q: %+v", tc.version, i)
		}
	}
}

func TestMayGrant(t *testing.T) {
	for _, tc := range []struct {
		grants []string
		want   bool
	}{
		{[]string{"GRANT ALL PRIVILEGES ON *.* TO `root`@`%` IDENTIFIED BY PASSWORD '*X' WITH GRANT OPTION"}, true},
		{[]string{"GRANT USAGE ON *.* TO `u`@`%`", "GRANT ALL PRIVILEGES ON `x`.* TO `u`@`%` WITH GRANT OPTION"}, false},
		{[]string{"GRANT SELECT, INSERT ON *.* TO `u`@`%` WITH GRANT OPTION"}, true},
		{[]string{"GRANT USAGE ON *.* TO `u`@`%`", "GRANT `admins`@`%` TO `u`@`%`"}, true},
		{nil, false},
	} {
		if got := mayGrant(tc.grants); got != tc.want {
			t.Errorf("%v: %v", tc.grants, got)
		}
	}
}
