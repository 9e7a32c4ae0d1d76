// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// SignAgain re-signs the certificates of other CAs with the current signing CA: on a control-plane node with the CA's key, for a worker's kubelet through the API.
// Keys are new too, because someone may have read the old ones. After a power cut between a key and its certificate, the next run signs the pair again.
func SignAgain(ctx context.Context, h *host.Host, r workflow.Reporter, t Trust) error {
	list, err := unsigned(h, t)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return nil
	}
	isControlPlane := IsControlPlane(h)
	for _, c := range list {
		switch {
		case c.Kind == kindKubelet && isControlPlane:
			err = errors.Join(signKubeletClient(h, time.Now()), markKubelet(h))
		case c.Kind == kindKubelet:
			err = errors.Join(requestKubeletClient(ctx, h, time.Now()), markKubelet(h))
		default:
			err = renewOne(ctx, h, c)
		}
		if err != nil {
			return err
		}
		r.Changed("signed %s", c.File)
	}
	return nil
}

// requestKubeletClient requests a client certificate through the API, as the kubelet does, and links it. The kubelet must then be restarted.
func requestKubeletClient(ctx context.Context, h *host.Host, now time.Time) error {
	old, err := readCertificate(h, kubeletClientPEM)
	if err != nil {
		return fmt.Errorf("reading the certificate of the kubelet: %w", err)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generating a key for the kubelet: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: old.Subject.CommonName, Organization: old.Subject.Organization}}, private)
	if err != nil {
		return fmt.Errorf("requesting a certificate for the kubelet: %w", err)
	}
	c, err := NodeClient(h)
	if err != nil {
		return err
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateRequestBlockType, Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	if err := c.Create(ctx, csr); err != nil {
		return fmt.Errorf("requesting a certificate for the kubelet: %w", err)
	}
	var signed []byte
	err = kube.WaitFor(ctx, c, csr.DeepCopy(), func(o client.Object) (bool, string) {
		now, there := kube.As[certificatesv1.CertificateSigningRequest](o)
		if there {
			signed = now.Status.Certificate
		}
		return len(signed) > 0, "the controller manager signs " + csr.Name
	}, func(string) {})
	if err != nil {
		return fmt.Errorf("requesting a certificate for the kubelet: %w", err)
	}
	cert, err := parseCertificate(signed)
	if err != nil {
		return fmt.Errorf("reading the certificate of the kubelet: %w", err)
	}
	if good, err := signedByFirst(h, cert, ClusterAuthority); err != nil || !good {
		return errors.Join(err, errors.New("requesting a certificate for the kubelet: it was signed by an authority other than the current one"))
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		return fmt.Errorf("encoding the key of the kubelet: %w", err)
	}
	return linkKubeletClient(h, slices.Concat(bytes.TrimSpace(signed), []byte("\n"), encoded), now)
}

// linkKubeletClient writes a kubelet certificate with its key, and links it as the kubelet does.
func linkKubeletClient(h *host.Host, pair []byte, now time.Time) error {
	name := filepath.Join(filepath.Dir(kubeletClientPEM), "kubelet-client-"+now.UTC().Format("2006-01-02-15-04-05")+".pem")
	if err := h.Files.Replace(name, pair, 0o600); err != nil {
		return err
	}
	if err := disk.Symlink(filepath.Base(name), h.Files.Path(kubeletClientPEM)); err != nil {
		return fmt.Errorf("linking the certificate of the kubelet: %w", err)
	}
	return kubeletReads(h)
}

// TakenUp reports whether the container of a static pod started after the newest of the files that it reads at startup.
func TakenUp(ctx context.Context, h *host.Host, pod string, files ...string) (bool, error) {
	running, err := staticContainers(ctx, h, []string{pod})
	c := running[pod]
	return c != nil && startedAfter(c, newest(h, files...)), err
}

// newest returns when the newest of the files was written; it skips missing ones.
func newest(h *host.Host, files ...string) (at time.Time) {
	for _, f := range files {
		if st, err := h.Files.Stat(f); err == nil && st.ModTime().After(at) {
			at = st.ModTime()
		}
	}
	return at
}

// ManagerFiles returns the files that the controller manager reads at startup.
func ManagerFiles() []string {
	return []string{manifest(constants.KubeControllerManager), pkiDir + "/ca.crt", pkiDir + "/ca.key", signerFile, kubernetesDir + "/controller-manager.conf"}
}

// SchedulerFiles returns the files that the scheduler reads at startup.
func SchedulerFiles() []string { return []string{kubernetesDir + "/scheduler.conf"} }

// EtcdFiles returns the files of etcd's CA, which etcd and the API server read only at startup. They reload the certificates that it signed at run time.
func EtcdFiles() []string { return []string{pkiDir + "/" + EtcdAuthority + ".crt"} }

// TakeUpEtcd restarts this node's etcd like TakeUp, but only once all members answer: if one does not, the others may lose the majority meanwhile.
func TakeUpEtcd(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	limited, cancel := context.WithTimeout(ctx, ReloadPatience)
	defer cancel()
	err := await(limited, h, r, constants.Etcd, probeEtcd, nil, diagnosePod(constants.Etcd))
	if err == nil {
		return TakeUp(ctx, h, r, constants.Etcd)
	}
	return finding.Failed(ctx, err, "OCA-4420", "etcd of node "+h.Config.Node.Name+" cannot be restarted now",
		"ocadm etcd status shows the members; repair the one that does not answer, or remove its node: ocadm node remove NAME; then run the same command again")
}

// TakeUp restarts the static pod and waits until it is healthy. A changed manifest restarts the pod by itself.
func TakeUp(ctx context.Context, h *host.Host, r workflow.Reporter, pod string) error {
	running, err := staticContainers(ctx, h, []string{pod})
	if err != nil {
		return err
	}
	if c := running[pod]; c != nil && !created(c).Before(newest(h, manifest(pod))) {
		if err := RestartStaticPod(ctx, h, r, pod); err != nil {
			return err
		}
	}
	if err := awaitSettled(ctx, h, r, pod); err != nil {
		return err
	}
	r.Changed("%s uses the current authorities", pod)
	return nil
}

// StopContainers stops the containers of a static pod that started before its files were written; the kubelet restarts them.
func StopContainers(ctx context.Context, h *host.Host, r workflow.Reporter, pod string, files ...string) error {
	list, err := staleContainers(ctx, h, pod, files...)
	if err != nil {
		return err
	}
	for _, c := range list {
		if err := stopContainer(ctx, h, pod, c); err != nil {
			return err
		}
		r.Changed("restarted container %s of %s", c.GetLabels()[containerNameLabel], pod)
	}
	return nil
}

// StaleContainers returns the names of those containers.
func StaleContainers(ctx context.Context, h *host.Host, pod string, files ...string) ([]string, error) {
	list, err := staleContainers(ctx, h, pod, files...)
	return lists.Map(list, func(c *cri.Container) string { return c.GetLabels()[containerNameLabel] }), err
}

// KubeletStale reports whether the kubelet started before its kubeconfig was written.
func KubeletStale(ctx context.Context, h *host.Host) (bool, error) {
	res, err := h.Systemctl(ctx, "show", "kubelet", "--property=ExecMainStartTimestampMonotonic", "--value")
	if err != nil {
		return false, err
	}
	since, err := strconv.ParseInt(strings.TrimSpace(res.Stdout), 10, 64)
	if err != nil || since == 0 {
		return true, nil //nolint:nilerr // not running
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return false, fmt.Errorf("reading the clock: %w", err)
	}
	began := time.Now().Add(-time.Duration(now.Nano()) + time.Duration(since)*time.Microsecond)
	return began.Before(newest(h, KubeletKubeconfig)), nil
}

// markKubelet makes the kubelet stale, because it keeps using the certificate that it has read.
func markKubelet(h *host.Host) error {
	now := time.Now()
	if err := os.Chtimes(h.Files.Path(KubeletKubeconfig), now, now); err != nil {
		return fmt.Errorf("marking the kubelet for a restart: %w", err)
	}
	return nil
}

// RestartKubelet restarts the kubelet and waits until it has renewed its node's lease.
func RestartKubelet(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	at := time.Now()
	if err := h.Start(ctx, r, "kubelet", true); err != nil {
		return err
	}
	c, err := NodeClient(h)
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.Config.Node.Name}}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	err = kube.WaitFor(ctx, c, node, func(o client.Object) (bool, string) {
		n, there := kube.As[corev1.Node](o)
		if !there {
			return false, "there is no such node"
		}
		cond := kube.ReadyCondition(n)
		return cond.Status == corev1.ConditionTrue && !cond.LastHeartbeatTime.Time.Before(at.Truncate(time.Second)), "its kubelet has not reported"
	}, func(why string) { r.Waiting("node "+node.Name, why) })
	if err == nil || errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	return explained(ctx, h, diagnoseKubelet, err)
}

// APIServerTakes returns why this node's API server does not serve with its certificate and accept exactly the current CAs, "" if it does. A server names the CAs of
// accepted client certificates in the handshake.
func APIServerTakes(ctx context.Context, h *host.Host, t Trust) string {
	if why := serves(constants.KubeAPIServer)(ctx, h); why != "" {
		return why
	}
	want, accepted := map[string]bool{}, map[string]bool{} // by subject
	for name, raw := range t.Certs {
		if name == EtcdAuthority {
			continue // it signs no client certificates for the API server
		}
		list, err := certutil.ParseCertsPEM(raw)
		if err != nil {
			return err.Error()
		}
		for _, c := range list {
			want[string(c.RawSubject)] = true
		}
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: &tls.Config{
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, //nolint:gosec // serves has compared the certificate
		GetClientCertificate: func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			for _, subject := range info.AcceptableCAs {
				accepted[string(subject)] = true
			}
			return &tls.Certificate{}, nil
		},
	}}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", LocalEndpoint(h))
	if err != nil {
		return err.Error()
	}
	_ = conn.Close() // no pending writes
	if !maps.Equal(want, accepted) {
		return "it still accepts other certificate authorities"
	}
	return ""
}

// AwaitAPIServer waits until APIServerTakes returns "".
func AwaitAPIServer(ctx context.Context, h *host.Host, r workflow.Reporter, t Trust) error {
	ctx, cancel := context.WithTimeout(ctx, ReloadPatience)
	defer cancel()
	err := await(ctx, h, r, constants.KubeAPIServer, func(ctx context.Context, h *host.Host) string { return APIServerTakes(ctx, h, t) }, nil,
		diagnosePod(constants.KubeAPIServer))
	return finding.Failed(ctx, err, "OCA-4410", "The API server of node "+h.Config.Node.Name+" does not load the certificate authorities",
		"kubectl -n kube-system logs kube-apiserver-"+h.Config.Node.Name+"; then run the same command again")
}
