// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/config"
	depotphase "yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/phases/vip"
)

// bundleTimeout bounds reading a whole bundle: gigabytes, perhaps from a slow disk.
const bundleTimeout = 10 * time.Minute

func softwareChecks() []Check {
	return []Check{
		{Name: node.BundleCheck, Short: "the bundle is complete, is for this machine, and contains every image", Timeout: bundleTimeout,
			Codes: []string{bundle.CodeUnreadable, bundle.CodeNotABundle, bundle.CodeTruncated, bundle.CodeCorrupt,
				bundle.CodeWrongPlatform, bundle.CodeWrongVersion, bundle.CodeMissingImages, bundle.CodeMissingFile},
			Applies: func(_ Kind, c *config.Config) bool { return c.Node.Bundle != "" }, run: checkBundle},
		{Name: "Downloads", Short: "without a bundle, the checksum of every program to download is known",
			Codes: []string{artifacts.CodeUnpinned}, run: checkDownloads},
		{Name: "Images", Short: "without a bundle, registries have every image that this machine and the depot lack", Timeout: imagesTimeout,
			Codes:   []string{CodeUnreachable, CodeNoImage, CodeDenied, CodeBusy, node.CodeCredentials},
			Applies: func(_ Kind, c *config.Config) bool { return c.Node.Bundle == "" }, run: checkImages},
		{Name: "Depot", Short: "the cluster's depot answers when no bundle is given", Timeout: 30 * time.Second,
			Codes:   []string{depot.CodeRefused, depot.CodeUnreachable, depot.CodeWrongBlob, depot.CodeNoBlob, depot.CodeNoArchitecture},
			Applies: func(k Kind, c *config.Config) bool { return k == Join && depotphase.Wanted(c) }, run: checkDepot},
		{Name: "Containerd", Short: "an installed containerd is new enough and configured for Kubernetes",
			Codes: []string{"OCA-3001", node.CodeRuntimeUnusable, node.CodePauseImage, node.CodeNoMirrors}, run: checkContainerd},
	}
}

func checkBundle(ctx context.Context, m *machine) []finding.Finding {
	if m.h.Config.Node.BundleServed() {
		return checkServed(m)
	}
	b := m.h.Bundle
	if b == nil {
		opened, err := bundle.Open(ctx, m.h.Config.Node.Bundle)
		if err != nil {
			return bundleFindings(err)
		}
		defer func() { _ = opened.Close() }() // only read
		b = opened
	}
	out := bundleFindings(b.CheckPlatform(m.h.Facts.Arch, m.h.Config.Cluster.KubernetesVersion))
	if len(out) > 0 {
		return out // a bundle for another machine need not be read further
	}
	need, err := Images(m.h.Config, m.kind, b.Contents().Images...)
	if err != nil {
		return bundleFindings(err)
	}
	return append(bundleFindings(b.CheckImages(need)), bundleFindings(b.Verify(ctx, nil))...)
}

// checkServed checks only the names that the server has: content is checked against its digest as it arrives.
func checkServed(m *machine) []finding.Finding {
	s := m.h.Source()
	out := bundleFindings(s.CheckPlatform(m.h.Facts.Arch, m.h.Config.Cluster.KubernetesVersion))
	if len(out) > 0 {
		return out
	}
	need, err := Images(m.h.Config, m.kind, s.Contents().Images...)
	return append(bundleFindings(err), bundleFindings(s.CheckImages(need))...)
}

// checkDownloads checks the table of checksums. A joining node may get its programs from the depot.
func checkDownloads(ctx context.Context, m *machine) []finding.Finding {
	if m.h.Config.Node.Bundle != "" || m.kind == Join && depotphase.Wanted(m.h.Config) || !supported(m.h.Facts.Arch) {
		return nil
	}
	return finding.Of(node.Downloads(ctx, m.h))
}

func bundleFindings(err error) []finding.Finding {
	if err == nil {
		return nil
	}
	if l := finding.Of(err); len(l) > 0 {
		return l
	}
	what := "The bundle cannot be used"
	if errors.Is(err, context.DeadlineExceeded) {
		what = "The bundle could not be read in time"
	}
	return []finding.Finding{finding.New(bundle.CodeUnreadable, what, err.Error(), "copy it to a local disk and try again")}
}

// Images returns all images that a run needs on the machine: those of Kubernetes, a virtual address, the addons, the operator and the chosen cloud, sorted.
// from holds the images that join has available.
func Images(c *config.Config, kind Kind, from ...bundle.ImageInfo) ([]string, error) {
	if kind == Join {
		list, err := NodeImages(c, from...)
		return lists.Distinct(append(list, c.Cloud.Images...)), err
	}
	list, err := kubernetes.Images(c)
	if err != nil {
		return nil, err
	}
	address, err := vip.Images(c)
	if err != nil {
		return nil, err
	}
	more, err := addons.Images(c, addons.All()...)
	return lists.Distinct(slices.Concat(list, address, more, OperatorImages(c), c.Cloud.Images)), err
}

// OperatorImages returns the operator's image, unless that is this program.
func OperatorImages(c *config.Config) []string {
	if c.PacksOperator() {
		return nil
	}
	return []string{c.OperatorImage()}
}

// NodeImages returns the images that every node runs, whatever its roles. A joining node does not know the cluster's pod network: if from, the images of the
// depot or bundle, has others but none of flannel's, the cluster uses another network.
func NodeImages(c *config.Config, from ...bundle.ImageInfo) ([]string, error) {
	list, err := kubernetes.WorkerImages(c)
	if err != nil {
		return nil, err
	}
	network, err := addons.Images(c, addons.Network())
	if len(from) > 0 && len(without(network, imageNames(from))) == len(network) {
		return list, err
	}
	return append(list, network...), err
}

func imageNames(list []bundle.ImageInfo) []string {
	return lists.Map(list, func(i bundle.ImageInfo) string { return i.Name })
}

func without(list, have []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(i string) bool { return slices.Contains(have, i) })
}

// checkDepot reports why join did not find the depot. Other checks cover problems with the token or the control plane.
func checkDepot(ctx context.Context, m *machine) []finding.Finding {
	if m.h.Depot != nil || m.joined() {
		return nil
	}
	_, err := depotphase.Connect(ctx, m.h)
	return slices.DeleteFunc(finding.Of(err), func(f finding.Finding) bool {
		return !slices.Contains([]string{depot.CodeRefused, depot.CodeUnreachable, depot.CodeWrongBlob, depot.CodeNoBlob, depot.CodeNoArchitecture}, f.Code)
	})
}

// oldestContainerd is the first release that ocadm uses if already installed: the settings of 2.0 differ from those that it writes.
const oldestContainerd = "2.1.0"

func checkContainerd(ctx context.Context, m *machine) []finding.Finding {
	p, installed := m.h.Facts.Programs["containerd"]
	if !installed {
		return nil // ocadm will install it
	}
	have, err := version.ParseGeneric(p.Version)
	if err != nil || have.AtLeast(version.MustParseGeneric(oldestContainerd)) {
		// A version in an unknown format gets the benefit of the doubt. node-units checks an unreadable configuration again.
		return slices.Concat(finding.Of(node.RuntimeConfig(ctx, m.h)), finding.Of(node.PauseImage(ctx, m.h)), finding.Of(node.Hosts(ctx, m.h)))
	}
	return []finding.Finding{finding.New("OCA-3001", "The installed containerd is too old",
		fmt.Sprintf("%s is %s, and ocadm uses %s or later", p.Path, p.Version, oldestContainerd),
		"update it; or, if no other program such as Docker uses it, remove it, and ocadm installs its own: "+m.h.Facts.OS.Uninstall(p.Path))}
}
