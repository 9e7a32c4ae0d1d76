// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"yunion.io/x/ocadm/phases/host"
)

// The ledger has, for each phase of kubeadm that ended well, the digest of what kubeadm was given. A phase is done while that digest is
// the present one and its outputs are there (docs/decisions/0017-when-a-kubeadm-phase-is-done.md).

// digest is that of kubeadm's configuration and patches on this node. Tokens are left out: they change nothing that a phase makes.
func digest(h *host.Host, role Role) (string, error) {
	c := *h.Config
	c.Cluster.Token, c.Cluster.TokenTTL = "", 0
	render := func() ([]byte, error) { return documents(nodeRegistration(&c, Worker)) }
	if role == ControlPlane {
		render = func() ([]byte, error) { return RenderInit(&c) }
	}
	doc, err := render()
	if err != nil {
		return "", fmt.Errorf("rendering kubeadm's configuration: %w", err)
	}
	dns, err := CoreDNSPatch()
	if err != nil {
		return "", fmt.Errorf("rendering the patch of CoreDNS: %w", err)
	}
	sum := sha256.Sum256(bytes.Join([][]byte{doc, KubeletPatch(&c), dns}, []byte("\n---\n")))
	return hex.EncodeToString(sum[:8]), nil
}

// finished reports whether a phase ended well with the present configuration, and whether it ended well with another one.
func finished(h *host.Host, phase string, role Role) (now, before bool, err error) {
	e, noted := h.Ledger.Get(host.KindPhase, phase)
	if !noted {
		return false, false, nil
	}
	want, err := digest(h, role)
	return e.Detail == want, e.Detail != want, err
}

func noteFinished(h *host.Host, phase string, role Role) error {
	detail, err := digest(h, role)
	if err != nil {
		return err
	}
	if err := h.Ledger.Forget(host.KindPhase, phase); err != nil {
		return err
	}
	return h.Ledger.Record(host.Entry{Kind: host.KindPhase, Name: phase, Op: host.Found, Detail: detail})
}
