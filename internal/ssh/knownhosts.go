// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"yunion.io/x/ocadm/internal/finding"
)

// KnownHosts is the path of a file of host keys in the format of OpenSSH's known_hosts. A missing file has no keys.
type KnownHosts string

// Key returns the key that the file has for a machine, as TYPE BASE64; "" if it has none. Of several types it returns the one that machines most
// commonly present.
func (k KnownHosts) Key(t Target) (string, error) {
	known, lines, err := k.read()
	if err != nil {
		return "", err
	}
	return keyOf(t, known, lines)
}

// keyOf is like Key, for the result of read.
func keyOf(t Target, known ssh.HostKeyCallback, lines [][]byte) (string, error) {
	if known == nil {
		return "", nil
	}
	// With a key that no machine has, the library returns an error that lists the known keys; only the library can read hashed names.
	other, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)))
	if err != nil {
		return "", err
	}
	var wanted *knownhosts.KeyError
	if err := known(t.hostPort(), &net.TCPAddr{}, other); !errors.As(err, &wanted) {
		return "", nil
	}
	keys := slices.DeleteFunc(wanted.Want, func(w knownhosts.KnownKey) bool {
		return revoked(t, known, w.Key) || bytes.HasPrefix(bytes.TrimSpace(lines[w.Line-1]), []byte("@cert-authority")) // no machine has this key
	})
	if len(keys) == 0 {
		return "", nil
	}
	rank := func(k knownhosts.KnownKey) int {
		return slices.Index([]string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA}, k.Key.Type())
	}
	best := slices.MinFunc(keys, func(a, b knownhosts.KnownKey) int { return cmp.Compare(uint(rank(a)), uint(rank(b))) })
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(best.Key))), nil
}

func revoked(t Target, known ssh.HostKeyCallback, key ssh.PublicKey) bool {
	_, is := errors.AsType[*knownhosts.RevokedError](known(t.hostPort(), &net.TCPAddr{}, key))
	return is
}

// read returns the check of the file and its lines; the check is nil without a file. As in OpenSSH, lines with keys of an unknown type are ignored.
func (k KnownHosts) read() (known ssh.HostKeyCallback, lines [][]byte, _ error) {
	text, err := os.ReadFile(string(k))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the host keys: %w", err)
	}
	lines = bytes.Split(text, []byte("\n"))
	for i, l := range lines {
		if _, _, _, _, _, err := ssh.ParseKnownHosts(l); err != nil && strings.Contains(err.Error(), "unknown key algorithm") {
			lines[i] = nil
		}
	}
	f, err := os.CreateTemp("", "ocadm-known-hosts") // the library reads files only
	if err != nil {
		return nil, nil, fmt.Errorf("reading the host keys: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // in a temporary directory
	_, err = f.Write(bytes.Join(lines, []byte("\n")))
	if err = errors.Join(err, f.Close()); err == nil {
		known, err = knownhosts.New(f.Name())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the host keys in %s: %w", string(k), err)
	}
	return known, lines, nil
}

// Add appends a machine's key to the file, mode 0600, unless the file already has one for it. A key that the file revokes is an error.
func (k KnownHosts) Add(t Target, hostKey string) error {
	known, lines, err := k.read()
	if err != nil {
		return err
	}
	if have, err := keyOf(t, known, lines); err != nil || have != "" {
		return err
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(hostKey))
	if err != nil {
		return fmt.Errorf("reading the host key of %s: %w", t, err)
	}
	if known != nil && revoked(t, known, key) {
		return finding.New("OCA-7602", fmt.Sprintf("%s has a revoked host key", t), string(k)+" has its key with @revoked",
			"give the machine another host key, or remove that line")
	}
	if err := os.MkdirAll(filepath.Dir(string(k)), 0o700); err != nil {
		return err
	}
	text, err := os.ReadFile(string(k))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing a host key: %w", err)
	}
	line := knownhosts.Line([]string{knownhosts.Normalize(t.hostPort())}, key) + "\n"
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) { // an editor or a user left its last line open
		line = "\n" + line
	}
	f, err := os.OpenFile(string(k), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("writing a host key: %w", err)
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}
