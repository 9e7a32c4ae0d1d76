// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// objects returns the resource versions of a cloud and its objects, including its pods.
func (n neighbour) objects() map[string]string {
	n.Helper()
	all := map[string]string{}
	for _, o := range n.Objects(append(env.Kinds(), &corev1.Pod{}, &appsv1.ReplicaSet{})...) {
		all[n.Kind(o)+"/"+o.GetName()] = o.GetResourceVersion()
	}
	if cr := n.TryCloud(); cr != nil {
		all["the cloud"] = cr.ResourceVersion
	}
	return all
}

// untilStill also waits until the controllers of Kubernetes have finished. No event reports that nothing more will happen.
func (n neighbour) untilStill() map[string]string {
	n.Helper()
	last, since := n.objects(), time.Now()
	n.Eventually(func() (bool, string) {
		if now := n.objects(); !maps.Equal(now, last) {
			last, since = now, time.Now()
		}
		return time.Since(since) > time.Second, "the cloud does not come to rest"
	})
	return last
}

// wroteNothing checks that since a mark the operator has written nothing in the cloud's namespace, except its lease.
func (n neighbour) wroteNothing(from harness.Mark) {
	n.Helper()
	changes := 0
	for _, q := range n.Requests(from, harness.Filter{User: env.OperatorUser}) {
		if slices.Contains([]string{"get", "list", "watch"}, q.Verb) {
			continue
		}
		changes++
		// The recorder of events works asynchronously, even for earlier events. Reviews of permissions change nothing.
		if q.Namespace == n.Namespace && q.Resource != "events" && q.Resource != "selfsubjectaccessreviews" {
			n.Errorf("it wrote to the other cloud: %s", q)
		}
	}
	if changes < 100 {
		n.Errorf("only %d changes are in the audit log, so nothing is shown", changes)
	}
}

// heals checks that the operator repairs another client's change with one request.
func (n neighbour) heals() {
	n.Helper()
	want := n.Deployments()["glance"].Spec.Template.Spec.Containers[0].Image
	w := n.Count(func() {
		passes, _ := n.Passes()
		n.SetImage("default-glance", "example.com/other:v1")
		n.UntilImage("glance", want)
		// A watch may deliver a change before its request is answered and therefore logged.
		n.UntilQuiet(passes)
	})
	if got := w.Writes(); !slices.Equal(got, []string{"patch deployments/default-glance"}) {
		n.Errorf("the operator healed by %q", got)
	}
}

// databases returns the databases and accounts on the server of a cloud, sorted.
func (n neighbour) databases() []string {
	admin := n.Admin(n.DB)
	all, err := admin.Databases(n.Context())
	require.NoError(n, err)
	accounts, err := admin.Accounts(n.Context())
	require.NoError(n, err)
	for _, a := range accounts {
		if a.User != "root" && a.User != "mariadb.sys" {
			all = append(all, "account "+a.User+"@"+a.Host)
		}
	}
	slices.Sort(all)
	return all
}

// statements returns the statements that change something on the server of a cloud.
func (n neighbour) statements() []string {
	all, err := n.DB.Statements()
	require.NoError(n, err)
	var out []string
	for _, s := range all {
		verb, _, _ := strings.Cut(s.Text, " ")
		if slices.Contains([]string{"CREATE", "ALTER", "DROP", "GRANT", "REVOKE", "FLUSH", "RENAME"}, strings.ToUpper(verb)) {
			out = append(out, s.Text)
		}
	}
	return out
}
