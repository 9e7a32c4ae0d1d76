// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/status"
)

// record is the journal of a running operation, its status on the API server, and the sink of its events. A step starts only once its start is on the API
// server. Changes within a step are written a moment later.
type record struct {
	// client is nil if nothing is recorded.
	client client.Client
	events events.EventRecorder
	log    *log
	// owner is the field manager; show, if set, is called with each state.
	owner client.FieldOwner
	show  func(*v1alpha1.OnecloudOperation)

	mu sync.Mutex
	// op is the operation with its current status; written is the status that the API server has.
	op      *v1alpha1.OnecloudOperation
	written v1alpha1.OnecloudOperationStatus
	// writing serialises writes.
	writing sync.Mutex
	// began is when this process began to run the operation, zero if it does not; ran is how long it had run before.
	began time.Time
	ran   time.Duration
	// worker is the pod of this process, "" in the operator.
	worker string
}

func newRecord(c client.Client, events events.EventRecorder, op *v1alpha1.OnecloudOperation) *record {
	return &record{client: c, events: events, log: &log{client: c, op: op.DeepCopy()}, owner: v1alpha1.ManagerOperator, op: op, written: *op.Status.DeepCopy()}
}

// adopt makes the API server's status the current one.
func (r *record) adopt(s v1alpha1.OnecloudOperationStatus) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.op.Status, r.written = *s.DeepCopy(), *s.DeepCopy()
}

// run starts measuring how long the operation runs. resumed restarts it from zero.
func (r *record) run(resumed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if resumed {
		r.op.Status.RanSeconds = 0
	}
	r.began, r.ran = time.Now(), time.Duration(r.op.Status.RanSeconds)*time.Second
}

// hasRun returns how long the operation has run; counts is false if this process does not run it.
func (r *record) hasRun() (d time.Duration, counts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.began.IsZero() {
		return 0, false
	}
	return r.ran + time.Since(r.began), true
}

// shown passes the current state to show.
func (r *record) shown() {
	if r.show == nil {
		return
	}
	r.mu.Lock()
	now := here(r.op.DeepCopy())
	r.mu.Unlock()
	r.show(now)
}

func (r *record) Status() v1alpha1.OnecloudOperationStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.op.Status.DeepCopy()
}

// Update changes the status and returns once the API server has it.
func (r *record) Update(ctx context.Context, change func(*v1alpha1.OnecloudOperationStatus)) error {
	r.Note(change)
	return r.write(ctx)
}

// Note changes the status. The next write includes it.
func (r *record) Note(change func(*v1alpha1.OnecloudOperationStatus)) {
	r.mu.Lock()
	change(&r.op.Status)
	conditions(&r.op.Status, metav1.Now())
	r.mu.Unlock()
	r.shown()
}

// writeTimeout bounds the retries of one write. An API server that is being replaced must not end an operation.
const writeTimeout = 2 * time.Minute

// write writes the status to the API server. It continues for a while after ctx has ended: the end of a step must be recorded.
func (r *record) write(ctx context.Context) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	now := here(r.op.DeepCopy())
	before := r.op.DeepCopy()
	before.Status = *r.written.DeepCopy()
	r.mu.Unlock()
	if r.client == nil || equality.Semantic.DeepEqual(before.Status, now.Status) {
		return nil
	}
	if d, counts := r.hasRun(); counts { // only together with other changes
		r.mu.Lock()
		r.op.Status.RanSeconds, now.Status.RanSeconds = int64(d.Seconds()), int64(d.Seconds())
		r.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	status := *now.Status.DeepCopy()
	patch, err := r.patch(before, now)
	if err == nil {
		err = r.send(ctx, now, patch)
	}
	if errors.Is(err, errTaken) && r.owns(ctx, before) { // the answer to an earlier attempt was lost: what it removed cannot be removed again
		if patch, err = r.patch(before, now); err == nil {
			err = r.send(ctx, now, patch)
		}
	}
	if err != nil {
		return fmt.Errorf("writing the status of operation %s: %w", now.Name, err)
	}
	r.mu.Lock()
	r.written = status
	r.mu.Unlock()
	return nil
}

// owns reads the status of the operation into o, and reports whether it still belongs to this worker.
func (r *record) owns(ctx context.Context, o *v1alpha1.OnecloudOperation) bool {
	live := &v1alpha1.OnecloudOperation{}
	if r.client.Get(ctx, client.ObjectKeyFromObject(o), live) != nil || live.UID != o.UID || live.Status.Worker == nil {
		return false
	}
	o.Status = live.Status
	return live.Status.Worker.Pod == r.worker
}

// send retries a patch until it is accepted or rejected, or ctx ends.
func (r *record) send(ctx context.Context, o *v1alpha1.OnecloudOperation, patch client.Patch) error {
	status := *o.Status.DeepCopy()
	var last error
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Steps: 60, Cap: 5 * time.Second, Jitter: 0.1}
	err := backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) { // it continues at the cap
		last = r.client.Status().Patch(ctx, o, patch, r.owner)
		if r.worker != "" && apierrors.IsInvalid(last) {
			last = fmt.Errorf("%w: %w", errTaken, last)
			return false, last
		}
		if apierrors.IsNotFound(last) || apierrors.IsForbidden(last) || apierrors.IsInvalid(last) {
			return false, last
		}
		o.Status = *status.DeepCopy()
		return last == nil, nil
	})
	return cmp.Or(last, err)
}

// commit records that the work can only go forward from now on. The API server rejects that if the operator has given the operation up meanwhile, and
// starts what was stopped.
func (r *record) commit(ctx context.Context) error {
	if r.client == nil {
		return nil
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	o := r.op.DeepCopy()
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	const forward = `[{"op":"test","path":"/status/phase","value":"Running"},{"op":"add","path":"/status/runner/final","value":true}]`
	if err := r.send(ctx, o, client.RawPatch(types.JSONPatchType, []byte(forward))); err != nil {
		return fmt.Errorf("operation %s cannot continue: %w", o.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.op.Status.Runner.Final, r.written.Runner.Final = true, true
	return nil
}

// flushInterval is how long a change within a step may take to be written.
const flushInterval = time.Second

// flush writes the changes at each interval until ctx ends. It calls also before each write.
func (r *record) flush(ctx context.Context, interval time.Duration, also func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			also(ctx)
			_ = r.write(ctx) // the next write includes it
		}
	}
}

// Append is called at the start and end of a step; Event has recorded what happened. The end of the last step is written with the end of the operation.
func (r *record) Append(ctx context.Context, _ workflow.Entry) error {
	if r.over() {
		return nil
	}
	return r.write(ctx)
}

// over reports whether every step is over.
func (r *record) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.op.Status.Steps) > 0 && !slices.ContainsFunc(r.op.Status.Steps, func(s v1alpha1.OperationStep) bool { return !s.State.Over() })
}

func (r *record) Event(e workflow.Event) {
	r.log.add(e)
	defer r.shown()
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.op.Status.Steps, func(s v1alpha1.OperationStep) bool { return s.Name == e.Phase })
	if i < 0 {
		return
	}
	s := &r.op.Status.Steps[i]
	if s.State.Over() { // an earlier process did it
		return
	}
	if e.Type == workflow.PhaseStarted {
		r.op.Status.Step = s.Name
	}
	apply(s, e)
	r.op.Status.Message = s.Message
	if e.Type == workflow.PhaseFailed {
		r.op.Status.Findings = failedWith(r.op.Status.Findings, Findings(e.Findings))
		if r.events == nil {
			return
		}
		r.events.Eventf(r.op, nil, corev1.EventTypeWarning, "StepFailed", s.Name, "%s", status.Note(finding.Here(s.Name+": "+s.Message, r.op.Namespace, r.op.Spec.Cloud)))
	}
}

// apply applies an event to a step. It is pure.
func apply(s *v1alpha1.OperationStep, e workflow.Event) {
	at := metav1.NewTime(e.Time)
	switch e.Type {
	case workflow.PhaseStarted:
		s.State, s.Message, s.End = v1alpha1.StepRunning, "", metav1.Time{}
		if s.Start.IsZero() {
			s.Start = at
		}
	case workflow.PhaseSkipped:
		s.State, s.Message, s.End = v1alpha1.StepSkipped, e.Message, at
	case workflow.PhaseDone:
		s.State, s.Message, s.End = v1alpha1.StepDone, "", at
		if e.Unchanged {
			s.State = v1alpha1.StepUnchanged
		}
	case workflow.PhaseFailed:
		s.State, s.Message, s.End = v1alpha1.StepFailed, e.Message, at
	case workflow.PhaseWaiting:
		if s.Message = "waiting for " + e.Message; e.Why != "" {
			s.Message += ": " + e.Why
		}
	case workflow.PhaseProgress:
		s.Done, s.Total, s.Unit = e.Done, e.Total, e.Unit
	case workflow.PhaseInfo:
		s.Message = e.Message
	case workflow.PhaseChanged:
		if slices.Contains(s.Evidence, e.Message) { // an interrupted step that continues repeats it
			return
		}
		if s.Evidence = append(s.Evidence, e.Message); len(s.Evidence) > maxEvidence {
			s.Evidence = s.Evidence[len(s.Evidence)-maxEvidence:]
		}
	}
}

// maxEvidence is how many lines of a step the status holds; the log has all.
const maxEvidence = 50

// failedWith returns the findings of a failure, followed by the warnings that its step recorded with them. It is pure.
func failedWith(noted, failed []v1alpha1.OperationFinding) []v1alpha1.OperationFinding {
	if slices.ContainsFunc(failed, func(f v1alpha1.OperationFinding) bool { return !slices.Contains(noted, f) }) {
		return failed // the recorded ones belong to another step
	}
	return append(slices.Clone(failed), slices.DeleteFunc(slices.Clone(noted), func(f v1alpha1.OperationFinding) bool { return !f.Warning })...)
}

// here names the cloud of an operation in the commands that its status advises.
func here(o *v1alpha1.OnecloudOperation) *v1alpha1.OnecloudOperation {
	s := &o.Status
	texts := []*string{&s.Message, &s.Cause}
	for i := range s.Steps {
		texts = append(texts, &s.Steps[i].Message)
	}
	for i := range s.Findings {
		texts = append(texts, &s.Findings[i].Cause, &s.Findings[i].Remedy)
	}
	for _, text := range texts {
		*text = finding.Here(*text, o.Namespace, o.Spec.Cloud)
	}
	return o
}

// Findings converts findings for a status.
func Findings(l finding.List) []v1alpha1.OperationFinding {
	return lists.Map(l, func(f finding.Finding) v1alpha1.OperationFinding {
		return v1alpha1.OperationFinding{Code: f.Code, Warning: f.Severity == finding.Warning, What: f.What, Cause: f.Cause, Remedy: f.Remedy}
	})
}
