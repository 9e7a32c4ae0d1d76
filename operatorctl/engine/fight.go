// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// How often the same object is set right before that is called a fight: as often as fightBudget at once, and once more after each
// fightRefill. In a fight it is set right after fightDelay, then after twice as long each time, at most fightLast. A person who tries
// something by hand stays below; two controllers that answer each other do not.
const (
	fightBudget = 20
	fightRefill = 10 * time.Second
	fightDelay  = 10 * time.Second
	fightLast   = 10 * time.Minute
)

// fight is how often an object had to be set right lately.
type fight struct {
	// spent of the budget, as of at, when it was set right last.
	spent float64
	at    time.Time
	// delay is zero unless there is a fight; what then tells of it.
	delay time.Duration
	what  error
}

// over is when a fight counts as over if the object stays as it is.
func (f *fight) over() time.Time { return f.at.Add(2 * f.delay) }

// heal asks whether an object that somebody else has changed, or deleted (where is ""), may be set right now.
func (a *Applier) heal(ctx context.Context, key Key, o client.Object, where string) bool {
	a.mu.Lock()
	now := a.Now()
	f := a.fights[key]
	if f == nil {
		f = &fight{at: now}
		a.fights[key] = f
	}
	if f.delay > 0 && now.Before(f.at.Add(f.delay)) {
		defer a.mu.Unlock()
		return false
	}
	if f.delay > 0 && !now.Before(f.over()) {
		f.delay, f.what, f.spent = 0, nil, fightBudget/2
	}
	f.spent = max(0, f.spent-now.Sub(f.at).Seconds()/fightRefill.Seconds()) + 1
	f.at = now
	begins := f.spent > fightBudget && f.delay == 0
	switch {
	case begins:
		f.delay = fightDelay
	case f.delay > 0: // once more, and then another while
		f.delay = min(2*f.delay, fightLast)
	}
	a.mu.Unlock()
	if !begins {
		return true
	}
	what := a.describe(ctx, key, o, where)
	a.mu.Lock()
	defer a.mu.Unlock()
	f.what = what
	return false
}

// fighting is the fight over an object, nil if there is none. Its Until is when the object is to be looked at again.
func (a *Applier) fighting(key Key) *Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, now := a.fights[key], a.Now()
	if f == nil || f.what == nil || !now.Before(f.over()) {
		return nil
	}
	until := f.at.Add(f.delay)
	if !now.Before(until) {
		until = f.over()
	}
	return &Refusal{Reason: ReasonFight, Until: until, Err: f.what}
}

func (a *Applier) describe(ctx context.Context, key Key, o client.Object, where string) error {
	const advice = "it is left as it is for a while: make that stop, or annotate the object with onecloud.yunion.io/paused=true"
	if where == "" {
		return fmt.Errorf("%s %q: somebody deletes it again and again; %s", key.GVK.Kind, key.Name, advice)
	}
	return fmt.Errorf("%s %q: %s changes %s again and again; %s", key.GVK.Kind, key.Name, a.rival(ctx, key, where), strings.TrimPrefix(where, "."), advice)
}

// rival names who owns a field besides us. The cache does not know it, so this asks the API server, by an apply on trial as look does,
// of whatever version there is now; it happens once in a fight.
func (a *Applier) rival(ctx context.Context, key Key, where string) string {
	const unknown = "somebody"
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(key.GVK)
	o.SetNamespace(key.Namespace)
	o.SetName(key.Name)
	if a.Writer.Patch(ctx, o, client.Apply, client.FieldOwner(looker), client.DryRunAll) != nil { //nolint:staticcheck // it is no whole object
		return unknown
	}
	if m := OwnerOf(o.GetManagedFields(), where); m != "" {
		return m
	}
	return unknown
}

// OwnerOf names the manager other than ours that owns a field, or the fields below it, given as a path of Holds; "" if nobody does.
func OwnerOf(entries []metav1.ManagedFieldsEntry, where string) string {
	for _, m := range entries {
		if m.Manager == FieldManager || m.FieldsV1 == nil {
			continue
		}
		set := fieldpath.NewSet()
		if err := set.FromJSON(m.FieldsV1.GetRawReader()); err != nil {
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

// pathText writes a path as Holds does.
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
