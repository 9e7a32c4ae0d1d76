// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
	bootstraptokenv1 "k8s.io/kubernetes/cmd/kubeadm/app/apis/bootstraptoken/v1"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pubkeypin"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/phases/config"
)

const (
	newToken         = "on a control-plane node: ocadm token create --print-join-command"
	discoveryTimeout = 10 * time.Second
	maxAnswer        = 1 << 20
	// notableSkew is the clock difference worth reporting: certificates are valid from the moment they are made.
	notableSkew = 30 * time.Second
)

// Discovered is what a joining node learns about its cluster before it changes anything.
type Discovered struct {
	CA      []byte // PEM
	Cluster kubeadmv1beta4.ClusterConfiguration
	// Skew is the cluster's clock minus ours.
	Skew time.Duration
	// ProxyMode is the mode of the cluster's kube-proxy, "" if it cannot be read.
	ProxyMode string
}

// Discover verifies the control plane with join's token and pins, and reports what is wrong with them. It changes nothing. kubeadm repeats this itself;
// Discover explains clearly and early why that would fail.
func Discover(ctx context.Context, c *config.Config) (Discovered, error) {
	endpoint := withPort(c.Join.Endpoint)
	token, pins, err := joinSecrets(c)
	if err != nil {
		return Discovered{}, err
	}
	info, skew, err := signedInfo(ctx, endpoint, token.ID)
	if err != nil {
		return Discovered{}, err
	}
	ca, err := trusted(info, token, pins, c.Join.UnsafeSkipCAVerification, skew)
	if err != nil {
		return Discovered{Skew: skew}, err
	}
	d := Discovered{CA: ca, Skew: skew}
	d.Cluster, err = clusterConfigurationFrom(ctx, endpoint, pinned(ca), token.String())
	if err != nil {
		return d, err
	}
	d.ProxyMode = clusterProxyMode(ctx, endpoint, ca, token.String())
	return d, sameNameIsReady(ctx, endpoint, ca, token.String(), c.Node.Name)
}

func joinSecrets(c *config.Config) (*bootstraptokenv1.BootstrapTokenString, *pubkeypin.Set, error) {
	token, err := bootstraptokenv1.NewBootstrapTokenString(c.Join.Token)
	if err != nil {
		return nil, nil, finding.New("OCA-0302", "The token of --token is missing or malformed", "a token is [a-z0-9]{6}.[a-z0-9]{16}", newToken)
	}
	pins := pubkeypin.NewSet()
	if err := pins.Allow(c.Join.CACertHashes...); err != nil {
		return nil, nil, finding.Errorf("OCA-0303", "A hash of --discovery-token-ca-cert-hash is malformed", newToken, "%w", err)
	}
	if pins.Empty() && !c.Join.UnsafeSkipCAVerification {
		return nil, nil, finding.New("OCA-0304", "The cluster to trust is not specified",
			"neither --discovery-token-ca-cert-hash nor --discovery-token-unsafe-skip-ca-verification was given", newToken)
	}
	return token, pins, nil
}

// signWait is how long to wait for a new token's signature. The controller manager signs within a second, unless it is busy or just starting.
const signWait = 8 * time.Second

// signedInfo returns cluster-info with a token's signature, or without one if the wait ends.
func signedInfo(ctx context.Context, endpoint, token string) (info *corev1.ConfigMap, skew time.Duration, err error) {
	waiting, cancel := context.WithTimeout(ctx, signWait)
	defer cancel()
	_ = wait.Until(waiting, "the signature of the token", time.Second, func(context.Context) (bool, string, error) {
		info, skew, err = clusterInfo(ctx, endpoint)
		return err != nil || info.Data[bootstrapapi.JWSSignatureKeyPrefix+token] != "", "", nil //nolint:nilerr // an error ends the wait and is returned below
	}, func(string) {})
	return info, skew, err
}

func clusterInfo(ctx context.Context, endpoint string) (*corev1.ConfigMap, time.Duration, error) {
	// Trust comes from the token's signature and the pinned CA in the answer, not from this connection.
	insecure := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above
	a, err := ask(ctx, insecure, endpoint, "/api/v1/namespaces/kube-public/configmaps/cluster-info", "")
	if err != nil {
		return nil, 0, finding.New("OCA-4101", fmt.Sprintf("The control plane at %s cannot be reached", endpoint), networkCause(err),
			fmt.Sprintf("curl -k https://%s/version, and check the routes and firewalls between the two", endpoint)).Wrap(err)
	}
	var cm corev1.ConfigMap
	if a.status != http.StatusOK || json.Unmarshal(a.body, &cm) != nil {
		return nil, a.skew, finding.New("OCA-4105", fmt.Sprintf("The server at %s is not a control plane that nodes can join", endpoint),
			fmt.Sprintf("it answered the request for cluster-info with %d", a.status), "compare the address with the one in the join command; print it "+newToken)
	}
	return &cm, a.skew, nil
}

func trusted(info *corev1.ConfigMap, token *bootstraptokenv1.BootstrapTokenString, pins *pubkeypin.Set, unsafe bool,
	skew time.Duration) ([]byte, error) {
	signature := info.Data[bootstrapapi.JWSSignatureKeyPrefix+token.ID]
	if signature == "" {
		return nil, finding.New("OCA-4102", "The token has expired, or never existed in the cluster",
			fmt.Sprintf("the cluster has no token %s%s", token.ID, skewNote(skew)), newToken)
	}
	kubeconfig := info.Data[bootstrapapi.KubeConfigKey]
	if !jws.DetachedTokenIsValid(signature, kubeconfig, token.ID, token.Secret) {
		return nil, finding.New("OCA-4103", "The token is wrong",
			fmt.Sprintf("the cluster has a token %s, but with a different second part", token.ID), newToken)
	}
	kc, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return nil, fmt.Errorf("parsing the cluster's public kubeconfig: %w", err)
	}
	for _, cluster := range kc.Clusters {
		certs, err := certutil.ParseCertsPEM(cluster.CertificateAuthorityData)
		if err != nil {
			return nil, fmt.Errorf("parsing the cluster's certificate authority: %w", err)
		}
		if pins.Empty() && unsafe {
			return cluster.CertificateAuthorityData, nil
		}
		if err := pins.CheckAny(certs); err != nil {
			return nil, finding.New("OCA-4104", "The cluster's certificate authority is not the expected one",
				"its hash is not among those of --discovery-token-ca-cert-hash: the join command is from another cluster, or someone intercepts the connection",
				newToken).With("hash of the cluster's authority: " + pubkeypin.Hash(certs[0])).Wrap(err)
		}
		return cluster.CertificateAuthorityData, nil
	}
	return nil, errors.New("reading the cluster's public kubeconfig: it names no cluster")
}

// clusterConfigurationFrom verifies that the token grants access, and that the pinned CA signed the server's certificate.
func clusterConfigurationFrom(ctx context.Context, endpoint string, trust *tls.Config, token string) (kubeadmv1beta4.ClusterConfiguration, error) {
	var k kubeadmv1beta4.ClusterConfiguration
	a, err := ask(ctx, trust, endpoint, "/api/v1/namespaces/kube-system/configmaps/kubeadm-config", token)
	if err != nil {
		return k, finding.New("OCA-4104", fmt.Sprintf("The server at %s does not have a certificate of the cluster", endpoint), networkCause(err),
			"timedatectl, and compare clock and address with the control plane's").Wrap(err)
	}
	if a.status == http.StatusUnauthorized {
		return k, finding.New("OCA-4102", "The token has expired", "the cluster no longer accepts it"+skewNote(a.skew), newToken)
	}
	var cm corev1.ConfigMap
	if a.status != http.StatusOK || json.Unmarshal(a.body, &cm) != nil {
		return k, finding.New("OCA-4107", "The cluster's configuration cannot be read with the token",
			fmt.Sprintf("the server answered the request for kube-system/kubeadm-config with %d", a.status), newToken)
	}
	if err := yaml.Unmarshal([]byte(cm.Data["ClusterConfiguration"]), &k); err != nil {
		return k, fmt.Errorf("parsing the cluster's configuration: %w", err)
	}
	return k, nil
}

func sameNameIsReady(ctx context.Context, endpoint string, ca []byte, token, name string) error {
	a, err := ask(ctx, pinned(ca), endpoint, "/api/v1/nodes/"+name, token)
	var n corev1.Node
	if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &n) != nil {
		return nil //nolint:nilerr // usually not found, which is good; kubeadm checks again
	}
	if !kube.NodeReady(&n) {
		return nil
	}
	return finding.New("OCA-4106", fmt.Sprintf("A Ready node named %s is already in the cluster", name), "two machines cannot be one node",
		fmt.Sprintf("choose another name with --node-name; or, if that machine is gone, on a control-plane node: kubectl delete node %s", name))
}

type answer struct {
	status int
	body   []byte
	skew   time.Duration
}

func ask(ctx context.Context, tlsConfig *tls.Config, endpoint, path, token string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+endpoint+path, nil)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer{}, err
	}
	a := answer{status: resp.StatusCode, body: body}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		a.skew = time.Until(date)
	}
	return a, nil
}

func pinned(ca []byte) *tls.Config {
	return &tls.Config{RootCAs: Pool(ca), MinVersion: tls.VersionTLS12}
}

// Pool returns a pool of these PEM-encoded certificates.
func Pool(ca []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return pool
}

func skewNote(skew time.Duration) string {
	if skew.Abs() < notableSkew {
		return ""
	}
	direction := "behind"
	if skew < 0 {
		direction = "ahead of"
	}
	return fmt.Sprintf("; this machine's clock is %s %s the control plane's", skew.Abs().Round(time.Second), direction)
}

func networkCause(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, "\": "); i >= 0 {
		s = s[i+3:]
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within " + discoveryTimeout.String()
	}
	return s
}
