// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"yunion.io/x/ocadm/internal/finding"
)

// maxKubeletLag is how many minor versions a kubelet may be older than its API server.
const maxKubeletLag = 3

// versionFits reports whether a kubelet may join a control plane: never newer, and not too old.
func versionFits(kubelet, controlPlane string) error {
	k, err := version.ParseSemantic(kubelet)
	if err != nil {
		return fmt.Errorf("parsing the node's Kubernetes version: %w", err)
	}
	c, err := version.ParseSemantic(controlPlane)
	if err != nil {
		return fmt.Errorf("parsing the cluster's Kubernetes version: %w", err)
	}
	if k.Major() == c.Major() && k.Minor() <= c.Minor() && c.Minor()-k.Minor() <= maxKubeletLag {
		return nil
	}
	return finding.New("OCA-4109",
		fmt.Sprintf("This ocadm installs a kubelet %s, which does not fit the cluster's Kubernetes %s", kubelet, controlPlane),
		"a kubelet may be up to three minor versions older than the control plane, and never newer",
		"join with the ocadm, and the bundle, of the control plane")
}
