// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"slices"

	"golang.org/x/mod/semver"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	kubeadmupgrade "k8s.io/kubernetes/cmd/kubeadm/app/phases/upgrade"

	"yunion.io/x/ocadm/internal/version"
)

// Skew returns why this program cannot upgrade a cluster from one version to another, "" if it can. kubelets are the kubelets' versions. The rules are kubeadm's
// (EnforceVersionPolicies, which is not called because it prints to standard output), except that downgrades are never allowed.
func Skew(from, to string, kubelets []string) string {
	f, ferr := utilversion.ParseSemantic(from)
	t, terr := utilversion.ParseSemantic(to)
	own, oerr := utilversion.ParseSemantic(version.Kubernetes)
	switch {
	case ferr != nil:
		return fmt.Sprintf("the version of the cluster, %q, is not a version", from)
	case terr != nil || oerr != nil || t.PreRelease() != "":
		return fmt.Sprintf("%q is not the version of a release", to)
	case t.LessThan(f):
		return fmt.Sprintf("%s is older than %s, which the cluster runs; Kubernetes cannot be downgraded", to, from)
	case t.Minor() > f.Minor()+kubeadmupgrade.MaximumAllowedMinorVersionUpgradeSkew:
		return fmt.Sprintf("%s is %d minor versions newer than %s, and Kubernetes can be upgraded by only one at a time", to, t.Minor()-f.Minor(), from)
	case own.LessThan(t):
		return fmt.Sprintf("this ocadm supports Kubernetes up to %s", version.Kubernetes)
	case own.Minor() > t.Minor():
		return fmt.Sprintf("this ocadm upgrades to %s only", semver.MajorMinor(version.Kubernetes))
	}
	for _, k := range slices.Compact(slices.Sorted(slices.Values(kubelets))) {
		if why := KubeletFits(k, to); why != "" {
			return why
		}
	}
	return ""
}

// KubeletFits returns why a kubelet cannot work with an API server, "" if it can: it must not be newer, nor more than three minor versions older.
func KubeletFits(kubelet, apiServer string) string {
	k, kerr := utilversion.ParseSemantic(kubelet)
	a, aerr := utilversion.ParseSemantic(apiServer)
	switch {
	case kerr != nil || aerr != nil:
		return fmt.Sprintf("the versions of the kubelet, %q, and of the API server, %q, cannot be compared", kubelet, apiServer)
	case k.Minor() > a.Minor():
		return fmt.Sprintf("a kubelet %s is newer than an API server %s", kubelet, apiServer)
	case a.Minor() > k.Minor()+kubeadmupgrade.MaximumAllowedMinorVersionKubeletSkew:
		return fmt.Sprintf("a kubelet %s is more than %d minor versions older than an API server %s",
			kubelet, kubeadmupgrade.MaximumAllowedMinorVersionKubeletSkew, apiServer)
	}
	return ""
}
