// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/pki"
)

// LoginSecret is the name of the Secret with the key, which Joinable writes.
const LoginSecret = "login"

// Joinable prepares the cluster for joining machines, as kubeadm leaves it. key is the login key for the machines.
func (e *Env) Joinable(key []byte) {
	e.Helper()
	authority, err := pki.NewCA(time.Now(), "kubernetes", nil)
	e.Must(err)
	config := map[string]string{"ClusterConfiguration": "controlPlaneEndpoint: 192.0.2.1:6443\nkubernetesVersion: v1.36.3\nimageRepository: registry.k8s.io\n"}
	info := map[string]string{"kubeconfig": fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: %s}\n",
		base64.StdEncoding.EncodeToString(authority.CertPEM()))}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"}, Data: config},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: info},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: LoginSecret}, Data: map[string][]byte{v1alpha1.SecretKeyPrivate: key}},
	} {
		e.Must(client.IgnoreAlreadyExists(e.Client.Create(e.Context(), o)))
	}
}

var inScript = regexp.MustCompile(`"onecloud.yunion.io/machine=([^"]*)".*"name":"([^"]*)"`)

// Register plays ocadm join: it creates the Ready Node of the machine for which the bootstrap script was made.
func (e *Env) Register(ctx context.Context, script string) error {
	found := inScript.FindStringSubmatch(script)
	if found == nil {
		return errors.New("the script has no configuration")
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: found[2], Labels: map[string]string{v1alpha1.LabelMachine: found[1]}}}
	if err := client.IgnoreAlreadyExists(e.Client.Create(ctx, n)); err != nil {
		return err
	}
	status := `{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.7"}],"conditions":[{"type":"Ready","status":"True"}]}}`
	return e.Client.Status().Patch(ctx, n, client.RawPatch(types.StrategicMergePatchType, []byte(status)))
}
