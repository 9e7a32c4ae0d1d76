// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/util/keyutil"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs"
	kubeconfigphase "k8s.io/kubernetes/cmd/kubeadm/app/phases/kubeconfig"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// A power cut can empty a certificate, its key or a kubeconfig. kubeadm's renewal only re-signs what it can read, and its init only makes missing files. Moving
// the file away for init would hide that it existed. So this code makes what kubeadm would make and replaces the file atomically: an interrupted command finds
// the file still damaged.

// pairProblem returns why the key of a readable certificate does not match, nil if it does. Keys under an external CA are not checked: such a key may be newer
// than its certificate, which its owner has yet to sign.
func pairProblem(h *host.Host, c Certificate) error {
	if c.External {
		return nil
	}
	if c.Kind == kindKubeconfig {
		_, user, err := loadKubeconfig(h, c.File)
		if err != nil || len(user.ClientCertificateData) == 0 {
			return err // a key in a file is checked with the file
		}
		_, err = tls.X509KeyPair(user.ClientCertificateData, user.ClientKeyData)
		return err
	}
	crt, err := h.Files.ReadFile(c.File)
	if err != nil {
		return err
	}
	key, err := h.Files.ReadFile(strings.TrimSuffix(c.File, ".crt") + ".key")
	if err != nil {
		return fmt.Errorf("reading its key: %w", err)
	}
	_, err = tls.X509KeyPair(crt, key)
	return err
}

// checkAuthority returns a finding if a CA whose key is on this machine cannot sign: nothing can recreate a CA.
func checkAuthority(h *host.Host, authority string) error {
	crt, key := pkiDir+"/"+authority+".crt", pkiDir+"/"+authority+".key"
	certificate, err := h.Files.ReadFile(crt)
	if err == nil {
		_, err = parseCertificate(certificate)
	}
	if err != nil {
		return unreadable(crt, err)
	}
	private, err := h.Files.ReadFile(key)
	if err == nil {
		_, err = tls.X509KeyPair(certificate, private)
	} else if !h.Files.Exists(key) {
		return nil // the key is kept elsewhere
	}
	if err != nil {
		return unreadable(key, err)
	}
	return nil
}

// recreate creates a certificate of the control plane and its key, or a kubeconfig, as init or join did.
func recreate(ctx context.Context, h *host.Host, c Certificate) error {
	if err := checkAuthority(h, c.authority); err != nil {
		return err
	}
	n := namesOf(ctx, h)
	made, err := n.asInternal(h)
	if err != nil {
		return err
	}
	if c.Kind == kindKubeconfig {
		err = n.makeKubeconfig(h, made, c)
	} else {
		err = n.makeCertificate(h, made, c)
	}
	if err != nil {
		return fmt.Errorf("recreating %s: %w", c.File, err)
	}
	return nil
}

// clusterNames holds what the certificates and kubeconfigs of a control-plane node contain, apart from its own name and address.
type clusterNames struct {
	// endpoint is the cluster's endpoint, services the service networks; "" if unknown.
	endpoint, services, domain string
	sans                       []string
	lasts                      time.Duration
}

// namesOf asks the cluster, which often does not answer: this machine's API server may need the very certificate. The rest comes from files on this machine.
// They lack the other names of the cluster on a node that has joined: nameStep adds those.
func namesOf(ctx context.Context, h *host.Host) clusterNames {
	n := clusterNames{lasts: h.Config.Cluster.CertificateValidity}
	if k, err := askForNames(ctx, h); err == nil {
		n = clusterNames{endpoint: k.ControlPlaneEndpoint, services: k.Networking.ServiceSubnet, domain: k.Networking.DNSDomain, sans: k.APIServer.CertSANs, lasts: n.lasts}
		if k.CertificateValidityPeriod != nil {
			n.lasts = k.CertificateValidityPeriod.Duration
		}
	}
	was := EarlierConfig(h)
	for _, kubeconfig := range []string{AdminKubeconfig, SuperAdminKubeconfig} {
		if at, err := serverIn(h, kubeconfig); err == nil {
			n.endpoint = cmp.Or(n.endpoint, at.Host)
		}
	}
	n.endpoint = cmp.Or(n.endpoint, was.Endpoint)
	n.services = cmp.Or(n.services, serviceNetwork(h), was.Networking.ServiceSubnet)
	n.domain = cmp.Or(n.domain, kubeletDomain(h), was.Networking.DNSDomain)
	if n.sans == nil {
		n.sans = was.Names
	}
	return n
}

// askForNames reads kubeadm's settings with any kubeconfig that still works: a kubelet may read them too. The kubelet of a control-plane node uses its own API
// server, so its permissions are also tried on the other ones.
func askForNames(ctx context.Context, h *host.Host) (*kubeadmv1beta4.ClusterConfiguration, error) {
	asks := []func() (client.WithWatch, error){func() (client.WithWatch, error) { return AdminClient(h) }, func() (client.WithWatch, error) { return NodeClient(h) }}
	if m, err := OwnEtcd(h); err == nil {
		for _, other := range m.Others() {
			at := net.JoinHostPort(other, strconv.Itoa(int(bindPort(h.Config))))
			asks = append(asks, func() (client.WithWatch, error) { return NodeClientAt(h, at) })
		}
	}
	var errs []error
	for _, open := range asks {
		c, err := open()
		if err == nil {
			var k *kubeadmv1beta4.ClusterConfiguration
			asking, cancel := context.WithTimeout(ctx, endpointTimeout)
			k, err = liveClusterConfiguration(asking, c)
			cancel()
			if err == nil {
				return k, nil
			}
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// serviceNetwork returns the service network in the manifest of the API server, "" if there is none.
func serviceNetwork(h *host.Host) string {
	for _, file := range []string{manifest(constants.KubeAPIServer), stopped(constants.KubeAPIServer)} {
		pod, err := readPod(h, file)
		if err != nil {
			continue
		}
		for _, arg := range pod.Spec.Containers[0].Command {
			if networks, ok := strings.CutPrefix(arg, "--service-cluster-ip-range="); ok {
				return networks
			}
		}
	}
	return ""
}

// kubeletDomain returns the DNS domain of the cluster from the kubelet's configuration.
func kubeletDomain(h *host.Host) string {
	var k struct {
		ClusterDomain string `json:"clusterDomain"`
	}
	if yaml.Unmarshal([]byte(h.Files.Text(KubeletConfigFile)), &k) != nil {
		return ""
	}
	return k.ClusterDomain
}

// asInternal returns the configuration that kubeadm would get on this node.
func (n clusterNames) asInternal(h *host.Host) (*kubeadmapi.InitConfiguration, error) {
	c := *h.Config
	c.Cluster.ControlPlaneEndpoint, c.Cluster.APIServerCertExtraSANs, c.Cluster.CertificateValidity = n.endpoint, n.sans, n.lasts
	c.Cluster.ServiceCIDR, c.Cluster.ServiceDNSDomain = n.services, cmp.Or(n.domain, c.Cluster.ServiceDNSDomain)
	k, err := internalCluster(&c)
	if err != nil {
		return nil, err
	}
	k.CertificatesDir = h.Files.Path(pkiDir)
	at := localAPIEndpoint(&c)
	return &kubeadmapi.InitConfiguration{ClusterConfiguration: *k, LocalAPIEndpoint: kubeadmapi.APIEndpoint{AdvertiseAddress: at.AdvertiseAddress, BindPort: at.BindPort},
		NodeRegistration: kubeadmapi.NodeRegistrationOptions{Name: c.Node.Name}}, nil
}

func (n clusterNames) makeCertificate(h *host.Host, made *kubeadmapi.InitConfiguration, c Certificate) error {
	list := certs.GetDefaultCertList()
	at := slices.IndexFunc(list, func(k *certs.KubeadmCert) bool { return k.Name == c.Name })
	if at < 0 {
		return errors.New("it is unknown to kubeadm")
	}
	if n.services == "" && c.Name == APIServerCertificate {
		return errors.New("the network of the services is unknown: neither " + manifest(constants.KubeAPIServer) + " nor " + ConfigFile + " has it")
	}
	like, err := list[at].GetConfig(made)
	if err != nil {
		return err
	}
	now := time.Now()
	like.NotBefore, like.NotAfter = now.Add(-constants.CertificateBackdate), now.Add(cmp.Or(n.lasts, constants.CertificateValidityPeriod))
	ca, caKey, err := certs.LoadCertificateAuthority(made.CertificatesDir, c.authority)
	if err != nil {
		return err
	}
	cert, private, err := pkiutil.NewCertAndKey(ca, caKey, like)
	if err != nil {
		return err
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		return err
	}
	if err := h.Files.Replace(strings.TrimSuffix(c.File, ".crt")+".key", key, 0o600); err != nil { // a new key with an old certificate still counts as damaged
		return err
	}
	return h.Files.Replace(c.File, pkiutil.EncodeCertPEM(cert), 0o644)
}

// clientOfFile is the client that a kubeconfig identifies. Source: kubeadm, getKubeConfigSpecsBase.
type clientOfFile struct {
	name   string
	groups []string
	// own reports whether it uses the API server of its node rather than the cluster's endpoint.
	own bool
}

var clientsOfFiles = map[string]clientOfFile{
	constants.AdminKubeConfigFileName:             {name: "kubernetes-admin", groups: []string{constants.ClusterAdminsGroupAndClusterRoleBinding}},
	constants.SuperAdminKubeConfigFileName:        {name: "kubernetes-super-admin", groups: []string{constants.SystemPrivilegedGroup}},
	constants.ControllerManagerKubeConfigFileName: {name: constants.ControllerManagerUser, own: true},
	constants.SchedulerKubeConfigFileName:         {name: constants.SchedulerUser, own: true},
}

func (n clusterNames) makeKubeconfig(h *host.Host, made *kubeadmapi.InitConfiguration, c Certificate) error {
	of, known := clientsOfFiles[c.Name]
	switch {
	case !known:
		return errors.New("it is unknown to kubeadm")
	case of.own:
		made.ControlPlaneEndpoint = LocalEndpoint(h)
	case n.endpoint == "": // on a node that has joined
		return finding.New("OCA-4422", "The kubeconfig "+c.File+" cannot be created", "the address of the cluster is in no other file of this machine, and no API server answers",
			"copy "+c.File+" from another control-plane node, with mode 0600")
	}
	var out bytes.Buffer
	lasts := time.Now().Add(cmp.Or(n.lasts, constants.CertificateValidityPeriod))
	if err := kubeconfigphase.WriteKubeConfigWithClientCert(&out, made, of.name, of.groups, lasts); err != nil {
		return err
	}
	if err := h.Files.Replace(c.File, out.Bytes(), 0o600); err != nil {
		return err
	}
	return trustAll(h, c.File)
}

// nameStep adds the names in the cluster's settings to the API server's certificate, if that was recreated while the cluster did not answer.
func nameStep() RenewStep {
	return RenewStep{
		Name: "names", Short: "Add the names of the cluster to the new certificate of the API server", Timeout: time.Minute,
		Check: func(_ context.Context, n *Renewal) (bool, error) { return !n.recreated, nil },
		Plan:  workflow.Says[*Renewal]("add the names of the cluster to " + pkiDir + "/apiserver.crt"),
		Run: func(ctx context.Context, n *Renewal, r workflow.Reporter) error {
			k, err := askForNames(ctx, n.Host)
			if err != nil {
				r.Info("the names of the API servers cannot be read from the cluster: %v; %s has the names that are known on this machine", err, pkiDir+"/apiserver.crt")
				return nil
			}
			n.recreated = false
			names := slices.Clone(k.APIServer.CertSANs)
			if at, _, err := net.SplitHostPort(k.ControlPlaneEndpoint); err == nil {
				names = append(names, at)
			}
			return AddNames(ctx, n.Host, r, []string{APIServerCertificate}, names...)
		},
	}
}

// damaged returns c as a certificate that must be recreated. cert is not nil if only its key is unusable.
func (c Certificate) damaged(cert *x509.Certificate) Certificate {
	c.State, c.cert = CertificateDamaged, cert
	return c
}
