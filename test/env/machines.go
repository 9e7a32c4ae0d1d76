// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// LoginSecret is the Secret with the key that Joinable writes.
const LoginSecret = "login"

// Joinable makes the cluster one that machines can join, as kubeadm leaves it. key logs in to the machines.
func (e *Env) Joinable(key []byte) {
	e.Helper()
	config := map[string]string{"ClusterConfiguration": "controlPlaneEndpoint: 192.0.2.1:6443\nkubernetesVersion: v1.36.3\nimageRepository: registry.k8s.io\n"}
	info := map[string]string{"kubeconfig": fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: %s}\n", e.authority())}
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"}, Data: config},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: info},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: LoginSecret}, Data: map[string][]byte{v1alpha1.SecretKeyPrivate: key}},
	} {
		if err := client.IgnoreAlreadyExists(e.Client.Create(e.Context(), o)); err != nil {
			e.Fatal(err)
		}
	}
}

// authority is a certificate in PEM, in base64.
func (e *Env) authority() string {
	e.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		e.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, private)
	if err != nil {
		e.Fatal(err)
	}
	out, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	if err != nil {
		e.Fatal(err)
	}
	return string(out)
}

var inScript = regexp.MustCompile(`"onecloud.yunion.io/machine=([^"]*)".*"name":"([^"]*)"`)

// Register plays ocadm join: it makes the Ready Node of the machine for which a script of bootstrap data was made.
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
