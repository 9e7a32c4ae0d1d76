// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	fleets "yunion.io/x/ocadm/cluster/fleet"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/fleetnode"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/sshserver"
)

// fleetTest is a fleet of machines that play ocadm; the API server is that of the first one.
type fleetTest struct {
	*machinesTest
	dir      string
	machines map[string]*fleetnode.Machine
	// breaks makes joins fail, by name.
	breaks   map[string]bool
	parallel int
}

func newFleetTest(t *testing.T) *fleetTest {
	t.Helper()
	f := &fleetTest{machinesTest: newMachinesTest(t), dir: t.TempDir(), machines: map[string]*fleetnode.Machine{}, breaks: map[string]bool{}, parallel: 3}
	kubeconfig, err := os.ReadFile(f.Cluster.Kubeconfig)
	require.NoError(t, err)
	admin, err := clientcmd.Load(kubeconfig)
	require.NoError(t, err)
	authority := fmt.Sprintf("%x", sha256.Sum256(admin.Clusters[admin.Contexts[admin.CurrentContext].Cluster].CertificateAuthorityData))
	for _, name := range []string{"fleet-cp", "fleet-b", "fleet-c", "fleet-d"} {
		hooks := fleetnode.Hooks{Authority: authority, Join: func(script string) error { return f.join(name, script) }}
		if name == "fleet-cp" {
			hooks.Kubeconfig = string(kubeconfig)
		}
		if name == "fleet-b" {
			hooks.Busy = 1
		}
		f.machines[name] = fleetnode.Start(t, name, f.public, hooks)
		f.forget(name)
	}
	f.write("key", string(f.private))
	f.write("ocadm", "a program")
	f.sign()
	return f
}

// sign plays the controller that signs cluster-info with each new token.
func (f *fleetTest) sign() {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	w, err := f.Client.Watch(ctx, &corev1.SecretList{}, client.InNamespace(metav1.NamespaceSystem))
	if err != nil {
		cancel()
		f.Fatal(err)
	}
	var over sync.WaitGroup
	over.Go(func() {
		for e := range w.ResultChan() {
			s, is := e.Object.(*corev1.Secret)
			if !is || s.Type != corev1.SecretTypeBootstrapToken {
				continue
			}
			if err := f.signed(ctx, strings.TrimPrefix(s.Name, "bootstrap-token-")); err != nil && ctx.Err() == nil {
				f.Error(err)
			}
		}
	})
	f.Cleanup(func() {
		cancel()
		w.Stop()
		over.Wait()
	})
}

// signed signs cluster-info with the token that has the given ID.
func (f *fleetTest) signed(ctx context.Context, id string) error {
	info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"}}
	patch := fmt.Sprintf(`{"data":{"jws-kubeconfig-%s":"signed"}}`, id)
	return f.Client.Patch(ctx, info, client.RawPatch(types.MergePatchType, []byte(patch)))
}

func (f *fleetTest) write(name, text string) {
	f.Helper()
	require.NoError(f, os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600))
}

// join creates the Node of a machine, which is Ready immediately.
func (f *fleetTest) join(name, script string) error {
	if f.breaks[name] {
		return errors.New("it broke")
	}
	ctx := f.Context()
	if strings.Contains(script, v1alpha1.LabelMachine) {
		return f.Register(ctx, script)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := client.IgnoreAlreadyExists(f.Client.Create(ctx, n)); err != nil {
		return err
	}
	status := `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
	return f.Client.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(status)))
}

func (f *fleetTest) apply(ctx context.Context, workers ...string) (fleets.Result, error) {
	f.Helper()
	return fleets.Apply(ctx, f.options(workers...))
}

func (f *fleetTest) options(workers ...string) fleets.Options {
	f.Helper()
	return f.optionsOf([]string{"fleet-cp"}, workers)
}

func (f *fleetTest) optionsOf(controlPlanes, workers []string) fleets.Options {
	f.Helper()
	text := fmt.Sprintf("apiVersion: ocadm.yunion.io/v1\nkind: Fleet\nname: test\nssh: {keyFile: key}\nprograms: {amd64: ocadm, arm64: ocadm}\n"+
		"settings: {cloud: {name: %s, namespace: %s}, cluster: {controlPlaneEndpoint: cluster.example.org}}\ncontrolPlanes:\n", cloud, namespace)
	for i, name := range slices.Concat(controlPlanes, workers) {
		if i == len(controlPlanes) {
			text += "workers:\n"
		}
		text += fmt.Sprintf("- {name: %s, address: 127.0.0.1, ssh: {port: %d}, labels: {example.org/rack: r1}}\n", name, f.machines[name].Port())
	}
	s, err := fleets.Read(filepath.Join(f.dir, "fleet.yaml"), []byte(text))
	if err != nil {
		f.Fatal(err, finding.Of(err))
	}
	return fleets.Options{Spec: s, Dir: filepath.Join(f.dir, "state"), Parallel: f.parallel}
}

func (f *fleetTest) want(res fleets.Result, wanted string) {
	f.Helper()
	var got []string
	for _, m := range res.Machines {
		got = append(got, strings.TrimPrefix(m.Name, "fleet-")+" "+string(m.State))
	}
	if strings.Join(got, ", ") != wanted {
		f.Fatalf("%s, want %s: %+v", strings.Join(got, ", "), wanted, res.Machines)
	}
}

// TestFleet creates a cluster of four machines. One fails, and on one the ocadm of a killed run is still working. The others continue, and the next run repairs the rest.
func TestFleet(t *testing.T) {
	f := newFleetTest(t)
	f.operate()
	ctx := t.Context()
	f.breaks["fleet-c"] = true
	res, err := f.apply(ctx, "fleet-b", "fleet-c", "fleet-d")
	f.want(res, "cp changed, b changed, c failed, d changed")
	if found := finding.Of(err); len(found) != 1 || found[0].Code != "OCA-7641" || !strings.Contains(found[0].Evidence[0], "OCA-7607") {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"fleet-b", "fleet-d"} {
		m := f.until(name, in(v1alpha1.MachineRunning))
		if m.Annotations[v1alpha1.AnnotationPaused] != "" || m.Status.Operation != "" || m.Spec.Labels["example.org/rack"] != "r1" {
			t.Errorf("%s: %+v", name, m)
		}
		if key := m.Spec.Infrastructure.SSH.HostKey; key != f.machines[name].HostKey() {
			t.Errorf("%s: the pinned key is %s", name, key)
		}
	}
	if did := f.machines["fleet-b"].Did(); !slices.Equal(did, []string{"receive ocadm", "join", "join"}) {
		t.Errorf("the busy machine did %v", did)
	}
	s := &corev1.Secret{}
	if err := f.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "test-login"}, s); err != nil || string(s.Data["ssh-privatekey"]) != string(f.private) {
		t.Errorf("the login: %v", err)
	}
	f.settled(t)
	f.replaced(t)
	f.removal(t)
	f.reset(t)
}

// replaced gives the first machine a new disk: it must not create a second cluster beside the one of the others.
func (f *fleetTest) replaced(t *testing.T) {
	t.Helper()
	f.machines["fleet-cp"].Say("authority", "")
	res, err := f.apply(t.Context(), "fleet-b", "fleet-c", "fleet-d")
	f.machines["fleet-cp"].Unsay("authority")
	f.want(res, "cp failed, b waiting, c waiting, d waiting")
	if found := finding.Of(err); len(found) != 1 || !strings.Contains(strings.Join(found[0].Evidence, ""), "OCA-7654") {
		t.Errorf("%v", err)
	}
	if did := f.machines["fleet-cp"].Did(); len(did) > 0 {
		t.Errorf("it did %v", did)
	}
}

// reset shows the states of the machines and resets all that are left. It does not touch what belongs to another cluster.
func (f *fleetTest) reset(t *testing.T) {
	t.Helper()
	o := f.options("fleet-b", "fleet-c")
	all, err := fleets.Status(t.Context(), o)
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, m := range all {
		if !m.Answers || m.Node != "Ready" || (m.Role == "worker") != (m.Phase == "Running") {
			t.Errorf("%+v", m)
		}
	}
	f.machines["fleet-c"].Say("authority", "of-another-cluster")
	for _, m := range f.machines {
		m.Forget()
	}
	res, err := fleets.Reset(t.Context(), o)
	f.want(res, "cp changed, b changed, c failed")
	if found := finding.Of(err); len(found) != 1 || found[0].What != "Not every machine was reset" || !strings.Contains(found[0].Evidence[0], "OCA-7643") {
		t.Errorf("%v", err)
	}
	for name, want := range map[string][]string{"fleet-cp": {"reset"}, "fleet-b": {"reset"}, "fleet-c": nil} {
		if did := f.machines[name].Did(); !slices.Equal(did, want) {
			t.Errorf("%s did %v", name, did)
		}
	}
}

// settled repairs what failed. The next run changes nothing and only reads the state of the machines.
func (f *fleetTest) settled(t *testing.T) {
	t.Helper()
	f.breaks["fleet-c"] = false
	all := []string{"fleet-b", "fleet-c", "fleet-d"}
	res, err := f.apply(t.Context(), all...)
	f.want(res, "cp unchanged, b unchanged, c changed, d unchanged")
	if err != nil {
		t.Error(err)
	}
	f.until("fleet-c", in(v1alpha1.MachineRunning))
	for _, m := range f.machines {
		m.Forget()
	}
	res, err = f.apply(t.Context(), all...)
	f.want(res, "cp unchanged, b unchanged, c unchanged, d unchanged")
	if err != nil {
		t.Error(err)
	}
	for name, m := range f.machines {
		if did := m.Did(); len(did) > 0 {
			t.Errorf("%s: %v", name, did)
		}
	}
	info, err := os.Stat(filepath.Join(f.dir, "state", "kubeconfig"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// removal checks that a machine removed from the file is reported and stays. The operator can remove it, because it has the login.
func (f *fleetTest) removal(t *testing.T) {
	t.Helper()
	res, err := f.apply(t.Context(), "fleet-b", "fleet-c")
	f.want(res, "cp unchanged, b unchanged, c unchanged")
	if err != nil || !slices.Equal(res.Removed, []string{"fleet-d"}) {
		t.Errorf("%v, %v", res.Removed, err)
	}
	require.NoError(t, f.Client.Delete(t.Context(), f.until("fleet-d", in(v1alpha1.MachineRunning))))
	f.Until(&v1alpha1.OnecloudMachine{}, "fleet-d", func(o client.Object) (bool, string) { return o == nil, "it is there" })
	if did := f.machines["fleet-d"].Did(); !slices.Equal(did, []string{"reset"}) {
		t.Errorf("it did %v", did)
	}
}

// TestFleetOfThree hands three control-plane nodes over to the operator. The operator creates no key and no data for joined machines, and does not remove the last one.
func TestFleetOfThree(t *testing.T) {
	f := newFleetTest(t)
	f.operate()
	ctx := t.Context()
	if err := f.signed(ctx, "abcdef"); err != nil { // the token that the first node prints
		t.Fatal(err)
	}
	o := f.optionsOf([]string{"fleet-cp", "fleet-b", "fleet-c"}, []string{"fleet-d"})
	res, err := fleets.Apply(ctx, o)
	f.want(res, "cp changed, b changed, c changed, d changed")
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"fleet-cp", "fleet-b", "fleet-c", "fleet-d"} {
		m := f.until(name, in(v1alpha1.MachineRunning))
		if m.ControlPlane() != (name != "fleet-d") || m.Spec.Labels["example.org/rack"] != "r1" {
			t.Errorf("%s: %+v", name, m.Spec)
		}
	}
	var jobs batchv1.JobList
	if err := f.Client.List(ctx, &jobs, client.InNamespace(namespace)); err != nil || len(jobs.Items) > 0 {
		t.Errorf("%d Jobs, %v", len(jobs.Items), err)
	}
	err = f.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "ocadm-certificate-key"}, &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a key was made: %v", err)
	}
	res, err = fleets.Apply(ctx, o)
	f.want(res, "cp unchanged, b unchanged, c unchanged, d unchanged")
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"fleet-b", "fleet-c"} {
		f.machines[name].Say("joined", "yes")
		f.machines[name].Say("administrator", "yes")
	}
	res, err = fleets.Apply(ctx, f.optionsOf([]string{"fleet-b", "fleet-cp", "fleet-c"}, []string{"fleet-d"})) // the lines were sorted
	f.want(res, "b unchanged, cp unchanged, c unchanged, d unchanged")
	if err != nil {
		t.Error(err)
	}
	only := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fleet-cp"}}
	patch := `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`
	require.NoError(t, f.Client.Patch(ctx, only, client.RawPatch(types.MergePatchType, []byte(patch))))
	_, err = cluster.RemoveMachine(ctx, f.Client, client.ObjectKey{Namespace: namespace, Name: "fleet-cp"}, false, false, nil)
	if found := finding.Of(err); len(found) != 1 || found[0].Code != "OCA-4141" {
		t.Errorf("%v", err)
	}
	if err := f.Client.Delete(ctx, f.until("fleet-cp", in(v1alpha1.MachineRunning))); err != nil { // bypassing ocadm
		t.Fatal(err)
	}
	f.until("fleet-cp", func(m *v1alpha1.OnecloudMachine) bool { return m.Status.FailureReason == "OCA-4141" })
}

// TestFleetInterrupted ends a run in the middle of any step and checks that the next one continues there.
func TestFleetInterrupted(t *testing.T) {
	f := newFleetTest(t)
	f.operate()
	f.parallel = 1 // so that no other machine comes after that of the round
	for i, stop := range []string{"fleet-cp", "fleet-b", "fleet-c"} {
		ctx, cancel := context.WithCancel(t.Context())
		machine := f.machines[stop]
		run := machine.Run
		machine.Run = func(c *sshserver.Call) int {
			if strings.HasSuffix(c.Line, " 'init'") || strings.HasSuffix(c.Line, " 'join'") {
				cancel() // like the loss of the administrator's machine: nothing more happens in this run
				<-c.Done()
				return 1
			}
			return run(c)
		}
		res, err := f.apply(ctx, "fleet-b", "fleet-c")
		cancel()
		machine.Run = run
		if err == nil || res.Machines[i].State == fleets.Unchanged {
			t.Fatalf("%s: %+v, %v", stop, res.Machines, err)
		}
	}
	res, err := f.apply(t.Context(), "fleet-b", "fleet-c")
	if err != nil {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, name := range []string{"fleet-b", "fleet-c"} {
		f.until(name, in(v1alpha1.MachineRunning))
	}
	res, err = f.apply(t.Context(), "fleet-b", "fleet-c")
	f.want(res, "cp unchanged, b unchanged, c unchanged")
	if err != nil {
		t.Error(err)
	}
}
