// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/nodepod"
	"yunion.io/x/ocadm/phases/vip"
)

// run injects a fault and measures it until everything has recovered. If it is interrupted, it ends the fault immediately; if it is killed, the node does.
func (t *Test) run(ctx context.Context, r workflow.Reporter, f fault) (err error) {
	if err := t.settle(ctx, r); err != nil {
		return err
	}
	node, err := f.node(ctx, t)
	if err != nil {
		return err
	}
	object := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if err := t.K.Create(ctx, &corev1.ConfigMap{ObjectMeta: object}); err != nil {
		return fmt.Errorf("creating ConfigMap %s: %w", name, err)
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		err = errors.Join(err, t.clean(last, r))
	}()
	o, err := t.measure(ctx, r, f, node)
	if err != nil {
		return err
	}
	t.Outcomes = append(t.Outcomes, o)
	return nil
}

// measure polls the API and the console from before the fault until everything has recovered.
func (t *Test) measure(ctx context.Context, r workflow.Reporter, f fault, node string) (Outcome, error) {
	o := Outcome{Fault: f.name, Node: node}
	cfg, err := t.Host.REST(ctx)
	if err != nil {
		return o, err
	}
	endpoint, err := kubernetes.Endpoint(ctx, t.Host)
	if err != nil {
		return o, err
	}
	w, err := newWriter(cfg, endpoint)
	if err != nil {
		return o, err
	}
	stops := map[string]func() []ask{"api": asking(ctx, w.write)}
	if t.Console != "" {
		stops["console"] = asking(ctx, newConsole(t.Console).ask)
	}
	err = t.fail(ctx, r, f, node)
	ended := time.Now()
	if err == nil {
		err = t.whole(ctx, r)
	}
	o.Whole = time.Since(ended).Seconds()
	o.API = outage(stops["api"]()).Seconds()
	if stop := stops["console"]; stop != nil {
		o.Console = new(outage(stop()).Seconds())
	}
	if err != nil {
		return o, err
	}
	var kept corev1.ConfigMap
	if err := t.K.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &kept); err != nil {
		return o, fmt.Errorf("reading the ConfigMap that was written during the fault: %w", err)
	}
	o.Written, o.Lost = len(w.keys), w.lost(kept.Data)
	o.judge()
	return o, nil
}

// fail injects the fault and waits for its end.
func (t *Test) fail(ctx context.Context, r workflow.Reporter, f fault, node string) error {
	p := nodepod.New(name, t.Host.Config.OperatorImage(), node, f.length+podSpare, "ha", "fault", string(f.kind), "--for", f.length.String())
	if err := t.K.Create(ctx, p); err != nil {
		return fmt.Errorf("creating the pod of a fault: %w", err)
	}
	r.Info(f.plan, node)
	_, err := nodepod.Await(ctx, t.K, name, finding.New("OCA-4172", "A fault cannot be caused on node "+node, "", "correct the cause, then run the same command again"),
		func(why string) { r.Waiting("the end of the fault", why) })
	return err
}

// whole waits until the control plane could lose a node again, and the console answers.
func (t *Test) whole(ctx context.Context, r workflow.Reporter) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	var s vip.Status
	err := wait.Until(ctx, "the control plane", interval, func(ctx context.Context) (bool, string, error) {
		var err error
		if s, err = t.look(ctx); err != nil {
			return false, "", err
		}
		if survives(s) != nil {
			return false, fmt.Sprint(s.Problems), nil //nolint:nilerr // the condition to wait for
		}
		return t.Console == "" || newConsole(t.Console).answers(ctx), "the console at " + t.Console + " does not answer", nil
	}, func(why string) { r.Waiting("the control plane", why) })
	if err == nil || errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	return finding.Errorf("OCA-4173", "The control plane has not recovered", "ocadm why; then, when ocadm ha status shows no problem, run the same command again",
		"%w", err).With(s.Problems...)
}

func (t *Test) look(ctx context.Context) (vip.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*askTimeout)
	defer cancel()
	return vip.Look(ctx, t.Host, t.K)
}
