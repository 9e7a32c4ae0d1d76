// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/fakecloud/program"
	"yunion.io/x/ocadm/test/integration/harness"
)

// pod is a pod of a workload. The method run is its life.
type pod struct {
	w        *workload
	uid      types.UID
	template string
	name     string
	object   *corev1.Pod
	cancel   context.CancelFunc
	done     chan struct{}
	// bare means that another program created the object and deletes it. address is where its programs listen.
	bare     bool
	address  string
	began    metav1.Time
	minReady time.Duration

	mu         sync.Mutex
	containers []*container
	// ready is the time since which the pod has been ready, zero if it is not.
	ready     time.Time
	reporting sync.Mutex
	reported  corev1.PodStatus
}

// container is a container and its state. The pod's mutex guards it.
type container struct {
	spec   corev1.Container
	init   bool
	argv   []string // nil: nothing runs
	mounts map[string]string
	status corev1.ContainerStatus
	// kill kills the running program; nil if there is none.
	kill func()
}

// backOff lists back-offs like a kubelet's, but shorter: 10 s and more would be too long for a test.
var backOff = []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second}

func (p *pod) dir() string { return filepath.Join(p.w.k.dir, "pods", p.name) }

func (p *pod) root(c *container) string { return filepath.Join(p.dir(), c.spec.Name) }

// run runs until ctx ends, and leaves no program, Pod object or file.
func (p *pod) run(ctx context.Context) {
	defer close(p.done)
	p.began = harness.Now()
	p.mu.Lock()
	for _, c := range p.object.Spec.InitContainers {
		p.containers = append(p.containers, newContainer(c, true))
	}
	for _, c := range p.object.Spec.Containers {
		p.containers = append(p.containers, newContainer(c, false))
	}
	p.mu.Unlock()
	if !p.bare {
		p.create(context.WithoutCancel(ctx))
	}
	defer p.remove(context.WithoutCancel(ctx))
	p.report(ctx)
	if !p.prepare(ctx) {
		return
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, c := range p.containers {
		if !c.init {
			running.Go(func() { p.keep(ctx, c) })
		} else if !p.keep(ctx, c) {
			return
		}
	}
	<-ctx.Done() // a pod may consist of containers that do not run
}

func newContainer(spec corev1.Container, init bool) *container {
	status := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, Started: ptr.To(false)}
	status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	return &container{spec: spec, init: init, argv: played(spec), status: status}
}

// played returns the command line of a container that the stand-in can play, or nil. The images of the stand-ins have no shell tools, so climc's
// entry point acts there as it does here.
func played(c corev1.Container) []string {
	switch {
	case slices.Equal(c.Command, []string{"bash", "/opt/climc-entrypoint.sh"}):
		return []string{binDir + "climc", "sleep"}
	case len(c.Command) > 0 && strings.HasPrefix(c.Command[0], binDir):
		return append(slices.Clone(c.Command), c.Args...)
	}
	return nil
}

const binDir = "/opt/yunion/bin/"

// prepare creates the containers' files, and retries while an object is missing.
func (p *pod) prepare(ctx context.Context) bool {
	for {
		err := p.materialise(ctx)
		if err == nil {
			return true
		}
		p.each(func(c *container) {
			c.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: err.Error()}}
		})
		p.report(ctx)
		if wait.Sleep(ctx, 200*time.Millisecond) != nil {
			return false
		}
	}
}

// keep runs a container until the pod ends. It runs an init container until it succeeds, and returns whether it did.
func (p *pod) keep(ctx context.Context, c *container) bool {
	if c.argv == nil {
		p.change(ctx, func() {
			c.status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: harness.Now()}}
			if c.init {
				c.status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
			}
			c.status.Ready, c.status.Started = true, ptr.To(true)
		})
		return true
	}
	for attempt := 0; ctx.Err() == nil; attempt++ {
		ended := p.once(ctx, c)
		if ctx.Err() != nil {
			return false
		}
		done := c.init && ended.ExitCode == 0
		p.change(ctx, func() {
			c.kill = nil
			c.status.State = corev1.ContainerState{Terminated: ended}
			c.status.Ready, c.status.Started = done, ptr.To(false)
		})
		if done || p.bare {
			return done
		}
		pause := backOff[min(attempt, len(backOff)-1)]
		p.change(ctx, func() {
			c.status.RestartCount++
			c.status.LastTerminationState = corev1.ContainerState{Terminated: ended}
			if pause > 0 {
				c.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
					Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", pause, c.spec.Name, p.name),
				}}
			}
		})
		_ = wait.Sleep(ctx, pause) // the loop ends with ctx
	}
	return false
}

// errKilled is the cause of a simulated crash.
var errKilled = errors.New("killed")

// once runs a container to its end.
func (p *pod) once(ctx context.Context, c *container) *corev1.ContainerStateTerminated {
	ended := &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: harness.Now()}
	defer func() { ended.FinishedAt = harness.Now() }()
	env, err := p.environment(ctx, c.spec)
	if err != nil {
		ended.ExitCode, ended.Reason, ended.Message = 128, "StartError", err.Error()
		return ended
	}
	argv := lists.Map(c.argv, func(word string) string { return expand(word, env) })
	running, end := context.WithCancelCause(ctx)
	p.w.mu.Lock()
	p.w.starts++
	p.w.mu.Unlock()
	p.change(ctx, func() {
		c.kill = func() { end(errKilled) }
		c.status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ended.StartedAt}}
		c.status.Started = ptr.To(true)
	})
	var probing sync.WaitGroup
	if !c.init {
		probing.Go(func() { p.untilReady(running, c) })
	}
	err = program.Run(running, program.Machine{
		Root: p.root(c), Mounts: c.mounts, Name: cmp.Or(p.object.Spec.Hostname, p.name), Environment: env, Address: p.address, Dial: p.dial,
	}, argv)
	killed := errors.Is(context.Cause(running), errKilled)
	end(nil)
	probing.Wait()
	switch {
	case killed:
		ended.ExitCode, ended.Reason = 128+int32(syscall.SIGKILL), "Error"
	case err != nil:
		log.Printf("[fatal] %s: %v", p.name, err)
		ended.ExitCode, ended.Reason = 1, "Error"
		if c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
			ended.Message = err.Error()
		}
	}
	return ended
}

// kill kills every program of the pod.
func (p *pod) kill() {
	p.each(func(c *container) {
		if c.kill != nil {
			c.kill()
		}
	})
}

// requestTimeout applies to requests that must complete even after the pod has ended: a forgotten Pod object would stay forever.
const requestTimeout = time.Minute

func (p *pod) create(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := p.w.k.client.Create(ctx, p.object.DeepCopy()); err != nil {
		p.w.k.note(fmt.Errorf("creating Pod %q: %w", p.name, err))
	}
}

func (p *pod) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if !p.bare {
		if err := client.IgnoreNotFound(p.w.k.client.Delete(ctx, p.object, client.GracePeriodSeconds(0))); err != nil {
			p.w.k.note(fmt.Errorf("deleting Pod %q: %w", p.name, err))
		}
	}
	if err := os.RemoveAll(p.dir()); err != nil {
		p.w.k.note(fmt.Errorf("removing the files of Pod %q: %w", p.name, err))
	}
}

func (p *pod) each(do func(*container)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.containers {
		do(c)
	}
}

// change changes the state of a container and reports it.
func (p *pod) change(ctx context.Context, do func()) {
	p.mu.Lock()
	do()
	p.mu.Unlock()
	p.report(ctx)
}

func (p *pod) isReady() bool {
	ready, some := true, false
	p.each(func(c *container) {
		some = true
		ready = ready && (c.init || c.status.Ready)
	})
	return ready && some
}

// report writes the statuses of the Pod and its Deployment if they have changed.
func (p *pod) report(ctx context.Context) {
	p.reporting.Lock()
	status := p.status()
	if !equality.Semantic.DeepEqual(status, p.reported) {
		p.reported = status
		if err := client.IgnoreNotFound(harness.ReportStatus(ctx, p.w.k.client, p.object, status)); err != nil && ctx.Err() == nil {
			p.w.k.note(fmt.Errorf("reporting on Pod %q: %w", p.name, err))
		}
	}
	p.reporting.Unlock()
	if left, waits := p.lasting(); waits {
		p.w.k.workers.Go(func() {
			if wait.Sleep(ctx, left) == nil {
				p.w.report(ctx)
			}
		})
	}
	p.w.report(ctx)
}

// lasting records since when the pod has been ready. If it has just become ready, lasting returns how long it must stay ready to be available.
func (p *pod) lasting() (time.Duration, bool) {
	ready := p.isReady()
	p.mu.Lock()
	defer p.mu.Unlock()
	was := !p.ready.IsZero()
	switch {
	case ready == was:
		return 0, false
	case !ready:
		p.ready = time.Time{}
		return 0, false
	}
	p.ready = time.Now()
	return p.minReady, p.minReady > 0
}

// isAvailable reports whether the pod has been ready for minReadySeconds.
func (p *pod) isAvailable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.ready.IsZero() && time.Since(p.ready) >= p.minReady
}

func (p *pod) status() corev1.PodStatus {
	s := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &p.began, HostIP: "127.0.0.1", PodIP: p.address, PodIPs: []corev1.PodIP{{IP: p.address}}}
	initialized := true
	p.each(func(c *container) {
		status := *c.status.DeepCopy()
		if c.init {
			s.InitContainerStatuses = append(s.InitContainerStatuses, status)
			initialized = initialized && status.Ready
			return
		}
		s.ContainerStatuses = append(s.ContainerStatuses, status)
	})
	if !initialized {
		s.Phase = corev1.PodPending
	}
	if p.bare {
		s.Phase = barePhase(s)
	}
	is := map[corev1.PodConditionType]bool{
		corev1.PodScheduled: true, corev1.PodInitialized: initialized, corev1.ContainersReady: p.isReady(), corev1.PodReady: p.isReady(),
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: p.began}
		if !is[kind] {
			c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotReady"
		}
		s.Conditions = append(s.Conditions, c)
	}
	return s
}
