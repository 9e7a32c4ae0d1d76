// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/machine"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
)

// Names of steps that a later run looks up in the journal.
const (
	stepInit = "init"
	stepJoin = "join"
)

// mainStep returns the step after which a machine is in the cluster.
func (n *node) mainStep() string {
	if n.role == roleFirst {
		return stepInit
	}
	return stepJoin
}

// joined reports whether an earlier run brought the machine into the cluster.
func (n *node) joined() bool {
	return n.facts != nil && n.facts.Authority != "" && n.did(n.entries, n.mainStep(), "")
}

// finished reports whether an earlier run completed the main step with the same settings, and the machine is in the cluster.
func (n *node) finished() bool {
	return n.facts.Authority != "" && n.did(n.entries, n.mainStep(), n.digest())
}

func finished(_ context.Context, n *node) (bool, error) { return n.finished(), nil }

// again explains why a machine that has joined joins again, "" if it does not. The join changes only what differs.
func (n *node) again() string {
	if !n.joined() || n.finished() {
		return ""
	}
	return "it has joined, but its part of the file has changed since, or an earlier ocadm recorded it: joining again, which changes only what differs"
}

// steps returns the steps that bring a machine into the cluster.
func (n *node) steps() []step {
	switch n.role {
	case roleFirst:
		return []step{initialise(), fetchKubeconfig(), nodeReady(), handOver()}
	case roleControlPlane:
		list := []step{join("Join as a control-plane node", joinControlPlane), nodeReady(), handOver()}
		if n == n.leader() {
			list = append([]step{fetchKubeconfig()}, list...)
		}
		return list
	}
	return []step{announce(), join("Install the node's software and join", joinWorker), nodeReady(), handOver()}
}

func initialise() step {
	return step{
		Name: stepInit, Short: "Run ocadm init: Kubernetes, the operator, the cloud", Timeout: 2 * time.Hour, Check: finished,
		Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
			bundle := ""
			if n.Spec.Bundle != "" {
				bundle = bootstrap.BundlePath
			}
			values, err := n.initConfig(bundle)
			if err != nil {
				return err
			}
			return n.runSent(ctx, c, values, bootstrap.DoInit, report)
		}),
	}
}

// runSent runs the previously sent ocadm with a configuration.
func (n *node) runSent(ctx context.Context, c *ssh.Conn, values map[string]any, word string, report workflow.Reporter) error {
	s, err := n.program()
	if err != nil {
		return err
	}
	script, err := bootstrap.Sent(values, s.digest)
	if err != nil {
		return err
	}
	if _, err := n.send(ctx, c, s, bootstrap.ProgramName, report); err != nil { // the checks are skipped on a machine that has joined
		return err
	}
	return n.once(ctx, report, func(r workflow.Reporter) error {
		return machine.Follow(ctx, n.m.Name, c, word, script, []string{word}, r)
	})
}

// once does work on a machine after any ocadm left running there by a killed run has ended. The machine has changed if ocadm reports a change.
func (n *node) once(ctx context.Context, report workflow.Reporter, work func(workflow.Reporter) error) error {
	counted := &changes{Reporter: report}
	var err error
	pause := wait.Backoff{Duration: time.Second, Factor: 1.5, Steps: 1000, Cap: 10 * time.Second}.DelayFunc()
	_ = pause.Until(ctx, true, true, func(context.Context) (bool, error) { // err says more than its own error
		err = work(counted)
		cause, busy := workflow.Busy(err)
		if busy {
			report.Waiting("another ocadm that is running on the machine", cause)
		}
		return !busy, nil
	})
	if err == nil && counted.n > 0 {
		report.Changed("%s: %s", n.m.Name, lists.Counted(counted.n, "change"))
	}
	return err
}

// changes counts the changes that ocadm on a machine reports.
type changes struct {
	workflow.Reporter
	n int
}

func (c *changes) Output(line string) {
	c.n++
	c.Reporter.Output(line)
}

func fetchKubeconfig() step {
	return step{
		Name: "kubeconfig", Short: "Fetch the administrator's kubeconfig", Timeout: 2 * time.Minute,
		Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
			var text strings.Builder
			r, err := c.Script(ctx, "cat /etc/kubernetes/admin.conf\n", nil, func(l string) { text.WriteString(l + "\n") })
			if err != nil {
				return err
			}
			if r.Exit != 0 {
				return finding.New("OCA-7607", "The kubeconfig of "+n.m.Name+" cannot be read", r.Stderr, "check /etc/kubernetes on the machine")
			}
			have, err := os.ReadFile(n.kubeconfig())
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("reading the kubeconfig of the fleet: %w", err)
			}
			if string(have) == text.String() {
				return nil
			}
			if err := disk.Replace(n.kubeconfig(), []byte(text.String())); err != nil {
				return err
			}
			report.Changed("wrote %s", n.kubeconfig())
			return nil
		}),
	}
}

// join returns the step in which a machine joins, in one of the two ways below.
func join(short string, how func(context.Context, *node, workflow.Reporter, *ssh.Conn, client.WithWatch) error) step {
	return step{
		Name: stepJoin, Short: short, Timeout: time.Hour, Check: finished,
		Run: onMachine(func(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn) error {
			if why := n.again(); why != "" {
				report.Info("%s", why)
			}
			k, err := n.open()
			if err == nil {
				err = how(ctx, n, report, c, k)
			}
			return err
		}),
	}
}

func joinControlPlane(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn, k client.WithWatch) error {
	cluster, err := machine.ClusterOf(ctx, k, n.resource())
	if err != nil {
		return err
	}
	pin, err := bootstrap.Pin(cluster.CA)
	if err != nil {
		return err
	}
	token, key, err := n.newKey(ctx)
	if err != nil {
		return err
	}
	if err := machine.Signed(ctx, k, token, waitsForToken(report)); err != nil {
		return err
	}
	cluster.CertificateKey = key
	values, err := bootstrap.JoinConfig(n.resource(), cluster, token, pin)
	if err != nil {
		return err
	}
	if err := n.runSent(ctx, c, values, bootstrap.DoJoin, report); err != nil {
		return err
	}
	report.Changed("%s joined as a control-plane node", n.m.Name)
	return nil
}

// newKey makes the first node store the cluster's CA keys in the cluster for a join. It returns a token and the decryption key.
func (f *Fleet) newKey(ctx context.Context) (token, key string, err error) {
	c, err := f.dial(ctx, f.first().m)
	if err != nil {
		return "", "", err
	}
	defer c.Close()
	var out strings.Builder
	const script = "PATH=$PATH:/usr/local/bin ocadm token create --print-join-command --control-plane --ttl 2h -o json\n"
	r, err := c.Script(ctx, script, nil, func(l string) { out.WriteString(l + "\n") })
	if err != nil {
		return "", "", err
	}
	var made struct{ Token, CertificateKey string }
	if r.Exit != 0 || json.Unmarshal([]byte(out.String()), &made) != nil || made.CertificateKey == "" {
		return "", "", finding.New("OCA-7607", "The first node provides no key for another control-plane node", r.Stderr,
			"on "+f.first().m.Name+": ocadm token create --print-join-command --control-plane")
	}
	f.Secret(made.Token)
	f.Secret(made.CertificateKey)
	return made.Token, made.CertificateKey, nil
}

func joinWorker(ctx context.Context, n *node, report workflow.Reporter, c *ssh.Conn, k client.WithWatch) error {
	script, err := machine.NewScript(ctx, k, n.object, waitsForToken(report))
	if err != nil {
		return err
	}
	err = n.once(ctx, report, func(r workflow.Reporter) error { return machine.Join(ctx, n.m.Name, c, script, r) })
	if err == nil {
		report.Changed("%s joined", n.m.Name)
	}
	return err
}

func waitsForToken(report workflow.Reporter) func(string) {
	return func(why string) { report.Waiting("the join token", why) }
}

func nodeReady() step {
	return step{
		Name: "node-ready", Short: "Wait until the Node is Ready", Timeout: 15 * time.Minute, ReadOnly: true,
		Run: func(ctx context.Context, n *node, report workflow.Reporter) error {
			k, err := n.open()
			if err != nil {
				return err
			}
			what := "node " + n.m.Name
			return kube.WaitReady(ctx, k, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.m.Name}}, func(why string) { report.Waiting(what, why) })
		},
	}
}

func (n *node) initConfig(bundle string) (map[string]any, error) {
	out := map[string]any{}
	for section, v := range n.Spec.Settings {
		fields, _ := v.(map[string]any)
		out[section] = maps.Clone(fields)
	}
	own, err := bootstrap.JoinConfig(n.resource(), bootstrap.Cluster{}, "", "") // it is a node like any other
	if err != nil {
		return nil, err
	}
	node, _ := out["node"].(map[string]any)
	if node == nil {
		node = map[string]any{}
	}
	fields, _ := own["node"].(map[string]any)
	maps.Copy(node, fields)
	if bundle != "" {
		node["bundle"] = bundle
	}
	out["node"], out["apiVersion"], out["kind"] = node, APIVersion, "Configuration"
	if db, _ := out["database"].(map[string]any); db != nil {
		if file, _ := db["passwordFile"].(string); file != "" {
			password, err := n.readSecret(file)
			if err != nil {
				return nil, err
			}
			delete(db, "passwordFile")
			db["password"] = password
		}
		if password, _ := db["password"].(string); password != "" {
			n.Secret(password)
		}
	}
	return out, nil
}
