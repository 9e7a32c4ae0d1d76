// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
)

// Files are where a server has its things. Dir is the volume.
type Files struct {
	// Dir holds the data directory, and Socket is where the server answers on its machine.
	Dir, Socket string
	// CA, Certificate and Key are written by the agent.
	CA, Certificate, Key string
}

// data is the directory of the databases, complete a file that exists while it is a whole copy, kept what it was before it was copied anew. keeping exists
// in place of complete while data is to become kept.
func (f Files) data() string     { return filepath.Join(f.Dir, "data") }
func (f Files) complete() string { return filepath.Join(f.Dir, "complete") }
func (f Files) kept() string     { return filepath.Join(f.Dir, "data.kept") }
func (f Files) keeping() string  { return filepath.Join(f.Dir, "keeping") }

// memory is the file with the latest record that the server has seen.
func (f Files) memory() string { return filepath.Join(f.Dir, "primary.json") }

// process is the running server. It never outlives the agent: the agent is the first process of the container.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// neverTimeout in milliseconds: the server itself never gives up waiting for an acknowledgement (49 days). The agent decides.
const neverTimeout = 1<<32 - 1

// arguments of the server in a mode. semiSync says whether commits of a primary wait for the replica from the first one on.
func (a *Agent) arguments(mode Mode, semiSync bool) []string {
	args := append([]string{}, a.Server[1:]...)
	onOff := map[bool]string{true: "1", false: "0"}
	args = append(args, "--datadir="+a.Files.data(), "--socket="+a.Files.Socket, "--server-id="+strconv.Itoa(ID(a.Me)), "--gtid-strict-mode=1",
		"--relay-log=relay", "--skip-slave-start=1", "--slave-net-timeout=5", "--ssl-ca="+a.Files.CA, "--ssl-cert="+a.Files.Certificate, "--ssl-key="+a.Files.Key)
	if mode == Copying {
		return append(args, "--skip-log-bin", "--skip-networking=1", "--innodb-flush-log-at-trx-commit=0")
	}
	args = append(args, "--log-bin=binlog", "--log-slave-updates=1", "--binlog-format=ROW", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1",
		"--expire-logs-days=3", "--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout="+strconv.Itoa(neverTimeout))
	if mode == Primary {
		return append(args, "--read-only=0", "--rpl-semi-sync-master-enabled="+onOff[semiSync])
	}
	// The role makes a crashed primary drop the commits that it had not acknowledged.
	return append(args, "--read-only=1", "--skip-networking=1", "--init-rpl-role=SLAVE", "--rpl-semi-sync-slave-enabled=1")
}

// start starts the server. It does not wait until it answers.
func (a *Agent) start(mode Mode, semiSync bool) error {
	if err := a.certificate(); err != nil {
		return err
	}
	//nolint:gosec,noctx // the program is the image's; it outlives the look that starts it, and the agent ends it
	cmd := exec.Command(a.Server[0], a.arguments(mode, semiSync)...)
	cmd.Stdout, cmd.Stderr = a.Output, a.Output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return fmt.Errorf("starting the database server: %w", err)
	}
	a.process = p
	a.enter(mode)
	return nil
}

// stop ends the server. A primary is killed: one that ends in an orderly way would first report commits as done that no replica has received.
func (a *Agent) stop(kill bool) {
	p := a.process
	a.closeLocal()
	if p != nil {
		signal, patience := syscall.SIGTERM, shutdownTime
		if kill {
			signal, patience = syscall.SIGKILL, 0
		}
		_ = p.cmd.Process.Signal(signal) // it may have ended
		select {
		case <-p.exited:
		case <-time.After(patience):
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
	}
	a.process = nil
	a.enter(Stopped)
}

// shutdownTime is how long a replica may take to end.
const shutdownTime = 30 * time.Second

func (a *Agent) enter(mode Mode) {
	if a.mode != mode {
		a.inMode = time.Now()
	}
	a.mode, a.caughtUp, a.following, a.diverged, a.semiSyncFrom = mode, false, false, false, ""
	a.ownersAt, a.ownersSeen, a.lacking = "", false, ""
	a.answered, a.everAnswered, a.acknowledged = time.Now(), false, time.Now()
}

// socketConfig is the server of this agent, over its socket.
func (a *Agent) socketConfig() mysql.Config {
	return mysql.Config{
		Host: "localhost", User: a.User, Password: a.Password, TLS: mysql.TLSDisabled, Timeout: askTimeout,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.Files.Socket)
		},
	}
}

// sourceConfig is the other server. Only a primary answers.
func (a *Agent) sourceConfig() mysql.Config {
	host, port := a.Address(Peer(a.Me))
	return mysql.Config{Host: host, Port: port, User: a.User, Password: a.Password, TLS: mysql.TLSVerifyIdentity, CA: string(a.Authority.CertPEM()), Timeout: askTimeout}
}

// server is the connection to the server of this agent, which is kept.
func (a *Agent) server(ctx context.Context) (*mysql.Admin, error) {
	if a.local != nil {
		return a.local, nil
	}
	db, err := mysql.Open(ctx, a.socketConfig())
	if err == nil {
		a.local = db
	}
	return db, err
}

func (a *Agent) closeLocal() {
	if a.local != nil {
		_ = a.local.Close()
		a.local = nil
	}
}

// complete reports whether the volume holds a whole copy.
func (a *Agent) complete() bool {
	_, err := os.Stat(a.Files.complete())
	return err == nil
}

// confirm marks the volume as a whole copy.
func (a *Agent) confirm() error {
	if err := os.WriteFile(a.Files.complete(), nil, 0o600); err != nil {
		return fmt.Errorf("marking the copy as complete: %w", err)
	}
	dir, err := os.Open(a.Files.Dir)
	if err != nil {
		return fmt.Errorf("marking the copy as complete: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("marking the copy as complete: %w", err)
	}
	return nil
}

// empty makes a new data directory. What a whole copy held is kept beside it, until the next time.
func (a *Agent) empty(ctx context.Context) error {
	if err := a.keep(); err != nil {
		return fmt.Errorf("keeping what the server had: %w", err)
	}
	if err := os.RemoveAll(a.Files.data()); err != nil {
		return fmt.Errorf("emptying the data directory: %w", err)
	}
	//nolint:gosec // the program is the image's
	cmd := exec.CommandContext(ctx, a.Install[0], append(append([]string{}, a.Install[1:]...), "--datadir="+a.Files.data())...)
	if out, err := cmd.CombinedOutput(); err != nil {
		_, _ = a.Output.Write(out)
		return fmt.Errorf("making a data directory: %w", err)
	}
	return nil
}

// keep puts a whole copy aside. It begins with its mark: the pod makes an empty data directory where there is none, and that must not pass for a copy.
func (a *Agent) keep() error {
	if a.complete() {
		if err := os.RemoveAll(a.Files.kept()); err != nil {
			return err
		}
		if err := os.Rename(a.Files.complete(), a.Files.keeping()); err != nil {
			return err
		}
	}
	if !exists(a.Files.keeping()) {
		return nil
	}
	if !exists(a.Files.kept()) {
		if err := os.Rename(a.Files.data(), a.Files.kept()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Remove(a.Files.keeping())
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
