// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// secretNamed returns a Secret with a password, as for a login.
func secretNamed(name string, change ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name}, Type: corev1.SecretTypeOpaque}
	s.Data = map[string][]byte{v1alpha1.SecretKeyPassword: []byte("p")}
	for _, c := range change {
		c(s)
	}
	return s
}

func labelled(key, value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Labels = map[string]string{key: value} }
}

func typed(kind corev1.SecretType) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Type = kind }
}

// cloudWithSecrets returns a cloud that refers to Secrets of the user.
func cloudWithSecrets() *v1alpha1.OnecloudCluster {
	c := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default", UID: "c"}}
	c.Spec.MySQL.PasswordSecretRef = &v1alpha1.SecretKeyRef{Name: "my-db", Key: "password"}
	c.Spec.Clickhouse.PasswordSecretRef = &v1alpha1.SecretKeyRef{Name: "my-clickhouse", Key: "password"}
	c.Spec.Backup.S3 = &v1alpha1.BackupS3{Secret: "my-bucket"}
	return c
}

// notLogins returns Secrets of the cloud's namespace to which a machine may not refer.
func notLogins() []*corev1.Secret {
	owned := func(s *corev1.Secret) {
		s.OwnerReferences = []metav1.OwnerReference{operation.OwnerOf(cloudWithSecrets())}
	}
	return []*corev1.Secret{
		secretNamed("ocadm-mysql"), secretNamed("ocadm-mysql-replication"), secretNamed("ocadm-database"),
		secretNamed("my-db"), secretNamed("my-clickhouse"), secretNamed("my-bucket"),
		secretNamed("default-credentials"), secretNamed("default-certs"), secretNamed("default-database"), secretNamed("default-database-2"), secretNamed("default-backup-s3"),
		secretNamed("a", labelled(v1alpha1.LabelManagedBy, v1alpha1.ValueManagedBy)), secretNamed("b", labelled(v1alpha1.LabelInstance, "onecloud-cluster-default")),
		secretNamed("c", labelled(v1alpha1.LabelRelease, "3")), secretNamed("d", owned),
		secretNamed("e", typed(corev1.SecretTypeServiceAccountToken)), secretNamed("f", typed(corev1.SecretTypeTLS)),
		secretNamed("g", typed("bootstrap.kubernetes.io/token")), secretNamed("h", typed(corev1.SecretTypeDockerConfigJson)),
	}
}

// A machine that refers to a Secret of the cloud gets no Job with it, for its own login or its jump host's, and the finding names the Secret.
func TestJobRefusesSecretsOfTheCloud(t *testing.T) {
	for _, s := range notLogins() {
		for _, where := range []string{"machine", "jump host"} {
			m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "w"}}
			m.Spec.Infrastructure.SSH.CredentialsSecretName = s.Name
			if where == "jump host" {
				m.Spec.Infrastructure.SSH.MachineLogin = v1alpha1.MachineLogin{CredentialsSecretName: "login"}
				m.Spec.Infrastructure.SSH.JumpHost = &v1alpha1.MachineLogin{CredentialsSecretName: s.Name}
			}
			a := accessTo(m, s, secretNamed("login"), cloudWithSecrets())
			_, one := a.job(AccountOfWork)(t.Context(), operationFor("w"))
			all, err := a.jobOfAll(t.Context(), operationFor("w"))
			if err != nil || slices.Contains(all.Secrets, s.Name) {
				t.Errorf("%s, %s: a comparison uses %q, %v", s.Name, where, all.Secrets, err)
			}
			_, login := a.target(t.Context(), m, v1alpha1.OperationMachine{})
			for what, err := range map[string]error{"job": one, "login of the operator itself": login} {
				if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-7628" || !strings.Contains(l[0].What, "Secret "+s.Name+" ") {
					t.Errorf("%s, %s, %s: %v", s.Name, where, what, err)
				}
			}
		}
	}
}

// Secrets of the three types that users create for logins are mounted, even if they do not exist yet.
func TestJobTakesLogins(t *testing.T) {
	for name, s := range map[string]*corev1.Secret{
		"opaque": secretNamed("login"), "ssh": secretNamed("login", typed(corev1.SecretTypeSSHAuth)), "basic": secretNamed("login", typed(corev1.SecretTypeBasicAuth)),
		"of Helm": secretNamed("login", labelled(v1alpha1.LabelManagedBy, "Helm")), "none": secretNamed("other"),
	} {
		m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "w"}}
		m.Spec.Infrastructure.SSH.CredentialsSecretName = "login"
		m.Spec.Infrastructure.SSH.JumpHost = &v1alpha1.MachineLogin{CredentialsSecretName: "login"}
		j, err := accessTo(m, s, cloudWithSecrets()).job(AccountOfWork)(t.Context(), operationFor("w"))
		if err != nil || !slices.Equal(j.Secrets, []string{"login", "w-bootstrap"}) {
			t.Errorf("%s: %q, %v", name, j.Secrets, err)
		}
	}
}

// An abandoned machine can be removed: nothing logs in to it any more.
func TestJobOfAbandoned(t *testing.T) {
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "w", Annotations: map[string]string{v1alpha1.AnnotationAbandonMachine: "true"}}}
	m.Spec.Infrastructure.SSH.CredentialsSecretName = "ocadm-mysql"
	j, err := accessTo(m).job(AccountOfRemoval)(t.Context(), operationFor("w"))
	if err != nil || len(j.Secrets) > 0 {
		t.Errorf("%q, %v", j.Secrets, err)
	}
}

func accessTo(all ...client.Object) work {
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(all...).Build()
	return work{Options{Client: c, Direct: c}}
}

func operationFor(machine string) *v1alpha1.OnecloudOperation {
	op := &v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "o"}}
	op.Spec = v1alpha1.OnecloudOperationSpec{Cloud: "default", Machine: &v1alpha1.MachineParameters{Name: machine}}
	return op
}
