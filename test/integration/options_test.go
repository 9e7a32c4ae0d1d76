// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	clouds "yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// TestInvalidOptionIsReportedAndChangesNothing checks that an invalid option is reported before anything rolls. After a correction the service rolls
// once, and the identity service, whose values take precedence, has the option too.
func TestInvalidOptionIsReportedAndChangesNothing(t *testing.T) {
	e := installed(t, env.Options{Workloads: env.Programs}, "keystone", "region")
	before := e.Deployments()["region"]
	starts := e.Pods.Starts("default-region")
	secret, cm := &corev1.Secret{}, &corev1.ConfigMap{}
	e.Get(secret, "default-region-config")
	e.Get(cm, "default-region")
	passes, _ := e.Passes()
	e.EditObject(cm, cm.GetName(), `{"data":{"default_bandwdth":"2000","default_mtu":"much","request_worker_count":"32"}}`)
	message := e.untilInvalid("region", `option "default_bandwdth" is not known to region; did you mean "default_bandwidth"?`)
	if !strings.HasPrefix(message, "ConfigMap default-region: ") || !strings.Contains(message, `option "default_mtu" must be a whole number, not "much"`) {
		e.Errorf("status says %q", message)
	}
	e.UntilQuiet(passes)
	after := &corev1.Secret{}
	e.Get(after, "default-region-config")
	if now := e.Deployments()["region"]; now.Generation != before.Generation || after.ResourceVersion != secret.ResourceVersion || e.Pods.Starts("default-region") != starts {
		e.Errorf("something rolls: Deployment from generation %d to %d, Secret from %s to %s", before.Generation, now.Generation,
			secret.ResourceVersion, after.ResourceVersion)
	}
	for _, c := range e.Cloud().Status.Components {
		if c.Name != "region" && !c.State.Settled() {
			e.Errorf("%s is %s: %s", c.Name, c.State, c.Message)
		}
	}
	e.untilTold("region is Degraded: ConfigMap default-region")
	e.waitTells("kubectl -n onecloud edit configmap default-region")

	e.EditObject(cm, cm.GetName(), `{"data":{"default_bandwdth":null,"default_bandwidth":"2000","default_mtu":"1400","time_zone":"UTC"}}`)
	e.UntilRolled("default-region", before.Generation)
	e.UntilReady()
	if now := e.Deployments()["region"]; now.Generation != before.Generation+1 {
		e.Errorf("the Deployment was changed %d times", now.Generation-before.Generation)
	}
	e.stores(map[string]map[string]string{
		"region2": {"default_bandwidth": "2000", "default_mtu": "1400", "request_worker_count": "32"}, "common": {"time_zone": "UTC"},
	})

	// After the keys are removed, the stored values are gone as well, and the service uses its own default again.
	prints(e.Env, "default_bandwidth", "component", "options", "unset", "region", "default_bandwidth", "time_zone")
	e.UntilRolled("default-region", before.Generation+1)
	e.UntilReady()
	e.stores(map[string]map[string]string{"region2": {"default_bandwidth": "<nil>", "default_mtu": "1400"}, "common": {"time_zone": "<nil>"}})

	// The command rejects an option that the service would not accept, and changes nothing that is already set.
	if _, err := ocadm(e.Env, "component", "options", "set", "region", "default_mtu=1500", "default_bandwdth=1"); err == nil {
		e.Error("an unknown option was set")
	}
	prints(e.Env, "unchanged", "component", "options", "set", "region", "default_mtu=1400")
	prints(e.Env, "default_mtu", "component", "options", "set", "region", "default_mtu=9000")
	e.UntilRolled("default-region", before.Generation+2)
	e.UntilReady()
	e.stores(map[string]map[string]string{"region2": {"default_mtu": "9000"}})
	e.keystoneStartsWithWhatIsSet()
}

// keystoneStartsWithWhatIsSet checks that keystone's stored options are changed before its one roll, because keystone reads them when it starts.
func (e *cloudTest) keystoneStartsWithWhatIsSet() {
	e.Helper()
	cm := &corev1.ConfigMap{}
	e.Get(cm, "default-keystone")
	for _, set := range []struct{ edit, a, b string }{
		{`{"data":{"default_role_quota":"600"}}`, "600", "<nil>"},
		{`{"data":{"default_role_quota":null,"password_minimal_length":"9"}}`, "<nil>", "9"},
	} {
		before := e.Deployments()["keystone"].Generation
		e.EditObject(cm, cm.GetName(), set.edit)
		e.UntilRolled("default-keystone", before)
		e.stores(map[string]map[string]string{"keystone": {"default_role_quota": set.a, "password_minimal_length": set.b}})
		e.UntilReady()
		if now := e.Deployments()["keystone"].Generation; now != before+1 {
			e.Errorf("keystone was changed %d times", now-before)
		}
	}
}

// stores compares options with those that the identity service stores, by record; "<nil>" means that an option is not stored.
func (e *cloudTest) stores(records map[string]map[string]string) {
	e.Helper()
	id, _ := e.identity()
	for service, want := range records {
		stored, err := id.GetServiceConfig(e.Context(), service)
		require.NoError(e, err)
		for option, value := range want {
			if got := fmt.Sprint(stored["default"][option]); got != value {
				e.Errorf("%s has stored %s %q, want %s", service, option, got, value)
			}
		}
	}
}

// waitTells checks that waiting for a cloud that needs a user's action ends long before the timeout and reports the remedy.
func (e *cloudTest) waitTells(remedy string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), env.Patience)
	defer cancel()
	told := ""
	err := clouds.Wait(ctx, e.Client, client.ObjectKey{Namespace: namespace, Name: cloud}, func(s clouds.Status) { told = strings.Join(s.Missing(), "; ") })
	f, ok := errors.AsType[finding.Finding](err)
	if !ok || f.Code != "OCA-7013" || !strings.Contains(f.Remedy, remedy) || !strings.Contains(f.Cause, "ConfigMap default-region: option") || ctx.Err() != nil {
		e.Errorf("the wait ended with %v, having told %q", err, told)
	}
}

// untilInvalid waits until a component reports invalid options, and returns the message.
func (e *cloudTest) untilInvalid(name, says string) string {
	e.Helper()
	var message string
	e.UntilComponent(name, func(c v1alpha1.ComponentStatus) bool {
		message = c.Message
		return c.State == v1alpha1.Degraded && c.Reason == status.ReasonInvalidOption && strings.Contains(c.Message, says)
	})
	return message
}

// untilTold waits for an event about the cloud.
func (e *cloudTest) untilTold(note string) {
	e.Helper()
	e.Eventually(func() (bool, string) {
		for told := range e.told() {
			if strings.HasPrefix(told, status.ReasonInvalidOption+": "+note) {
				return true, ""
			}
		}
		return false, "no event " + note
	})
}
