// SPDX-License-Identifier: Apache-2.0

package mariadb

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// MySQLEnv names a directory with the root file system of a Debian release that packages MySQL; see scripts/mysql.sh.
const MySQLEnv = "OCADM_TEST_MYSQL"

// program is a command and its leading arguments.
type program []string

func (p program) run(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, p[0], slices.Concat(p[1:], args)...) //nolint:gosec // a program of the distribution
}

// Programs holds the programs of a server.
type Programs struct {
	// MySQL is true for Oracle's MySQL, false for MariaDB.
	MySQL                   bool
	Daemon, Install, client program
}

// FindPrograms returns the installed programs.
func FindPrograms() (Programs, error) {
	if root := os.Getenv(MySQLEnv); root != "" {
		return mysqlPrograms(root)
	}
	p := Programs{
		Daemon:  find("mariadbd", "mysqld"),
		Install: find("mariadb-install-db", "mysql_install_db"),
		client:  find("mariadb", "mysql"),
	}
	if p.Daemon == nil || p.Install == nil || p.client == nil {
		return p, ErrNotInstalled
	}
	p.Install = append(p.Install, "--auth-root-authentication-method=normal", "--skip-test-db")
	return p, nil
}

// mysqlPrograms returns the programs below root, which run with the dynamic linker and libraries there: they are newer than this machine's.
func mysqlPrograms(root string) (Programs, error) {
	linkers, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu/ld-linux-*"))
	if err != nil || len(linkers) == 0 {
		return Programs{}, ErrNotInstalled
	}
	linked := func(name string, args ...string) program {
		return append(program{linkers[0], "--library-path", filepath.Dir(linkers[0]), filepath.Join(root, name), "--no-defaults"}, args...)
	}
	daemon := linked("usr/sbin/mysqld", "--basedir="+filepath.Join(root, "usr"), "--mysqlx=OFF", "--secure-file-priv=NULL", "--log-error-verbosity=3")
	return Programs{
		MySQL: true, Daemon: daemon, Install: append(slices.Clone(daemon), "--initialize-insecure"),
		client: linked("usr/bin/mysql"),
	}, nil
}

// find also searches the sbin directories, which PATH may lack.
func find(names ...string) program {
	for _, n := range names {
		for _, d := range []string{"", "/usr/sbin", "/usr/local/sbin", "/sbin"} {
			if p, err := exec.LookPath(filepath.Join(d, n)); err == nil {
				return program{p, "--no-defaults"}
			}
		}
	}
	return nil
}
