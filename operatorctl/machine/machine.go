// SPDX-License-Identifier: Apache-2.0

// Package machine brings machines into the cluster of a cloud, and out of it. One controller makes the data with which a machine joins, another
// delivers them: it decides from values what is to be done (decide), and lets operations do it. An operation logs in to the machine over SSH.
package machine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
)

// Options of the controllers and of the operations of machines.
type Options struct {
	// Client writes, and reads from the cache; Direct reads past it.
	Client client.Client
	Direct client.Reader
	Events events.EventRecorder
	// Dial replaces the way to the machines; nil means TCP.
	Dial ssh.DialFunc
	Log  *slog.Logger
}

// target is how a machine is reached. Its secrets are read when they are needed: they are not kept.
func (o Options) target(ctx context.Context, m *v1alpha1.OnecloudMachine) (ssh.Target, error) {
	way := m.Spec.Infrastructure.SSH
	t, err := o.login(ctx, m, way.MachineLogin, m.Status.HostKey)
	if err != nil || way.JumpHost == nil {
		return t, err
	}
	jump, err := o.login(ctx, m, *way.JumpHost, m.Status.JumpHostKey)
	t.Jump = &jump
	return t, err
}

func (o Options) login(ctx context.Context, m *v1alpha1.OnecloudMachine, l v1alpha1.MachineLogin, recorded string) (ssh.Target, error) {
	t := ssh.Target{Address: l.Address, Port: int(l.Port), User: l.User, HostKey: l.HostKey}
	if t.HostKey == "" {
		t.HostKey = recorded
	}
	s := &corev1.Secret{}
	err := o.Direct.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: l.CredentialsSecretName}, s)
	switch {
	case apierrors.IsNotFound(err):
		return t, finding.New("OCA-7606", fmt.Sprintf("The credentials for %s cannot be used", t),
			fmt.Sprintf("there is no Secret %s in namespace %s", l.CredentialsSecretName, m.Namespace),
			"create it with ssh-privatekey or password, then: ocadm machine retry "+m.Name)
	case err != nil:
		return t, fmt.Errorf("reading Secret %s: %w", l.CredentialsSecretName, err)
	}
	t.Credentials = ssh.Credentials{
		Key: s.Data[v1alpha1.SecretKeyPrivate], Passphrase: []byte(line(s, v1alpha1.SecretKeyPassphrase)),
		Password: line(s, v1alpha1.SecretKeyPassword), SudoPassword: line(s, v1alpha1.SecretKeySudoPassword),
	}
	return t, nil
}

// line is a value of a Secret without the newline that an editor leaves at its end.
func line(s *corev1.Secret, key string) string { return strings.TrimRight(string(s.Data[key]), "\r\n") }

// joined reports whether a Node is that of a machine.
func joined(n *corev1.Node, m *v1alpha1.OnecloudMachine) bool {
	return n != nil && n.Labels[v1alpha1.LabelMachine] == string(m.UID)
}

// SameAddress reports whether two machines are one. The same address behind another jump host is another machine.
func SameAddress(a, b *v1alpha1.OnecloudMachine) bool {
	x, y := a.Spec.Infrastructure.SSH, b.Spec.Infrastructure.SSH
	return sameLogin(&x.MachineLogin, &y.MachineLogin) && sameLogin(x.JumpHost, y.JumpHost)
}

func sameLogin(a, b *v1alpha1.MachineLogin) bool {
	if a == nil || b == nil {
		return a == b
	}
	return strings.EqualFold(a.Address, b.Address) && cmp.Or(a.Port, defaultPort) == cmp.Or(b.Port, defaultPort)
}

// defaultPort of SSH.
const defaultPort = 22

// older orders machines as they were added.
func older(a, b *v1alpha1.OnecloudMachine) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// ownerOf is the reference to a cloud that makes Kubernetes delete its machines with it.
func ownerOf(cloud *v1alpha1.OnecloudCluster) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: cloud.Name, UID: cloud.UID}
}
