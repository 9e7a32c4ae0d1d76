// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// UpgradeDir holds the files of an unfinished upgrade: the new and previous manifests, kubeadm's configuration, the previous kubelet. Package owned removes it.
const UpgradeDir = host.StateDir + "/upgrade"

const (
	stagedDir     = UpgradeDir + "/manifests"
	beforeDir     = UpgradeDir + "/before"
	stagingConfig = UpgradeDir + "/staging.yaml"
	upgradeConfig = UpgradeDir + "/kubeadm.yaml"
)

// ClusterVersion returns the version of Kubernetes in kubeadm's configuration in the cluster. A kubelet may read it too.
func ClusterVersion(ctx context.Context, c client.Client) (string, error) {
	k, err := liveClusterConfiguration(ctx, c)
	if err != nil {
		return "", fmt.Errorf("reading the version of the cluster: %w", err)
	}
	return k.KubernetesVersion, nil
}

// AsTheCluster copies the cluster's image settings and endpoint into the configuration of a host that lacks the settings of init or join.
func AsTheCluster(ctx context.Context, h *host.Host, c client.Client, version string) error {
	k, err := liveClusterConfiguration(ctx, c)
	if err != nil {
		return fmt.Errorf("reading the configuration of the cluster: %w", err)
	}
	to := &h.Config.Cluster
	to.KubernetesVersion, to.KubernetesImageRepository, to.ControlPlaneEndpoint = version, k.ImageRepository, k.ControlPlaneEndpoint
	to.PodNetworkCIDR, to.ServiceCIDR, to.ServiceDNSDomain = k.Networking.PodSubnet, k.Networking.ServiceSubnet, k.Networking.DNSDomain
	if d := k.CertificateValidityPeriod; d != nil {
		to.CertificateValidity = d.Duration
	}
	return nil
}

// UseValidity sets the lifetime of new certificates for a host that lacks the settings of init: that of the cluster, if it answers.
func UseValidity(ctx context.Context, h *host.Host) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	c, err := h.Kube(ctx)
	if err != nil {
		return
	}
	if k, err := liveClusterConfiguration(ctx, c); err == nil && k.CertificateValidityPeriod != nil {
		h.Config.Cluster.CertificateValidity = k.CertificateValidityPeriod.Duration
	}
}

// validity returns the lifetime of a new certificate.
func validity(h *host.Host) time.Duration {
	return cmp.Or(h.Config.Cluster.CertificateValidity, constants.CertificateValidityPeriod)
}

// OwnEndpoint returns the address and port of this control-plane node's API server from its manifest; ok is false if there is none.
func OwnEndpoint(h *host.Host) (address string, port int, ok bool) {
	return endpointOf(installedPod(h, constants.KubeAPIServer))
}

// IsControlPlane reports whether this machine has the static pods of a control plane, even if they are stopped.
func IsControlPlane(h *host.Host) bool {
	return h.Files.Exists(manifest(constants.KubeAPIServer)) || h.Files.Exists(stopped(constants.KubeAPIServer))
}

// StageManifests makes kubeadm write this node's static pods for a version next to the current ones, which stay. It uses a dry run of kubeadm init, because
// kubeadm's own upgrade would replace all of them in one step.
func StageManifests(ctx context.Context, h *host.Host, r workflow.Reporter, c client.Client, version string) error {
	doc, err := stagingDocuments(ctx, h, c, version)
	if err != nil {
		return err
	}
	for _, dir := range []string{stagedDir, beforeDir} {
		if err := os.MkdirAll(h.Files.Path(dir), 0o700); err != nil {
			return fmt.Errorf("creating a directory for the new static pods: %w", err)
		}
	}
	if err := h.Files.Replace(stagingConfig, doc, 0o600); err != nil {
		return err
	}
	env := []string{constants.EnvVarInitDryRunDir + "=" + stagedDir}
	for _, phase := range [][]string{{"etcd", "local"}, {"control-plane", "all"}} {
		args := append([]string{"init", "phase"}, phase...)
		if err := kubeadmWith(ctx, h, r, env, append(args, "--dry-run", "--config", stagingConfig)...); err != nil {
			return err
		}
	}
	return keepInitialCluster(h)
}

// stagingDocuments returns the cluster's live configuration with another version, and this node's own part.
func stagingDocuments(ctx context.Context, h *host.Host, c client.Client, version string) ([]byte, error) {
	var cm corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "kubeadm-config"}, &cm); err != nil {
		return nil, fmt.Errorf("reading the configuration of the cluster: %w", err)
	}
	cluster := map[string]any{}
	if err := yaml.Unmarshal([]byte(cm.Data["ClusterConfiguration"]), &cluster); err != nil {
		return nil, fmt.Errorf("parsing ConfigMap kube-system/kubeadm-config: %w", err)
	}
	cluster["kubernetesVersion"] = version
	raw, err := yaml.Marshal(cluster)
	if err != nil {
		return nil, fmt.Errorf("rendering kubeadm's configuration: %w", err)
	}
	own := kubeadmv1beta4.InitConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: kubeadmAPIVersion, Kind: "InitConfiguration"},
		NodeRegistration: kubeadmv1beta4.NodeRegistrationOptions{Name: h.Config.Node.Name, CRISocket: h.CRISocket()},
		Patches:          patches(h),
	}
	address, port, ok := OwnEndpoint(h)
	if !ok {
		return nil, fmt.Errorf("reading the address of the API server: %s does not name it", manifest(constants.KubeAPIServer))
	}
	own.LocalAPIEndpoint = kubeadmv1beta4.APIEndpoint{AdvertiseAddress: address, BindPort: int32(port)} //nolint:gosec // a port
	doc, err := documents(own)
	if err != nil {
		return nil, err
	}
	return slices.Concat(doc, []byte("---\n"), raw), nil
}

func patches(h *host.Host) *kubeadmv1beta4.Patches {
	if !h.Files.Exists(PatchesDir) {
		return nil
	}
	return &kubeadmv1beta4.Patches{Directory: PatchesDir}
}

// keepInitialCluster copies the member list of etcd's current manifest into the new one. kubeadm lists only this member: etcd ignores that once it has data, but the
// difference would restart it needlessly.
func keepInitialCluster(h *host.Host) error {
	name := path.Join(stagedDir, constants.Etcd+".yaml")
	now, err := readPod(h, manifest(constants.Etcd))
	if errors.Is(err, fs.ErrNotExist) { // external etcd
		return nil
	}
	staged, serr := readPod(h, name)
	if err := errors.Join(err, serr); err != nil {
		return err
	}
	initial := func(a string) bool { return strings.HasPrefix(a, "--initial-cluster") }
	args := slices.DeleteFunc(slices.Clone(staged.Spec.Containers[0].Command), initial)
	staged.Spec.Containers[0].Command = append(args, lists.Filter(now.Spec.Containers[0].Command, initial)...)
	raw, err := yaml.Marshal(staged)
	if err != nil {
		return fmt.Errorf("writing the new manifest of etcd: %w", err)
	}
	return h.Files.Replace(name, raw, 0o600)
}

// ForgetStaged removes the new manifests of an upgrade whose target version has changed.
func ForgetStaged(h *host.Host) error {
	if err := os.RemoveAll(h.Files.Path(stagedDir)); err != nil {
		return fmt.Errorf("removing manifests of another upgrade: %w", err)
	}
	return nil
}

// ForgetManifests removes the new manifests and the previous ones.
func ForgetManifests(h *host.Host) error {
	if err := os.RemoveAll(h.Files.Path(beforeDir)); err != nil {
		return fmt.Errorf("removing manifests of another upgrade: %w", err)
	}
	return ForgetStaged(h)
}

func readPod(h *host.Host, file string) (*corev1.Pod, error) {
	raw, err := h.Files.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading a static pod: %w", err)
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal(raw, &pod); err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, fmt.Errorf("reading %s: it names no container", file)
	}
	return &pod, nil
}

// samePod reports whether two manifests are equivalent. The order of arguments does not matter to the programs of the control plane.
func samePod(a, b *corev1.Pod) bool {
	norm := func(p *corev1.Pod) *corev1.Pod {
		p = p.DeepCopy()
		for i := range p.Spec.Containers {
			slices.Sort(p.Spec.Containers[i].Command)
		}
		return p
	}
	return equality.Semantic.DeepEqual(norm(a), norm(b))
}

// StagedPods returns the static pods that have a new manifest, in the order in which they are exchanged.
func StagedPods(h *host.Host) []string {
	return slices.DeleteFunc(StaticPods(), func(name string) bool { return !h.Files.Exists(path.Join(stagedDir, name+".yaml")) })
}

// StagedImages returns the images in the new manifests.
func StagedImages(h *host.Host) (images []string, err error) {
	for _, name := range StagedPods(h) {
		pod, err := readPod(h, path.Join(stagedDir, name+".yaml"))
		if err != nil {
			return nil, err
		}
		images = append(images, lists.Map(pod.Spec.Containers, func(c corev1.Container) string { return c.Image })...)
	}
	return images, nil
}

// StaticVersions returns the image tags of this node's static pods, by name.
func StaticVersions(h *host.Host) map[string]string {
	out := map[string]string{}
	for _, name := range StaticPods() {
		if pod, err := readPod(h, manifest(name)); err == nil {
			out[name] = Tag(pod.Spec.Containers[0].Image)
		}
	}
	return out
}

// Tag returns the tag of an image.
func Tag(image string) string { return images.Split(image).Tag }

// WriteUpgradeConfig writes the configuration of kubeadm's upgrade phases.
func WriteUpgradeConfig(h *host.Host, version string) error {
	u := kubeadmv1beta4.UpgradeConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: kubeadmAPIVersion, Kind: "UpgradeConfiguration"}}
	u.Apply.KubernetesVersion, u.Apply.Patches, u.Node.Patches = version, patches(h), patches(h)
	raw, err := documents(u)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(h.Files.Path(UpgradeDir), 0o700); err != nil {
		return fmt.Errorf("writing kubeadm's configuration: %w", err)
	}
	return h.Files.Replace(upgradeConfig, raw, 0o600)
}

// KubeadmUpgrade runs one phase of kubeadm's upgrade: with first, that of the first control-plane node, which also changes the cluster, else that of other nodes.
func KubeadmUpgrade(ctx context.Context, h *host.Host, r workflow.Reporter, first bool, phase ...string) error {
	args := []string{"upgrade", "node", "phase"}
	if first {
		args[1] = "apply"
	}
	return kubeadm(ctx, h, r, slices.Concat(args, phase, []string{"--config", upgradeConfig})...)
}

// NoteUpgrade records in the ledger, and in the configuration that init wrote, that the node now has this release and this version.
func NoteUpgrade(h *host.Host, version string) error {
	if err := noteThisRelease(h.Ledger.Replace); err != nil {
		return err
	}
	was := EarlierConfig(h).KubernetesVersion
	if was == "" || was == version {
		return nil
	}
	text := strings.Replace(h.Files.Text(ConfigFile), "kubernetesVersion: "+was, "kubernetesVersion: "+version, 1)
	if _, err := h.Files.Write(ConfigFile, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing kubeadm's configuration: %w", err)
	}
	return nil
}
