// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"yunion.io/x/ocadm/internal/executor/apis"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/templates"
)

// basePath precedes the server's own PATH: programs that the node's administrator installed take precedence.
const basePath = "/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin"

// ownVariables is the prefix of ocadm's settings, including passwords.
const ownVariables = "OCADM_"

// program returns the process to start: in its own session, with the server's environment if none is given.
func program(in *apis.Command) (*exec.Cmd, error) {
	name := string(in.GetPath())
	search := searchPath(os.Getenv("PATH"))
	file, err := lookPath(name, search)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: file, Args: append([]string{name}, texts(in.GetArgs())...), Dir: string(in.GetDir()), Env: texts(in.GetEnv())}
	if len(cmd.Env) == 0 {
		cmd.Env = environment(os.Environ(), search)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, nil
}

func texts(in [][]byte) []string {
	return lists.Map(in, func(b []byte) string { return string(b) })
}

func searchPath(own string) string {
	if own == "" {
		return basePath
	}
	return basePath + ":" + own
}

// environment returns the server's environment for a program, with the PATH in which programs are looked up.
func environment(own []string, search string) []string {
	kept := lists.Filter(own, func(v string) bool { return !strings.HasPrefix(v, "PATH=") && !strings.HasPrefix(v, ownVariables) })
	return append(kept, "PATH="+search)
}

// lookPath finds a program by name. A name with a slash is already a path. The error message is that of os/exec.
func lookPath(name, search string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range filepath.SplitList(search) {
		if name == "" || !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return file, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// UnitName is the name of upstream's own executor, which the agents' documentation and users' scripts use.
const UnitName = "yunion-executor.service"

// Unit describes the systemd unit of the executor.
type Unit struct {
	// Program is the absolute path of ocadm on the node.
	Program string
	// Socket is DefaultSocket, unless the services are configured with another.
	Socket string
}

func (u Unit) Render() ([]byte, error) {
	u.Socket = cmp.Or(u.Socket, DefaultSocket)
	return templates.Render("units/"+UnitName, u)
}
