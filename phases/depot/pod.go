// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"fmt"
	"path"
	"slices"
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
	authority    = pkiDir + "/ca.crt"
	authorityKey = pkiDir + "/ca.key"
	// nodeCertificates are what the node's kubeconfig refers to. The depot shows them to the depots of other control-plane nodes.
	nodeCertificates = "/var/lib/kubelet/pki"
)

// manifest is the static pod. Where the key of the authority is elsewhere, nothing in it renews the certificate.
func manifest(h *host.Host) (host.FileSet, error) {
	raw, err := yaml.Marshal(pod(h.Config.OperatorImage(), certificateNames(h), h.Files.Exists(authorityKey)))
	if err != nil {
		return nil, fmt.Errorf("writing the depot's pod: %w", err)
	}
	return host.FileSet{{Name: manifestFile, Data: raw, Mode: 0o600}}, nil
}

// mount is a file or directory of the node in a container.
type mount struct {
	name, path string
	kind       corev1.HostPathType
	write      bool
}

func pod(image string, names []string, renews bool) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: podName, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"app": podName, "app.kubernetes.io/managed-by": "ocadm"}},
		Spec: corev1.PodSpec{
			HostNetwork: true, PriorityClassName: "system-node-critical", RestartPolicy: corev1.RestartPolicyAlways,
			SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		},
	}
	serve := container("depot", image, "32Mi", "serve", "--directory", depot.DefaultDir, "--listen", ":"+strconv.Itoa(config.DepotPort),
		"--tls-cert-file", CertificateFile, "--tls-private-key-file", CertificateFile, "--client-ca-file", authority,
		"--kubeconfig", kubernetes.KubeletKubeconfig, "--node", "$(NODE_NAME)", "--v", "1")
	serve.Env = []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}}
	serve.LivenessProbe = &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 6, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Path: depot.HealthPath, Port: intstr.FromInt32(config.DepotPort), Scheme: corev1.URISchemeHTTPS},
	}}
	add(p, serve,
		mount{"depot", depot.DefaultDir, corev1.HostPathDirectoryOrCreate, true},
		// The directory, because a file that is replaced would stay the old one in the container.
		mount{"certificate", path.Dir(CertificateFile), corev1.HostPathDirectory, false},
		mount{"authority", authority, corev1.HostPathFile, false},
		mount{"kubeconfig", kubernetes.KubeletKubeconfig, corev1.HostPathFile, false},
		mount{"node-certificates", nodeCertificates, corev1.HostPathDirectory, false})
	if renews {
		add(p, container("certificate", image, "16Mi", append([]string{"renew"}, names...)...),
			mount{"certificate", path.Dir(CertificateFile), corev1.HostPathDirectory, true},
			mount{"authority", authority, corev1.HostPathFile, false},
			mount{"authority-key", authorityKey, corev1.HostPathFile, false})
	}
	return p
}

// container runs a subcommand of "depot". It is root, because the keys are readable for root only, and has no capability.
func container(name, image, memory string, args ...string) corev1.Container {
	var root int64
	var no, yes = false, true
	return corev1.Container{
		Name: name, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: append([]string{"depot"}, args...),
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse(memory),
		}},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: &root, RunAsGroup: &root, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// add adds a container with its mounts to a pod.
func add(p *corev1.Pod, c corev1.Container, mounts ...mount) {
	for _, m := range mounts {
		if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.name }) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: m.name,
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: m.path, Type: &m.kind}}})
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: m.name, MountPath: m.path, ReadOnly: !m.write})
	}
	p.Spec.Containers = append(p.Spec.Containers, c)
}
