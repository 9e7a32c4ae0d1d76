// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func there(o client.Object) (bool, string) { return o != nil, "not there" }

func TestWaitForSurvivesTheEndOfAWatch(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "1"}}
	watches := 0
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			w := watch.NewFakeWithChanSize(1, false)
			if watches++; watches == 1 {
				w.Stop()
			} else {
				w.Add(node)
			}
			return w, nil
		},
	})
	if err := WaitFor(t.Context(), c, node.DeepCopy(), there, func(string) {}); err != nil || watches < 2 {
		t.Errorf("%d watches were opened, %v", watches, err)
	}
}

func TestWaitForSaysWhyItEnds(t *testing.T) {
	stopped := errors.New("stopped by a person")
	ctx, cancel := context.WithCancelCause(t.Context())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
	err := WaitFor(ctx, c, node, there, func(string) { cancel(stopped) })
	if !errors.Is(err, stopped) || !strings.Contains(err.Error(), "not there") {
		t.Errorf("got %v", err)
	}
}

// A watch that ends at once, or that is always too old, does not turn into a storm of lists.
func TestWaitForPausesBetweenBriefWatches(t *testing.T) {
	for name, end := range map[string]func(*watch.FakeWatcher){
		"it ends":        func(w *watch.FakeWatcher) { w.Stop() },
		"it is too old":  func(w *watch.FakeWatcher) { w.Error(&apierrors.NewResourceExpired("too old").ErrStatus) },
		"it has expired": func(w *watch.FakeWatcher) { w.Error(&apierrors.NewResourceExpired("too old").ErrStatus) },
	} {
		lists := 0
		c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				lists++
				return nil
			},
			Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
				w := watch.NewFakeWithChanSize(1, false)
				end(w)
				return w, nil
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), retryDelay/2)
		out := make(chan contents, 1000000)
		follow(ctx, c, 0, &corev1.Node{}, out)
		cancel()
		if lists > 2 {
			t.Errorf("%s: %d lists in %s", name, lists, retryDelay/2)
		}
	}
}
