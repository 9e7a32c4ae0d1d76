// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"yunion.io/x/ocadm/internal/finding"
)

// Explain turns an error into a finding if the API server did not answer or denied access. It returns other errors unchanged.
func Explain(err error) error {
	if err == nil || len(finding.Of(err)) > 0 || errors.Is(err, context.Canceled) {
		return err
	}
	var to *url.Error
	var network *net.OpError
	switch {
	case errors.As(err, &to) && (errors.As(err, &network) || to.Timeout()):
		at := ""
		if u, perr := url.Parse(to.URL); perr == nil {
			at = " at " + u.Host
		}
		return finding.Finding{
			Code: "OCA-4203", Severity: finding.Error, What: "The API server" + at + " does not answer", Cause: to.Err.Error(),
			Remedy: "check the address in the kubeconfig, and that the control plane runs; on its node: journalctl -u kubelet -n 50; ls /var/log/pods", Err: err,
		}
	case apierrors.IsUnauthorized(err):
		return finding.Errorf("OCA-4204", "The API server rejects the credentials of the kubeconfig",
			"use a newer kubeconfig: --kubeconfig FILE", "%w", err)
	case apierrors.IsForbidden(err):
		return finding.Errorf("OCA-4205", "The account of the kubeconfig is not allowed to do this",
			"use an administrator's kubeconfig: --kubeconfig "+AdminKubeconfig, "%w", err)
	}
	return err
}
