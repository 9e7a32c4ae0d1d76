// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// stems are the stems of the results in annotation AnnotationOperation.
var stems = map[string]string{v1alpha1.RequestCreating: "create", v1alpha1.RequestChecking: "precheck", v1alpha1.RequestDeleting: "delete"}

const finished, notFinished = "-finished", "-failed"

// ask records a request in the annotation and reports whether it is new. The request takes effect only once it is in the status: the cache may still
// hold an annotation that was answered a moment ago.
func (d *decision) ask(f facts) bool {
	s, word := &d.status, f.machine.Annotations[v1alpha1.AnnotationOperation]
	if stems[word] == "" || s.Request != nil && s.Request.Operation == word && s.Request.Result == "" {
		return false
	}
	s.Request = &v1alpha1.MachineRequest{Operation: word, Time: metav1.NewTime(f.now)}
	if word == v1alpha1.RequestCreating { // an earlier failure is no answer: attempt retries
		s.Retry = ""
	}
	return true
}

// asks reports whether a request is in progress.
func (d *decision) asks(word string) bool {
	r := d.status.Request
	return r != nil && r.Operation == word && r.Result == ""
}

// answer records the progress of the request, after everything else was decided.
func (d *decision) answer(f facts) {
	r := d.status.Request
	if r == nil {
		return
	}
	switch {
	case r.Operation == v1alpha1.RequestDeleting && d.release:
		r.Result, r.Message = stems[r.Operation]+finished, ""
	case r.Result != "":
	case r.Operation == v1alpha1.RequestDeleting:
		d.delete = f.machine.DeletionTimestamp == nil
		d.end(f.machine.DeletionTimestamp != nil && d.status.FailureReason != "", false, d.status.FailureMessage)
	case f.machine.DeletionTimestamp != nil:
		d.end(true, false, "the machine is being removed")
	case r.Operation == v1alpha1.RequestCreating:
		d.end(d.status.Phase == v1alpha1.MachineFailed, d.status.Phase == v1alpha1.MachineRunning, d.status.FailureMessage)
		r.Name = d.status.Operation
	case r.Operation == v1alpha1.RequestChecking:
		d.check(f)
	}
	if word := f.machine.Annotations[v1alpha1.AnnotationOperation]; r.Result != "" && word != r.Result && (word == r.Operation || word == stems[r.Operation]+notFinished) {
		d.annotate = r.Result
	}
}

// end records the result of a request that has ended.
func (d *decision) end(failed, succeeded bool, why string) {
	r := d.status.Request
	switch {
	case failed:
		r.Result, r.Message = stems[r.Operation]+notFinished, why
	case succeeded:
		r.Result, r.Message = stems[r.Operation]+finished, ""
	}
}

// check creates the operation that checks a machine, and evaluates its result.
func (d *decision) check(f facts) {
	s, r := &d.status, d.status.Request
	for _, o := range f.operations {
		if o.Name == r.Name {
			d.end(o.Status.Phase.Final() && o.Status.Phase != v1alpha1.OperationSucceeded, o.Status.Phase == v1alpha1.OperationSucceeded,
				text(o, cmp.Or(o.Status.Message, string(o.Status.Phase))))
			return
		}
	}
	if r.Name != "" || d.create != nil || f.cloud == nil || !f.data && f.node == nil { // it is running; or something else comes first, or there are no data yet
		return
	}
	s.Tries = max(s.Tries, f.former) + 1
	r.Name = fmt.Sprintf("%s-%s-%d", prefixes[v1alpha1.ActionPrecheckMachine], f.machine.Name, s.Tries)
	d.create = operationOn(f, v1alpha1.ActionPrecheckMachine, r.Name)
}
