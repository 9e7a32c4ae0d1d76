// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"yunion.io/x/ocadm/internal/finding"
)

// Explain turns an error into a finding if the API server did not answer, denied access or rejected a value. It returns other errors unchanged.
func Explain(err error) error {
	if err == nil || len(finding.Of(err)) > 0 || errors.Is(err, context.Canceled) {
		return err
	}
	var to *url.Error
	_, network := errors.AsType[*net.OpError](err)
	switch {
	case errors.As(err, &to):
		// Other servers may be asked, too.
		if u, perr := url.Parse(to.URL); perr == nil && (network || to.Timeout() || strings.Contains(u.Path, "/api")) {
			return silent(u, to.Err, err)
		}
	case apierrors.IsUnauthorized(err):
		return finding.Errorf("OCA-4204", "The API server rejects the credentials of the kubeconfig",
			"use a newer kubeconfig: --kubeconfig FILE", "%w", err)
	case apierrors.IsForbidden(err):
		return finding.Errorf("OCA-4205", "The account of the kubeconfig is not allowed to do this",
			"use an administrator's kubeconfig: --kubeconfig "+AdminKubeconfig, "%w", err)
	case apierrors.IsInvalid(err):
		return finding.Errorf("OCA-7006", "The API server rejects a value", "correct the value that the message names, then run the command again", "%w", err)
	case Busy(err), strings.Contains(err.Error(), "etcdserver: ") && !strings.Contains(err.Error(), "is too large"):
		return finding.Errorf("OCA-4203", "The API server cannot serve requests at the moment", "run the command again; if that does not help: ocadm why", "%w", err)
	}
	return err
}

// Busy reports whether the API server answered that it cannot serve a request at the moment.
func Busy(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// silent returns the finding for an API server that gave no answer. at is the address of the request.
func silent(at *url.URL, cause, err error) finding.Finding {
	f := finding.New("OCA-4203", "The API server at "+at.Host+" does not answer", cause.Error(),
		"check the address in the kubeconfig, and that the control plane runs; on its node: journalctl -u kubelet -n 50; ls /var/log/pods").Wrap(err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	proxy, _ := httpproxy.FromEnvironment().ProxyFunc()(at)
	switch {
	case untrusted:
		f.What = "The certificate of the API server at " + at.Host + " cannot be verified"
		f.Remedy = "use the kubeconfig of this cluster: --kubeconfig FILE; if the certificate has expired, compare the clocks, and on its node: ocadm certs renew"
	case strings.HasPrefix(cause.Error(), "getting credentials: "):
		f.What = "The kubeconfig gives no credentials for the API server at " + at.Host
		f.Remedy = "correct users[].user.exec in the kubeconfig, or give --kubeconfig FILE"
	case proxy != nil:
		f.Remedy = "if it needs no proxy: export NO_PROXY=\"$NO_PROXY," + at.Hostname() + "\"; otherwise " + f.Remedy
	}
	return f
}
