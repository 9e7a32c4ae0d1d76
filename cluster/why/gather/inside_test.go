// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// running returns a pod with the log of one run.
func running(name, node string, ready corev1.ConditionStatus) client.Object {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name}, Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
}

// A lost node does not prevent reading the logs of others: logs on a node that does not report are not requested, and each parallel request tries a
// node lost a moment ago once.
func TestLostNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := objects()[:4] // n1 is Ready, n2 does not report
		list = append(list, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
		for i := range 40 {
			list = append(list, running(fmt.Sprintf("a-cut-%d", i), "n3", corev1.ConditionFalse), running(fmt.Sprintf("lost-%d", i), "n2", corev1.ConditionFalse),
				running(fmt.Sprintf("well-%d", i), "n1", corev1.ConditionTrue))
		}
		o := options()
		o.Everything = true
		var mu sync.Mutex
		var asked []string
		o.Log = func(ctx context.Context, _, pod string, _ *corev1.PodLogOptions) ([]byte, error) {
			mu.Lock()
			asked = append(asked, pod)
			mu.Unlock()
			if strings.HasPrefix(pod, "a-cut") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return []byte("said"), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, begin := build(t, list, interceptor.Funcs{}), time.Now()
		s := Snapshot(ctx, c, o)
		if took := time.Since(begin); took != logTimeout || len(s.Logs) != 40 {
			t.Errorf("%d logs in %s, missing %q", len(s.Logs), took, s.Missing)
		}
		if slices.ContainsFunc(asked, func(p string) bool { return strings.HasPrefix(p, "lost") }) || len(asked) != 40+parallel {
			t.Errorf("asked for %q", asked)
		}
		if !slices.Contains(s.Missing, "logs of 40 pods on node n2: the node does not report") || len(s.Missing) != 41 {
			t.Errorf("%q", s.Missing)
		}
	})
}

// The end of a log matters most: a log with long lines is read with fewer of them, and is cut to the end of its share.
func TestEndOfLog(t *testing.T) {
	long := strings.Repeat("x", 999) + "\n"
	list := append(objects()[:3], running("talks", "n1", corev1.ConditionFalse))
	o := options()
	o.Everything = true
	o.Log = func(_ context.Context, _, _ string, p *corev1.PodLogOptions) ([]byte, error) {
		text := []byte(strings.Repeat(long, int(*p.TailLines)-1) + "the end\n")
		return text[:min(len(text), int(*p.LimitBytes))], nil // like a kubelet
	}
	s := Snapshot(t.Context(), build(t, list, interceptor.Funcs{}), o)
	if len(s.Logs) != 1 || s.Logs[0].Lines[len(s.Logs[0].Lines)-1] != "the end" {
		t.Errorf("%d logs without their end", len(s.Logs))
	}
	for i := range 400 {
		list = append(list, running(fmt.Sprintf("more-%d", i), "n1", corev1.ConditionTrue))
	}
	s = Snapshot(t.Context(), build(t, list, interceptor.Funcs{}), o)
	size := 0
	for _, l := range s.Logs {
		size += len(strings.Join(l.Lines, "\n"))
		if l.Lines[len(l.Lines)-1] != "the end" {
			t.Fatal("a log without its end")
		}
	}
	if size > logsBytes {
		t.Errorf("%d bytes of logs", size)
	}
}
