// SPDX-License-Identifier: Apache-2.0

// Package machine adds machines to the cluster of a cloud and removes them. One controller creates the data with which a machine joins, another delivers
// them: a pure function decides what to do (decide), and operations do it. An operation logs in to the machine over SSH.
package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// Options configures the controllers and the operations on machines.
type Options struct {
	// Client writes, and reads from the cache; Direct bypasses it.
	Client client.Client
	Direct client.Reader
	Events events.EventRecorder
	// Dial replaces the connection to the machines; nil means TCP.
	Dial ssh.DialFunc
	// Image is the image of Jobs on control-plane nodes, "" if such Jobs are impossible.
	Image string
	// Leave removes a node from etcd and from the VRRP group; with check it only checks whether that is possible. It is nil if this process is not on a
	// control-plane node.
	Leave func(ctx context.Context, node string, check bool, report workflow.Reporter) error
	// SecretsDir contains the Secrets of the machine in directories of their names; "" reads them from the API server.
	SecretsDir string
	// Read, if set, caches the machine: this process runs one operation, and the machine cannot change meanwhile.
	Read *v1alpha1.OnecloudMachine
	// Authority holds the PEM-encoded CA certificates of the cluster, empty if they are unknown.
	Authority []byte
	Log       *slog.Logger
}

// The service accounts of Jobs that work on machines. Only the one for removals may change Nodes.
const (
	AccountOfWork    = "onecloud-machine-worker"
	AccountOfRemoval = "onecloud-machine-remover"
)

// job returns how an operation on a machine runs in a Job: with the Secrets of that machine and no others.
func (w work) job(account string) func(context.Context, *v1alpha1.OnecloudOperation) (operation.Job, error) {
	return func(ctx context.Context, op *v1alpha1.OnecloudOperation) (operation.Job, error) {
		m := &v1alpha1.OnecloudMachine{}
		key := client.ObjectKey{Namespace: op.Namespace, Name: op.MachineName()}
		err := w.Client.Get(ctx, key, m)
		if apierrors.IsNotFound(err) { // or the cache does not have it yet
			err = w.Direct.Get(ctx, key, m)
		}
		if client.IgnoreNotFound(err) != nil {
			return operation.Job{}, fmt.Errorf("reading machine %s: %w", op.MachineName(), err)
		}
		j := operation.Job{Account: account}
		if err != nil { // its first step reports it
			return j, nil //nolint:nilerr // not an error of the operator
		}
		if err := mayRun(ctx, w.Client, op, m); err != nil {
			return j, err
		}
		if op.Spec.Machine.ControlPlane && account == AccountOfRemoval {
			j.ControlPlane, j.Avoid = true, m.Name
		}
		if account == AccountOfRemoval && abandoned(m) { // nothing logs in to it any more
			return j, nil
		}
		if err := w.addLogins(ctx, &j, m); err != nil {
			return j, err
		}
		if name := m.BootstrapSecret(); account == AccountOfWork && !slices.Contains(j.Secrets, name) {
			j.Secrets = append(j.Secrets, name)
		}
		return j, nil
	}
}

// secret reads one of the Secrets of a machine, nil if there is none.
func (w work) secret(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	if w.SecretsDir == "" {
		s, err := w.readSecret(ctx, namespace, name)
		return s.Data, err
	}
	dir := filepath.Join(w.SecretsDir, name)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") { // where the kubelet keeps the files
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", name, err)
		}
		out[e.Name()] = text
	}
	return out, nil
}

// target returns how a machine is reached. It reads the secrets when they are needed, and does not keep them. seen are the host keys that this operation
// has seen.
func (w work) target(ctx context.Context, m *v1alpha1.OnecloudMachine, seen v1alpha1.OperationMachine) (ssh.Target, error) {
	way := m.Spec.Infrastructure.SSH
	t, err := w.login(ctx, m, way.MachineLogin, cmp.Or(hostKey(m), keyAt(seen.HostKey, seen.Address, place(m))))
	if err != nil || way.JumpHost == nil {
		return t, err
	}
	jump, err := w.login(ctx, m, *way.JumpHost, cmp.Or(jumpHostKey(m), keyAt(seen.JumpHostKey, seen.JumpAddress, placeOf(way.JumpHost))))
	t.Jump = &jump
	return t, err
}

func (w work) dial(ctx context.Context, m *v1alpha1.OnecloudMachine, seen v1alpha1.OperationMachine) (*ssh.Conn, error) {
	t, err := w.target(ctx, m, seen)
	if err != nil {
		return nil, err
	}
	return ssh.Dial(ctx, t, w.Dial)
}

func (w work) login(ctx context.Context, m *v1alpha1.OnecloudMachine, l v1alpha1.MachineLogin, recorded string) (ssh.Target, error) {
	t := ssh.Target{Address: l.Address, Port: int(l.Port), User: l.User, HostKey: cmp.Or(l.HostKey, recorded)}
	s, err := w.loginOf(ctx, m, l.CredentialsSecretName)
	if err != nil {
		return t, err
	}
	if len(s) == 0 {
		return t, finding.New("OCA-7606", fmt.Sprintf("The credentials for %s cannot be used", t),
			fmt.Sprintf("there is no Secret %s in namespace %s", l.CredentialsSecretName, m.Namespace),
			"create it with ssh-privatekey or password, then: ocadm machine retry "+m.Name)
	}
	t.Credentials = Credentials(s)
	return t, nil
}

// Credentials returns the credentials in a Secret.
func Credentials(s map[string][]byte) ssh.Credentials {
	return ssh.Credentials{
		Key: s[v1alpha1.SecretKeyPrivate], Passphrase: []byte(line(s, v1alpha1.SecretKeyPassphrase)),
		Password: line(s, v1alpha1.SecretKeyPassword), SudoPassword: line(s, v1alpha1.SecretKeySudoPassword),
	}
}

// line returns a value of a Secret without the newline that an editor leaves at its end.
func line(s map[string][]byte, key string) string { return strings.TrimRight(string(s[key]), "\r\n") }

func joined(n *corev1.Node, m *v1alpha1.OnecloudMachine) bool {
	return n != nil && n.Labels[v1alpha1.LabelMachine] == string(m.UID)
}

// SameAddress reports whether two machines are the same host. The same address behind another jump host is another host.
func SameAddress(a, b *v1alpha1.OnecloudMachine) bool {
	at := place(a) // the address of one that calls in is unknown
	return at != "" && at == place(b)
}

// SameName reports whether two machines would share a Node.
func SameName(a, b *v1alpha1.OnecloudMachine) bool {
	return a.Name == b.Name && a.Namespace != b.Namespace
}

// older compares machines by their creation.
func older(a, b *v1alpha1.OnecloudMachine) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
