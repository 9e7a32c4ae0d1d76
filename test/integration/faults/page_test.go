// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster/restapi"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/fakecloud/program"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// interfaceOf serves the REST API and its page.
func interfaceOf(t *testing.T, o restapi.Options) string {
	t.Helper()
	h, run, err := restapi.New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	server := httptest.NewUnstartedServer(nil)
	server.Config = restapi.Server(h)
	server.Start()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// TestPage uses the page in a browser: a cloud, an update that fails, one that succeeds, the rollback, a machine; then as a user who may only read.
func TestPage(t *testing.T) {
	b := newBrowser(t)
	u := newUpdated(t, []string{"keystone", "region", "glance", "logger", "host"})
	o := restapi.Options{Config: u.Cluster.Config(harness.Admin), Log: slog.New(slog.DiscardHandler), Local: "open-sesame", Metrics: metrics.Registry}
	address := interfaceOf(t, o)
	b.opens(address + "/#token=open-sesame&namespace=" + namespace)
	b.press("cloud-" + env.Name)
	b.sees("h1", "Running")
	b.sees("#version", oldVersion)
	for _, name := range []string{"keystone", "region", "glance", "logger", "host"} {
		b.sees("svg.graph a", name)
	}
	b.sees("figure", "Available components")
	b.named()
	b.picture("cloud")
	b.keyboard()
	b.backs(u)

	u.publish("glance", program.AtStart)
	b.updates("Reverted")
	b.sees("#steps li.bad", "this release is broken on purpose")
	b.sees("#log", "wave-services")
	b.stops()
	b.contrasts()
	b.picture("reverted")
	u.isOld(t, "after the update that failed")
	u.publish("glance", "")
	b.updates("Succeeded")
	b.sees("#steps", "keystone")
	b.named()
	b.press("nav-clouds")
	b.press("cloud-" + env.Name)
	b.sees("#version", newVersion)

	var revision int
	for _, o := range u.Operations() {
		if o.Status.Phase == v1alpha1.OperationSucceeded {
			revision = o.Status.Rollout.From
		}
	}
	b.press(fmt.Sprintf("back-%d", revision))
	b.shows("dialog")
	b.press("databases-restore")
	b.named()
	b.press("yes")
	b.sees("h1", "Rollback")
	b.sees("h1", "Succeeded")
	u.UntilReady()
	u.isOld(t, "after the rollback")
	b.machine()
	b.languages()
	b.reads(u, interfaceOf(t, restapi.Options{Config: o.Config, Log: o.Log}))
	b.opens("about:blank") // the streams end before the servers do
}

// updates updates the cloud and waits for the end.
func (b *browser) updates(end string) {
	b.Helper()
	b.press("nav-clouds")
	b.press("cloud-" + env.Name)
	b.press("update")
	b.shows("dialog")
	b.write("to-version", newVersion)
	b.press("yes")
	b.sees("h1", "Update")
	b.sees("h1", end)
}

// backs requests a backup, once the cloud has a schedule. The operator of this test creates no Jobs, and reports that.
func (b *browser) backs(u *updated) {
	b.Helper()
	if b.has("#backup") {
		b.Error("the page offers a backup without a place for it")
	}
	u.Edit(`{"spec":{"backup":{"disable":false,"schedule":"@yearly"}}}`)
	b.press("backup")
	b.shows("dialog")
	b.named()
	b.press("yes")
	b.sees("h1", "Backup")
	b.sees("main", "OCA-7424")
	u.Edit(`{"spec":{"backup":{"disable":true}}}`)
	u.UntilReady()
	b.press("nav-clouds")
	b.press("cloud-" + env.Name)
}

// machine adds an unreachable machine, pauses and removes it.
func (b *browser) machine() {
	b.Helper()
	b.press("nav-machines")
	b.press("add")
	b.shows("dialog")
	for id, text := range map[string]string{"m-name": "node9", "m-address": "127.0.0.1", "m-secret": "fleet"} {
		b.write(id, text)
	}
	b.named()
	b.contrasts()
	b.press("yes")
	b.sees("h1", "node9")
	b.sees("table", "cluster-info")
	b.press("pause")
	b.press("yes")
	b.sees(".note", "paused")
	b.press("resume")
	b.press("yes")
	b.shows("#pause")
	b.picture("machine")
	b.stops()
	b.contrasts()
	b.press("remove")
	b.press("yes")
	b.sees("main", "has been deleted")
	// A rejected request is shown with its code.
	b.press("nav-machines")
	b.press("add")
	b.shows("dialog")
	for id, text := range map[string]string{"m-name": "Not A Name", "m-address": "127.0.0.1", "m-secret": "fleet"} {
		b.write(id, text)
	}
	b.press("yes")
	b.sees("#problem", "OCA-7621")
	b.contrasts()
	b.key(kb.Escape)
	b.waits(`document.getElementById("problem").textContent === ""`)
}

// languages shows the page in Chinese, and dark.
func (b *browser) languages() {
	b.Helper()
	b.press("language")
	b.sees("nav", "机器")
	b.press("nav-clouds")
	b.press("cloud-" + env.Name)
	b.sees("h1", "运行中")
	b.prefers("dark")
	b.picture("cloud-zh")
	paper := do(b, chromedp.Evaluate[string](`getComputedStyle(document.body).backgroundColor`))
	if paper != "rgb(13, 17, 23)" {
		b.Errorf("the dark page is %s", paper)
	}
	b.press("language")
	b.sees("nav", "Machines")
}

// reads logs in as a user who may only read, and with an invalid token.
func (b *browser) reads(u *updated, address string) {
	b.Helper()
	b.opens(address + "/")
	b.shows("#token")
	b.write("token", "x.y.z")
	b.press("enter")
	b.sees("#problem", "OCA-7615")
	b.write("token", readerToken(b, u))
	b.press("enter")
	b.sees("#who", "system:serviceaccount:"+namespace+":reader")
	b.press("cloud-" + env.Name)
	b.sees("h1", "Running")
	b.sees("h2", "Releases")
	b.sees("td", oldVersion)
	for _, element := range []string{"#update", "[id^=back-]", "#add"} {
		if b.has(element) {
			b.Errorf("a reader is offered %s", element)
		}
	}
	b.press("logout")
	b.shows("#token")
}

func readerToken(b *browser, u *updated) string {
	b.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "reader"}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	for _, o := range []client.Object{
		account,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "reader"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"}},
	} {
		require.NoError(b, u.Client.Create(u.Context(), o))
		b.Cleanup(func() { _ = u.Client.Delete(context.WithoutCancel(u.Context()), o) })
	}
	request := &authenticationv1.TokenRequest{}
	require.NoError(b, u.Client.SubResource("token").Create(u.Context(), account, request))
	return request.Status.Token
}

// TestLocalPage checks that the link of ocadm ui has its own token, and that no other is accepted.
func TestLocalPage(t *testing.T) {
	w := use(t)
	ctx, cancel := context.WithCancel(t.Context())
	link, ended := make(chan string, 1), make(chan error, 1)
	o := restapi.Options{Config: w.Cluster.Config(harness.Admin), Log: slog.New(slog.DiscardHandler), Address: "127.0.0.1:0"}
	go func() { ended <- restapi.ServeLocal(ctx, o, namespace, func(l string) { link <- l }) }()
	address, fragment, _ := strings.Cut(<-link, "#")
	token, _, _ := strings.Cut(strings.TrimPrefix(fragment, "namespace="+namespace+"&"), "&")
	token = strings.TrimPrefix(token, "token=")
	if len(token) < 20 {
		t.Fatalf("%s", fragment)
	}
	for sent, want := range map[string]int{token: http.StatusOK, "": http.StatusUnauthorized, token + "x": http.StatusUnauthorized} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"api/v1/namespaces/"+namespace+"/clouds", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+sent)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		if err := answer.Body.Close(); err != nil || answer.StatusCode != want {
			t.Errorf("token %q: %s, want %d", sent, answer.Status, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
