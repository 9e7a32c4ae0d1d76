// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// TestNoSecretLeaks searches for every secret of the cloud in everything that users may read, after the database has rejected one of them.
func TestNoSecretLeaks(t *testing.T) {
	e := installed(t, env.Options{Workloads: env.Programs})
	const wrong = "Canary-wrong-Pa55word"
	e.Edit(`{"spec":{"mysql":{"password":"` + wrong + `"},"enableCloudNet":true}}`)
	e.UntilComponent("cloudnet", func(c v1alpha1.ComponentStatus) bool {
		return c.State == v1alpha1.Degraded && c.Reason == "EffectFailed"
	})
	failed := e.text(e.Cloud().Status)
	e.Edit(`{"spec":{"mysql":{"password":"` + e.DB.RootPassword + `"},"enableCloudNet":false}}`)
	e.UntilReady()
	words := map[string]string{"the database administrator's password": e.DB.RootPassword, "the wrong password": wrong}
	for k, v := range e.Credentials() {
		if k != component.CloudID {
			words["credential "+k] = string(v)
		}
	}
	cr := e.Cloud()
	cr.Spec.MySQL.Password = "" // the user has put it there
	texts := map[string]string{"operator's log": e.Said(), "cloud": e.text(cr), "failed cloud": failed, "metrics": e.metricsText()}
	texts["log of the services"] = e.Pods.Log()
	if n := strings.Count(e.Pods.Log(), "Start listen on"); n < 8 {
		e.Errorf("only %d services log that they listen", n)
	}
	for _, list := range []client.ObjectList{
		&eventsv1.EventList{}, &corev1.ConfigMapList{}, &corev1.PodList{}, &corev1.ServiceList{}, &appsv1.DeploymentList{},
		&appsv1.StatefulSetList{}, &appsv1.DaemonSetList{}, &networkingv1.IngressList{}, &corev1.PersistentVolumeClaimList{},
		&coordinationv1.LeaseList{},
	} {
		require.NoError(e, e.Client.List(e.Context(), list, client.InNamespace(namespace)))
		texts[e.Kind(list)] = e.text(list)
	}
	for _, leak := range harness.Leaks(words, texts) {
		e.Error(leak)
	}
}

// metricsText returns all metrics of the operator as text.
func (e *cloudTest) metricsText() string {
	families, err := metrics.Registry.Gather()
	require.NoError(e, err)
	var b strings.Builder
	for _, f := range families {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

func (e *cloudTest) text(o any) string {
	e.Helper()
	b, err := yaml.Marshal(o)
	require.NoError(e, err)
	return string(b)
}

// delete deletes the cloud and returns the order in which its workloads were deleted.
func (e *cloudTest) delete() []string {
	e.Helper()
	began := time.Now()
	w := e.Count(e.Delete)
	e.Logf("deleted after %s: %s", time.Since(began).Round(10*time.Millisecond), w)
	var order []string
	for _, q := range w.Kubernetes {
		if q.Verb == "delete" && q.Group == "apps" {
			order = append(order, strings.TrimPrefix(q.Name, cloud+"-"))
		}
	}
	return order
}

// untilLeft waits until the garbage collector has left exactly these objects of the cloud.
func (e *cloudTest) untilLeft(want ...string) {
	e.Helper()
	e.Eventually(func() (bool, string) {
		var have []string
		for _, o := range e.Objects(append(env.Kinds(), &corev1.Pod{})...) {
			have = append(have, e.Kind(o)+"/"+o.GetName())
		}
		slices.Sort(have)
		return slices.Equal(have, want), fmt.Sprintf("left: %q, want %q", have, want)
	})
}

// claims returns the claims of the cloud by kind and name, sorted.
func (e *cloudTest) claims() []string {
	var out []string
	for _, o := range e.Objects(&corev1.PersistentVolumeClaim{}) {
		out = append(out, "PersistentVolumeClaim/"+o.GetName())
	}
	if len(out) == 0 {
		e.Fatal("the cloud has no claims, so nothing shows that they stay")
	}
	slices.Sort(out)
	return out
}

// TestDeletionKeepsTheData checks that without a policy data is kept, and that a cloud that is created again finds it.
func TestDeletionKeepsTheData(t *testing.T) {
	e := installed(t, env.Options{})
	databases, credentials := e.databases(), e.Credentials()
	keeps := append(e.claims(), "Secret/default-credentials")
	order := e.delete()
	for _, pair := range [][2]string{{"web", "apigateway"}, {"glance", "region"}, {"scheduler", "region"}, {"region", "keystone"}, {"climc", "keystone"}} {
		if slices.Index(order, pair[0]) > slices.Index(order, pair[1]) || !slices.Contains(order, pair[0]) {
			e.Errorf("%s goes before %s, but the order was %q", pair[0], pair[1], order)
		}
	}
	e.untilLeft(keeps...)
	if now := e.databases(); !slices.Equal(now, databases) {
		e.Errorf("databases %q, before %q", now, databases)
	}
	if now := e.Credentials(); !maps.EqualFunc(now, credentials, slices.Equal) {
		e.Error("the credentials have changed")
	}

	// The operator is stopped repeatedly, and the cloud that is created again finds its data.
	e.installWithStops("default-keystone", "default-region")
	if !maps.EqualFunc(e.Credentials(), credentials, slices.Equal) {
		e.Error("the credentials have changed on the way back")
	}
	for name, account := range map[string]string{"glance": "glance", "keystone": "keystone", "region": "yunioncloud"} {
		if !e.logsIn(e.Context(), account, string(credentials[component.DatabasePassword(name)])) {
			e.Errorf("the database account of %s has another password", name)
		}
	}
}

// TestInterruptedInstallationContinues stops the operator repeatedly during a first installation.
func TestInterruptedInstallationContinues(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	e.StartOperator()
	credentials := e.installWithStops("default-keystone", "default-region", "default-scheduler")
	if !maps.EqualFunc(e.Credentials(), credentials, slices.Equal) {
		e.Error("the credentials have changed on the way")
	}
	e.catalogue()
}

// installWithStops creates the cloud, and replaces the operator when each of the Deployments appears. It returns the credentials at the time of the first stop.
func (e *cloudTest) installWithStops(deployments ...string) map[string][]byte {
	e.Helper()
	e.Create(e.Minimal())
	var credentials map[string][]byte
	for _, name := range deployments {
		e.UntilThere(&appsv1.Deployment{}, name)
		e.StopOperator()
		if credentials == nil {
			credentials = e.Credentials()
		}
		e.StartOperator()
	}
	e.UntilReady()
	return credentials
}

// TestDeletionRemovesTheDataOnRequest checks that nothing is left with deletionPolicy Delete and deletion of backups.
func TestDeletionRemovesTheDataOnRequest(t *testing.T) {
	e := installed(t, env.Options{}, env.Small...)
	e.Edit(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationDeleteBackups + `":"true"}},"spec":{"deletionPolicy":"Delete"}}`)
	e.UntilReady()
	e.delete()
	e.untilLeft()
	for _, name := range []string{"keystone", "yunioncloud", "glance", "yunionlogger", "yunionconf"} {
		if slices.Contains(e.databases(), name) {
			e.Errorf("database %s is still there", name)
		}
	}
}
