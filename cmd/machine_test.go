// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/test/require"
)

// A dry run of "machine add" has the API server check the machine, and stores neither the machine nor its login.
func TestMachineAddDryRun(t *testing.T) {
	k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, k client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetUID(types.UID("of " + o.GetName())) // as the API server does
			return k.Create(ctx, o, opts...)
		},
	}).Build()
	var out bytes.Buffer
	f := &cloudFlags{name: "default", namespace: "onecloud", output: ui.NewFormat("table", "json")}
	for _, m := range []machineFlags{{dryRun: true}, {}} {
		w1, err := m.machine(f, "w1")
		require.NoError(t, err)
		w1.Spec.Infrastructure.SSH.CredentialsSecretName = "w1-login"
		err = m.create(t.Context(), newApp(Streams{Out: &out}), k, f, []cluster.Machine{w1}, map[string][]byte{"password": []byte("x")})
		require.NoError(t, err)
		stored := k.Get(t.Context(), f.named("w1"), &cluster.Machine{}) == nil
		login := k.Get(t.Context(), f.named("w1-login"), &corev1.Secret{}) == nil
		if stored == m.dryRun || login == m.dryRun {
			t.Errorf("dry run %t: machine stored %t, login stored %t", m.dryRun, stored, login)
		}
	}
	if want := "Machine w1 created (server dry run)\nMachine w1 created\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

// --paused also keeps the machines of a file from joining, which may have annotations of their own.
func TestMachineAddPausedFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "machines.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`{apiVersion: onecloud.yunion.io/v1alpha1, kind: OnecloudMachine, metadata: {name: w1, annotations: {rack: "7"}},
spec: {infrastructure: {ssh: {address: 192.0.2.1, credentialsSecretName: s}}}}`), 0o600))
	for _, paused := range []bool{true, false} {
		m := machineFlags{file: file, paused: paused}
		all, _, err := m.machines(newApp(Streams{}), &cloudFlags{name: "default", namespace: "onecloud"}, nil)
		require.NoError(t, err)
		if a := all[0].Annotations; (a[v1alpha1.AnnotationPaused] == "true") != paused || a["rack"] != "7" {
			t.Errorf("paused %t: %v", paused, a)
		}
	}
}
