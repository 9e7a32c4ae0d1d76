// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is "ocadm operator run" as a process of its own.
type process struct {
	cmd     *exec.Cmd
	began   time.Time
	metrics string
	// profiler is where Go's profiler of the operator listens.
	profiler string
	log      string
	exited   chan struct{}
}

// startProcess starts an operator that reaches the services at the front.
func (w *world) startProcess(ctx context.Context, program string, args ...string) (*process, error) {
	kubeconfig := filepath.Join(w.cluster.Dir, "operator.kubeconfig")
	if err := w.cluster.WriteKubeconfig(kubeconfig, operatorUser, "system:serviceaccounts", "system:serviceaccounts:"+operatorNamespace, "system:authenticated"); err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	profiler, err := freeAddress()
	if err != nil {
		return nil, err
	}
	out, err := os.CreateTemp(w.b.dir, "operator-*.log")
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{metrics: "http://" + address + "/metrics", profiler: profiler, log: out.Name(), exited: make(chan struct{}), began: time.Now()}
	p.cmd = exec.CommandContext(ctx, program, append([]string{"operator", "run", "--kubeconfig", kubeconfig, "--namespace", operatorNamespace, "--namespaces", "*",
		"--metrics-address", address, "--health-address", "0", "--profile-address", profiler, "--reach-services-at", frontAddress}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), extraEnv...)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the operator: %w", err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// extraEnv of the operator; none by default. OCADM_BENCH_ENV="A=b C=d" sets it for experiments.
var extraEnv = strings.Fields(os.Getenv("OCADM_BENCH_ENV"))

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// stop asks the operator to end and tells how long that took.
func (p *process) stop() (time.Duration, error) {
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-p.exited:
		return time.Since(began), nil
	case <-time.After(30 * time.Second):
		return 0, errors.Join(errors.New("the operator does not stop"), p.cmd.Process.Kill())
	}
}

// passes reads what the operator tells of itself; busy while it does not answer.
func (p *process) passes() (ended float64, busy bool) {
	response, err := (&http.Client{Timeout: 5 * time.Second}).Get(p.metrics)
	if err != nil {
		return 0, true
	}
	defer response.Body.Close()
	for s := bufio.NewScanner(response.Body); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
		case strings.HasPrefix(name, "controller_runtime_reconcile_total{"):
			ended += n
		case strings.HasPrefix(name, "controller_runtime_active_workers{"):
			busy = busy || n > 0
		}
	}
	return ended, busy
}

// heap writes a profile of what is in memory.
func (p *process) heap(file string) error {
	response, err := http.Get("http://" + p.profiler + "/debug/pprof/heap?gc=1")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// memory is what the operator holds now and held at most, in bytes (VmRSS and VmHWM).
func (p *process) memory() (now, most int64, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			now = n * 1024
		case "VmHWM:":
			most = n * 1024
		}
	}
	return now, most, nil
}

// settled is the memory now: the median of samples over some seconds.
func (p *process) settled(ctx context.Context, over time.Duration) (int64, error) {
	var all times
	for range 20 {
		now, _, err := p.memory()
		if err != nil {
			return 0, err
		}
		all = append(all, time.Duration(now))
		if err := pause(ctx, over/20); err != nil {
			return 0, err
		}
	}
	return int64(all.median()), nil
}

// cpu is the time of processors that the operator has used, in steps of 10 ms (utime and stime of /proc/PID/stat).
func (p *process) cpu() (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	text := string(data)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const utime, stime = 11, 12
	var ticks int64
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func mib(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }
