// SPDX-License-Identifier: Apache-2.0

// Package kubernetes encapsulates kubeadm: it renders kubeadm's configuration from ours, runs kubeadm phase by phase as a child of this program, checks the result
// of each phase, and explains failures. Nothing outside this package (and the checks that preflight borrows) knows about kubeadm. It installs no software on the
// node and applies only kubeadm's own two addons.
package kubernetes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// check reports whether the outputs of a phase exist.
type check func(context.Context, *host.Host) (bool, error)

// kubeadmPhase is one phase of kubeadm as a phase of ours: args are kubeadm's, without --config.
type kubeadmPhase struct {
	name, short string
	args        []string
	writes      []string // files, or objects, for the dry run
	check       check
	// clear removes what kubeadm would refuse to replace. changed means that it was made with another configuration.
	clear  func(h *host.Host, r workflow.Reporter, changed bool) error
	finish func(context.Context, *host.Host, workflow.Reporter) error // does what kubeadm leaves out
	after  []string
}

// output is something that a phase of kubeadm makes: a certificate, a kubeconfig, the manifest of a static pod.
type output interface {
	files() []string
	// whole reports whether it exists and is valid; clear removes it if not.
	whole(ctx context.Context, h *host.Host) (bool, error)
	clear(h *host.Host, r workflow.Reporter, changed bool) error
}

func making[T output](k kubeadmPhase, list []T) kubeadmPhase {
	k.writes = append(k.writes, slices.Concat(lists.Map(list, T.files)...)...)
	k.check = func(ctx context.Context, h *host.Host) (bool, error) {
		for _, o := range list {
			if ok, err := o.whole(ctx, h); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	k.clear = func(h *host.Host, r workflow.Reporter, changed bool) error {
		for _, o := range list {
			if err := o.clear(h, r, changed); err != nil {
				return err
			}
		}
		return nil
	}
	return k
}

// key returns the phase's name in the ledger.
func (k kubeadmPhase) key() string { return "kubeadm " + strings.Join(k.args, " ") }

func (k kubeadmPhase) role() Role {
	if k.args[0] == "init" {
		return ControlPlane
	}
	return Worker
}

func (k kubeadmPhase) phase() host.Phase {
	args := append(slices.Clone(k.args), "--config", ConfigFile)
	return host.Phase{
		Name: k.name, Short: k.short, After: k.after, Verify: k.verify,
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			now, _, err := finished(h, k.key(), k.role(), k.writes...)
			if err != nil || !now {
				return false, err
			}
			return k.check(ctx, h)
		},
		Plan: func(context.Context, *host.Host) ([]string, error) {
			return append([]string{"run ocadm kubeadm " + strings.Join(args, " ")}, workflow.Lines("write ", k.writes)...), nil
		},
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			_, changed, err := finished(h, k.key(), k.role(), k.writes...)
			if err == nil && k.clear != nil {
				err = k.clear(h, r, changed)
			}
			if err != nil {
				return err
			}
			if err := kubeadm(ctx, h, r, args...); err != nil {
				return err
			}
			for _, w := range k.writes {
				r.Changed("wrote %s", w)
			}
			if k.finish != nil {
				if err := k.finish(ctx, h, r); err != nil {
					return err
				}
			}
			return noteFinished(h, k.key(), k.role(), k.writes...)
		},
	}
}

// verifyPatience is how long kubeadm's results may take to be visible: a busy API server or etcd member answers late.
const verifyPatience = 30 * time.Second

func (k kubeadmPhase) verify(ctx context.Context, h *host.Host) error {
	ctx, cancel := context.WithTimeout(ctx, verifyPatience)
	defer cancel()
	err := wait.Until(ctx, "its work", time.Second, func(ctx context.Context) (bool, string, error) {
		there, err := k.check(ctx, h)
		return there, "", err
	}, func(string) {})
	if err != nil {
		return fmt.Errorf("verifying %s: kubeadm reported success, but its result is missing: %w", k.name, err)
	}
	return nil
}

// filesThere returns the check of a phase that writes files.
func filesThere(names ...string) check {
	return func(_ context.Context, h *host.Host) (bool, error) {
		return !slices.ContainsFunc(names, func(n string) bool { return !h.Files.Exists(n) }), nil
	}
}

// kubeadm runs this program as kubeadm: in-process it would write to the real standard output and could not be cancelled.
func kubeadm(ctx context.Context, h *host.Host, r workflow.Reporter, args ...string) error {
	return kubeadmWith(ctx, h, r, nil, args...)
}

// busy matches kubeadm's error for an API server, or etcd behind it, that was too slow once. kubeadm gives up after one request of 10 s, but its phases can be
// repeated, and the server is up. Sources: net/http, etcd.
var busy = regexp.MustCompile(`Client\.Timeout exceeded|TLS handshake timeout|http2: client connection lost|etcdserver: (request timed out|leader changed)`)

const (
	kubeadmTries = 3
	busyPause    = 3 * time.Second
)

// kubeadmWith is kubeadm with additional environment variables.
func kubeadmWith(ctx context.Context, h *host.Host, r workflow.Reporter, env []string, args ...string) error {
	for try := 1; ; try++ {
		_, err := h.Exec.Run(ctx, exec.Command{Path: h.Self, Args: append([]string{"kubeadm"}, args...), Env: append(noProxy(), env...), OnLine: r.Output, Bound: true})
		if err == nil {
			return nil
		}
		out, _ := exec.Output(err)
		if try == kubeadmTries || !busy.MatchString(kubeadmCause(out)) {
			return kubeadmFailed(ctx, args, err)
		}
		r.Waiting("the API server", "it did not answer in time; kubeadm runs again")
		if wait.Sleep(ctx, busyPause) != nil {
			return kubeadmFailed(ctx, args, err)
		}
	}
}

// noProxy hides the proxies of this process. kubeadm would write them, with their passwords, into the pods of the control plane and kube-proxy, where everybody who
// may list pods can read them. These pods only contact servers inside the cluster.
func noProxy() (env []string) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"} {
		env = append(env, name+"=", strings.ToLower(name)+"=")
	}
	return env
}

// For each phase of kubeadm that succeeded, the ledger has the digest of kubeadm's input. A phase is done while that digest is current and its outputs exist
// (docs/decisions/0017-when-a-kubeadm-phase-is-done.md).

// digest returns the digest of kubeadm's configuration on this node, of ocadm's patches, and of manifestPatches. It excludes tokens, which change nothing that a
// phase makes, and the role of a joined node that becomes a compute node: its phase labels the node, and kubeadm refuses to join a node again that is Ready.
func digest(h *host.Host, role Role, writes ...string) (string, error) {
	return digestAs(h, role, h.Config.Node.EnableHostAgent && role == ControlPlane, writes...)
}

func digestAs(h *host.Host, role Role, compute bool, writes ...string) (string, error) {
	c := *h.Config
	c.Cluster.Token, c.Cluster.TokenTTL, c.Node.EnableHostAgent = "", 0, compute
	render := func() ([]byte, error) { return documents(nodeRegistration(&c, Worker)) }
	switch {
	case role == Worker && c.Join.ControlPlane:
		render = func() ([]byte, error) { return documents(nodeRegistration(&c, ControlPlane), localAPIEndpoint(&c)) }
	case role == ControlPlane:
		render = func() ([]byte, error) { return RenderInit(&c) }
	}
	doc, err := render()
	if err != nil {
		return "", fmt.Errorf("rendering kubeadm's configuration: %w", err)
	}
	dns, err := CoreDNSPatch()
	if err != nil {
		return "", fmt.Errorf("rendering the patch of CoreDNS: %w", err)
	}
	input := append([][]byte{doc, KubeletPatch(&c), dns}, manifestPatches(h, writes)...)
	return fmt.Sprintf("%x", sha256.Sum256(bytes.Join(input, []byte("\n---\n"))))[:16], nil
}

// manifestPatches returns an administrator's patches for the static pods that a phase writes. It omits etcd's: to apply them, kubeadm would also write another
// member list for an etcd that runs.
func manifestPatches(h *host.Host, writes []string) (out [][]byte) {
	for _, w := range writes {
		if path.Dir(w) != manifestsDir || w == manifest(constants.Etcd) {
			continue
		}
		target := path.Join(PatchesDir, strings.TrimSuffix(path.Base(w), ".yaml"))
		for _, p := range h.Files.Glob(target+"*.yaml", target+"*.json") { // kubeadm ignores other files
			out = append(out, []byte(p+h.Files.Text(p)))
		}
	}
	return out
}

// finished reports whether a phase succeeded with the current configuration, and whether it succeeded with another one.
func finished(h *host.Host, phase string, role Role, writes ...string) (now, before bool, err error) {
	e, noted := h.Ledger.Get(host.KindPhase, phase)
	if !noted {
		return false, false, nil
	}
	want, err := digest(h, role, writes...)
	if err == nil && e.Detail != want && role == Worker {
		want, err = digestAs(h, role, true, writes...) // the digest of earlier releases for a compute node
	}
	return e.Detail == want, e.Detail != want, err
}

func noteFinished(h *host.Host, phase string, role Role, writes ...string) error {
	detail, err := digest(h, role, writes...)
	if err != nil {
		return err
	}
	return h.Ledger.Replace(host.Entry{Kind: host.KindPhase, Name: phase, Op: host.Found, Detail: detail})
}

// Files that this package and kubeadm write on a node.
const (
	// ConfigFile is kubeadm's configuration. It may hold a bootstrap token: mode 0600.
	ConfigFile = "/etc/ocadm/kubeadm.yaml"
	// PatchesDir holds this node's patches for kubeadm.
	PatchesDir = "/etc/ocadm/patches"
	// AdminKubeconfig has the permissions of a cluster administrator; it exists on control-plane nodes only.
	AdminKubeconfig = kube.AdminKubeconfig
	// KubeletKubeconfig has the permissions of this node.
	KubeletKubeconfig = kubernetesDir + "/kubelet.conf"
	// KubeletConfigFile holds the settings of this node's kubelet, and KubeletFlagsFile its flags.
	KubeletConfigFile = kubeletDir + "/config.yaml"
	KubeletFlagsFile  = kubeletDir + "/kubeadm-flags.env"

	kubernetesDir    = "/etc/kubernetes"
	manifestsDir     = kubernetesDir + "/manifests"
	pkiDir           = kubernetesDir + "/pki"
	bootstrapConf    = kubernetesDir + "/bootstrap-kubelet.conf"
	kubeletDir       = "/var/lib/kubelet"
	kubeletClientPEM = kubeletDir + "/pki/kubelet-client-current.pem"
	etcdDir          = "/var/lib/etcd"
	podLogsDir       = "/var/log/pods"
)
