// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/owned"
)

// Order names the phases that some of InitPhases wait for.
type Order struct {
	// Software are those that install containerd and the kubelet; if empty, each phase starts after the one listed before it.
	Software []string
	// Network are those after which pods can start.
	Network []string
}

// InitPhases make the first control-plane node. Certificates, kubeconfigs and manifests need no software, so they are made while it is being installed.
//
// The kubelet starts as soon as it has a kubeconfig and picks up the static pods as their manifests appear. Once the API server answers, the kubelet is
// restarted (kubelet-finalize does that anyway), so that it registers its node immediately instead of after a back-off.
func InitPhases(o Order) []host.Phase {
	configuration := configPhase(func(h *host.Host) ([]byte, error) { return RenderInit(h.Config) },
		func(*config.Config) Role { return ControlPlane })
	if len(o.Software) > 0 {
		configuration.After = []string{"preflight"}
	}
	return []host.Phase{
		configuration,
		certsPhase(),
		kubeconfigPhase(),
		etcdPhase(),
		controlPlanePhase(),
		kubeletStartPhase(append([]string{"kubeconfig/kubelet"}, o.Software...)),
		waitControlPlanePhase(),
		kubeletFinalizePhase(),
		uploadConfigPhase(),
		kubeadmPhase{
			name: "mark-control-plane", short: "Label the node as a control-plane node", args: []string{"init", "phase", "mark-control-plane"},
			writes: []string{"label " + v1alpha1.LabelControlPlane, "label " + labelMaster}, check: live(controlPlaneMarked),
			finish: labelMasterNode,
			after:  []string{"kubelet-finalize", apiServerReady},
		}.phase(),
		kubeadmPhase{
			name: "bootstrap-token", short: "Let nodes join with a token", args: []string{"init", "phase", "bootstrap-token", "--skip-token-print"},
			writes: []string{"ConfigMap kube-public/cluster-info", "a bootstrap token", "the roles that joining needs"},
			check:  live(bootstrapTokenDone), after: []string{apiServerReady},
		}.phase(),
		addonPhase(o.Network),
	}
}

// apiServerReady is the phase after which the API server answers at the address in the kubeconfigs.
const apiServerReady = "wait-control-plane/endpoint"

func configPhase(render func(*host.Host) ([]byte, error), roleOf func(*config.Config) Role) host.Phase {
	return host.Phase{
		Name: "kubeadm-config", Short: "Write kubeadm's configuration",
		Long: "Renders kubeadm's configuration from ocadm's and writes it to " + ConfigFile + " (mode 0600, because it may contain a token).",
		Run: func(_ context.Context, h *host.Host, r workflow.Reporter) error {
			role := roleOf(h.Config)
			want, err := configFiles(h, render, role)
			if err != nil {
				return err
			}
			// From here on, this is a node of ocadm's; what already has a node's names is not ocadm's.
			if err := errors.Join(owned.Note(h, role == ControlPlane), noteRelease(h)); err != nil {
				return err
			}
			if _, err := want.Write(h, r); err != nil {
				return fmt.Errorf("writing kubeadm's configuration: %w", err)
			}
			// The kubelet watches this directory if it exists at startup; otherwise it only polls every 20 s.
			if err := h.Files.Mkdir(manifestsDir, 0o700); err != nil {
				return fmt.Errorf("creating the directory of static pods: %w", err)
			}
			return nil
		},
		// The first phase undoes all that follow: their results are removed as a whole.
		Undo: undoInit,
	}.Todo(func(_ context.Context, h *host.Host) ([]string, error) {
		want, err := configFiles(h, render, roleOf(h.Config))
		return want.Todo(h), err
	})
}

func configFiles(h *host.Host, render func(*host.Host) ([]byte, error), role Role) (host.FileSet, error) {
	doc, err := render(h)
	if err != nil {
		return nil, err
	}
	files := host.FileSet{{Name: ConfigFile, Data: doc, Mode: 0o600}}
	if p := KubeletPatch(h.Config); p != nil {
		files = append(files, host.File{Name: PatchesDir + "/kubeletconfiguration+merge.yaml", Data: p, Mode: 0o600})
	}
	if role == ControlPlane {
		p, err := CoreDNSPatch()
		if err != nil {
			return nil, fmt.Errorf("rendering the patch of CoreDNS: %w", err)
		}
		files = append(files, host.File{Name: PatchesDir + "/corednsdeployment+strategic.yaml", Data: p, Mode: 0o600})
	}
	return files, nil
}

func kubeletStartPhase(after []string) host.Phase {
	files := []string{KubeletConfigFile, KubeletFlagsFile}
	p := kubeadmPhase{
		name: "kubelet-start", short: "Write the kubelet's settings and start it", args: []string{"init", "phase", "kubelet-start"},
		writes: files, after: after,
		check: func(ctx context.Context, h *host.Host) (bool, error) {
			there, err := filesThere(files...)(ctx, h)
			return there && kubeletActive(ctx, h), err
		},
	}
	phase := p.phase()
	p.check = filesThere(files...) // wait-control-plane/kubelet checks that it runs
	phase.Verify = p.verify
	return phase
}

func kubeletFinalizePhase() host.Phase {
	return host.Phase{
		Name: "kubelet-finalize", Short: "Finish the kubelet's configuration", After: []string{"wait-control-plane/apiserver-listening"},
		Phases: []host.Phase{kubeadmPhase{
			name: "enable-client-cert-rotation", short: "Let the kubelet renew its client certificate",
			args:   []string{"init", "phase", "kubelet-finalize", "enable-client-cert-rotation"},
			writes: []string{KubeletKubeconfig},
			check: func(_ context.Context, h *host.Host) (bool, error) {
				raw, err := h.Files.ReadFile(KubeletKubeconfig)
				if err != nil {
					return false, nil //nolint:nilerr // kubeconfig/kubelet reports what is wrong with it
				}
				kc, err := clientcmd.Load(raw)
				if err != nil {
					return false, nil //nolint:nilerr // as above
				}
				for _, user := range kc.AuthInfos {
					if user.ClientCertificate == kubeletClientPEM {
						return true, nil
					}
				}
				return false, nil
			},
			after: []string{},
		}.phase()},
	}
}

func uploadConfigPhase() host.Phase {
	return host.Phase{
		Name: "upload-config", Short: "Store the configuration in the cluster", After: []string{apiServerReady},
		Phases: []host.Phase{
			storeConfiguration().phase(),
			kubeadmPhase{name: "kubelet", short: "Store the kubelets' configuration for joins", args: []string{"init", "phase", "upload-config", "kubelet"},
				writes: []string{"ConfigMap kube-system/kubelet-config"}, check: inSystem(&corev1.ConfigMap{}, "kubelet-config"), after: []string{}}.phase(),
		},
	}
}

func storeConfiguration() kubeadmPhase {
	return kubeadmPhase{name: "kubeadm", short: "Store the cluster's configuration for joins and upgrades", args: []string{"init", "phase", "upload-config", "kubeadm"},
		writes: []string{"ConfigMap kube-system/kubeadm-config"}, check: inSystem(&corev1.ConfigMap{}, "kubeadm-config"), after: []string{}}
}

func addonPhase(network []string) host.Phase {
	return host.Phase{
		Name: "addon", Short: "Install cluster DNS and the service proxy", After: []string{apiServerReady},
		Phases: []host.Phase{
			kubeadmPhase{name: "coredns", short: "Install CoreDNS", args: []string{"init", "phase", "addon", "coredns"},
				writes: []string{"Deployment kube-system/coredns and what it needs"},
				check:  inSystem(&appsv1.Deployment{}, constants.CoreDNSDeploymentName), after: slices.Concat([]string{}, network)}.phase(),
			kubeadmPhase{name: "kube-proxy", short: "Install kube-proxy", args: []string{"init", "phase", "addon", "kube-proxy"},
				writes: []string{"DaemonSet kube-system/kube-proxy and what it needs"},
				check:  inSystem(&appsv1.DaemonSet{}, constants.KubeProxy), after: []string{}}.phase(),
		},
	}
}

func etcdPhase() host.Phase {
	return host.Phase{
		Name: "etcd", Short: "Write the static pod of etcd", After: []string{"certs"},
		Phases: []host.Phase{staticPod("local", "Write etcd's manifest", constants.Etcd, "init", "phase", "etcd", "local")},
	}
}

func controlPlanePhase() host.Phase {
	init := func(name string) []string { return []string{"init", "phase", "control-plane", name} }
	return host.Phase{
		Name: "control-plane", Short: "Write the static pods of the control plane", After: []string{"certs"},
		Phases: []host.Phase{
			staticPod("apiserver", "Write the API server's manifest", constants.KubeAPIServer, init("apiserver")...),
			after(staticPod("controller-manager", "Write the controller manager's manifest", constants.KubeControllerManager, init("controller-manager")...),
				"kubeconfig/controller-manager"),
			after(staticPod("scheduler", "Write the scheduler's manifest", constants.KubeScheduler, init("scheduler")...), "kubeconfig/scheduler"),
		},
	}
}

func staticPod(name, short, pod string, args ...string) host.Phase {
	return making(kubeadmPhase{name: name, short: short, args: args, after: []string{}}, []staticManifest{staticManifest(pod)}).phase()
}

func after(p host.Phase, names ...string) host.Phase {
	p.After = names
	return p
}

func manifest(pod string) string { return manifestsDir + "/" + pod + ".yaml" }

// staticManifest is the manifest of a static pod. kubeadm replaces it.
type staticManifest string

func (m staticManifest) files() []string { return []string{manifest(string(m))} }

func (m staticManifest) whole(_ context.Context, h *host.Host) (bool, error) {
	return manifestComplete(h, string(m))
}

func (m staticManifest) clear(*host.Host, workflow.Reporter, bool) error { return nil }

// manifestComplete reports whether the manifest of a static pod exists and names a container: the kubelet ignores a truncated one.
func manifestComplete(h *host.Host, pod string) (bool, error) {
	raw, err := h.Files.ReadFile(manifest(pod))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading a static pod: %w", err)
	}
	var got corev1.Pod
	return yaml.Unmarshal(raw, &got) == nil && len(got.Spec.Containers) > 0, nil
}
