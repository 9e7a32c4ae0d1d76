// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	// ReloadPatience is longer than the minute in which the API server rereads its certificate, and than the restart of etcd and of the API server.
	ReloadPatience = 150 * time.Second
	dialTimeout    = 3 * time.Second
)

// takeStep makes a static pod use its renewed certificates.
func takeStep(pod string) RenewStep {
	if pod != constants.Etcd && pod != constants.KubeAPIServer {
		return restartStep(pod)
	}
	restart := restartStep(pod)
	return RenewStep{
		Name: restart.Name, Short: "Wait until " + pod + " uses its new certificate", Timeout: ReloadPatience + restart.Timeout,
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
			limited, cancel := context.WithTimeout(ctx, ReloadPatience)
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
			if why := servesWith(ctx, h, LocalEndpoint(h), pkiDir+"/apiserver.crt"); why != "" {
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

// servesWith returns why a server does not serve with the certificate in a file.
func servesWith(ctx context.Context, h *host.Host, address, file string) string {
	want, err := readCertificate(h, file)
	if err != nil {
		return err.Error()
	}
	shown, err := Shown(ctx, address)
	switch {
	case err != nil:
		return err.Error()
	case !shown.Equal(want):
		return "it still shows the certificate that ends " + shown.NotAfter.UTC().Format(time.RFC3339)
	}
	return ""
}

// Shown returns the certificate that a server shows, even to a client that it refuses, as etcd does one without a certificate. The server is not trusted with
// anything.
func Shown(ctx context.Context, address string) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var shown *x509.Certificate
	d := tls.Dialer{Config: &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // nothing is sent
		VerifyConnection: func(s tls.ConnectionState) error {
			shown = s.PeerCertificates[0]
			return nil
		},
	}}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close() // no pending writes
	}
	if shown == nil {
		return nil, err
	}
	return shown, nil
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
