// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	cryptoutil "k8s.io/kubernetes/cmd/kubeadm/app/util/crypto"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

const newCertificateKey = "on a control-plane node: ocadm token create --print-join-command --control-plane"

// UploadAuthorities stores the CAs and keys of this control-plane node in the cluster, encrypted, for two hours, and returns the encryption key, a secret. An
// earlier key becomes invalid. The cluster must have an endpoint of its own.
func UploadAuthorities(ctx context.Context, h *host.Host) (key string, err error) {
	raw := make([]byte, constants.CertificateKeySize)
	_, _ = rand.Read(raw) // never fails
	key = hex.EncodeToString(raw)
	return key, ShareAuthorities(ctx, h, key)
}

// ShareAuthorities is UploadAuthorities with a given key.
func ShareAuthorities(ctx context.Context, h *host.Host, key string) error {
	k, err := h.Kube(ctx)
	if err != nil {
		return err
	}
	if err := NeedEndpoint(ctx, k); err != nil {
		return err
	}
	if !HasAuthorities(ctx, h) {
		return finding.New("OCA-4133", "This machine does not have the keys of the cluster", "they are in "+pkiDir+" of control-plane nodes",
			"run the command on a control-plane node")
	}
	if err := NoRotation(h, "a control-plane node that joins"); err != nil {
		return err
	}
	conf, err := liveClusterConfiguration(ctx, k)
	if err != nil {
		return err
	}
	doc, err := uploadConfiguration(conf, h.Config, key)
	if err != nil {
		return err
	}
	// The key reaches kubeadm through standard input: everybody can see arguments, and a file would have to be removed.
	args := []string{"init", "phase", "upload-certs", "--upload-certs", "--skip-certificate-key-print", "--config", "/dev/stdin"}
	_, err = h.Exec.Run(ctx, exec.Command{Path: h.Self, Args: append([]string{"kubeadm"}, args...), Env: noProxy(), Stdin: bytes.NewReader(doc), Bound: true})
	if err != nil {
		return kubeadmFailed(ctx, args, err)
	}
	return nil
}

// uploadConfiguration returns the configuration that kubeadm needs to find and encrypt the CAs.
func uploadConfiguration(conf *kubeadmv1beta4.ClusterConfiguration, c *config.Config, key string) ([]byte, error) {
	conf.TypeMeta = metav1.TypeMeta{APIVersion: kubeadmAPIVersion, Kind: "ClusterConfiguration"}
	return documents(kubeadmv1beta4.InitConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: kubeadmAPIVersion, Kind: "InitConfiguration"},
		CertificateKey:   key,
		NodeRegistration: nodeRegistration(c, ControlPlane),
		LocalAPIEndpoint: localAPIEndpoint(c),
	}, conf)
}

// CheckCertificateKey returns a finding if the cluster's CAs cannot be downloaded with the certificate key.
func CheckCertificateKey(ctx context.Context, c *config.Config, d Discovered) error {
	a, err := ask(ctx, pinned(d.CA), withPort(c.Join.Endpoint), "/api/v1/namespaces/kube-system/secrets/"+constants.KubeadmCertsSecret, c.Join.Token)
	if err != nil {
		return finding.New("OCA-4101", "The control plane no longer answers", networkCause(err), "run the command again").Wrap(err)
	}
	var s corev1.Secret
	if a.status != http.StatusOK || json.Unmarshal(a.body, &s) != nil {
		return finding.New("OCA-4131", "The cluster no longer stores its certificate authorities for joins",
			fmt.Sprintf("they are stored for two hours; the server answered the request with %d", a.status), newCertificateKey)
	}
	if err := fits(s.Data["ca.crt"], c.Join.CertificateKey); err != nil {
		return finding.New("OCA-4132", "The certificate key is not the cluster's current one", err.Error()+"; each printed key replaces the previous one",
			newCertificateKey)
	}
	return nil
}

// fits returns an error if the key cannot decrypt the data.
func fits(encrypted []byte, key string) error {
	raw, err := hex.DecodeString(key)
	if err != nil {
		return errors.New("it is not hexadecimal")
	}
	if _, err := cryptoutil.DecryptBytes(encrypted, raw); err != nil {
		return errors.New("it does not decrypt them")
	}
	return nil
}

// CheckControlPlaneJoin returns a finding if the discovered cluster cannot accept this machine as a control-plane node.
func CheckControlPlaneJoin(ctx context.Context, h *host.Host, d Discovered) error {
	c := h.Config
	if err := noRotation(string(d.CA), "a control-plane node that joins"); err != nil {
		return err
	}
	if d.Cluster.Etcd.External != nil {
		return finding.New("OCA-4134", "The cluster uses an external etcd", "ocadm adds control-plane nodes only with their own etcd members",
			"join this machine as a worker, without --control-plane, or add it with the tool that created the cluster")
	}
	if d.Cluster.KubernetesVersion != c.Cluster.KubernetesVersion {
		return finding.New("OCA-4109", "The cluster has a different version of Kubernetes",
			fmt.Sprintf("it has %s, and this command installs %s; all its control-plane nodes must have the same version", d.Cluster.KubernetesVersion, c.Cluster.KubernetesVersion),
			"add --kubernetes-version "+d.Cluster.KubernetesVersion)
	}
	if endpoint := d.Cluster.ControlPlaneEndpoint; endpoint != "" && withPort(endpoint) != withPort(c.Join.Endpoint) {
		if _, err := ask(ctx, pinned(d.CA), withPort(endpoint), "/version", ""); err != nil {
			return finding.Finding{Code: "OCA-4135", Severity: finding.Error, What: "The endpoint of the cluster cannot be reached from this machine",
				Cause: withPort(endpoint) + ": " + networkCause(err), Remedy: "curl -k https://" + withPort(endpoint) + "/version, and check its name, routes and firewalls", Err: err}
		}
	}
	if HasAuthorities(ctx, h) {
		return nil // an interrupted join continues with the ones it has
	}
	return CheckCertificateKey(ctx, c, d)
}
