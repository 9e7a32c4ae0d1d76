// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// The steps whose results become conditions of the machine.
const (
	stepConnect  = "connect"
	stepPrecheck = "precheck"
	stepJoin     = "join"
	stepMayLeave = "check-etcd"
	stepMayReset = "check-machine"
	stepDrain    = "drain"
	stepReset    = "reset"
	stepLeave    = "leave-etcd"
	stepNode     = "delete-node"
)

// flush is the interval for writing the status of an operation: hundreds of them may run in succession.
const flush = 5 * time.Second

// work implements the steps of operations on machines, including the login.
type work struct{ Options }

// Actions returns the actions on machines.
func Actions(o Options) []operation.Action {
	w := work{o}
	return []operation.Action{
		{
			Name: v1alpha1.ActionPrecheckMachine, Timeout: 15 * time.Minute, Flush: flush, Job: w.job(AccountOfWork),
			Steps: []operation.Step{w.connect(), w.precheck()},
		},
		{
			Name: v1alpha1.ActionCompareMachines, Timeout: 30 * time.Minute, Flush: flush,
			Job: w.jobOfAll, Steps: []operation.Step{w.compare()},
		},
		{
			Name: v1alpha1.ActionJoinMachine, Timeout: time.Hour, Flush: flush, Job: w.job(AccountOfWork),
			Steps: []operation.Step{w.connect(), w.precheck(), w.join()},
		},
		{
			Name: v1alpha1.ActionRemoveMachine, Timeout: time.Hour, Flush: flush, Job: w.job(AccountOfRemoval),
			Steps: []operation.Step{w.mayLeave(), w.mayReset(), w.drain(), w.reset(), w.leave(), w.deleteNode()},
		},
	}
}

func (w work) machineOf(ctx context.Context, r *operation.Run) (*v1alpha1.OnecloudMachine, error) {
	m := cmp.Or(w.Read, &v1alpha1.OnecloudMachine{})
	key := client.ObjectKey{Namespace: r.Operation.Namespace, Name: r.Operation.MachineName()}
	if m.Name != "" && m.DeletionTimestamp == nil && r.Operation.Spec.Action == v1alpha1.ActionJoinMachine {
		return m, nil // its roles and its address cannot change while it joins
	}
	if err := w.Direct.Get(ctx, key, m); err != nil {
		return nil, fmt.Errorf("reading machine %s: %w", key.Name, err)
	}
	if m.Spec.Cloud != r.Operation.Spec.Cloud {
		return nil, fmt.Errorf("machine %s belongs to cloud %s", m.Name, m.Spec.Cloud)
	}
	return m, suits(r.Operation, m)
}

// suits returns a finding if an operation does not match its machine: permission to create operations must not allow deleting machines. It is pure.
func suits(op *v1alpha1.OnecloudOperation, m *v1alpha1.OnecloudMachine) error {
	join, remove := op.Spec.Action == v1alpha1.ActionJoinMachine, op.Spec.Action == v1alpha1.ActionRemoveMachine
	var cause string
	switch {
	case remove && m.DeletionTimestamp == nil:
		cause = "the machine is not being removed"
	case (join || remove) && op.Spec.Machine.ControlPlane != m.ControlPlane():
		cause = fmt.Sprintf("it has controlPlane %t, but the roles of the machine imply %t", op.Spec.Machine.ControlPlane, m.ControlPlane())
	default:
		return nil
	}
	return finding.New("OCA-7653", fmt.Sprintf("Operation %s does not match machine %s", op.Name, m.Name), cause,
		"let the operator create the operation: ocadm machine resume "+m.Name+", or ocadm machine remove "+m.Name)
}

// mayRun checks before an operation starts whether it matches, and whether its machine may be removed.
func mayRun(ctx context.Context, c client.Reader, op *v1alpha1.OnecloudOperation, m *v1alpha1.OnecloudMachine) error {
	if err := suits(op, m); err != nil || op.Spec.Action != v1alpha1.ActionRemoveMachine {
		return err
	}
	only, err := IsOnlyControlPlane(ctx, c, m)
	if err == nil && only {
		return OnlyControlPlane(m.Name)
	}
	return err
}

func (w work) open(ctx context.Context, r *operation.Run) (*v1alpha1.OnecloudMachine, *ssh.Conn, error) {
	m, err := w.machineOf(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	if m.CallsIn() {
		return nil, nil, finding.New("OCA-7626", "The operator does not log in to machine "+m.Name, "the machine calls in instead (spec.infrastructure.callback)",
			"run the checks on the machine: ocadm preflight join --config FILE; ocadm join also runs them before it changes anything")
	}
	var seen v1alpha1.OperationMachine
	if s := r.Status(); s.Machine != nil {
		seen = *s.Machine
	}
	c, err := w.dial(ctx, m, seen)
	return m, c, err
}

// onMachine wraps work on the machine into a step that logs in first.
func (w work) onMachine(
	work func(context.Context, *operation.Run, workflow.Reporter, *v1alpha1.OnecloudMachine, *ssh.Conn) error,
) func(context.Context, *operation.Run, workflow.Reporter) error {
	return func(ctx context.Context, r *operation.Run, report workflow.Reporter) error {
		m, c, err := w.open(ctx, r)
		if err != nil {
			return err
		}
		defer c.Close()
		return work(ctx, r, report, m, c)
	}
}

// connect logs in, and records the host keys before anything is sent to the machine. The controller pins them.
func (w work) connect() operation.Step {
	return operation.Step{
		Name: stepConnect, Short: "Log in to the machine", ReadOnly: true, Timeout: 2 * time.Minute,
		Run: w.onMachine(func(ctx context.Context, r *operation.Run, report workflow.Reporter, m *v1alpha1.OnecloudMachine, c *ssh.Conn) error {
			report.Info("the machine presents host key %s", ssh.Fingerprint(c.HostKey()))
			return r.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) {
				s.Machine = &v1alpha1.OperationMachine{HostKey: c.HostKey(), Address: place(m), JumpHostKey: c.JumpHostKey()}
				s.Machine.JumpAddress = placeOf(m.Spec.Infrastructure.SSH.JumpHost)
			})
		}),
	}
}

func (w work) script(ctx context.Context, m *v1alpha1.OnecloudMachine) (string, error) {
	s, err := w.secret(ctx, m.Namespace, m.BootstrapSecret())
	if err != nil {
		return "", fmt.Errorf("reading the bootstrap data of machine %s: %w", m.Name, err)
	}
	text := string(s[v1alpha1.BootstrapScript])
	if text == "" {
		return "", fmt.Errorf("reading the bootstrap data of machine %s: Secret %s has no key %s", m.Name, m.BootstrapSecret(), v1alpha1.BootstrapScript)
	}
	return text, nil
}

// precheck runs ocadm preflight on the machine. It changes nothing there.
func (w work) precheck() operation.Step {
	return operation.Step{
		Name: stepPrecheck, Short: "Run the join checks on the machine", ReadOnly: true, Timeout: 10 * time.Minute,
		Run: w.onMachine(func(ctx context.Context, r *operation.Run, report workflow.Reporter, m *v1alpha1.OnecloudMachine, c *ssh.Conn) error {
			text, err := w.script(ctx, m)
			if err != nil {
				return err
			}
			list, err := clock(ctx, m.Name, c)
			if err != nil {
				return err
			}
			more, err := Precheck(ctx, m.Name, c, text, "precheck")
			if err != nil {
				return err
			}
			list = append(list, more...)
			for _, f := range list.Warnings() {
				report.Info("%s %s", f.Code, f.Error())
			}
			r.Note(func(s *v1alpha1.OnecloudOperationStatus) { s.Findings = operation.Findings(list) })
			return list.Err()
		}),
	}
}

// join runs ocadm join on the machine. Before that, it records on the API server that the step has started: the removal must know.
func (w work) join() operation.Step {
	return operation.Step{
		Name: stepJoin, Short: "Install the node's software and join", Timeout: 50 * time.Minute,
		Run: w.onMachine(func(ctx context.Context, r *operation.Run, report workflow.Reporter, m *v1alpha1.OnecloudMachine, c *ssh.Conn) error {
			text, err := w.script(ctx, m)
			if err != nil {
				return err
			}
			return Join(ctx, m.Name, c, text, report)
		}),
	}
}
