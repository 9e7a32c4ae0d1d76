// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"strings"

	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// SignerTodo returns what must change in the manifest of the controller manager, "" if nothing.
func SignerTodo(h *host.Host, t Trust) string {
	if !IsControlPlane(h) {
		return ""
	}
	from, to := signerIn(h), t.signer()
	if from == "" || from == to {
		return ""
	}
	return "let the controller manager sign with " + to
}

func (t Trust) signer() string {
	if t.whole() {
		return pkiDir + "/ca.crt"
	}
	return signerFile
}

// signerIn returns the file with which the controller manager signs.
func signerIn(h *host.Host) string {
	for line := range strings.Lines(h.Files.Text(manifest(constants.KubeControllerManager))) {
		if _, file, ok := strings.Cut(strings.TrimSpace(line), signingFlag); ok {
			return file
		}
	}
	return ""
}

// WriteSigner changes the manifest of the controller manager; the kubelet restarts it.
func WriteSigner(h *host.Host, r workflow.Reporter, t Trust) error {
	if why := SignerTodo(h, t); why != "" {
		text := strings.Replace(h.Files.Text(manifest(constants.KubeControllerManager)), signingFlag+signerIn(h), signingFlag+t.signer(), 1)
		if err := h.Files.Replace(manifest(constants.KubeControllerManager), []byte(text), 0o600); err != nil {
			return err
		}
		r.Changed("changed %s", manifest(constants.KubeControllerManager))
	}
	return nil
}

// SignerLeft reports whether the signer file still exists but is no longer needed.
func SignerLeft(h *host.Host, t Trust) bool {
	return t.whole() && h.Files.Exists(signerFile) && signerIn(h) != signerFile
}

// RemoveSigner removes a signer file that is no longer needed.
func RemoveSigner(h *host.Host, r workflow.Reporter, t Trust) error {
	if !SignerLeft(h, t) {
		return nil
	}
	if err := h.Files.Remove(signerFile); err != nil {
		return fmt.Errorf("removing the file of the signer: %w", err)
	}
	r.Changed("removed %s", signerFile)
	return nil
}
