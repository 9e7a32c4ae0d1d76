// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/phases/nodepod"
)

const (
	podName = "ocadm-depot"
	// exceptFlag is the depot's flag for the depots from which it does not copy.
	exceptFlag = "--except"
	// renewerName is the container that renews the certificate.
	renewerName = "certificate"
	// manifestFile is removed by package owned.
	manifestFile = nodepod.StaticDir + "/" + podName + ".yaml"
	pkiDir       = "/etc/kubernetes/pki"
	authority    = pkiDir + "/ca.crt"
	authorityKey = pkiDir + "/ca.key"
	// nodeCertificates holds the files that the node's kubeconfig refers to. The depot authenticates with them to the depots of other control-plane nodes.
	nodeCertificates = "/var/lib/kubelet/pki"
)

// manifest returns the static pod, preceded by the credentials for registries. If the CA key is not on this machine, no container renews the certificate.
func manifest(h *host.Host) (files host.FileSet, _ error) {
	p := pod(h.Config.OperatorImage(), certificateNames(h), h.Files.Exists(authorityKey))
	if !h.Config.Node.Offline {
		copies(h, p)
		files = append(files, host.File{Name: CredentialsFile, Data: node.RegistryAuth(h), Mode: 0o600})
	}
	own, err := nodepod.Manifest(p)
	return append(files, own...), err
}

// CredentialsFile holds the depot's registry credentials. It is a copy in a mounted directory: a file mounted alone would keep its old content in the
// container after it is replaced. Package owned removes it.
const CredentialsFile = pkiDir + "/ocadm-depot/registry.json"

// authorityFiles are the files in which distributions keep the machine's CA certificates, as in Go's crypto/x509. The directory is mounted, because the file is replaced.
var authorityFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Red Hat, openEuler
	"/var/lib/ca-certificates/ca-bundle.pem",            // SUSE
}

// copies lets the depot copy images from registries, with the same settings as containerd on this node.
func copies(h *host.Host, p *corev1.Pod) {
	c := &p.Spec.Containers[0]
	c.Args = append(c.Args, "--copy", "--registry-config", CredentialsFile)
	// On another control-plane node than the first, init does not know the endpoint, through which the depot would ask itself.
	if depots := lists.Unique(append(excepted(h), node.DepotAddresses(h.Config)...)); len(depots) > 0 {
		c.Args = append(c.Args, exceptFlag, strings.Join(depots, ","))
	}
	if i := slices.IndexFunc(authorityFiles, h.Files.Exists); i >= 0 {
		const inside = "/etc/ocadm/authorities"
		c.Env = append(c.Env, corev1.EnvVar{Name: "SSL_CERT_DIR", Value: inside}) // in addition to the image's own file
		p.Spec.Volumes = append(p.Spec.Volumes, nodepod.HostPath("authorities", path.Dir(authorityFiles[i]), corev1.HostPathDirectory))
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "authorities", MountPath: inside, ReadOnly: true})
	}
	mountInto(p, c, mount{"containerd", "/etc/containerd", corev1.HostPathDirectoryOrCreate, false})
}

// excepted returns the depots that the present static pod does not copy from.
func excepted(h *host.Host) []string {
	return strings.FieldsFunc(nodepod.Argument(h.Files.Text(manifestFile), exceptFlag), func(r rune) bool { return r == ',' })
}

// mount is a file or directory of the node that a container mounts.
type mount struct {
	name, path string
	kind       corev1.HostPathType
	write      bool
}

// pod returns the static pod. Its memory settings follow measurements on lab machines: 22 MiB of its own at rest, and 51 MiB of program text, which
// all its processes on a node share.
func pod(image string, names []string, renews bool) *corev1.Pod {
	p := nodepod.Static(podName)
	serve := nodepod.Container("depot", image, "64Mi", "256Mi", "depot", "serve", "--directory", depot.DefaultDir, "--listen", ":"+strconv.Itoa(config.DepotPort),
		"--tls-cert-file", CertificateFile, "--tls-private-key-file", CertificateFile, "--client-ca-file", authority,
		"--kubeconfig", kubernetes.KubeletKubeconfig, "--node", "$(NODE_NAME)", "--v", "1")
	serve.Env = []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}}
	serve.LivenessProbe = &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 5, FailureThreshold: 6, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Path: depot.HealthPath, Port: intstr.FromInt32(config.DepotPort), Scheme: corev1.URISchemeHTTPS},
	}}
	add(p, serve,
		mount{"depot", depot.DefaultDir, corev1.HostPathDirectoryOrCreate, true},
		// The directory is mounted, because a single file would keep its old content in the container after it is replaced.
		mount{"certificate", path.Dir(CertificateFile), corev1.HostPathDirectory, false},
		mount{"authority", authority, corev1.HostPathFile, false},
		mount{"kubeconfig", kubernetes.KubeletKubeconfig, corev1.HostPathFile, false},
		mount{"node-certificates", nodeCertificates, corev1.HostPathDirectory, false})
	if renews {
		add(p, nodepod.Container(renewerName, image, "32Mi", "128Mi", append([]string{"depot", "renew"}, names...)...),
			mount{"certificate", path.Dir(CertificateFile), corev1.HostPathDirectory, true},
			mount{"authority", authority, corev1.HostPathFile, false},
			mount{"authority-key", authorityKey, corev1.HostPathFile, false})
	}
	return p
}

func add(p *corev1.Pod, c corev1.Container, mounts ...mount) {
	mountInto(p, &c, mounts...)
	p.Spec.Containers = append(p.Spec.Containers, c)
}

func mountInto(p *corev1.Pod, c *corev1.Container, mounts ...mount) {
	for _, m := range mounts {
		if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.name }) {
			p.Spec.Volumes = append(p.Spec.Volumes, nodepod.HostPath(m.name, m.path, m.kind))
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: m.name, MountPath: m.path, ReadOnly: !m.write})
	}
}
