// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunion.io/x/ocadm/test/child"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/freeport"
)

// process is "ocadm operator run" in a separate process.
type process struct {
	*bench
	child *child.Process
	began time.Time
	// metrics and profiler are the addresses of its endpoints.
	metrics, profiler string
}

func (b *bench) build(to, version string) {
	c := exec.CommandContext(b.ctx, "go", "build", "-ldflags", "-s -w -X yunion.io/x/ocadm/internal/version.Version="+version, "-o", to, "yunion.io/x/ocadm/cmd/ocadm")
	if out, err := c.CombinedOutput(); err != nil {
		b.Fatalf("building ocadm: %v\n%s", err, out)
	}
}

// start starts the operator to measure.
func (b *bench) start(e *env.Env, args ...string) *process {
	program := b.options.ocadm
	if program == "" {
		program = filepath.Join(e.Cluster.Dir, "ocadm")
		b.build(program, "v0.0.0-bench")
	}
	return b.startProgram(e, program, args...)
}

func (b *bench) startProgram(e *env.Env, program string, args ...string) *process {
	kubeconfig := filepath.Join(e.Cluster.Dir, "operator.kubeconfig")
	b.no(e.Cluster.WriteKubeconfig(kubeconfig, env.OperatorUser, "system:serviceaccounts", "system:serviceaccounts:"+env.Namespace, "system:authenticated"))
	p := &process{bench: b, metrics: b.freeAddress(), profiler: b.freeAddress(), began: time.Now()}
	cmd := exec.CommandContext(b.ctx, program, append([]string{"operator", "run", "--kubeconfig", kubeconfig, "--namespace", env.Namespace, "--namespaces", "*",
		"--metrics-address", p.metrics, "--health-address", "0", "--profile-address", p.profiler, "--reach-services-at", servicesAt}, args...)...)
	// OCADM_BENCH_ENV="A=b C=d" is for experiments.
	cmd.Env = slices.Concat(os.Environ(), b.environ, strings.Fields(os.Getenv("OCADM_BENCH_ENV")))
	var err error
	p.child, err = child.Start(cmd, filepath.Join(e.Cluster.Dir, "operator.log"))
	b.no(err)
	b.Cleanup(p.child.Kill)
	return p
}

func (b *bench) freeAddress() string {
	port, err := freeport.Take("127.0.0.1")
	b.no(err)
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// stop terminates the operator and returns the time that took.
func (p *process) stop() time.Duration {
	began := time.Now()
	p.child.Stop(30 * time.Second)
	return time.Since(began)
}

func (p *process) untilQuiet(since float64) {
	env.UntilQuiet(p, since, 8, 50*time.Millisecond, p.passes)
}

var metric = regexp.MustCompile(`(?m)^controller_runtime_(reconcile_total|active_workers)\{.*\} (\S+)$`)

// passes returns the number of finished reconciles and reports whether one is running. It reports an operator that does not answer as busy.
func (p *process) passes() (ended float64, busy bool) {
	text, err := get("http://" + p.metrics + "/metrics")
	for _, m := range metric.FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.ParseFloat(m[2], 64)
		if m[1] == "reconcile_total" {
			ended += n
		} else {
			busy = busy || n > 0
		}
	}
	return ended, busy || err != nil
}

func get(url string) ([]byte, error) {
	response, err := (&http.Client{Timeout: time.Minute}).Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return io.ReadAll(response.Body)
}

// heap writes a heap profile.
func (p *process) heap(file string) {
	data, err := get("http://" + p.profiler + "/debug/pprof/heap?gc=1")
	p.no(err)
	p.no(os.WriteFile(file, data, 0o600))
}

// memory returns the operator's memory, as the median of samples over some time, and its peak, in bytes (VmRSS and VmHWM).
func (p *process) memory(over time.Duration) (now, most int64) {
	var all times
	for range 20 {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.child.Cmd.Process.Pid))
		p.no(err)
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if f[0] != "VmRSS:" && f[0] != "VmHWM:" {
				continue
			}
			n, err := strconv.ParseInt(f[1], 10, 64)
			p.no(err)
			if f[0] == "VmRSS:" {
				all = append(all, time.Duration(n*1024))
			} else {
				most = n * 1024
			}
		}
		p.pause(over / 20)
	}
	return int64(all.median()), most
}

// cpu returns the processor time that the operator has used, in steps of 10 ms (utime and stime of /proc/PID/stat).
func (p *process) cpu() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.child.Cmd.Process.Pid))
	p.no(err)
	text := string(data)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	var ticks int64
	for _, field := range f[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		p.no(err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func mib(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }
