// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	clouds "yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/status"
)

// invalidOption: what a service would not take is told before anything rolls; corrected, it rolls once, and the identity service, whose
// values win, has it too.
func (r *rig) invalidOption() {
	before := r.deployments()["region"]
	starts := r.pods.Starts("default-region")
	secret, cm := &corev1.Secret{}, &corev1.ConfigMap{}
	r.get(secret, "default-region-config")
	r.get(cm, "default-region")
	passes, _ := r.passes()
	r.edit(cm, `{"data":{"default_bandwdth":"2000","default_mtu":"much","request_worker_count":"32"}}`)
	message := r.untilInvalid("region", `option "default_bandwdth" is not known to region; did you mean "default_bandwidth"?`)
	if !strings.HasPrefix(message, "ConfigMap default-region: ") || !strings.Contains(message, `option "default_mtu" must be a whole number, not "much"`) {
		r.t.Errorf("status says %q", message)
	}
	r.untilQuiet(passes)
	after := &corev1.Secret{}
	r.get(after, "default-region-config")
	if now := r.deployments()["region"]; now.Generation != before.Generation || after.ResourceVersion != secret.ResourceVersion || r.pods.Starts("default-region") != starts {
		r.t.Errorf("something rolls: Deployment from generation %d to %d, Secret from %s to %s", before.Generation, now.Generation,
			secret.ResourceVersion, after.ResourceVersion)
	}
	for _, c := range r.cloud().Status.Components {
		if c.Name != "region" && !c.State.Settled() {
			r.t.Errorf("%s is %s: %s", c.Name, c.State, c.Message)
		}
	}
	r.untilTold("region is Degraded: ConfigMap default-region")
	r.waitTells("kubectl -n onecloud edit configmap default-region")

	r.edit(cm, `{"data":{"default_bandwdth":null,"default_bandwidth":"2000","default_mtu":"1400","time_zone":"UTC"}}`)
	r.until(&appsv1.Deployment{}, "default-region", func(o client.Object) (bool, string) {
		d, ok := o.(*appsv1.Deployment)
		return ok && d.Generation > before.Generation && d.Status.ObservedGeneration == d.Generation && d.Status.AvailableReplicas == 1, "the pods have not followed"
	})
	r.untilReady()
	if now := r.deployments()["region"]; now.Generation != before.Generation+1 {
		r.t.Errorf("the Deployment was changed %d times", now.Generation-before.Generation)
	}
	id, _ := r.identity()
	for service, want := range map[string]map[string]string{
		"region2": {"default_bandwidth": "2000", "default_mtu": "1400", "request_worker_count": "32"}, "common": {"time_zone": "UTC"},
	} {
		stored, err := id.GetServiceConfig(r.t.Context(), service)
		if err != nil {
			r.t.Fatal(err)
		}
		for option, value := range want {
			if got := fmt.Sprint(stored["default"][option]); got != value {
				r.t.Errorf("%s has stored %s %q, want %s", service, option, got, value)
			}
		}
	}
}

// waitTells: a wait for a cloud that waits for a person ends long before its time is up, and says what is to be done.
func (r *rig) waitTells(remedy string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	told := ""
	err := clouds.Wait(ctx, r.client, client.ObjectKey{Namespace: namespace, Name: cloud}, func(s clouds.Status) { told = strings.Join(s.Missing(), "; ") })
	f, ok := errors.AsType[finding.Finding](err)
	if !ok || f.Code != "OCA-7013" || !strings.Contains(f.Remedy, remedy) || !strings.Contains(f.Cause, "ConfigMap default-region: option") || ctx.Err() != nil {
		r.t.Errorf("the wait ended with %v, having told %q", err, told)
	}
}

// untilInvalid waits until a component says what is wrong with its options, and returns all it says.
func (r *rig) untilInvalid(name, says string) string {
	r.t.Helper()
	var message string
	r.until(&v1alpha1.OnecloudCluster{}, cloud, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		if !ok {
			return false, "gone"
		}
		i := slices.IndexFunc(cr.Status.Components, func(c v1alpha1.ComponentStatus) bool { return c.Name == name })
		c := cr.Status.Components[i]
		message = c.Message
		return c.State == v1alpha1.Degraded && c.Reason == status.ReasonInvalidOption && strings.Contains(c.Message, says), states(cr)
	})
	return message
}

// untilTold waits for an event about the cloud.
func (r *rig) untilTold(note string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	var all eventsv1.EventList
	watch, err := r.client.Watch(ctx, &all, client.InNamespace(namespace))
	if err != nil {
		r.t.Fatal(err)
	}
	defer watch.Stop()
	if err := r.client.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		r.t.Fatal(err)
	}
	told := func(e *eventsv1.Event) bool {
		return e.Reason == status.ReasonInvalidOption && strings.HasPrefix(e.Note, note)
	}
	if slices.ContainsFunc(all.Items, func(e eventsv1.Event) bool { return told(&e) }) {
		return
	}
	for e := range watch.ResultChan() {
		if event, ok := e.Object.(*eventsv1.Event); ok && told(event) {
			return
		}
	}
	r.t.Errorf("no event %q", note)
}
