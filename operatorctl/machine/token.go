// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
)

// NewScript creates a token and the script with which a machine joins, and waits until the token is valid. Neither the machine nor its cloud need be in
// the cluster. The script is a secret.
func NewScript(ctx context.Context, c client.WithWatch, m *v1alpha1.OnecloudMachine, report func(why string)) (string, error) {
	cluster, err := ClusterOf(ctx, c, m)
	if err != nil {
		return "", err
	}
	script, token, _, err := newScript(ctx, c, m, cluster)
	if err != nil {
		return "", err
	}
	return script, Signed(ctx, c, token, report)
}

// Signed waits until Kubernetes has signed ConfigMap cluster-info with a token: until then, a join considers the token unknown. report receives what it
// waits for.
func Signed(ctx context.Context, c client.WithWatch, token string, report func(why string)) error {
	id, _, _ := strings.Cut(token, ".")
	info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}}
	err := kube.WaitFor(ctx, c, info, func(o client.Object) (bool, string) {
		live, there := kube.As[corev1.ConfigMap](o)
		return there && live.Data[bootstrapapi.JWSSignatureKeyPrefix+id] != "", "kube-controller-manager has not signed ConfigMap cluster-info with it"
	}, report)
	if err != nil {
		return fmt.Errorf("waiting for join token %s: %w", id, err)
	}
	return nil
}
