// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
)

// ForgetUpload removes the CAs that were uploaded for joining control-plane nodes, because they are outdated.
func ForgetUpload(ctx context.Context, c client.Client) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: constants.KubeadmCertsSecret}}
	if err := client.IgnoreNotFound(c.Delete(ctx, s)); err != nil {
		return fmt.Errorf("deleting Secret %s: %w", s.Name, err)
	}
	return nil
}

// clusterInfoOf returns cluster-info, which joining machines read.
func clusterInfoOf(ctx context.Context, c client.Reader) (*corev1.ConfigMap, *clientcmdapi.Config, error) {
	cm := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}, cm); err != nil {
		return nil, nil, fmt.Errorf("reading the information for machines that join: %w", err)
	}
	kc, err := clientcmd.Load([]byte(cm.Data[bootstrapapi.KubeConfigKey]))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the information for machines that join: %w", err)
	}
	return cm, kc, nil
}

// ClusterInfoHas reports whether cluster-info contains exactly these CAs.
func ClusterInfoHas(ctx context.Context, c client.Reader, authorities []byte) (bool, error) {
	_, kc, err := clusterInfoOf(ctx, c)
	if err != nil {
		return false, err
	}
	for _, cluster := range kc.Clusters {
		if !bytes.Equal(cluster.CertificateAuthorityData, authorities) {
			return false, nil
		}
	}
	return true, nil
}

// WriteClusterInfo writes these CAs into cluster-info. The controller manager signs it again for each token.
func WriteClusterInfo(ctx context.Context, c client.Client, r workflow.Reporter, authorities []byte) error {
	cm, kc, err := clusterInfoOf(ctx, c)
	if err != nil {
		return err
	}
	for _, cluster := range kc.Clusters {
		cluster.CertificateAuthorityData = authorities
	}
	raw, err := clientcmd.Write(*kc)
	if err != nil {
		return fmt.Errorf("writing the information for machines that join: %w", err)
	}
	before := cm.DeepCopy()
	cm.Data[bootstrapapi.KubeConfigKey] = string(raw)
	if err := c.Patch(ctx, cm, client.MergeFrom(before), client.FieldOwner(kube.FieldManager)); err != nil {
		return fmt.Errorf("writing the information for machines that join: %w", err)
	}
	r.Changed("changed ConfigMap %s/%s", cm.Namespace, cm.Name)
	return nil
}

// published is the ConfigMap in which the API server publishes, by key, the CAs that aggregated API servers must trust.
const published = "extension-apiserver-authentication"

func publishedKeys(ca, frontProxy []byte) map[string][]byte {
	return map[string][]byte{"client-ca-file": ca, "requestheader-client-ca-file": frontProxy}
}

// PublishesOnly reports whether the API server publishes exactly these CAs to aggregated API servers.
func PublishesOnly(ctx context.Context, c client.Reader, ca, frontProxy []byte) (bool, error) {
	cm := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: published}, cm); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	for key, want := range publishedKeys(ca, frontProxy) {
		has, herr := certutil.ParseCertsPEM([]byte(cm.Data[key]))
		wanted, werr := certutil.ParseCertsPEM(want)
		if werr != nil {
			return false, fmt.Errorf("reading a certificate authority: %w", werr)
		}
		if herr != nil || len(has) != len(wanted) || !has[0].Equal(wanted[0]) {
			return false, nil //nolint:nilerr // unreadable certificates are not these
		}
	}
	return true, nil
}

// Republish writes these CAs there. The API server only adds to what it finds, and checks once a minute.
func Republish(ctx context.Context, c client.Client, r workflow.Reporter, ca, frontProxy []byte) error {
	return wait.Until(ctx, "the authorities of aggregated API servers", time.Second, func(ctx context.Context) (bool, string, error) {
		if done, err := PublishesOnly(ctx, c, ca, frontProxy); err != nil || done {
			return done, "", err
		}
		cm := &corev1.ConfigMap{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: published}, cm); err != nil {
			return false, "the API server writes it", client.IgnoreNotFound(err)
		}
		before := cm.DeepCopy()
		for key, data := range publishedKeys(ca, frontProxy) {
			cm.Data[key] = string(data)
		}
		if err := c.Patch(ctx, cm, client.MergeFrom(before), client.FieldOwner(kube.FieldManager)); err != nil {
			return false, "", fmt.Errorf("writing ConfigMap %s: %w", published, err)
		}
		r.Changed("changed ConfigMap kube-system/%s", published)
		return false, "it is checked again", nil
	}, func(why string) { r.Waiting("ConfigMap "+published, why) })
}
