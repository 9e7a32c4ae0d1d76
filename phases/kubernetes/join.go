// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pubkeypin"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// JoinPhases make this machine a worker or a control-plane node of a cluster. software names the phases that install containerd and the kubelet; discovery and
// configuration do not wait for them.
func JoinPhases(software ...string) []host.Phase {
	discovery := discoveryPhase()
	if len(software) > 0 {
		discovery.After = []string{"preflight"}
	}
	config := configPhase(func(h *host.Host) ([]byte, error) { return RenderJoin(h.Config) }, JoinRole)
	config.After = []string{discovery.Name}
	files := []string{KubeletConfigFile, KubeletFlagsFile}
	join := kubeadmPhase{
		name: "kubelet-start", short: "Write the kubelet's settings and start it", args: []string{"join", "phase", "kubelet-start"},
		writes: append(slices.Clone(files), pkiDir+"/ca.crt", bootstrapConf), after: append([]string{config.Name, formerMemberName}, software...),
		check: func(ctx context.Context, h *host.Host) (bool, error) {
			there, err := filesThere(files...)(ctx, h)
			return there && (h.Files.Exists(bootstrapConf) || kubeletJoined(h)) && kubeletActive(ctx, h), err
		},
		clear: forgetOtherAuthority, finish: forgetRestarts,
	}
	config.Check = unlessJoined(config.Check, join.key())
	start := join.phase()
	join.check = filesThere(files...)
	start.Verify = join.verify
	return slices.Concat([]host.Phase{discovery, config}, prepareControlPlanePhases(config.Name), []host.Phase{start},
		joinControlPlanePhases(start.Name), []host.Phase{bootstrapPhase(), registeredPhase(), markJoinedPhase()})
}

func discoveryPhase() host.Phase {
	return host.Phase{
		Name: "discovery", Short: "Verify the identity of the control plane",
		Long: "Verifies the endpoint, the token and the hash of the certificate authority before anything is changed.",
		Skip: workflow.SkipIf("kubeadm reads the discovery file", func(h *host.Host) bool { return h.Config.Join.DiscoveryFile != "" }),
		Check: func(_ context.Context, h *host.Host) (bool, error) {
			if !kubeletJoined(h) {
				return false, nil
			}
			return true, ofThisCluster(h)
		},
		Plan: workflow.Line(func(h *host.Host) string {
			return "read the cluster's certificate authority and configuration from " + withPort(h.Config.Join.Endpoint)
		}),
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			d, err := Discover(ctx, h.Config)
			if err != nil {
				return err
			}
			r.Info("cluster at %s, Kubernetes %s", withPort(h.Config.Join.Endpoint), d.Cluster.KubernetesVersion)
			if n := skewNote(d.Skew); n != "" {
				r.Info("warning%s", n)
			}
			if err := ProxyModeFits(h.Facts.Kernel, d.ProxyMode); err != nil {
				return err
			}
			return VersionFits(h.Config.Cluster.KubernetesVersion, d.Cluster.KubernetesVersion)
		},
	}
}

// OtherCluster returns a finding if this node has already joined a different cluster. With a discovery file it checks nothing: kubeadm reads that itself.
func OtherCluster(h *host.Host) error {
	if h.Config.Join.DiscoveryFile != "" || !kubeletJoined(h) {
		return nil
	}
	return ofThisCluster(h)
}

// ofThisCluster returns a finding if this node has already joined a different cluster.
func ofThisCluster(h *host.Host) error {
	ca, err := readCertificate(h, pkiDir+"/ca.crt")
	if err != nil {
		return nil //nolint:nilerr // kubelet-start writes it
	}
	cluster, _, err := loadKubeconfig(h, KubeletKubeconfig)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	hash := pubkeypin.Hash(ca)
	same := pins(h, hash)
	if len(h.Config.Join.CACertHashes) == 0 {
		u, err := url.Parse(cluster.Server)
		same = err == nil && u.Host == withPort(h.Config.Join.Endpoint)
	}
	if same {
		return nil
	}
	cause, remedy := "whose certificate authority does not match --discovery-token-ca-cert-hash", "to remove it from that cluster first: ocadm reset"
	if len(h.Config.Join.CACertHashes) == 0 {
		cause = "and without --discovery-token-ca-cert-hash it cannot be determined whether that is the cluster at " + h.Config.Join.Endpoint
		remedy = "if it is the same, add --discovery-token-ca-cert-hash " + hash + "; otherwise, " + remedy
	}
	return finding.New("OCA-4108", "This machine is a node of another cluster", fmt.Sprintf("its kubelet belongs to %s, %s", cluster.Server, cause), remedy).
		With("hash of that cluster's authority: " + hash)
}

// pins reports whether the join command names a hash. Capitals mean the same, as for kubeadm.
func pins(h *host.Host, hash string) bool {
	return slices.ContainsFunc(h.Config.Join.CACertHashes, func(p string) bool { return strings.EqualFold(p, hash) })
}

// kubeletJoined reports whether the kubelet has a certificate of its cluster.
func kubeletJoined(h *host.Host) bool {
	return kubeconfigProblem(h, KubeletKubeconfig, time.Now()) == ""
}

// unlessJoined also passes check c if the node has joined with this configuration: a new token is no reason to change it.
func unlessJoined(c check, phase string) check {
	return func(ctx context.Context, h *host.Host) (bool, error) {
		done, err := c(ctx, h)
		if err != nil || done {
			return done, err
		}
		ok, _, err := finished(h, phase, Worker)
		return ok && kubeletJoined(h), err
	}
}

// forgetOtherAuthority removes the CA that an unfinished join to another cluster left, because kubeadm would keep it.
func forgetOtherAuthority(h *host.Host, r workflow.Reporter, _ bool) error {
	raw, err := h.Files.ReadFile(pkiDir + "/ca.crt")
	if errors.Is(err, fs.ErrNotExist) || len(h.Config.Join.CACertHashes) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the cluster's certificate authority: %w", err)
	}
	if ca, err := parseCertificate(raw); err == nil && pins(h, pubkeypin.Hash(ca)) {
		return nil
	}
	for _, f := range []string{pkiDir + "/ca.crt", KubeletKubeconfig} {
		if err := h.Files.Remove(f); err != nil {
			return fmt.Errorf("removing the files that an earlier join left: %w", err)
		}
	}
	r.Changed("removed %s/ca.crt, which an unfinished join to another cluster left", pkiDir)
	return nil
}

// forgetRestarts resets systemd's count of kubelet restarts. Without a valid certificate the kubelet was restarted repeatedly, maybe for days, and the wait for it
// would give up if it starts slowly.
func forgetRestarts(ctx context.Context, h *host.Host, _ workflow.Reporter) error {
	if h.Files.Exists(KubeletKubeconfig) { // otherwise this is the first join
		_, _ = h.Systemctl(ctx, "reset-failed", "kubelet") // an unknown unit is no failure here: the wait reports it
	}
	return nil
}

// bootstrapPhase does its own waiting: kubeadm's phase for it cannot run alone on a worker.
func bootstrapPhase() host.Phase {
	return host.Phase{
		Name: "kubelet-wait-bootstrap", Short: "Wait until the kubelet has its certificate", Patience: startPatience,
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			_, err := h.Files.ReadFile(bootstrapConf)
			return kubeletJoined(h) && errors.Is(err, fs.ErrNotExist) && probeKubelet(ctx, h) == "", nil
		},
		Plan: workflow.Says[*host.Host]("wait for "+KubeletKubeconfig, "remove "+bootstrapConf),
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			if err := await(ctx, h, r, "kubelet", probeKubelet, hopelessKubelet, diagnoseKubelet); err != nil {
				return err
			}
			joined := func(_ context.Context, h *host.Host) string {
				if kubeletJoined(h) {
					return ""
				}
				return "the cluster has not signed the kubelet's certificate yet"
			}
			if err := await(ctx, h, r, "certificate", joined, hopelessKubelet, diagnoseBootstrap); err != nil {
				return err
			}
			if err := h.Files.Remove(bootstrapConf); err != nil {
				return fmt.Errorf("removing the bootstrap credentials: %w", err)
			}
			return nil
		},
	}
}

func diagnoseBootstrap(ctx context.Context, h *host.Host, cause error) finding.Finding {
	return explain(kubeletSignatures(), finding.Errorf("OCA-4110", "The kubelet did not receive a certificate from the cluster",
		"on a control-plane node: kubectl get csr, and check that the controller manager runs", "%w", cause).With(kubeletEvidence(ctx, h)...))
}

// registeredPhase waits, with the kubelet's permissions, until the cluster has the node.
func registeredPhase() host.Phase {
	return host.Phase{
		Name: "node-registered", Short: "Wait until the node is registered", Timeout: startPatience,
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			if !kubeletJoined(h) {
				return false, nil
			}
			ctx, cancel := context.WithTimeout(ctx, apiTimeout)
			defer cancel()
			c, err := NodeClient(h)
			if err != nil {
				return false, nil // the phase runs and reports why
			}
			return c.Get(ctx, client.ObjectKey{Name: h.Config.Node.Name}, &corev1.Node{}) == nil, nil
		},
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			c, err := NodeClient(h)
			if err != nil {
				return err
			}
			err = awaitNode(ctx, h, c, r)
			if err == nil || errors.Is(context.Cause(ctx), context.Canceled) {
				return err
			}
			return explained(ctx, h, diagnoseKubelet, err)
		},
	}
}

// registerPatience is how long a kubelet may take to register its node before it is restarted. It retries at least every 7 s while it starts, and never
// afterwards: a kubelet whose Node was deleted, or lost when etcd was restored from a snapshot, waits forever. Source: kubelet, kubelet_node_status.go.
const registerPatience = 25 * time.Second

// awaitNode waits until the node is registered. It restarts a kubelet that does not register it.
func awaitNode(ctx context.Context, h *host.Host, c client.WithWatch, r workflow.Reporter) error {
	wait := func(ctx context.Context) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.Config.Node.Name}}
		registered := func(o client.Object) (bool, string) { return o != nil, "the kubelet registers it" }
		return kube.WaitFor(ctx, c, node, registered, func(why string) { r.Waiting("node "+node.Name, why) })
	}
	first, cancel := context.WithTimeout(ctx, registerPatience)
	defer cancel()
	err := wait(first)
	if err == nil || ctx.Err() != nil || first.Err() == nil {
		return err
	}
	r.Changed("restarting the kubelet, which registers its node only when it starts")
	if err := h.Start(ctx, r, "kubelet", true); err != nil {
		return err
	}
	return wait(ctx)
}

// NodeClient returns a client with the permissions of this machine's kubelet, which may read and change its own node.
func NodeClient(h *host.Host) (client.WithWatch, error) { return clientOf(h, KubeletKubeconfig, "") }

// clientOf returns a client with the permissions of a kubeconfig of this machine, for the API server at a URL; "" means the kubeconfig's.
func clientOf(h *host.Host, kubeconfig, server string) (client.WithWatch, error) {
	raw, err := h.Files.ReadFile(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	cfg.Host = cmp.Or(server, cfg.Host)
	return kube.New(cfg)
}
