// SPDX-License-Identifier: Apache-2.0

package mariadb

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// Execute runs statements as root with the client of the server's package. It returns the client's output: a line for each row, separated by tabs.
func (s *Server) Execute(ctx context.Context, statements ...string) (string, error) {
	p, err := FindPrograms()
	if err != nil {
		return "", err
	}
	cmd := p.client.run(ctx, "--socket="+s.Socket, "--user=root", "--batch", "--skip-column-names")
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+s.RootPassword)
	cmd.Stdin = strings.NewReader(strings.Join(statements, ";\n") + ";\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}

// Wipe removes all databases and accounts except the server's own.
func (s *Server) Wipe(ctx context.Context) error {
	list, err := s.Execute(ctx,
		"SELECT CONCAT('DROP DATABASE `', REPLACE(SCHEMA_NAME, '`', '``'), '`') FROM information_schema.SCHEMATA "+
			"WHERE SCHEMA_NAME NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')",
		"SELECT CONCAT('DROP USER ', QUOTE(User), '@', QUOTE(Host)) FROM mysql.user WHERE User NOT IN ('root', 'mariadb.sys') AND User NOT LIKE 'mysql.%'")
	if err != nil || strings.TrimSpace(list) == "" {
		return err
	}
	_, err = s.Execute(ctx, strings.Split(strings.TrimSpace(list), "\n")...)
	return err
}
