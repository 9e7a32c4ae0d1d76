// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
)

// Programs holds the commands of mariadbd and of the program that creates a data directory. Output receives their output.
type Programs struct {
	Server, Install []string
	Output          io.Writer
}

// local is the server of an agent: its process, the connection to it, and its observed state.
type local struct {
	id       int
	files    Files
	programs Programs
	config   mysql.Config // over the server's socket
	certs    *certificates
	log      *slog.Logger

	process  *process
	db       *mysql.Admin
	mode     Mode
	since    time.Time
	health   health
	progress progress
}

// health records when a server answered, and when a replica acknowledged its commits.
type health struct {
	answered     time.Time // when it last answered or started
	everAnswered bool      // whether it has answered since its start
	acknowledged time.Time // when a replica last acknowledged, or nothing waited
	acks         int64
	semiSyncFrom string
}

// process is the running server. It never outlives the agent: the agent is the first process of the container.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// neverTimeout is 49 days in milliseconds: the server itself never stops waiting for an acknowledgement. The agent decides.
const neverTimeout = 1<<32 - 1

func newLocal(c Config, certs *certificates) *local {
	return &local{
		id: ID(c.Me), files: c.Files, programs: c.Programs, certs: certs, log: c.Log, mode: Stopped, since: time.Now(),
		config: mysql.Config{
			Host: "localhost", User: c.User, Password: c.Password, TLS: mysql.TLSDisabled, Timeout: askTimeout,
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", c.Files.Socket)
			},
		},
	}
}

// arguments returns the arguments of the server in a mode. With semiSync, commits of a primary wait for the replica from the first one on.
func (l *local) arguments(mode Mode, semiSync bool) []string {
	args := append([]string{}, l.programs.Server[1:]...)
	onOff := map[bool]string{true: "1", false: "0"}
	args = append(args, "--datadir="+l.files.data(), "--socket="+l.files.Socket, "--server-id="+strconv.Itoa(l.id), "--gtid-strict-mode=1",
		"--relay-log=relay", "--skip-slave-start=1", "--slave-net-timeout=5", "--ssl-ca="+l.files.CA, "--ssl-cert="+l.files.Certificate, "--ssl-key="+l.files.Key)
	if mode == Copying {
		return append(args, "--skip-log-bin", "--skip-networking=1", "--innodb-flush-log-at-trx-commit=0")
	}
	args = append(args, "--log-bin=binlog", "--log-slave-updates=1", "--binlog-format=ROW", "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1",
		"--expire-logs-days=3", "--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout="+strconv.Itoa(neverTimeout))
	if mode == Primary {
		return append(args, "--read-only=0", "--rpl-semi-sync-master-enabled="+onOff[semiSync])
	}
	// The role makes a crashed primary drop the commits that were not acknowledged.
	return append(args, "--read-only=1", "--skip-networking=1", "--init-rpl-role=SLAVE", "--rpl-semi-sync-slave-enabled=1")
}

// start starts the server. It does not wait for an answer.
func (l *local) start(mode Mode, semiSync bool) error {
	if err := l.certs.ensure(); err != nil {
		return err
	}
	//nolint:gosec,noctx // the program is from the image; it outlives the look that starts it, and the agent stops it
	cmd := exec.Command(l.programs.Server[0], l.arguments(mode, semiSync)...)
	cmd.Stdout, cmd.Stderr = l.programs.Output, l.programs.Output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return fmt.Errorf("starting the database server: %w", err)
	}
	l.process = p
	l.enter(mode)
	return nil
}

// stop stops the server. kill is for a primary: an orderly shutdown would first report commits as done that no replica has received.
func (l *local) stop(kill bool) {
	p := l.process
	l.close()
	if p != nil {
		signal, patience := syscall.SIGTERM, shutdownTime
		if kill {
			signal, patience = syscall.SIGKILL, 0
		}
		_ = p.cmd.Process.Signal(signal) // it may have exited already
		select {
		case <-p.exited:
		case <-time.After(patience):
			_ = p.cmd.Process.Kill()
			<-p.exited
		}
	}
	l.process = nil
	l.enter(Stopped)
}

// shutdownTime limits how long an orderly shutdown may take.
const shutdownTime = 30 * time.Second

// enter enters a mode. It keeps the count of acknowledgements, because that of the next server differs, and the target until the replica follows again.
func (l *local) enter(mode Mode) {
	now := time.Now()
	if l.mode != mode {
		l.since = now
	}
	l.mode = mode
	l.health = health{answered: now, acknowledged: now, acks: l.health.acks}
	l.progress = progress{target: l.progress.target}
}

// open returns the connection to the server, and keeps it.
func (l *local) open(ctx context.Context) (*mysql.Admin, error) {
	if l.db != nil {
		return l.db, nil
	}
	db, err := mysql.Open(ctx, l.config)
	if err == nil {
		l.db = db
	}
	return db, err
}

func (l *local) close() {
	if l.db != nil {
		_ = l.db.Close()
		l.db = nil
	}
}

// await waits until the server answers.
func (l *local) await(ctx context.Context) (*mysql.Admin, error) {
	for {
		db, err := l.open(ctx)
		if err == nil {
			return db, nil
		}
		var exited <-chan struct{}
		if l.process != nil {
			exited = l.process.exited
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-exited:
			return nil, errors.New("the server ended while it started")
		case <-time.After(50 * time.Millisecond): // a server has no event to wait for
		}
	}
}

// ask reads the replication state of the server, and reports whether the server answers.
func (l *local) ask(ctx context.Context, primary remote) (r mysql.Replication, answers bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	db, err := l.open(ctx)
	if err == nil {
		r, err = db.Replication(ctx)
	}
	if err != nil {
		return r, false
	}
	h := &l.health
	h.answered, h.everAnswered = time.Now(), true
	if !r.SemiSync || r.Clients > 0 && (r.Waiting == 0 || r.Acknowledged != h.acks) {
		h.acknowledged = time.Now()
	}
	h.acks = r.Acknowledged
	if p := &l.progress; l.mode == Replica && p.following && r.Connected {
		p.catchUp(ctx, r, primary)
		if err := p.lookForOwners(ctx, db, r, primary); err != nil {
			l.log.Debug("the owners cannot be compared", "error", err)
		}
	}
	return r, true
}

// setSemiSync turns semi-synchronous replication on or off.
func (l *local) setSemiSync(ctx context.Context, on bool) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	db, err := l.open(ctx)
	if err != nil {
		return err
	}
	if err := db.SetSemiSync(ctx, on); err != nil {
		return err
	}
	l.health.semiSyncFrom, l.health.acknowledged = "", time.Now()
	if on {
		r, err := db.Replication(ctx)
		if err != nil {
			return err
		}
		l.health.semiSyncFrom = cmp.Or(r.Binlog, noEvent)
	}
	return nil
}

// noEvent stands for the last event of an empty log.
const noEvent = "0-0-0"

// resume resumes a replica whose takeover failed. It has its own timeout, because that of the takeover may have expired.
func (l *local) resume(ctx context.Context, db *mysql.Admin) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	err := db.StartReceiving(ctx)
	l.progress.following = err == nil
	return err
}

// renewCertificate renews the certificate in time, without a restart.
func (l *local) renewCertificate(ctx context.Context) error {
	if l.mode != Primary && l.mode != Replica || time.Since(l.certs.checked) < time.Hour {
		return nil
	}
	l.certs.checked = time.Now()
	if err := l.certs.ensure(); err != nil {
		return err
	}
	db, err := l.open(ctx)
	if err != nil {
		return nil //nolint:nilerr // the decision covers a server that does not answer
	}
	return db.ReloadCertificates(ctx)
}

// remote is the other server. It answers only as the primary.
type remote struct {
	source         mysql.Source
	user, password string
	certs          *certificates
}

func (r remote) config() mysql.Config {
	return mysql.Config{
		Host: r.source.Host, Port: r.source.Port, User: r.user, Password: r.password, TLS: mysql.TLSVerifyIdentity, CA: string(r.certs.authority.CertPEM()),
		Timeout: askTimeout,
	}
}

// ask reads the replication state of the other server.
func (r remote) ask(ctx context.Context) (mysql.Replication, error) {
	db, err := mysql.Open(ctx, r.config())
	if err != nil {
		return mysql.Replication{}, err
	}
	defer db.Close()
	return db.Replication(ctx)
}
