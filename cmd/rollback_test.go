// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// A first node is removed only if nothing is lost with it. Whether init ever succeeded does not decide that.
func TestRollbackKeepsWhatIsInUse(t *testing.T) {
	node := func(name string) client.Object { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default"}}
	began := workflow.Entry{Run: "x", Plan: "init", Event: string(workflow.RunStarted)}
	answered := workflow.Entry{Run: "x", Plan: "init", Phase: phases.APIServer, Event: string(workflow.PhaseDone)}
	ended := workflow.Entry{Run: "x", Plan: "init", Event: string(workflow.RunDone)}
	for name, c := range map[string]struct {
		plan    string
		journal workflow.Entry
		has     []client.Object
		silent  bool
		keeps   bool
	}{
		"alone":                    {"init", began, []client.Object{node("node1")}, false, false},
		"init ended well":          {"init", ended, []client.Object{node("node1")}, false, true},
		"another node has joined":  {"init", began, []client.Object{node("node1"), node("node2")}, false, true},
		"it has a cloud":           {"init", began, []client.Object{node("node1"), cloud}, false, true},
		"nobody answers":           {"init", began, nil, true, false},
		"it answered before":       {"init", answered, nil, true, true},
		"a join among other nodes": {"join", began, []client.Object{node("node1"), node("node2")}, false, false},
	} {
		cfg := config.Default()
		cfg.Node.Name = "node1"
		h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
		require.NoError(t, err)
		h.Kube = func(context.Context) (client.WithWatch, error) {
			if c.silent {
				return nil, errors.New("refused")
			}
			return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(c.has...).Build(), nil
		}
		require.NoError(t, h.Ledger.Record(host.Entry{Kind: host.KindNode, Name: "node", Op: host.Created, Detail: "control-plane"}))
		journal := workflow.NewJournal(filepath.Join(t.TempDir(), "journal"))
		require.NoError(t, journal.Append(t.Context(), c.journal))
		opts := workflow.Options{OnFailure: workflow.Rollback}
		require.NoError(t, keepCompletedNode(t.Context(), ui.Quiet(), c.plan, journal, h, &opts))
		if keeps := opts.OnFailure == workflow.Keep; keeps != c.keeps {
			t.Errorf("%s: nothing is rolled back: %t", name, keeps)
		}
	}
}
