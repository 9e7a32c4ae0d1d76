// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/sshserver"
)

// stage is a machine, simulated by a server, and a cluster.
type stage struct {
	*testing.T
	Options
	m *v1alpha1.OnecloudMachine

	mu sync.Mutex
	// ran lists the scripts that it ran, begun is the operation's state when join ran, is the identity that it reports.
	ran   []string
	begun string
	is    string
	left  []string
	// guests is the exit status of the check for virtual machines.
	guests int
}

func newStage(t *testing.T, change func(*stage), nodes ...client.Object) *stage {
	t.Helper()
	private, public := sshserver.NewKey(t)
	s := &stage{T: t, m: ready().machine}
	server := &sshserver.Server{Keys: []gossh.PublicKey{public}, Run: s.run}
	server.Start(t)
	s.m.Spec.Infrastructure.SSH.MachineLogin = v1alpha1.MachineLogin{Address: "127.0.0.1", Port: int32(server.Port()), CredentialsSecretName: "login"} //nolint:gosec // a port
	if change != nil {
		change(s)
	}
	secrets := []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "login"}, Data: map[string][]byte{v1alpha1.SecretKeyPrivate: private}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "w-bootstrap"}, Data: map[string][]byte{v1alpha1.BootstrapScript: []byte("the script")}},
	}
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(append(append(nodes, secrets...), s.m)...).
		WithStatusSubresource(&v1alpha1.OnecloudOperation{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(client.Object) []string { return nil }).Build()
	s.Options = Options{Client: c, Direct: c, Log: slog.New(slog.DiscardHandler), Leave: func(_ context.Context, node string, check bool, _ workflow.Reporter) error {
		s.left = append(s.left, fmt.Sprintf("%s %t", node, check))
		return nil
	}}
	return s
}

// leaving starts the removal of the machine.
func (s *stage) leaving() {
	s.m.DeletionTimestamp, s.m.Finalizers = new(metav1.Now()), []string{v1alpha1.MachineFinalizer}
}

func (s *stage) run(c *sshserver.Call) int {
	text, _ := io.ReadAll(c.Stdin)
	what := strings.Trim(strings.TrimPrefix(c.Line, "sh -s --"), " '")
	switch string(text) {
	case bootstrap.TidyScript:
		what = "tidy"
	case bootstrap.ResetScript:
		what = "reset"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.ran = append(s.ran, what); what {
	case "clock":
		s.ran = s.ran[:len(s.ran)-1]
		fmt.Fprintln(c.Stdout, time.Now().Unix())
	case "precheck":
		fmt.Fprintln(c.Stdout, `{"passed":true,"findings":[]}`)
	case "guests":
		return s.guests
	case "identity":
		fmt.Fprint(c.Stdout, s.is)
	case "join":
		var o v1alpha1.OnecloudOperation
		if err := s.Client.Get(c, client.ObjectKey{Namespace: "onecloud", Name: "it"}, &o); err == nil {
			s.begun = begunAt(&o, s.m)
		}
	}
	return 0
}

// work runs an operation on the machine like the pod of its Job.
func (s *stage) work(action string, controlPlane bool) *v1alpha1.OnecloudOperation {
	s.Helper()
	o := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "it"}}
	o.Spec = v1alpha1.OnecloudOperationSpec{Cloud: "default", Action: action, Machine: &v1alpha1.MachineParameters{Name: "w", ControlPlane: controlPlane}}
	require.NoError(s, s.Client.Create(s.Context(), o))
	w := operation.Worker{Client: s.Client.(client.WithWatch), Pod: "p", Log: s.Log, Actions: Actions(s.Options)} //nolint:forcetypeassert // it is fake
	require.NoError(s, w.Work(s.Context(), client.ObjectKeyFromObject(o)))
	require.NoError(s, s.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o))
	return o
}

// The operation records where its join starts before it starts.
func TestJoinIsNoted(t *testing.T) {
	s := newStage(t, nil)
	o := s.work(v1alpha1.ActionJoinMachine, false)
	if o.Status.Phase != v1alpha1.OperationSucceeded || s.begun != place(s.m) || o.Status.Machine.Address != place(s.m) || !slices.Equal(s.ran, []string{"precheck", "join"}) {
		t.Errorf("%s: %s; ran %q, begun at %q", o.Status.Phase, o.Status.Message, s.ran, s.begun)
	}
	if begunAt(o, s.m) != place(s.m) {
		t.Errorf("%+v", o.Status.Machine)
	}
}

// Whatever is at the address of a machine that never joined is not reset.
func TestRemovalResetsOnlyTheMachine(t *testing.T) {
	nodeOf := func(uid string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: map[string]string{v1alpha1.LabelMachine: uid, v1alpha1.LabelControlPlane: ""}}}
	}
	begun := func(s *stage) { s.m.Status.JoinBegun = place(s.m) }
	authority := certificate(t)
	itself := func() string {
		return "name w\nca " + strings.ReplaceAll(string(authority), "\n", "\nca ")
	}
	for name, c := range map[string]struct {
		change func(*stage)
		node   *corev1.Node
		ran    string
		left   int
		code   string
	}{
		"checked":                {func(s *stage) { s.m.Status.HostKeyAddress = place(s.m) }, nil, "identity tidy", 0, ""},
		"a node of another":      {func(*stage) {}, nodeOf("other"), "identity tidy", 0, ""},
		"another has its name":   {func(s *stage) { s.is = itself() }, nodeOf("other"), "identity tidy", 0, ""},
		"another address":        {func(s *stage) { s.m.Status.JoinBegun, s.is = "a:22", itself() }, nil, "identity reset", 2, ""},
		"its node":               {func(*stage) {}, nodeOf("m"), "guests identity reset", 2, ""},
		"its join has begun":     {begun, nil, "identity reset", 2, ""},
		"begun elsewhere":        {func(s *stage) { s.m.Status.JoinBegun = "a:22" }, nil, "identity tidy", 2, ""},
		"its node is gone":       {func(s *stage) { s.m.Status.NodeRef = &v1alpha1.MachineNodeRef{Name: "w"} }, nil, "identity reset", 2, ""},
		"the host has its name":  {func(s *stage) { begun(s); s.is = "name w\n" }, nil, "identity reset", 2, ""},
		"the host is another":    {func(s *stage) { begun(s); s.is = "name cp-1\n" }, nil, "identity", 1, codeOtherNode},
		"the host is a stranger": {func(s *stage) { begun(s); s.is = "ca " + strings.ReplaceAll(string(certificate(s.T)), "\n", "\nca ") }, nil, "identity", 1, codeOtherNode},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes []client.Object
			if c.node != nil {
				nodes = append(nodes, c.node)
			}
			s := newStage(t, func(s *stage) {
				s.m.Spec.Roles = []v1alpha1.MachineRole{v1alpha1.RoleControlPlane}
				s.leaving()
				c.change(s)
			}, nodes...)
			s.Authority = authority
			o := s.work(v1alpha1.ActionRemoveMachine, true)
			code := ""
			if len(o.Status.Findings) > 0 {
				code = o.Status.Findings[0].Code
			}
			if strings.Join(s.ran, " ") != c.ran || len(s.left) != c.left || code != c.code || (c.code == "") != (o.Status.Phase == v1alpha1.OperationSucceeded) {
				t.Errorf("%s: %s; ran %q, etcd %q, %s", o.Status.Phase, o.Status.Message, s.ran, s.left, code)
			}
		})
	}
}

// A machine on which virtual machines run, or that does not answer, keeps its pods.
func TestRemovalChecksFirst(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*stage)
		code   string
		ran    string
	}{
		"servers": {func(s *stage) { s.guests = bootstrap.ExitGuests }, "OCA-7608", "guests"},
		"silent":  {func(s *stage) { s.m.Spec.Infrastructure.SSH.Port = 1 }, "OCA-7601", ""},
		"abandoned": {func(s *stage) {
			s.guests, s.m.Annotations = bootstrap.ExitGuests, map[string]string{v1alpha1.AnnotationAbandonMachine: "true"}
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, func(s *stage) {
				s.leaving()
				c.change(s)
			}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: map[string]string{v1alpha1.LabelMachine: "m"}}})
			o := s.work(v1alpha1.ActionRemoveMachine, false)
			n := &corev1.Node{}
			err := s.Client.Get(t.Context(), client.ObjectKey{Name: "w"}, n)
			kept := err == nil && !n.Spec.Unschedulable
			if codeOf(o) != c.code || strings.Join(s.ran, " ") != c.ran || kept != (c.code != "") {
				t.Errorf("%s: %s; ran %q, node as before: %t", o.Status.Phase, o.Status.Message, s.ran, kept)
			}
		})
	}
}

// An operation that the operator did not create cannot remove a machine, nor bypass the checks of a control plane.
func TestOperationsOfOthers(t *testing.T) {
	only := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w", Labels: map[string]string{v1alpha1.LabelMachine: "m", v1alpha1.LabelControlPlane: ""}}}
	controlPlane := func(s *stage) { s.m.Spec.Roles = []v1alpha1.MachineRole{v1alpha1.RoleControlPlane} }
	for name, c := range map[string]struct {
		change func(*stage)
		action string
		says   bool
		code   string
	}{
		"removes one that stays":     {func(*stage) {}, v1alpha1.ActionRemoveMachine, false, "OCA-7653"},
		"hides a control plane":      {func(s *stage) { controlPlane(s); s.leaving() }, v1alpha1.ActionRemoveMachine, false, "OCA-7653"},
		"joins it as a worker":       {controlPlane, v1alpha1.ActionJoinMachine, false, "OCA-7653"},
		"joins a worker as one":      {func(*stage) {}, v1alpha1.ActionJoinMachine, true, "OCA-7653"},
		"removes the only one":       {func(s *stage) { controlPlane(s); s.leaving() }, v1alpha1.ActionRemoveMachine, true, "OCA-4141"},
		"checks a control plane one": {controlPlane, v1alpha1.ActionPrecheckMachine, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, c.change, only.DeepCopy())
			op := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "it"}}
			op.Spec = v1alpha1.OnecloudOperationSpec{Cloud: "default", Action: c.action, Machine: &v1alpha1.MachineParameters{Name: "w", ControlPlane: c.says}}
			_, err := work{s.Options}.job(AccountOfWork)(t.Context(), op)
			if l := finding.Of(err); len(l) == 0 && c.code != "" || len(l) > 0 && l[0].Code != c.code {
				t.Errorf("before the Job: %v", err)
			}
			if c.code != "OCA-7653" {
				return
			}
			if o := s.work(c.action, c.says); codeOf(o) != c.code || len(s.ran) > 0 {
				t.Errorf("in the Job: %s, ran %q", o.Status.Message, s.ran)
			}
		})
	}
}
