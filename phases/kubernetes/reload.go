// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"time"

	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// The API server and etcd reload their certificates at run time: serving certificates within a minute, client certificates for each new connection, and after five
// minutes at the latest. Only the controller manager and the scheduler, whose certificates are in kubeconfigs, are restarted.

const (
	// reloadPatience is longer than the minute in which the API server rereads its certificate.
	reloadPatience = 150 * time.Second
	dialTimeout    = 3 * time.Second
)

// takeStep makes a static pod use its renewed certificates.
func takeStep(pod string) RenewStep {
	if pod != constants.Etcd && pod != constants.KubeAPIServer {
		return restartStep(pod)
	}
	restart := restartStep(pod)
	return RenewStep{
		Name: restart.Name, Short: "Wait until " + pod + " uses its new certificate", Timeout: reloadPatience + restart.Timeout,
		Check: func(ctx context.Context, n *Renewal) (bool, error) {
			if n.restarts() {
				return restart.Check(ctx, n)
			}
			return serves(pod)(ctx, n.Host) == "", nil
		},
		Plan: workflow.Says[*Renewal]("wait until " + pod + " uses its new certificate"),
		Run: func(ctx context.Context, n *Renewal, r workflow.Reporter) error {
			if n.restarts() {
				return restart.Run(ctx, n, r)
			}
			limited, cancel := context.WithTimeout(ctx, reloadPatience)
			defer cancel()
			err := await(limited, n.Host, r, pod, serves(pod), nil, diagnosePod(pod))
			switch {
			case err == nil:
				r.Changed("%s uses its new certificate; it was not restarted", pod)
				return nil
			case ctx.Err() != nil:
				return err
			case n.Unattended:
				return finding.Errorf("OCA-4406", pod+" does not use its new certificate", "on this node: ocadm certs renew --all", "%w", err)
			}
			return restart.Run(ctx, n, r)
		},
	}
}

// restarts reports whether to restart even those that reload their certificates: with expired ones they may hang, and a restart costs nothing then.
func (n *Renewal) restarts() bool { return n.expired && !n.Unattended }

// serves returns why a static pod does not serve with the certificate on disk. It ignores an etcd that is not on this machine.
func serves(pod string) probe {
	return func(ctx context.Context, h *host.Host) string {
		if pod == constants.KubeAPIServer {
			if why := servesWith(ctx, h, localEndpoint(h.Config), pkiDir+"/apiserver.crt"); why != "" {
				return why
			}
			return probeAPIServer(ctx, h)
		}
		m, err := OwnEtcd(h)
		if err != nil {
			return ""
		}
		for at, file := range map[string]string{m.ClientURL: pkiDir + "/etcd/server.crt", m.PeerURL: pkiDir + "/etcd/peer.crt"} {
			u, err := url.Parse(at)
			if err != nil {
				return err.Error()
			}
			if why := servesWith(ctx, h, u.Host, file); why != "" {
				return why
			}
		}
		return ""
	}
}

// errSeen ends a handshake once the server has sent its certificate: etcd would refuse a client without a certificate.
var errSeen = errors.New("the certificate was seen")

// servesWith returns why a server does not serve with the certificate in a file.
func servesWith(ctx context.Context, h *host.Host, address, file string) string {
	want, err := readCertificate(h, file)
	if err != nil {
		return err.Error()
	}
	var seen *x509.Certificate
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: &tls.Config{
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, //nolint:gosec // the certificate itself is compared
		VerifyConnection: func(s tls.ConnectionState) error {
			seen = s.PeerCertificates[0]
			return errSeen
		},
	}}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = c.Close() // no pending writes
	}
	switch {
	case seen == nil:
		return err.Error()
	case !bytes.Equal(seen.Raw, want.Raw):
		return "it still shows the certificate that ends " + seen.NotAfter.UTC().Format(time.RFC3339)
	}
	return ""
}

// restartStep restarts a static pod that still uses a certificate older than the one on disk.
func restartStep(pod string) RenewStep {
	return RenewStep{
		Name: "restart-" + pod, Short: "Restart " + pod + " and wait until it is healthy", Timeout: startPatience + time.Minute,
		Check: func(ctx context.Context, n *Renewal) (bool, error) {
			list, err := Certificates(n.Host, time.Now(), n.Within)
			if err != nil {
				return false, err
			}
			files := lists.Pick(list, func(c Certificate) (string, bool) { return c.File, c.pod == pod }) // files that the pod reads
			return TakenUp(ctx, n.Host, pod, files...)
		},
		Plan: workflow.Says[*Renewal]("restart " + pod),
		Run: func(ctx context.Context, n *Renewal, r workflow.Reporter) error {
			if n.Alone || !n.expired {
				return RestartStaticPod(ctx, n.Host, r, pod)
			}
			limited, cancel := context.WithTimeout(ctx, othersPatience)
			defer cancel()
			err := RestartStaticPod(limited, n.Host, r, pod)
			if err != nil && ctx.Err() == nil {
				r.Info("%s does not answer yet; etcd may wait for the other control-plane nodes: run ocadm certs renew there", pod)
				return nil
			}
			return err
		},
	}
}
