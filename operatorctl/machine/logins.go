// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// A user who may create a machine chooses its Secret and its address, and a login sends the Secret's password to that address. So the operator only
// accepts Secrets that can be for logins: those of its clouds and databases are in the same namespace.

// logins returns the names of the Secrets used to log in to a machine.
func logins(m *v1alpha1.OnecloudMachine) []string {
	way := m.Spec.Infrastructure.SSH
	out := []string{way.CredentialsSecretName}
	if way.JumpHost != nil {
		out = append(out, way.JumpHost.CredentialsSecretName)
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == "" })
}

// addLogins gives a Job the Secrets used to log in to a machine.
func (w work) addLogins(ctx context.Context, j *operation.Job, m *v1alpha1.OnecloudMachine) error {
	for _, name := range logins(m) {
		if slices.Contains(j.Secrets, name) {
			continue
		}
		s, err := w.readSecret(ctx, m.Namespace, name)
		if err != nil {
			return err
		}
		if err := w.forLogin(ctx, m, name, s); err != nil {
			return err
		}
		j.Secrets = append(j.Secrets, name)
	}
	return nil
}

// loginOf reads a Secret for the login to a machine. A Job has only permitted ones.
func (w work) loginOf(ctx context.Context, m *v1alpha1.OnecloudMachine, name string) (map[string][]byte, error) {
	if w.SecretsDir != "" {
		return w.secret(ctx, m.Namespace, name)
	}
	s, err := w.readSecret(ctx, m.Namespace, name)
	if err != nil {
		return nil, err
	}
	return s.Data, w.forLogin(ctx, m, name, s)
}

// readSecret reads a Secret, bypassing the cache. It is empty if there is none.
func (w work) readSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	_, err := kube.Find(ctx, w.Direct, client.ObjectKey{Namespace: namespace, Name: name}, s, "Secret "+name)
	return s, err
}

// forLogin returns a finding if a Secret may not be used for the login to a machine. s is empty if there is none yet.
func (w work) forLogin(ctx context.Context, m *v1alpha1.OnecloudMachine, name string, s *corev1.Secret) error {
	var clouds v1alpha1.OnecloudClusterList
	if err := w.Client.List(ctx, &clouds, client.InNamespace(m.Namespace)); err != nil {
		return fmt.Errorf("listing clouds: %w", err)
	}
	why := NoLogin(name, s, clouds.Items)
	if why == "" {
		return nil
	}
	return finding.New("OCA-7628", fmt.Sprintf("Secret %s cannot be used to log in to machine %s", name, m.Name), why,
		fmt.Sprintf("create a Secret in namespace %s for this login only, and set credentialsSecretName to it", m.Namespace))
}

// NoLogin returns why a Secret of this name is not for logins to machines, "" if it may be. clouds are those of its namespace. It is pure.
func NoLogin(name string, s *corev1.Secret, clouds []v1alpha1.OnecloudCluster) string {
	switch s.Type {
	case "", corev1.SecretTypeOpaque, corev1.SecretTypeSSHAuth, corev1.SecretTypeBasicAuth:
	default:
		return fmt.Sprintf("its type is %s: a login needs type Opaque, %s or %s", s.Type, corev1.SecretTypeSSHAuth, corev1.SecretTypeBasicAuth)
	}
	if slices.Contains([]string{dbpair.First, dbpair.SecretName, v1alpha1.DatabaseSecret}, name) {
		return "it belongs to the database"
	}
	if isOurs(&s.ObjectMeta) {
		return "it belongs to a cloud or to the operator"
	}
	for i := range clouds {
		if ofCloud(name, &clouds[i]) {
			return "it belongs to cloud " + clouds[i].Name
		}
	}
	return ""
}

// isOurs reports whether the operator created a Secret, by its labels and owners.
func isOurs(s *metav1.ObjectMeta) bool {
	l := s.Labels
	if l[v1alpha1.LabelManagedBy] == v1alpha1.ValueManagedBy || l[v1alpha1.LabelName] == v1alpha1.ValueName ||
		strings.HasPrefix(l[v1alpha1.LabelInstance], v1alpha1.InstancePrefix) || l[v1alpha1.LabelOperationCloud] != "" || l[v1alpha1.LabelRelease] != "" {
		return true
	}
	return slices.ContainsFunc(s.OwnerReferences, func(r metav1.OwnerReference) bool {
		return strings.HasPrefix(r.APIVersion, v1alpha1.Group+"/") && (r.Kind == v1alpha1.Kind || r.Kind == v1alpha1.OperationKind)
	})
}

// ofCloud reports whether a cloud refers to a Secret, or the name is one of its own Secrets': not all have labels.
func ofCloud(name string, cloud *v1alpha1.OnecloudCluster) bool {
	what, its := strings.CutPrefix(name, cloud.Name+"-")
	return archive.Names(cloud, name) || its && (strings.HasPrefix(what, "database-") && !strings.HasSuffix(what, "-login") || slices.Contains([]string{
		v1alpha1.SecretCredentials, v1alpha1.SecretCerts, v1alpha1.SecretEtcdServer, v1alpha1.SecretEtcdPeer, v1alpha1.SecretEtcdClient, "etcd-ca", "database", "backup-s3",
	}, what))
}
