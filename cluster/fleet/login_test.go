// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// Secrets with the same name have the same content, and those of a fleet keep its name.
func TestLoginSecrets(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte("secret "+name), 0o600))
		return path
	}
	key, other, jump1, jump2 := file("key"), file("other"), file("jump1"), file("jump2")
	for name, c := range map[string]struct {
		all, own    Login
		login, jump string // jump is "" without a jump host
	}{
		"of the fleet":              {all: Login{KeyFile: key}, login: "f-login"},
		"a key of its own":          {all: Login{KeyFile: key}, own: Login{KeyFile: other}, login: "a-login"},
		"a passphrase of its own":   {all: Login{KeyFile: key, PassphraseFile: other}, own: Login{PassphraseFile: jump1}, login: "a-login"},
		"a jump host of the fleet":  {all: Login{KeyFile: key, JumpHost: &JumpHost{Address: "j", KeyFile: jump1}}, login: "f-login", jump: "f-jump-login"},
		"a jump host like machines": {all: Login{KeyFile: key, JumpHost: &JumpHost{Address: "j"}}, login: "f-login", jump: "f-login"},
		"sudo on machines alone": {all: Login{KeyFile: key, SudoPasswordFile: other, JumpHost: &JumpHost{Address: "j", KeyFile: key}},
			login: "f-login", jump: "f-jump-login"},
		"a jump host of its own": {all: Login{KeyFile: key, JumpHost: &JumpHost{Address: "j", KeyFile: jump1}}, own: Login{JumpHost: &JumpHost{Address: "k", KeyFile: jump2}},
			login: "f-login", jump: "a-jump-login"},
		"both of its own": {all: Login{KeyFile: key}, own: Login{KeyFile: other, JumpHost: &JumpHost{Address: "k", KeyFile: jump2}}, login: "a-login", jump: "a-jump-login"},
		"a jump host of its own, with the login of the fleet": {all: Login{KeyFile: key}, own: Login{JumpHost: &JumpHost{Address: "k"}}, login: "f-login", jump: "f-login"},
	} {
		f := &Fleet{Options: Options{Spec: &Spec{Name: "f", SSH: c.all}, Secret: func(...string) {}}, hosts: ssh.KnownHosts(filepath.Join(dir, "known_hosts"))}
		m := &Machine{Name: "a", Address: "192.0.2.1", SSH: c.own}
		login, data, err := f.loginSecret(m, false)
		if err != nil || login != c.login {
			t.Errorf("%s: login %q, %v", name, login, err)
		}
		if c.jump == "" {
			continue
		}
		jump, of, err := f.loginSecret(m, true)
		if err != nil || jump != c.jump || jump == login && !reflect.DeepEqual(data, of) {
			t.Errorf("%s: jump host %q, %v", name, jump, err)
		}
	}
}

// A login that was changed in the file reaches the Secret of a machine that is already in the cloud, because the operator logs in with it.
func TestChangedLogin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	f := &Fleet{Options: Options{Spec: &Spec{Name: "f", SSH: Login{PasswordFile: file}}, Secret: func(...string) {}}, hosts: ssh.KnownHosts(file + "-hosts")}
	n := &node{Fleet: f, m: &Machine{Name: "a", Address: "192.0.2.1"}, role: roleWorker}
	k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(n.resource()).Build()
	for _, password := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(file, []byte(password), 0o600))
		s := &corev1.Secret{}
		namespace, _ := f.Spec.Cloud()
		require.NoError(t, n.add(t.Context(), k, workflow.Discard{}))
		if err := k.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "f-login"}, s); err != nil || string(s.Data["password"]) != password {
			t.Errorf("%s: %q, %v", password, s.Data, err)
		}
	}
}
