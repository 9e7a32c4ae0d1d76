// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const (
	podName = "ocadm-depot"
	// manifestFile is removed by package owned.
	manifestFile = "/etc/kubernetes/manifests/" + podName + ".yaml"
	pkiDir       = "/etc/kubernetes/pki"
	// The depot shows the API server's certificate: it holds every address of the control plane, and kubeadm renews it.
	certificate = pkiDir + "/apiserver.crt"
	key         = pkiDir + "/apiserver.key"
	authority   = pkiDir + "/ca.crt"
	// nodeCertificates are what the node's kubeconfig refers to. The depot shows them to the depots of other control-plane nodes.
	nodeCertificates = "/var/lib/kubelet/pki"
)

// manifest is the static pod. It is root, because the key is readable for root only, and has no capability.
func manifest(h *host.Host) (host.FileSet, error) {
	raw, err := yaml.Marshal(pod(h.Config.OperatorImage()))
	if err != nil {
		return nil, fmt.Errorf("writing the depot's pod: %w", err)
	}
	return host.FileSet{{Name: manifestFile, Data: raw, Mode: 0o600}}, nil
}

func pod(image string) *corev1.Pod {
	var root int64
	var no, yes = false, true
	container := corev1.Container{
		Name: "depot", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{"depot", "serve", "--directory", depot.DefaultDir, "--listen", ":" + strconv.Itoa(config.DepotPort), "--tls-cert-file", certificate,
			"--tls-private-key-file", key, "--client-ca-file", authority, "--kubeconfig", kubernetes.KubeletKubeconfig},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
		}},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: &root, RunAsGroup: &root, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		LivenessProbe: &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 6, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Path: depot.HealthPath, Port: intstr.FromInt32(config.DepotPort), Scheme: corev1.URISchemeHTTPS},
		}},
	}
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: podName, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"app": podName, "app.kubernetes.io/managed-by": "ocadm"}},
		Spec: corev1.PodSpec{
			HostNetwork: true, PriorityClassName: "system-node-critical", RestartPolicy: corev1.RestartPolicyAlways,
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		},
	}
	for _, m := range []struct {
		name, path string
		kind       corev1.HostPathType
		write      bool
	}{
		{"depot", depot.DefaultDir, corev1.HostPathDirectoryOrCreate, true},
		{"certificate", certificate, corev1.HostPathFile, false},
		{"key", key, corev1.HostPathFile, false},
		{"authority", authority, corev1.HostPathFile, false},
		{"kubeconfig", kubernetes.KubeletKubeconfig, corev1.HostPathFile, false},
		{"node-certificates", nodeCertificates, corev1.HostPathDirectory, false},
	} {
		kind := m.kind
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: m.name,
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: m.path, Type: &kind}}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: m.name, MountPath: m.path, ReadOnly: !m.write})
	}
	p.Spec.Containers = []corev1.Container{container}
	return p
}
