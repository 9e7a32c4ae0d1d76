// SPDX-License-Identifier: Apache-2.0

// Command benchoperator ("make bench-operator") measures the cost of the operator against a real etcd, kube-apiserver and MariaDB on loopback. It
// prints a table of the figures and their goals. Workloads become available immediately: no container runs. Package instant plays the services that
// the operator calls.
//
// Requests to Kubernetes are counted in the audit log; SQL statements and requests to services, in the operator's own hooks. Memory and CPU are those
// of "ocadm operator run" in a separate process. Times are medians, with minimum and maximum, and the ratio to a client without any logic that did
// the same in the same run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

type options struct {
	only   string
	rounds int
	clouds int
	// machines is the total number of machines that join, atOnce the number at the same time.
	machines, atOnce int
	ocadm            string
	// profile is the file for a heap profile.
	profile string
	trace   bool
}

func main() {
	o := options{}
	flag.StringVar(&o.only, "only", "static,one,drift,process,many,tuned,default", "measure only these parts")
	flag.IntVar(&o.rounds, "rounds", 5, "how often a time is measured")
	flag.IntVar(&o.clouds, "clouds", 50, "how many clouds P10 makes")
	flag.IntVar(&o.machines, "machines", 500, "how many machines part machines makes")
	flag.IntVar(&o.atOnce, "machines-at-once", operation.DefaultMachinesAtOnce, "how many of them join at once")
	flag.StringVar(&o.ocadm, "ocadm", "", "the ocadm to measure as a process; built when empty")
	flag.StringVar(&o.profile, "profile", "", "write a heap profile of the operator, of parts many and machines")
	flag.BoolVar(&o.trace, "trace", false, "print the requests of each installation, and those of machines")
	flag.Parse()
	if o.ocadm != "" { // processes of Jobs run in other directories
		if at, err := filepath.Abs(o.ocadm); err == nil {
			o.ocadm = at
		}
	}
	log.SetOutput(io.Discard) // the services log every request
	env.Patience = 20 * time.Minute
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	b := &bench{ctx: ctx, options: o, machine: thisMachine(), began: time.Now()}
	err := errors.Join(b.measure(), env.Close())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchoperator:", err)
		os.Exit(1)
	}
}

// bench is one run of the program. It is the T of its environments: a failure ends the current part of the measurement.
type bench struct {
	ctx     context.Context
	options options
	machine machine
	began   time.Time
	rows    []row
	// serial numbers the namespaces.
	serial   int
	cleanups []func()
	// environ holds additional environment variables for an operator process.
	environ []string
	failed  bool
}

func (b *bench) measure() error {
	defer b.report(os.Stdout) // also after a failure
	parts := map[string]func(){"static": b.static, "one": b.one, "drift": b.drift, "process": b.process, "many": b.many, "tuned": b.tuned, "default": b.untuned,
		"machines": b.machines}
	for name := range strings.SplitSeq(b.options.only, ",") {
		if parts[name] == nil {
			return fmt.Errorf("there is no part %q", name)
		}
		began := time.Now()
		if err := b.part(parts[name]); err != nil {
			return fmt.Errorf("measuring %q: %w", name, err)
		}
		b.Logf("%s took %s", name, time.Since(began).Round(time.Second))
	}
	return nil
}

// failure is the value that Fatal panics with.
type failure string

func (b *bench) part(do func()) (err error) {
	defer func() {
		for ; len(b.cleanups) > 0; b.cleanups = b.cleanups[:len(b.cleanups)-1] {
			b.cleanups[len(b.cleanups)-1]()
		}
	}()
	defer func() {
		switch f := recover().(type) {
		case nil:
		case failure:
			b.failed, err = true, errors.New(string(f))
		default:
			panic(f)
		}
	}()
	do()
	if b.failed {
		err = errors.New("see above")
	}
	return err
}

func (*bench) Helper()                     {}
func (b *bench) Context() context.Context  { return b.ctx }
func (b *bench) Cleanup(f func())          { b.cleanups = append(b.cleanups, f) }
func (b *bench) Failed() bool              { return b.failed }
func (b *bench) Log(a ...any)              { b.Logf("%s", fmt.Sprint(a...)) }
func (b *bench) Error(a ...any)            { b.Errorf("%s", fmt.Sprint(a...)) }
func (b *bench) Fatal(a ...any)            { panic(failure(fmt.Sprint(a...))) }
func (b *bench) Fatalf(f string, a ...any) { panic(failure(fmt.Sprintf(f, a...))) }

func (b *bench) Errorf(f string, a ...any) {
	b.failed = true
	b.Logf(f, a...)
}

func (b *bench) Logf(f string, a ...any) {
	fmt.Fprintf(os.Stderr, "%7.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(f, a...))
}

// no fails the current part if err is not nil.
func (b *bench) no(err error) {
	require.NoError(b, err)
}

func (b *bench) pause(d time.Duration) {
	b.no(wait.Sleep(b.ctx, d))
}
