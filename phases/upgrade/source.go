// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	depotphase "yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/host"
)

// The sources of a Target.
const (
	SourceBundle   = "bundle"
	SourceDepot    = "depot"
	SourceInternet = "internet"
)

// depotPatience is how long a node waits until its depot has what the first node installed: depots synchronize within half a minute.
const depotPatience = 3 * time.Minute

// NewTarget returns the version that the cluster would run: that of h's bundle, else wanted, which is downloaded, else the newest in this machine's
// depot. h then installs from that source.
func NewTarget(ctx context.Context, h *host.Host, cluster, wanted string) (Target, error) {
	switch {
	case h.Bundle != nil:
		info := h.Bundle.Contents().Info
		if err := h.Bundle.CheckPlatform(h.Facts.Arch, wanted); err != nil {
			return Target{}, err
		}
		return Target{Version: info.KubernetesVersion, Source: SourceBundle, Name: "the bundle " + h.Bundle.Name(), Versions: info.Versions}, nil
	case wanted != "":
		return Target{Version: wanted, Source: SourceInternet, Name: "the projects' release pages"}, nil
	}
	have, err := depotVersions(ctx, h)
	if err != nil {
		return Target{}, err
	}
	t := Target{Version: cluster, Source: SourceDepot, Name: "the depot of this node"}
	for _, v := range have {
		if semver.Compare(v, t.Version) > 0 {
			t.Version = v
		}
	}
	return t, nil
}

// depotVersions connects to this machine's depot, if any, and returns its versions of Kubernetes.
func depotVersions(ctx context.Context, h *host.Host) ([]string, error) {
	if !depotphase.Has(h) {
		return nil, nil
	}
	d, err := depotphase.Connect(ctx, h)
	if err != nil {
		return nil, err
	}
	h.Depot = d
	return versionsIn(d), nil
}

func versionsIn(d *depot.Remote) []string {
	return lists.Pick(d.Contents().Images, func(i bundle.ImageInfo) (string, bool) {
		tag, ok := strings.CutPrefix(path.Base(i.Name), "kube-proxy:")
		return tag, ok && semver.IsValid(tag)
	})
}

// CheckSource returns a finding if the depot from which an interrupted upgrade would continue has other versions only: the cluster gets the version
// before the depot does. The programs there are older than those that this node may have by now, and would replace them.
func (u *Upgrade) CheckSource() error {
	if u.Target.Source != SourceDepot || u.Host.Depot == nil || slices.Contains(versionsIn(u.Host.Depot), u.Record.To) {
		return nil
	}
	return finding.New("OCA-4506", "The depot of this node does not have Kubernetes "+u.Record.To, "the upgrade was interrupted before it was stored there",
		"run the same command again with --bundle FILE, or with --kubernetes-version "+u.Record.To+" to download it: it continues")
}

// Follow connects h to the depot that has a version; it may lag a moment behind that of the first node. Without a depot, the version is downloaded. A
// bundle of h takes precedence.
func Follow(ctx context.Context, h *host.Host, version string, report func(why string)) (Target, error) {
	if h.Bundle != nil {
		t := Target{Version: version, Source: SourceBundle, Name: "the bundle " + h.Bundle.Name(), Versions: h.Bundle.Contents().Info.Versions}
		return t, h.Bundle.CheckPlatform(h.Facts.Arch, version)
	}
	if !depotphase.Wanted(h.Config) {
		return Target{Version: version, Source: SourceInternet, Name: "the projects' release pages"}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, depotPatience)
	defer cancel()
	err := wait.Until(ctx, "the depot", 2*time.Second, func(ctx context.Context) (bool, string, error) {
		d, err := depotphase.Connect(ctx, h)
		if err != nil {
			return false, "", err
		}
		for _, v := range versionsIn(d) {
			if v == version {
				h.Depot = d
				return true, "", nil
			}
		}
		return false, fmt.Sprintf("%s has no Kubernetes %s yet", d.Name(), version), nil
	}, report)
	if err == nil {
		return Target{Version: version, Source: SourceDepot, Name: h.Depot.Name()}, nil
	}
	return Target{}, finding.Failed(ctx, err, "OCA-4506", "No depot has Kubernetes "+version,
		"if ocadm upgrade apply ran a few minutes ago, the depot may still copy it: run the same command again; otherwise give --bundle FILE with that version; "+
			"or --depot none, to download it")
}
