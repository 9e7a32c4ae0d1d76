// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// ParseDSN parses "mysql+pymysql://USER:PASSWORD@HOST:PORT/DB?args" as the services do. They split everything before the last '@' at ':' and '/', so
// a password with one of these breaks the DSN, while one with '@' does not.
func ParseDSN(dsn string) (*mysql.Config, error) {
	rest, found := strings.CutPrefix(dsn, "mysql+pymysql://")
	if !found {
		return nil, fmt.Errorf("sql_connection does not start with mysql+pymysql://")
	}
	at := strings.LastIndex(rest, "@")
	if at < 0 {
		return nil, fmt.Errorf("sql_connection names no user")
	}
	account := strings.FieldsFunc(rest[:at], func(r rune) bool { return r == ':' || r == '/' })
	if len(account) != 2 {
		return nil, fmt.Errorf("sql_connection cannot be split: a password must hold neither ':' nor '/'")
	}
	address, tail, found := strings.Cut(rest[at+1:], "/")
	if !found {
		return nil, fmt.Errorf("sql_connection names no database")
	}
	name, arguments, _ := strings.Cut(tail, "?")
	if name == "" {
		return nil, fmt.Errorf("sql_connection names no database")
	}
	if _, err := url.ParseQuery(arguments); err != nil {
		return nil, fmt.Errorf("reading arguments of sql_connection: %w", err)
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "3306")
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr, c.DBName = account[0], account[1], "tcp", address, name
	c.ParseTime, c.InterpolateParams, c.Timeout = true, true, 5*time.Second
	if err := c.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, fmt.Errorf("reading sql_connection: %w", err)
	}
	return c, nil
}
