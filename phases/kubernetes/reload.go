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
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// The API server and etcd read their certificates again while they run: those that they serve with within a minute, those that they show to others for
// each new connection, at the latest after five minutes. Only the controller manager and the scheduler, whose certificates lie in kubeconfigs, are restarted.

const (
	// reloadPatience is more than the minute in which the API server looks at its certificate again.
	reloadPatience = 150 * time.Second
	dialTimeout    = 3 * time.Second
)

// takeStep makes sure that a static pod uses its renewed certificates.
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

// restarts reports whether even those are restarted that read their certificates again: with expired ones they may hang, and nothing is lost by it.
func (n *Renewal) restarts() bool { return n.expired && !n.Unattended }

// serves returns why a static pod does not serve with the certificate on the disk. A pod that is elsewhere is none of ours.
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

// errSeen ends a handshake that has shown the certificate of the server: etcd would refuse one without a certificate of ours.
var errSeen = errors.New("the certificate was seen")

// servesWith returns why a server does not show the certificate in a file.
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
		_ = c.Close() // nothing was sent
	}
	switch {
	case seen == nil:
		return err.Error()
	case !bytes.Equal(seen.Raw, want.Raw):
		return "it still shows the certificate that ends " + seen.NotAfter.UTC().Format(time.RFC3339)
	}
	return ""
}

// restartStep restarts a static pod that runs with a certificate older than the one on the disk.
func restartStep(pod string) RenewStep {
	return RenewStep{
		Name: "restart-" + pod, Short: "Restart " + pod + " and wait until it is healthy", Timeout: startPatience + time.Minute,
		Check: func(ctx context.Context, n *Renewal) (bool, error) {
			list, err := Certificates(n.Host, time.Now(), n.Within)
			if err != nil {
				return false, err
			}
			var files []string // that the pod reads
			for _, c := range list {
				if c.pod == pod {
					files = append(files, c.File)
				}
			}
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
