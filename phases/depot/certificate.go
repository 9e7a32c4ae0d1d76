// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// CertificateFile holds the depot's certificate and key. Package owned removes it.
const CertificateFile = pkiDir + "/ocadm-depot/serving.pem"

func certificatePhase() host.Phase {
	return host.Phase{
		Name: "certificate", Short: "Issue the certificate of the depot", AnyRelease: true,
		Run: func(_ context.Context, h *host.Host, r workflow.Reporter) error {
			if err := h.Files.Mkdir(path.Dir(CertificateFile), 0o700); err != nil {
				return err
			}
			return issue(h, r)
		},
	}.Todo(func(_ context.Context, h *host.Host) ([]string, error) {
		todo := []string{"issue " + CertificateFile}
		if !h.Files.Exists(authority) {
			return todo, nil
		}
		good, err := issuer(h).Good(time.Now())
		if good {
			return nil, err
		}
		return todo, err
	})
}

// Rename gives the depot the names in the API server's current certificate: in its own certificate and in those that its pod renews. The pod restarts.
func Rename(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if !Has(h) {
		return nil
	}
	if err := issue(h, r); err != nil {
		return err
	}
	files, err := renamed(h)
	if err != nil {
		return err
	}
	if _, err := files.Write(h, r); err != nil {
		return err
	}
	err = wait.Until(ctx, "the depot", askInterval, func(ctx context.Context) (bool, string, error) {
		why, err := runsRenamed(ctx, h)
		return why == "", why, err
	}, func(why string) { r.Waiting("the depot", why) })
	if err != nil {
		return err
	}
	return awaitDepot(ctx, h, r)
}

// runsRenamed returns why the depot's pod does not run with the current names, or "" if it does.
func runsRenamed(ctx context.Context, h *host.Host) (string, error) {
	k, err := h.Kube(ctx)
	if err != nil {
		return "", err
	}
	var p corev1.Pod
	if err := k.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: podName + "-" + h.Config.Node.Name}, &p); err != nil {
		return "", fmt.Errorf("reading the depot's pod: %w", err)
	}
	for _, c := range p.Spec.Containers {
		if c.Name == renewerName && !slices.Equal(c.Args, renewal(h)) {
			return "the kubelet has not replaced its pod yet", nil
		}
	}
	if !kube.PodReady(&p) {
		return "its pod is not ready", nil
	}
	return "", nil
}

// renewal returns the arguments of the container that renews the certificate.
func renewal(h *host.Host) []string {
	return append([]string{"depot", "renew"}, certificateNames(h)...)
}

// Named reports whether Rename has nothing left to do.
func Named(ctx context.Context, h *host.Host) (bool, error) {
	if !Has(h) {
		return true, nil
	}
	good, err := issuer(h).Good(time.Now())
	if err != nil || !good {
		return false, err
	}
	files, err := renamed(h)
	if err != nil || len(files.Todo(h)) > 0 {
		return false, err
	}
	why, err := runsRenamed(ctx, h) // an error means that the pod is being replaced: Rename waits for it
	return err == nil && why == "", nil
}

// renamed returns the static pod with the current names.
func renamed(h *host.Host) (host.FileSet, error) {
	var p corev1.Pod
	if err := yaml.Unmarshal([]byte(h.Files.Text(manifestFile)), &p); err != nil {
		return nil, fmt.Errorf("reading the depot's pod: %w", err)
	}
	for i, c := range p.Spec.Containers {
		if c.Name == renewerName {
			p.Spec.Containers[i].Args = renewal(h)
		}
	}
	raw, err := yaml.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("writing the depot's pod: %w", err)
	}
	return host.FileSet{{Name: manifestFile, Data: raw, Mode: 0o600}}, nil
}

// Readdressed returns the depot's manifest with one address replaced by another. Its certificate keeps the former name: the API server keeps it as
// well, and nodes that have not followed yet pull there. It reports whether the file is the manifest; the text is the same if nothing changes.
func Readdressed(file, text string, replace func(string) string) (string, bool) {
	var p corev1.Pod
	if file != manifestFile || yaml.Unmarshal([]byte(text), &p) != nil {
		return "", false
	}
	changed := false
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		args := lists.Map(c.Args, replace)
		if c.Name == renewerName {
			args = slices.Concat(c.Args, slices.DeleteFunc(args, func(a string) bool { return slices.Contains(c.Args, a) }))
		}
		changed = changed || !slices.Equal(args, c.Args)
		c.Args = args
	}
	raw, err := yaml.Marshal(p)
	if err != nil || !changed {
		return text, true
	}
	return string(raw), true
}

// issue issues a new certificate if the present one does not fit.
func issue(h *host.Host, r workflow.Reporter) error {
	why, err := issuer(h).Renew(time.Now())
	if why != "" {
		r.Changed("issued %s: %s", CertificateFile, why)
	}
	return err
}

func issuer(h *host.Host) depot.Issuer {
	return depot.Issuer{CACert: h.Files.Path(authority), CAKey: h.Files.Path(authorityKey), File: h.Files.Path(CertificateFile), Names: certificateNames(h)}
}

// certificateNames returns the names and addresses by which nodes reach this depot: those of the configuration and, because a later run may not get
// all of them again, those of the API server's certificate. It omits the API server's service.
func certificateNames(h *host.Host) []string {
	c := h.Config
	list := append([]string{c.Node.Name}, strings.Split(c.Node.IP+","+c.Node.AdvertiseAddress, ",")...)
	if endpoint, _, err := config.SplitEndpoint(c.Cluster.ControlPlaneEndpoint, config.DefaultPort); err == nil {
		list = append(list, endpoint)
	}
	if endpoint, _, err := config.SplitEndpoint(c.Join.Endpoint, config.DefaultPort); err == nil {
		list = append(list, endpoint)
	}
	list = append(list, c.Cluster.APIServerCertExtraSANs...)
	if certs, err := pki.ParseCerts([]byte(h.Files.Text(pkiDir + "/apiserver.crt"))); err == nil {
		services := strings.Split(kubernetes.EarlierConfig(h).Networking.ServiceSubnet, ",")
		list = append(list, lists.Filter(certs[0].DNSNames, func(name string) bool {
			return name != "kubernetes" && !strings.HasPrefix(name, "kubernetes.default")
		})...)
		for _, ip := range certs[0].IPAddresses {
			if !within(ip.String(), services) {
				list = append(list, ip.String())
			}
		}
	}
	list = slices.DeleteFunc(list, func(n string) bool { return n == "" })
	return lists.Distinct(list)
}

func within(address string, networks []string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(networks, func(n string) bool {
		p, err := netip.ParsePrefix(n)
		return err == nil && p.Contains(ip)
	})
}

// trustFiles are the files that the depot's containers read at their start. Files mounted one by one keep their old content until a restart.
var trustFiles = []string{authority, authorityKey, kubernetes.KubeletKubeconfig}

// Trusts reports whether the signing CA issued the depot's certificate and the containers have read the present files.
func Trusts(ctx context.Context, h *host.Host) (bool, error) {
	good, err := issuer(h).Good(time.Now())
	if err != nil || !good {
		return false, err
	}
	stale, err := kubernetes.StaleContainers(ctx, h, podName, trustFiles...)
	return len(stale) == 0 && err == nil, err
}

// Trust makes the depot use the present certificate authorities.
func Trust(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if err := issue(h, r); err != nil {
		return err
	}
	if err := kubernetes.StopContainers(ctx, h, r, podName, trustFiles...); err != nil {
		return err
	}
	return awaitDepot(ctx, h, r)
}
