// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// correctionDelay is how long a wait continues once only an invalid option blocks the cloud: the user may just have corrected it, and the operator
// needs a moment to notice.
const correctionDelay = 5 * time.Second

var errUncorrected = errors.New("an option is not valid")

// uncorrected detects that. Its methods are called from one goroutine.
type uncorrected struct {
	end   context.CancelCauseFunc
	timer *time.Timer
	names []string
}

// look gets each state of a cloud. It ends the wait once the same components have been blocked for correctionDelay and nothing else is in progress.
func (w *uncorrected) look(u *unstructured.Unstructured, s Status) {
	seen, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	var names []string
	if seen >= u.GetGeneration() {
		names = lists.Map(s.uncorrected(), func(c v1alpha1.ComponentStatus) string { return c.Name })
	}
	if w.timer != nil && slices.Equal(names, w.names) {
		return
	}
	w.stop()
	if w.names = names; len(names) > 0 {
		w.timer = time.AfterFunc(correctionDelay, func() { w.end(errUncorrected) })
	}
}

func (w *uncorrected) stop() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// uncorrected returns the components with an invalid option, if all others are available or wait for one of these.
func (s Status) uncorrected() []v1alpha1.ComponentStatus {
	var out []v1alpha1.ComponentStatus
	stuck := map[string]bool{}
	for _, c := range s.Components {
		if c.State == v1alpha1.Degraded && c.Reason == v1alpha1.ReasonInvalidOption {
			out = append(out, c)
			stuck[c.Name] = true
		}
	}
	for before := -1; before != len(stuck); {
		before = len(stuck)
		for _, c := range s.Components {
			if c.State == v1alpha1.Waiting && slices.ContainsFunc(c.BlockedBy, func(n string) bool { return stuck[n] }) {
				stuck[c.Name] = true
			}
		}
	}
	if slices.ContainsFunc(s.Components, func(c v1alpha1.ComponentStatus) bool { return !c.Settled() && !stuck[c.Name] }) {
		return nil
	}
	return out
}

// toCorrect returns the error for a cloud that cannot become ready until an option is corrected.
func toCorrect(key client.ObjectKey, s Status) error {
	f := finding.Finding{Code: "OCA-7013", Severity: finding.Error, What: fmt.Sprintf("Cloud %s has an invalid option", key), Err: errUncorrected}
	var remedies []string
	for _, c := range s.uncorrected() {
		f.Evidence = append(f.Evidence, c.Name+": "+c.Message)
		remedies = append(remedies, fmt.Sprintf("kubectl -n %s edit configmap %s-%s   # list options: ocadm component options list %s%s",
			key.Namespace, key.Name, c.Name, c.Name, finding.Elsewhere(key.Namespace, key.Name)))
	}
	if len(f.Evidence) > 0 {
		f.Cause = f.Evidence[0]
	}
	f.Remedy = strings.Join(append(remedies, "ocadm cluster status --wait"+finding.Elsewhere(key.Namespace, key.Name)), "\n")
	return f
}
