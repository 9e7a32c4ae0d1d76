// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/callin"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// TestMachinesWithoutLogin tests machines that boot by themselves, and clients that make requests with a machine's annotation.
func TestMachinesWithoutLogin(t *testing.T) {
	f := newMachinesTest(t)
	f.operate()
	f.callsIn()
	f.requests()
	f.StopOperator()
}

func (f *machinesTest) add(name string, change func(*v1alpha1.OnecloudMachine)) {
	f.Helper()
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	m.Spec.Cloud = cloud
	change(m)
	f.Create(m)
	f.forget(name)
}

var tokenInScript = regexp.MustCompile(`'Authorization: Bearer %s' '([a-z0-9]{6}\.[a-z0-9]{16})'`)

// tokenOf returns the join token in the bootstrap data of a machine.
func (f *machinesTest) tokenOf(name string) string {
	f.Helper()
	s := &corev1.Secret{}
	f.Get(s, name+"-bootstrap")
	found := tokenInScript.FindSubmatch(s.Data[v1alpha1.BootstrapScript])
	if found == nil {
		f.Fatal("the data have no token")
	}
	return string(found[1])
}

// reporter returns a client that writes the report of a machine as the machine does.
func (f *machinesTest) reporter(machine, token string) callin.Client {
	f.Helper()
	cfg := f.Cluster.Config(harness.Admin)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cfg.CAData)
	return callin.Client{URL: cfg.Host + "/api/v1/namespaces/" + namespace + "/configmaps/" + machine + "-call-in", Token: token,
		HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}}
}

func callsIn(m *v1alpha1.OnecloudMachine) {
	m.Spec.Infrastructure.Callback = &v1alpha1.MachineCallback{}
}

func (f *machinesTest) callsIn() {
	f.Helper()
	f.add("caller", callsIn)
	f.add("other", callsIn) // no address is not a duplicate address
	for _, name := range []string{"caller", "other"} {
		f.until(name, func(m *v1alpha1.OnecloudMachine) bool {
			return m.Status.Phase == v1alpha1.MachinePending && strings.Contains(m.Status.Message, "waiting for the machine to call in") && m.Status.DataSecretName != ""
		})
	}
	token := f.tokenOf("caller")
	report := f.reporter("caller", token)
	send := func(r callin.Report) {
		f.Helper()
		require.NoError(f, report.Send(f.Context(), r))
	}
	send(callin.Report{State: callin.Called, Try: 1})
	f.until("caller", func(m *v1alpha1.OnecloudMachine) bool {
		return m.Status.Phase == v1alpha1.MachineProvisioning && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionHostReachable)
	})
	taken := finding.List{finding.New("OCA-2001", "Port 10250 is taken", "socat listens on it", "stop it")}
	send(callin.Report{State: callin.Failed, Try: 1, Phase: "preflight", Exit: 20, Findings: taken})
	m := f.until("caller", func(m *v1alpha1.OnecloudMachine) bool { return strings.Contains(m.Status.Message, "OCA-2001") })
	if m.Status.Phase != v1alpha1.MachineProvisioning || !strings.Contains(m.Status.Message, "attempt 1 of 10") || !meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionPrecheckPassed) {
		f.Errorf("%+v", m.Status)
	}
	send(callin.Report{State: callin.Failed, Try: 10, Phase: "preflight", Exit: 20, Findings: taken})
	if m = f.until("caller", in(v1alpha1.MachineFailed)); m.Status.FailureReason != "OCA-2001" || !strings.Contains(m.Status.FailureMessage, "socat listens on it; stop it") {
		f.Errorf("%+v", m.Status)
	}
	send(callin.Report{State: callin.Joining, Try: 1, Phase: "node-software"})
	if m = f.until("caller", in(v1alpha1.MachineProvisioning)); m.Status.FailureReason != "" || !strings.Contains(m.Status.Message, "node-software") {
		f.Errorf("%+v", m.Status)
	}
	f.strangers(token)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "caller", Labels: map[string]string{v1alpha1.LabelMachine: string(m.UID)}}}
	f.Create(n)
	f.nodeIs(n, corev1.ConditionTrue, "KubeletReady")
	f.until("caller", in(v1alpha1.MachineRunning))
	f.UntilGone(&corev1.Secret{}, "caller-bootstrap")
	f.callerGoes(n)
}

// strangers checks that a token can write only the report of its own machine.
func (f *machinesTest) strangers(token string) {
	f.Helper()
	ctx := f.Context()
	if err := f.reporter("other", token).Send(ctx, callin.Report{State: callin.Joined}); err == nil {
		f.Error("it wrote the report of another machine")
	}
	admin := f.Cluster.Config(harness.Admin)
	c, err := kube.New(&rest.Config{Host: admin.Host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: admin.CAData}})
	require.NoError(f, err)
	config := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	patch := func(name, text string) error {
		return c.Patch(ctx, config(name), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	f.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings-of-others"}})
	for what, err := range map[string]error{
		"the configuration of a service": patch("settings-of-others", `{"data":{"state":"x"}}`),
		"other data":                     patch("caller-call-in", `{"data":{"x":"y"}}`),
		"large data":                     patch("caller-call-in", `{"data":{"message":"`+strings.Repeat("x", 20000)+`"}}`),
		"the names of the tokens":        patch("caller-call-in", `{"metadata":{"labels":{"onecloud.yunion.io/call-in":"aaaaaa"}}}`),
		"the owner":                      patch("caller-call-in", `{"metadata":{"ownerReferences":null}}`),
		"an annotation":                  patch("caller-call-in", `{"metadata":{"annotations":{"a":"b"}}}`),
		"reading it":                     c.Get(ctx, client.ObjectKeyFromObject(config("caller-call-in")), config("")),
		"making one":                     c.Create(ctx, config("mine-call-in")),
		"deleting it":                    c.Delete(ctx, config("caller-call-in")),
		"reading a Secret":               c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "login"}, &corev1.Secret{}),
		"its machine":                    c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "caller"}, &v1alpha1.OnecloudMachine{}),
	} {
		if !apierrors.IsForbidden(err) && !(apierrors.IsInvalid(err) && strings.Contains(err.Error(), "onecloud-machine-call-in")) {
			f.Errorf("%s: %v", what, err)
		}
	}
}

func (f *machinesTest) nodeIs(n *corev1.Node, is corev1.ConditionStatus, reason string) {
	f.Helper()
	status := `{"status":{"conditions":[{"type":"Ready","status":"` + string(is) + `","reason":"` + reason + `"}]}}`
	require.NoError(f, f.Client.Status().Patch(f.Context(), n, client.RawPatch(types.StrategicMergePatchType, []byte(status))))
}

// callerGoes removes a machine without a login. Its pods are evicted, then a user resets it, and its Node shows that.
func (f *machinesTest) callerGoes(n *corev1.Node) {
	f.Helper()
	f.pod("caller")
	f.remove("caller")
	m := f.until("caller", func(m *v1alpha1.OnecloudMachine) bool { return strings.Contains(m.Status.Message, "OCA-7625") })
	if m.Status.Phase != v1alpha1.MachineDeleting || !strings.Contains(m.Status.Message, "run on the machine: ocadm reset") {
		f.Errorf("%+v", m.Status)
	}
	f.UntilGone(&corev1.Pod{}, "on-caller")
	f.nodeIs(n, corev1.ConditionUnknown, "NodeStatusUnknown")
	f.nodeIs(n, corev1.ConditionFalse, "NodeLeft")
	f.UntilGone(&v1alpha1.OnecloudMachine{}, "caller")
	f.UntilGone(&corev1.Node{}, "caller")
	f.remove("other") // it never called
	f.UntilGone(&v1alpha1.OnecloudMachine{}, "other")
}

func asksFor(word string) string {
	return `{"metadata":{"annotations":{"onecloud.yunion.io/operation":"` + word + `"}}}`
}

// answered reports whether the annotation and the status contain the result of a request.
func answered(word string) func(*v1alpha1.OnecloudMachine) bool {
	return func(m *v1alpha1.OnecloudMachine) bool {
		return m.Annotations[v1alpha1.AnnotationOperation] == word && m.Status.Request != nil && m.Status.Request.Result == word
	}
}

func (f *machinesTest) requests() {
	f.Helper()
	s := f.server(func(s *standIn) {
		s.findings = `{"code":"OCA-1004","severity":"error","what":"The machine is a Kubernetes node that ocadm did not set up","cause":"kubelet.conf","remedy":"reset it"}`
	})
	f.machine("asked", s, func(m *v1alpha1.OnecloudMachine) {
		m.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true", v1alpha1.AnnotationOperation: v1alpha1.RequestChecking}
	})
	if m := f.until("asked", answered("precheck-failed")); m.Status.Phase != v1alpha1.MachinePending || !strings.Contains(m.Status.Request.Message, "OCA-1004") {
		f.Errorf("%+v", m.Status)
	}
	f.EditObject(&v1alpha1.OnecloudMachine{}, "asked", asksFor(v1alpha1.RequestCreating)) // although it is paused
	if m := f.until("asked", answered("create-failed")); !strings.Contains(m.Status.Request.Message, "OCA-1004") {
		f.Errorf("%+v", m.Status.Request)
	}
	s.mu.Lock()
	s.findings = ""
	s.mu.Unlock()
	f.EditObject(&v1alpha1.OnecloudMachine{}, "asked", asksFor(v1alpha1.RequestCreating))
	if m := f.until("asked", answered("create-finished")); m.Status.Phase != v1alpha1.MachineRunning || m.Status.Request.Name != m.Status.Operation {
		f.Errorf("%+v", m.Status)
	}
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	w, err := f.Client.Watch(ctx, &v1alpha1.OnecloudMachineList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": "asked"})
	require.NoError(f, err)
	defer w.Stop()
	f.EditObject(&v1alpha1.OnecloudMachine{}, "asked", asksFor(v1alpha1.RequestDeleting))
	f.UntilGone(&v1alpha1.OnecloudMachine{}, "asked")
	for e := range w.ResultChan() {
		if m, is := e.Object.(*v1alpha1.OnecloudMachine); is && e.Type == watch.Deleted {
			if !answered("delete-finished")(m) {
				f.Errorf("%v, %+v", m.Annotations, m.Status.Request)
			}
			return
		}
	}
	f.Error("no client heard of its end")
}
