// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/machine/pairs"
	"yunion.io/x/ocadm/phases/config"
)

// Options of a run.
type Options struct {
	Spec *Spec
	// Dir is the directory of the fleet: journal, logs, host keys, kubeconfig. It is private to its user.
	Dir string
	// Parallel is the number of machines to work on concurrently; control-plane nodes join one by one.
	Parallel int
	// DryRun checks the machines and plans. It changes nothing.
	DryRun bool
	// Ignore lists checks between machines whose errors become warnings.
	Ignore []string
	// Program is the file with this ocadm.
	Program string
	// Sink receives the events of all machines: their phases are named MACHINE/PHASE. Log opens a writer for those of one machine.
	Sink workflow.Sink
	Log  func(machine string) (sink workflow.Sink, file string, closeLog func(), err error)
	// Secret receives every secret that the run learns. Redact removes them from a text.
	Secret func(...string)
	Redact func(string) string
	// Dial replaces the connection to the machines; nil means TCP.
	Dial ssh.DialFunc
	// Stop, when done, lets running steps finish and starts no more.
	Stop context.Context
}

// Fleet is a run.
type Fleet struct {
	Options
	hosts   ssh.KnownHosts
	journal *workflow.FileJournal
	entries []workflow.Entry // of earlier runs
	nodes   []*node          // the first runs init
	sending *senders
	// Ways describes which connections between machines were tested.
	Ways string
	api  api

	pins sync.Mutex // serialises the file of host keys
	sink sync.Mutex // serialises Sink
}

const (
	roleFirst        = "first"
	roleControlPlane = "control-plane"
	roleWorker       = "worker"
)

type node struct {
	*Fleet
	m    *Machine
	role string
	// facts from the check, nil if it did not answer.
	facts *pairs.Facts
	// object is its resource.
	object *v1alpha1.OnecloudMachine

	log      workflow.Sink
	file     string
	closeLog func()

	start    time.Time
	took     time.Duration
	changed  []string
	warnings finding.List
	planned  []string
	err      error
	held     string // why nothing was done on it, "" if something was
}

func newFleet(o Options) (*Fleet, error) {
	f := &Fleet{Options: o, hosts: ssh.KnownHosts(o.Spec.KnownHosts), journal: workflow.NewJournal(filepath.Join(o.Dir, "journal.jsonl")), sending: &senders{}}
	f.hosts = cmp.Or(f.hosts, ssh.KnownHosts(filepath.Join(o.Dir, "known_hosts")))
	if f.Secret == nil {
		f.Secret = func(...string) {}
	}
	f.journal.Redact = o.Redact
	var err error
	if f.entries, err = f.journal.Entries(); err != nil {
		return nil, err
	}
	for i, m := range o.Spec.machines() {
		n := &node{Fleet: f, m: m, role: roleWorker, closeLog: func() {}}
		switch {
		case i == 0:
			n.role = roleFirst
		case i < len(o.Spec.ControlPlanes):
			n.role = roleControlPlane
		}
		if o.Log != nil {
			if n.log, n.file, n.closeLog, err = o.Log(m.Name); err != nil {
				f.close()
				return nil, err
			}
		}
		f.nodes = append(f.nodes, n)
	}
	return f, nil
}

func (f *Fleet) close() {
	f.api.close()
	for _, n := range f.nodes {
		n.closeLog()
	}
}

func (f *Fleet) first() *node { return f.nodes[0] }

// kubeconfig returns the file with the administrator's access to the cluster.
func (f *Fleet) kubeconfig() string { return filepath.Join(f.Dir, "kubeconfig") }

// Event passes an event of a machine's plan to the machine's log and to the common sink.
func (n *node) Event(e workflow.Event) {
	if n.log != nil {
		n.log.Event(e)
	}
	if e.Phase == "" || n.Sink == nil { // the fleet does not report the start and end of a machine's plan
		return
	}
	e.Phase, e.Index, e.Count = n.m.Name+"/"+e.Phase, 0, 0
	n.sink.Lock()
	defer n.sink.Unlock()
	n.Sink.Event(e)
}

// story reports an event about all machines.
func (f *Fleet) story(phase, message string) {
	if f.Sink != nil {
		f.sink.Lock()
		defer f.sink.Unlock()
		f.Sink.Event(workflow.Event{Time: time.Now(), Type: workflow.PhaseInfo, Phase: phase, Message: message})
	}
}

type step = workflow.Phase[*node]

// walk runs steps on machines, several concurrently, and stores each result in its node. It skips machines that already failed.
func (f *Fleet) walk(ctx context.Context, plan string, atOnce int, dry bool, nodes []*node, steps func(*node) []step) {
	places := make(chan struct{}, max(1, atOnce))
	var stop <-chan struct{} // a nil channel never ends
	if f.Stop != nil {
		stop = f.Stop.Done()
	}
	var all sync.WaitGroup
	for _, n := range nodes {
		if n.err != nil || n.held != "" {
			continue
		}
		taken := false
		select {
		case places <- struct{}{}:
			taken = true
		case <-stop:
		case <-ctx.Done():
		}
		if f.Stop != nil && f.Stop.Err() != nil || ctx.Err() != nil {
			n.held = "the run was interrupted"
			if taken {
				<-places
			}
			continue
		}
		all.Go(func() {
			defer func() { <-places }()
			n.walk(ctx, plan, dry, steps(n))
		})
	}
	all.Wait()
}

// plan returns the name of a machine's plan in the journal.
func (n *node) plan(of string) string { return "fleet " + of + " " + n.m.Name }

func (n *node) walk(ctx context.Context, plan string, dry bool, steps []step) {
	if n.start.IsZero() {
		n.start = time.Now()
	}
	runner := workflow.Runner[*node]{Plan: n.plan(plan), Phases: steps, Sink: n}
	if plan != planCheck {
		runner.Journal = n.journal
	}
	res, err := runner.Run(ctx, n, workflow.Options{DryRun: dry, Stop: n.Stop, Inputs: map[string]string{inputDigest: n.digest()}})
	n.err, n.took = err, time.Since(n.start)
	for _, s := range res.Steps {
		if dry {
			n.planned = append(n.planned, s.Changes...)
		} else {
			n.changed = append(n.changed, s.Changes...)
		}
	}
}

// The plans of a machine, as named in the journal.
const (
	planCheck  = "check"
	planApply  = "apply"
	planRemove = "reset"
)

// inputDigest is the input of a run that holds the digest of the machine.
const inputDigest = "settings"

// digest identifies the desired state of a machine. It excludes how to connect to it, and secrets.
func (n *node) digest() string {
	m := *n.m
	m.Address, m.HostKey, m.SSH = "", "", Login{}
	if n.role != roleFirst { // the first node's digest has all settings
		m.Settings = n.settings()
	}
	of := []any{n.role, m}
	if n.role == roleFirst {
		of = append(of, withoutSecrets(n.Spec.Settings), n.Spec.Bundle)
	}
	text, err := json.Marshal(of)
	if err != nil { // the values came from JSON
		return fmt.Sprint(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))[:16]
}

// withoutSecrets returns a copy of init's settings without secrets.
func withoutSecrets(settings map[string]any) map[string]any {
	out := map[string]any{}
	for section, v := range settings {
		fields, ok := v.(map[string]any)
		if !ok {
			continue
		}
		kept := maps.Clone(fields)
		for _, s := range config.Settings() {
			if key, in := strings.CutPrefix(s.Key, section+"."); in && s.Secret {
				delete(kept, key)
			}
		}
		out[section] = kept
	}
	return out
}

// did reports whether an earlier run completed a step of a machine and it has not started again since. If inputs is set, the inputs must match.
func (n *node) did(entries []workflow.Entry, phase string, inputs string) bool {
	of, done := map[string]string{}, false
	for _, e := range entries {
		if e.Plan == n.plan(planRemove) {
			done = false
		}
		if e.Plan != n.plan(planApply) {
			continue
		}
		switch {
		case e.Event == string(workflow.RunStarted):
			of[e.Run] = e.Inputs[inputDigest]
		case e.Phase == phase:
			done = e.Event == string(workflow.PhaseDone) && (inputs == "" || of[e.Run] == inputs)
		}
	}
	return done
}
