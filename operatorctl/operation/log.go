// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
)

// LogKey is the key of a log in its ConfigMap. The value has one JSON event of package workflow per line.
const LogKey = "log.jsonl"

// maxLog bounds a log, in bytes. A longer one loses its oldest lines.
const maxLog = 256 << 10

type log struct {
	client client.Client
	op     *v1alpha1.OnecloudOperation

	mu    sync.Mutex
	lines strings.Builder
	dirty bool
	// waits holds the last reason of each wait of the current step.
	waits map[string]string
}

// LogName is the name of the ConfigMap with the log of an operation.
func LogName(operation string) string { return operation + "-log" }

// load reads what an earlier process has logged.
func (l *log) load(ctx context.Context, c client.Reader) error {
	cm := &corev1.ConfigMap{}
	if _, err := kube.Find(ctx, c, client.ObjectKey{Namespace: l.op.Namespace, Name: LogName(l.op.Name)}, cm, "the log of operation "+l.op.Name); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.WriteString(cm.Data[LogKey])
	return nil
}

func (l *log) add(e workflow.Event) {
	if e.Type == workflow.PhaseProgress {
		return // the status has it
	}
	e.Plan = l.op.Name
	line, err := json.Marshal(e)
	if err != nil {
		return // events can always be encoded
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case e.Type == workflow.PhaseStarted || l.waits == nil:
		l.waits = map[string]string{}
	case e.Type == workflow.PhaseWaiting && l.waits[e.Message] == e.Why: // a wait reports its reason again and again
		return
	}
	if e.Type == workflow.PhaseWaiting {
		l.waits[e.Message] = e.Why
	}
	l.dirty = true
	l.lines.Write(append(line, '\n'))
	if l.lines.Len() <= maxLog {
		return
	}
	rest := l.lines.String()[l.lines.Len()-maxLog*3/4:]
	_, rest, _ = strings.Cut(rest, "\n")
	l.lines.Reset()
	l.lines.WriteString(rest)
}

// write writes the log to the API server. If that fails, the next write includes the lines.
func (l *log) write(ctx context.Context) {
	l.mu.Lock()
	text, dirty := l.lines.String(), l.dirty
	l.dirty = false
	l.mu.Unlock()
	if !dirty {
		return
	}
	cm := corev1ac.ConfigMap(LogName(l.op.Name), l.op.Namespace).
		WithLabels(map[string]string{v1alpha1.LabelOperationCloud: l.op.Spec.Cloud}).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind(v1alpha1.OperationKind).
			WithName(l.op.Name).WithUID(l.op.UID)).
		WithData(map[string]string{LogKey: text})
	if err := l.client.Apply(ctx, cm, client.FieldOwner(v1alpha1.ManagerOperator), client.ForceOwnership); err != nil && !errors.Is(err, context.Canceled) {
		l.mu.Lock()
		l.dirty = true
		l.mu.Unlock()
	}
}

// keep writes the log once, at its end, so that an outside program needs no permission to change ConfigMaps. A log that cannot be written is lost.
func (l *log) keep(ctx context.Context, c client.Client) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logTimeout)
	defer cancel()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: l.op.Namespace, Name: LogName(l.op.Name), Labels: map[string]string{v1alpha1.LabelOperationCloud: l.op.Spec.Cloud},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.OperationKind, Name: l.op.Name, UID: l.op.UID}},
	}}
	l.mu.Lock()
	cm.Data = map[string]string{LogKey: l.lines.String()}
	l.mu.Unlock()
	_ = c.Create(ctx, cm, client.FieldOwner(v1alpha1.ManagerOperator)) // the operation itself says how it ended
}

// OwnerOf returns the owner reference with which Kubernetes deletes operations and machines with their cloud.
func OwnerOf(cloud *v1alpha1.OnecloudCluster) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: cloud.Name, UID: cloud.UID}
}

// OfFormerCloud reports whether an operation or a machine belongs to a cloud that is gone, not to the new one of the same name.
func OfFormerCloud(o client.Object, cloud *v1alpha1.OnecloudCluster) bool {
	owned := false
	for _, r := range o.GetOwnerReferences() {
		if r.Kind != v1alpha1.Kind || r.APIVersion != v1alpha1.GroupVersion.String() {
			continue
		}
		if owned = true; r.UID == cloud.UID {
			return false
		}
	}
	return owned
}
