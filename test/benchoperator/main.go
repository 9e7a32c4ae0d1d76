// SPDX-License-Identifier: Apache-2.0

// Command benchoperator measures what the operator costs, against a real etcd, kube-apiserver and MariaDB on loopback, and prints a
// table with the goal of each figure ("make bench-operator"). Workloads become available at once: no container runs. The services that
// the operator talks to (keystone, region, yunionconf) are the lab's stand-ins, served by this program for each cloud.
//
// Requests to Kubernetes are counted in the audit log, SQL statements and requests to services in the operator's own hooks. Memory and
// CPU are those of "ocadm operator run" as a process of its own. Times are medians with the smallest and the largest; beside them
// stands the ratio to a client without any logic that did the same in the same run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options of a run.
type options struct {
	output string
	only   map[string]bool
	rounds int
	clouds int
	ocadm  string
	// profile is where a CPU profile of passes that find nothing to do goes.
	profile string
	trace   bool
}

func main() {
	o := options{}
	only := flag.String("only", "", "measure only these parts, comma-separated: static, one, drift, process, many, tuned, default")
	flag.StringVar(&o.output, "o", "table", "table or json")
	flag.IntVar(&o.rounds, "rounds", 5, "how often a time is measured")
	flag.IntVar(&o.clouds, "clouds", 50, "how many clouds P10 makes")
	flag.StringVar(&o.ocadm, "ocadm", "", "the ocadm to measure as a process; built when empty")
	flag.StringVar(&o.profile, "profile", "", "part one: write a CPU profile of passes that find nothing to do, and a heap profile FILE.heap; part many: a heap profile")
	flag.BoolVar(&o.trace, "trace", false, "print the requests of each installation")
	flag.Parse()
	if *only != "" {
		o.only = map[string]bool{}
		for part := range strings.SplitSeq(*only, ",") {
			o.only[part] = true
		}
	}
	log.SetOutput(io.Discard) // the stand-ins tell every request
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var code int
	var err error
	if os.Getenv(inside) == "" {
		code, err = apart(ctx)
	} else if err = loopbackUp(); err == nil {
		err = run(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchoperator:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, o options) error {
	if o.output != "table" && o.output != "json" {
		return fmt.Errorf("-o is table or json, not %q", o.output)
	}
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"static", b.static}, {"one", b.one}, {"drift", b.drift}, {"process", b.process}, {"many", b.many},
		{"tuned", b.tuned}, {"default", b.untuned},
	} {
		if o.only != nil && !o.only[part.name] {
			continue
		}
		began := time.Now()
		if err := part.do(ctx); err != nil {
			// What was measured is worth seeing all the same.
			return joinReport(b, fmt.Errorf("measuring %q: %w", part.name, err))
		}
		b.say("%s took %s", part.name, time.Since(began).Round(time.Second))
	}
	return b.report(os.Stdout)
}
