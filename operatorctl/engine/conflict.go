// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// An object that other clients revert is corrected immediately up to conflictBudget times, if each correction follows the previous one within
// conflictPause. More are a conflict: the object is then corrected with exponential backoff, from conflictPause to conflictLast. A person who tries
// something by hand stays below the budget; two competing controllers do not.
const (
	conflictBudget = 20
	conflictPause  = 10 * time.Second
	conflictLast   = 10 * time.Minute
)

// drift counts consecutive corrections of an object, with the time of the last one. conflict describes a conflict, nil if there is none.
type drift struct {
	times    int
	at       time.Time
	conflict error
}

// pause returns how long to wait after the last correction; zero unless there is a conflict.
func (d drift) pause() time.Duration {
	if d.times <= conflictBudget {
		return 0
	}
	return min(conflictPause<<min(d.times-conflictBudget-1, 10), conflictLast)
}

// over returns when a series of corrections ends if the object is not changed again.
func (d drift) over() time.Time { return d.at.Add(max(conflictPause, 2*d.pause())) }

// correct counts a correction. ok is false if it is too early for one.
func (d drift) correct(now time.Time) (_ drift, ok bool) {
	if now.Before(d.at.Add(d.pause())) {
		return d, false
	}
	if !now.Before(d.over()) {
		d = drift{}
	}
	d.times, d.at = d.times+1, now
	return d, true
}

// refusal returns the conflict over an object, nil if there is none. Its Until is when to check the object again.
func (d drift) refusal(now time.Time) *Refusal {
	if d.conflict == nil || !now.Before(d.over()) {
		return nil
	}
	until := d.at.Add(d.pause())
	if !now.Before(until) {
		until = d.over()
	}
	return &Refusal{Reason: ReasonConflict, Until: until, Err: d.conflict}
}

// mayRepair reports whether an object that another client changed, or deleted (where is ""), may be corrected now.
func (a *Applier) mayRepair(ctx context.Context, key Key, where string) (ok bool) {
	var d drift
	a.records.update(key, func(r *record) {
		d, ok = r.drift.correct(a.Now())
		r.drift = d
	})
	if !ok || d.pause() == 0 || d.conflict != nil {
		return ok
	}
	d.conflict = a.describe(ctx, key, where)
	a.records.update(key, func(r *record) { r.drift = d })
	return false
}

func (a *Applier) describe(ctx context.Context, key Key, where string) error {
	advice := "it is left unchanged for a while: stop the other client, or "
	switch key.GVK.Kind {
	case "Deployment", "StatefulSet", "DaemonSet", "CronJob":
		advice += "annotate the object with onecloud.yunion.io/paused=true"
	default: // only workloads can be paused individually
		advice += "name its component in annotation onecloud.yunion.io/paused of the cloud"
	}
	if where == "" {
		return fmt.Errorf("%s %q: another client deletes it repeatedly; %s", key.GVK.Kind, key.Name, advice)
	}
	return fmt.Errorf("%s %q: %s changes %s repeatedly; %s", key.GVK.Kind, key.Name, a.rival(ctx, key, where),
		strings.TrimPrefix(where, "."), advice)
}

// rival returns the other owners of a field. The cache does not hold them, so it asks the API server for the current version, once per conflict.
func (a *Applier) rival(ctx context.Context, key Key, where string) string {
	const unknown = "another client"
	o, err := a.look(ctx, key, "")
	if err != nil {
		return unknown
	}
	return cmp.Or(OwnerOf(o.GetManagedFields(), where), unknown)
}

// OwnerOf returns the manager, other than ours, of a field or of the fields below it, given as a path of Holds; "" if there is none.
func OwnerOf(entries []metav1.ManagedFieldsEntry, where string) string {
	for _, m := range entries {
		set, err := FieldsOf(m)
		if m.Manager == FieldManager || err != nil {
			continue
		}
		found := false
		set.Leaves().Iterate(func(p fieldpath.Path) {
			text := pathText(p)
			found = found || text == where || strings.HasPrefix(text, where+".") || strings.HasPrefix(text, where+"[") || strings.HasPrefix(where, text+"[")
		})
		if found {
			return m.Manager
		}
	}
	return ""
}

// pathText formats a path as Holds does.
func pathText(p fieldpath.Path) string {
	var b strings.Builder
	for _, e := range p {
		switch {
		case e.FieldName != nil:
			b.WriteString("." + *e.FieldName)
		case e.Key != nil:
			b.WriteString("[")
			for _, f := range *e.Key {
				fmt.Fprint(&b, f.Value.Unstructured(), "/")
			}
			b.WriteString("]")
		case e.Index != nil:
			fmt.Fprintf(&b, "[%d]", *e.Index)
		}
	}
	return b.String()
}

// alteration is what the API server made of a write that it did not accept as it was: an admission webhook changed it, or the API server does not know a
// field. The same write again would change nothing, but count as a correction.
type alteration struct {
	hash  string
	as    map[string]any
	until time.Time
}

// alterationOf returns the alteration of a write, nil if the response holds what was sent.
func alterationOf(sent, response map[string]any, hash string, now time.Time) *alteration {
	if ok, _ := Holds(sent, response); ok {
		return nil
	}
	as := maps.Clone(response)
	delete(as, "status")
	o := &unstructured.Unstructured{Object: response}
	as["metadata"] = map[string]any{}
	one := &unstructured.Unstructured{Object: as}
	one.SetLabels(o.GetLabels())
	one.SetAnnotations(o.GetAnnotations())
	return &alteration{hash: hash, as: as, until: now.Add(conflictLast)}
}

// stands reports whether an object that is applied under a hash is still as the API server altered it. It is tried again after a while: the webhook may be
// gone.
func (a *alteration) stands(hash string, live map[string]any, now time.Time) bool {
	if a == nil || a.hash != hash || !now.Before(a.until) {
		return false
	}
	ok, _ := Holds(a.as, live)
	return ok
}

// holds reports whether live holds what is applied under a hash, or what the API server made of it, which is noted in change. where is the path of the first
// difference.
func (a *Applier) holds(key Key, hash string, desired, live map[string]any, change *Change) (ok bool, where string) {
	ok, where = Holds(desired, live)
	if ok || !a.records.get(key).altered.stands(hash, live, a.Now()) {
		return ok, where
	}
	change.Kept = append(change.Kept, Kept{ReasonAltered, fmt.Sprintf(
		"%s %s keeps its current %s: the API server changes what the operator applies, usually by an admission webhook (kubectl get mutatingwebhookconfigurations)",
		key.GVK.Kind, key.Name, strings.TrimPrefix(where, "."))})
	return true, where
}
