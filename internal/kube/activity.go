// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/lists"
)

const (
	// activityInterval is how often pulls in progress are reported.
	activityInterval = 20 * time.Second
	pullingReason    = "Pulling"
)

// Activity follows the events of pods until ctx ends and calls moved for each sign of progress: a new event that is not a warning, and repeatedly
// while an image is being pulled. pulling names the images being pulled, "" if there are none. The kubelet aborts a pull that makes no progress, and
// counts up an existing event when a container fails again.
func Activity(ctx context.Context, c client.WithWatch, moved func(pulling string), opts ...client.ListOption) {
	updates := make(chan contents)
	go follow(ctx, c, sourceObject, &corev1.Event{}, updates, opts...)
	tick := time.NewTicker(activityInterval)
	defer tick.Stop()
	var a activity
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-updates:
			if u.trouble == "" && a.take(u.objects) {
				moved(a.pulling())
			}
		case <-tick.C:
			if now := a.pulling(); now != "" {
				moved(now)
			}
		}
	}
}

// activity is the state derived from the events of pods.
type activity struct {
	seen   map[types.UID]bool
	newest map[string]*corev1.Event // by pod
}

// take reports whether one of the events is new and not a warning.
func (a *activity) take(objects map[types.UID]client.Object) bool {
	moved, first := false, a.seen == nil
	if first {
		a.seen = map[types.UID]bool{}
	}
	a.newest = map[string]*corev1.Event{}
	for uid, o := range objects {
		e, ok := o.(*corev1.Event)
		if !ok || e.InvolvedObject.Kind != "Pod" {
			continue
		}
		moved = moved || !a.seen[uid] && e.Type == corev1.EventTypeNormal
		a.seen[uid] = true
		pod := e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
		if old := a.newest[pod]; old == nil || newer(e, old) {
			a.newest[pod] = e
		}
	}
	return moved && !first
}

func (a *activity) pulling() string {
	images := lists.Pick(slices.Collect(maps.Values(a.newest)), func(e *corev1.Event) (string, bool) {
		return strings.Trim(strings.TrimPrefix(e.Message, "Pulling image "), `"`), e.Reason == pullingReason
	})
	slices.Sort(images)
	return strings.Join(slices.Compact(images), ", ")
}

// newer reports whether an event is more recent than another one. Their times have a precision of a second.
func newer(e, other *corev1.Event) bool {
	order, err := resourceversion.CompareResourceVersion(e.ResourceVersion, other.ResourceVersion)
	return err == nil && order > 0
}
