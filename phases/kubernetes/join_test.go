// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// An API server closes a watch whenever it likes; the node that appears after that is seen all the same.
func TestWatchForNodeSurvivesTheEndOfAWatch(t *testing.T) {
	c := fake.NewClientset()
	watches := 0
	c.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
		watches++
		if watches == 1 {
			w := watch.NewFakeWithChanSize(0, false)
			w.Stop()
			return true, w, nil
		}
		w := watch.NewFakeWithChanSize(1, false)
		w.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		return true, w, nil
	})
	if err := watchForNode(t.Context(), c, "n1"); err != nil {
		t.Fatal(err)
	}
	if watches < 2 {
		t.Errorf("%d watches were opened", watches)
	}
}

func TestWatchForNodeSaysWhyItEnds(t *testing.T) {
	c := fake.NewClientset()
	stopped := errors.New("stopped by a person")
	ctx, cancel := context.WithCancelCause(t.Context())
	c.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		cancel(stopped)
		return false, nil, nil
	})
	err := watchForNode(ctx, c, "n1")
	if !errors.Is(err, stopped) || strings.Contains(err.Error(), "%!") {
		t.Errorf("got %v", err)
	}
}
