// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
)

// readSecret reads a file with a secret, without the newline that editors add; "" for no file.
func (f *Fleet) readSecret(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return "", finding.Errorf("OCA-7606", "The credentials in "+name+" cannot be read", "give a file that exists", "%w", err)
	}
	text := strings.TrimRight(string(raw), "\r\n")
	f.Secret(text)
	return text, nil
}

func (f *Fleet) credentials(key, passphrase, password, sudo string) (c ssh.Credentials, err error) {
	var texts [3]string
	for i, name := range []string{passphrase, password, sudo} {
		if texts[i], err = f.readSecret(name); err != nil {
			return c, err
		}
	}
	c.Passphrase, c.Password, c.SudoPassword = []byte(texts[0]), texts[1], texts[2]
	if key != "" {
		if c.Key, err = os.ReadFile(key); err != nil {
			err = finding.Errorf("OCA-7606", "The key "+key+" cannot be read", "give a file that exists", "%w", err)
		}
	}
	return c, err
}

func (f *Fleet) target(m *Machine) (ssh.Target, error) {
	l := f.Spec.login(m)
	t := ssh.Target{Address: m.Address, Port: l.Port, User: l.User, HostKey: m.HostKey}
	var err error
	if t.Credentials, err = f.credentials(l.KeyFile, l.PassphraseFile, l.PasswordFile, l.SudoPasswordFile); err != nil {
		return t, err
	}
	if t.HostKey == "" {
		if t.HostKey, err = f.hosts.Key(t); err != nil {
			return t, err
		}
	}
	if l.JumpHost == nil {
		return t, nil
	}
	j := ssh.Target{Address: l.JumpHost.Address, Port: cmp.Or(l.JumpHost.Port, defaultPort), User: cmp.Or(l.JumpHost.User, l.User), HostKey: l.JumpHost.HostKey}
	j.Credentials = t.Credentials
	if l.JumpHost.KeyFile != "" || l.JumpHost.PasswordFile != "" {
		if j.Credentials, err = f.credentials(l.JumpHost.KeyFile, l.JumpHost.PassphraseFile, l.JumpHost.PasswordFile, ""); err != nil {
			return t, err
		}
	}
	if j.HostKey == "" {
		j.HostKey, err = f.hosts.Key(j)
	}
	t.Jump = &j
	return t, err
}

// dial logs in to a machine. It pins the host key on first contact, except in a dry run.
func (f *Fleet) dial(ctx context.Context, m *Machine) (*ssh.Conn, error) {
	t, err := f.target(m)
	if err != nil {
		return nil, err
	}
	c, err := ssh.Dial(ctx, t, f.Dial)
	if err != nil {
		return nil, f.forFile(err)
	}
	if f.DryRun {
		return c, nil
	}
	f.pins.Lock()
	defer f.pins.Unlock()
	if m.HostKey == "" {
		err = f.hosts.Add(t, c.HostKey())
	}
	if t.Jump != nil && f.Spec.login(m).JumpHost.HostKey == "" {
		err = errors.Join(err, f.hosts.Add(*t.Jump, c.JumpHostKey()))
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// forFile changes the remedy of a login error to the fleet's file; the operator's names a Secret.
func (f *Fleet) forFile(err error) error {
	remedies := map[string]string{
		"OCA-7602": "if the machine was reinstalled, remove its lines from " + string(f.hosts) + ", or correct its hostKey; otherwise another machine may have been put in its place",
		"OCA-7603": "add the public key to authorized_keys of the user, or correct user, keyFile or passwordFile in the file",
		"OCA-7604": "let the user run sudo without a password, or set sudoPasswordFile in the file",
		"OCA-7606": "correct keyFile or passphraseFile in the file",
	}
	found := finding.Of(err)
	if len(found) != 1 || remedies[found[0].Code] == "" {
		return err
	}
	one := found[0]
	one.Remedy = remedies[one.Code]
	one.Cause = strings.ReplaceAll(one.Cause, " of the Secret", "")
	return one
}

func (m *Machine) ownLogin() bool {
	return m.SSH.KeyFile != "" || m.SSH.PassphraseFile != "" || m.SSH.PasswordFile != "" || m.SSH.SudoPasswordFile != ""
}

// loginSecret returns the name and content of the Secret with which the operator logs in to a machine, or to its jump host. It has the fleet's name
// only if it holds nothing but the fleet's login, because a name must not stand for different logins.
func (f *Fleet) loginSecret(m *Machine, jump bool) (name string, data map[string][]byte, err error) {
	t, err := f.target(m)
	if err != nil {
		return "", nil, err
	}
	name = f.Spec.Name + "-login"
	if m.ownLogin() {
		name = m.Name + "-login"
	}
	c := t.Credentials
	if jump && !equality.Semantic.DeepEqual(t.Jump.Credentials, c) { // one Secret cannot hold both
		c = t.Jump.Credentials
		if m.SSH.JumpHost != nil {
			name = m.Name + "-login"
		}
		name = strings.TrimSuffix(name, "-login") + "-jump-login"
	}
	data = map[string][]byte{}
	for key, value := range map[string][]byte{
		v1alpha1.SecretKeyPrivate: c.Key, v1alpha1.SecretKeyPassphrase: c.Passphrase,
		v1alpha1.SecretKeyPassword: []byte(c.Password), v1alpha1.SecretKeySudoPassword: []byte(c.SudoPassword),
	} {
		if len(value) > 0 {
			data[key] = value
		}
	}
	if len(data) == 0 {
		return name, nil, fmt.Errorf("reading the credentials of %s: there are none", m.Name)
	}
	return name, data, nil
}
