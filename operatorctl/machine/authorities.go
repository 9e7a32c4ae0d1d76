// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// A joining control-plane node downloads the cluster's CAs, which the cluster stores encrypted (docs/decisions/0065). The operator creates the key; a
// Job on a control-plane node, the only place with the CAs, stores them. All machines share one key: the CAs are stored once.

const (
	// keySecret is the Secret with the key in the namespace of the cloud, certificateKey its data key.
	keySecret      = "ocadm-certificate-key"
	certificateKey = "key"
	// storedAuthorities is the Secret in kube-system in which kubeadm stores the CAs.
	storedAuthorities = "kubeadm-certs"
	// keySize is the size of an AES-256 key in bytes.
	keySize = 32
	// shareTimeout bounds the Job. keepShared is how long it is kept: a failed Job is then replaced.
	shareTimeout = 5 * time.Minute
	keepShared   = time.Minute
	shareTries   = 3
)

// LabelAuthorities is the Job label with the cloud for whose machines it stores the CAs.
const LabelAuthorities = "onecloud.yunion.io/authorities-of"

// sharedKey is the key with which a control-plane node decrypts the CAs.
type sharedKey struct {
	key     string
	expires time.Time
}

// digest identifies a key without revealing it.
func (k sharedKey) digest() string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(k.key)))[:8]
}

// share ensures that the CAs are stored in the cluster, encrypted with a key that stays valid for a while. Until they are, it returns an error that says
// what is missing.
func (c *Bootstrap) share(ctx context.Context, m *v1alpha1.OnecloudMachine, cloud *v1alpha1.OnecloudCluster) (sharedKey, error) {
	if err := c.needEndpoint(ctx); err != nil {
		return sharedKey{}, err
	}
	if c.Image == "" {
		return sharedKey{}, elsewhere(m.Name)
	}
	k, err := c.presentKey(ctx, m.Namespace)
	if err != nil {
		return k, err
	}
	stored := &corev1.Secret{}
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: storedAuthorities}
	if found, err := kube.Find(ctx, c.Direct, key, stored, "the stored authorities of the cluster"); err != nil || found && fits(stored.Data["ca.crt"], k.key) {
		return k, err
	}
	job := shareJob(cloud, k, c.Image)
	switch err := c.Client.Create(ctx, job, client.FieldOwner(v1alpha1.ManagerOperator)); {
	case apierrors.IsAlreadyExists(err):
		live := &batchv1.Job{}
		if _, err := kube.Find(ctx, c.Client, client.ObjectKeyFromObject(job), live, "Job "+job.Name); err != nil {
			return k, err
		}
		if _, failed := operation.Ended(live); failed != "" {
			return k, fmt.Errorf("storing the authorities of the cluster: Job %s failed: %s; the operator retries automatically", job.Name, failed)
		}
	case err != nil:
		return k, fmt.Errorf("creating Job %s: %w", job.Name, err)
	}
	return k, fmt.Errorf("waiting for Job %s, which stores the encrypted authorities of the cluster", job.Name)
}

// presentKey returns the operator's key. It creates one if there is none, or if it expires soon.
func (c *Bootstrap) presentKey(ctx context.Context, namespace string) (sharedKey, error) {
	s := &corev1.Secret{}
	if _, err := kube.Find(ctx, c.Direct, client.ObjectKey{Namespace: namespace, Name: keySecret}, s, "the certificate key"); err != nil {
		return sharedKey{}, err
	}
	k := sharedKey{key: string(s.Data[certificateKey]), expires: expires(s)}
	if k.key != "" && time.Until(k.expires) > tokenMargin {
		return k, nil
	}
	if joins, err := c.joins(ctx, namespace); err != nil || joins && k.key != "" && time.Until(k.expires) > 0 { // the node may not have downloaded the CAs yet
		return k, err
	}
	raw := make([]byte, keySize)
	_, _ = rand.Read(raw) // never fails
	// kubeadm also keeps the stored CAs for two hours, counted from a later time.
	k = sharedKey{key: hex.EncodeToString(raw), expires: time.Now().Add(tokenTTL).UTC().Truncate(time.Second)}
	made := corev1ac.Secret(keySecret, namespace).
		WithLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy}).
		WithAnnotations(map[string]string{annotationExpires: k.expires.Format(time.RFC3339)}).
		WithType(corev1.SecretTypeOpaque).WithData(map[string][]byte{certificateKey: []byte(k.key)})
	if err := c.Client.Apply(ctx, made, client.FieldOwner(v1alpha1.ManagerOperator), client.ForceOwnership); err != nil {
		return k, fmt.Errorf("writing the certificate key: %w", err)
	}
	return k, nil
}

// joins reports whether a control-plane node is joining.
func (c *Bootstrap) joins(ctx context.Context, namespace string) (bool, error) {
	var all v1alpha1.OnecloudOperationList
	if err := c.Client.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing operations: %w", err)
	}
	return slices.ContainsFunc(all.Items, func(o v1alpha1.OnecloudOperation) bool {
		return o.Spec.Action == v1alpha1.ActionJoinMachine && o.Spec.Machine != nil && o.Spec.Machine.ControlPlane && o.Status.Phase.Active()
	}), nil
}

// fits reports whether a key decrypts what kubeadm has encrypted: AES in Galois counter mode, nonce first. Source: k8s.io/kubernetes
// cmd/kubeadm/app/util/crypto; a test compares.
func fits(encrypted []byte, key string) bool {
	raw, err := hex.DecodeString(key)
	if err != nil {
		return false
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return false
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil || len(encrypted) < gcm.NonceSize() {
		return false
	}
	_, err = gcm.Open(nil, encrypted[:gcm.NonceSize()], encrypted[gcm.NonceSize():], nil)
	return err == nil
}

// shareJob returns the Job that stores the CAs, encrypted with a key. It is pure.
func shareJob(cloud *v1alpha1.OnecloudCluster, k sharedKey, image string) *batchv1.Job {
	labels := map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, LabelAuthorities: cloud.Name}
	how := operation.Job{Account: AccountOfWork, Secrets: []string{keySecret}, ControlPlane: true}
	pod := how.Pod(cloud, image, []string{"operator", "share-authorities", "--key-file=" + operation.SecretsDir + "/" + keySecret + "/" + certificateKey})
	pod.AutomountServiceAccountToken = new(false) // it uses the kubeconfig of the node
	return operation.NewJob(cloud.Namespace, cloud.Name+"-authorities-"+k.digest(), labels, operation.OwnerOf(cloud), pod, shareTries, shareTimeout, keepShared)
}

// needEndpoint returns the finding that join would also return if nodes reach the control plane at the address of one of its nodes.
func (c *Bootstrap) needEndpoint(ctx context.Context) error {
	k, err := readClusterConfiguration(ctx, c.Direct)
	if err != nil {
		return err
	}
	at, _, err := net.SplitHostPort(k.ControlPlaneEndpoint)
	if err != nil {
		at = k.ControlPlaneEndpoint
	}
	var nodes corev1.NodeList
	if err := c.Client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	cause := ""
	if at == "" {
		cause = "its configuration has no endpoint"
	}
	for i := range nodes.Items {
		for _, a := range nodes.Items[i].Status.Addresses {
			if a.Address == at && a.Type != corev1.NodeHostName {
				cause = fmt.Sprintf("nodes reach it at %s, the address of node %s: without that node, the control plane is unreachable",
					k.ControlPlaneEndpoint, nodes.Items[i].Name)
			}
		}
	}
	if cause == "" {
		return nil
	}
	return finding.New("OCA-4130", "The cluster has no separate endpoint, so it cannot accept a second control-plane node", cause,
		"on its control-plane node: ocadm ha enable --high-availability-vip ADDRESS; docs/high-availability.md")
}
