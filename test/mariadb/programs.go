// SPDX-License-Identifier: Apache-2.0

package mariadb

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// MySQLEnv names a directory with the root file system of a Debian release that packages MySQL, see scripts/mysql.sh.
const MySQLEnv = "OCADM_TEST_MYSQL"

// program is a command and the arguments that always precede others.
type program []string

func (p program) run(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, p[0], slices.Concat(p[1:], args)...) //nolint:gosec // a program of the distribution
}

type programs struct {
	mysql                   bool
	daemon, install, client program
}

func findPrograms() (programs, error) {
	if root := os.Getenv(MySQLEnv); root != "" {
		return mysqlPrograms(root)
	}
	p := programs{
		daemon:  find("mariadbd", "mysqld"),
		install: find("mariadb-install-db", "mysql_install_db"),
		client:  find("mariadb", "mysql"),
	}
	if p.daemon == nil || p.install == nil || p.client == nil {
		return p, ErrNotInstalled
	}
	p.install = append(p.install, "--auth-root-authentication-method=normal", "--skip-test-db")
	return p, nil
}

// mysqlPrograms runs the programs below root with the dynamic linker and the libraries that lie there: they are newer than this machine's.
func mysqlPrograms(root string) (programs, error) {
	linkers, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu/ld-linux-*"))
	if err != nil || len(linkers) == 0 {
		return programs{}, ErrNotInstalled
	}
	linked := func(name string, args ...string) program {
		return append(program{linkers[0], "--library-path", filepath.Dir(linkers[0]), filepath.Join(root, name), "--no-defaults"}, args...)
	}
	daemon := linked("usr/sbin/mysqld", "--basedir="+filepath.Join(root, "usr"), "--mysqlx=OFF", "--secure-file-priv=NULL", "--log-error-verbosity=3")
	return programs{
		mysql: true, daemon: daemon, install: append(slices.Clone(daemon), "--initialize-insecure"),
		client: linked("usr/bin/mysql"),
	}, nil
}

// find also looks in the sbin directories, which PATH may lack.
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

// Paths are the programs of the server with the arguments that always come first.
type Paths struct {
	MySQL           bool
	Daemon, Install []string
}

// Programs finds them, for tests that start servers in their own way.
func Programs() (Paths, error) {
	p, err := findPrograms()
	return Paths{MySQL: p.mysql, Daemon: p.daemon, Install: p.install}, err
}
