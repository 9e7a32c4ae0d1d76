// SPDX-License-Identifier: Apache-2.0

package spread

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// operators is the number of replicas of the operator in a cluster with several control-plane nodes. One holds the lease and works, the other waits for it.
const operators = 2

func operatorKey() client.ObjectKey {
	return client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.OperatorName}
}

func readOperator(ctx context.Context, k client.Reader) (copies, error) {
	return read(ctx, k, operatorKey(), map[string]string{"app": cluster.OperatorName})
}

// Operator adds a replica of the operator when a second control-plane node joins. It never fails a join.
func Operator(after ...string) host.Phase {
	return host.Phase{
		Name: "spread-operator", Short: "Run a second copy of the operator if several control-plane nodes are ready", After: after, Timeout: patience + time.Minute,
		Long: "init runs one operator, on the only node. This phase adds a copy once another control-plane node is Ready. The copy waits, and takes over when\n" +
			"the first one is lost. It never fails a join, and does nothing if there is no operator, or if the operator was scaled before.",
		Skip:  kubernetes.NotControlPlane,
		Check: check(readOperator, copies.scaled),
		Plan:  workflow.Says[*host.Host]("if the operator has one copy: add another one"),
		Run:   run(addOperator, "the operator still has one copy"),
	}
}

// scaled reports whether the phase must leave the number of operators alone: it or a user has changed it, or there is no operator.
func (d copies) scaled() bool { return !d.ours || d.replicas != 1 }

// addOperator adds a replica once two control-plane nodes can run one: before, both would share a node.
func addOperator(ctx context.Context, k client.Client, every time.Duration, r workflow.Reporter) error {
	return until(ctx, "a second node for the operator", every, r, func(ctx context.Context) (bool, string, error) {
		o, err := readOperator(ctx, k)
		if err != nil || o.scaled() {
			return err == nil, "", err
		}
		ready := lists.Count(o.nodes, func(n corev1.Node) bool { return takesPods(n) && kube.NodeReady(&n) })
		if ready < operators {
			return false, fmt.Sprintf("%d of %d control-plane nodes are Ready", ready, len(o.nodes)), nil
		}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operatorKey().Namespace, Name: operatorKey().Name}}
		if err := kube.Merge(ctx, k, d, kube.FieldManager, map[string]any{"spec": map[string]any{"replicas": operators}}); err != nil {
			return false, "", fmt.Errorf("adding a copy of the operator: %w", err)
		}
		r.Changed("the operator has %d copies: one works, the other takes over when its node is lost", operators)
		return true, "", nil
	})
}

// operatorOnce returns a line if the operator would be lost with one node.
func (d copies) operatorOnce() []string {
	on := "kubectl -n " + cluster.DefaultNamespace
	switch {
	case !d.ours || d.replicas == 0:
		return nil
	case d.replicas < operators:
		return []string{fmt.Sprintf("the operator has one copy: %s scale deployment %s --replicas=%d", on, cluster.OperatorName, operators)}
	case len(d.pods) >= operators && d.onOneNode():
		return []string{fmt.Sprintf("the copies of the operator run on one node, %s: %s delete pod %s", d.node(), on, d.pods[0].Name)}
	}
	return nil
}
