// SPDX-License-Identifier: Apache-2.0

// Package ssh runs scripts as root on machines reached over SSH, optionally through a jump host. A host key is pinned, or learnt on the first
// connection. Errors are findings.
package ssh

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"yunion.io/x/ocadm/internal/finding"
)

// Target is a machine, with its login credentials.
type Target struct {
	// Address is a name or an IP address. Port defaults to 22, User to root.
	Address string
	Port    int
	User    string
	// HostKey is the key that the machine must present: TYPE BASE64, as in known_hosts and authorized_keys, or its fingerprint SHA256:BASE64. If
	// empty, any key is accepted.
	HostKey string
	Credentials
	// Jump is the jump host, nil if there is none. A jump host's own Jump is ignored.
	Jump *Target
}

// Credentials are the credentials of a user. They are secret.
type Credentials struct {
	// Key is a private key in PEM, Passphrase the passphrase of the key.
	Key, Passphrase []byte
	// Password is the user's password. SudoPassword is the one for sudo; if empty, Password is used.
	Password, SudoPassword string
}

const defaultPort = 22

func (t Target) hostPort() string {
	return net.JoinHostPort(t.Address, strconv.Itoa(cmp.Or(t.Port, defaultPort)))
}

func (t Target) user() string { return cmp.Or(t.User, "root") }

func (t Target) String() string { return t.user() + "@" + t.hostPort() }

// CheckHostKey returns what is wrong with the text of a host key, nil if nothing is.
func CheckHostKey(text string) error {
	_, _, err := parseHostKey(text)
	return err
}

// parseHostKey returns the fingerprint of a key and its type, which is empty for a bare fingerprint.
func parseHostKey(text string) (fingerprint, kind string, err error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "SHA256:") {
		const digits = 43 // 32 bytes in base64 without padding
		if len(text) != len("SHA256:")+digits {
			return "", "", errors.New("a fingerprint is SHA256: and 43 characters, as ssh-keygen -l prints it")
		}
		return text, "", nil
	}
	key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil || len(bytes.TrimSpace(rest)) > 0 {
		return "", "", errors.New("a host key is TYPE BASE64, as in /etc/ssh/ssh_host_ed25519_key.pub, or its fingerprint SHA256:…")
	}
	key = bare(key)
	return ssh.FingerprintSHA256(key), key.Type(), nil
}

// bare returns the key of a certificate: a machine keeps its key when its certificate is renewed.
func bare(key ssh.PublicKey) ssh.PublicKey {
	if c, ok := key.(*ssh.Certificate); ok {
		return c.Key
	}
	return key
}

// Fingerprint returns the fingerprint of a host key in the form of Target.HostKey; "" if the text is not a key.
func Fingerprint(hostKey string) string {
	f, _, _ := parseHostKey(hostKey)
	return f
}

// algorithms returns the algorithms with which a machine can prove a key of a type, so that it does not present another of its keys. nil means all.
func algorithms(kind string) []string {
	switch kind {
	case "":
		return nil
	case ssh.KeyAlgoRSA:
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{kind}
}

// without removes the algorithms with which a machine proves a key of a type, or a certificate of one.
func without(all []string, kind string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(a string) bool {
		return slices.Contains(algorithms(kind), strings.TrimSuffix(a, "-cert-v01@openssh.com"))
	})
}

// errHostKey reports that a machine presents another key than the pinned one.
type errHostKey struct{ want, got, kind string }

func (e *errHostKey) Error() string { return fmt.Sprintf("its key is %s, pinned is %s", e.got, e.want) }

// config returns the client configuration. shown receives the key that the machine presents.
func (t Target) config(shown *string) (*ssh.ClientConfig, error) {
	auth, err := t.auth()
	if err != nil {
		return nil, err
	}
	want, kind := "", ""
	if t.HostKey != "" {
		if want, kind, err = parseHostKey(t.HostKey); err != nil {
			return nil, finding.Errorf("OCA-7602", fmt.Sprintf("The pinned host key of %s cannot be read", t), "ssh-keyscan "+t.Address+" prints the keys of a machine", "%w", err)
		}
	}
	return &ssh.ClientConfig{
		User: t.user(), Auth: auth, HostKeyAlgorithms: algorithms(kind), ClientVersion: "SSH-2.0-ocadm",
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			key = bare(key)
			if got := ssh.FingerprintSHA256(key); want != "" && got != want {
				return &errHostKey{want: want, got: got, kind: key.Type()}
			}
			*shown = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
			return nil
		},
	}, nil
}

// CheckCredentials returns a finding if the credentials cannot be used with any machine.
func (t Target) CheckCredentials() error {
	_, err := t.auth()
	return err
}

func (t Target) auth() ([]ssh.AuthMethod, error) {
	var out []ssh.AuthMethod
	if len(t.Key) > 0 {
		var signer ssh.Signer
		var err error
		if len(t.Passphrase) > 0 {
			signer, err = ssh.ParsePrivateKeyWithPassphrase(t.Key, t.Passphrase)
		} else {
			signer, err = ssh.ParsePrivateKey(t.Key)
		}
		var missing *ssh.PassphraseMissingError
		switch {
		case errors.As(err, &missing):
			return nil, badCredentials(t, "the key has a passphrase, and none was given", "give it with --passphrase-file, or as key passphrase of the Secret")
		case err != nil: // the error may quote parts of the key
			return nil, badCredentials(t, "the private key cannot be read", "give a private key in PEM, as ssh-keygen writes it, and its passphrase if it has one")
		}
		out = append(out, ssh.PublicKeys(signer))
	}
	if t.Password != "" {
		answer := func(_, _ string, questions []string, echo []bool) ([]string, error) {
			answers := make([]string, len(questions))
			for i := range questions {
				if !echo[i] {
					answers[i] = t.Password
				}
			}
			return answers, nil
		}
		out = append(out, ssh.Password(t.Password), ssh.KeyboardInteractive(answer))
	}
	if len(out) == 0 {
		return nil, badCredentials(t, "the Secret has neither a private key nor a password", "put ssh-privatekey or password in the Secret")
	}
	return slices.Clip(out), nil
}

func badCredentials(t Target, cause, remedy string) error {
	return finding.New("OCA-7606", fmt.Sprintf("The credentials for %s cannot be used", t), cause, remedy)
}
