// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/upgrade"
)

type addonFlags struct {
	stepFlags
	source    sourceFlags
	skip      []string
	overwrite bool
}

type upgradedAddons struct {
	Addons []addons.Installed `json:"addons"`
	stepsRun
}

func newUpgradeAddons(a *app) *cobra.Command {
	var f addonFlags
	c := &cobra.Command{
		Use: "addons", Short: "Upgrade the pod network, storage and web access",
		Long: "Upgrades flannel, the local-path provisioner and Traefik to the versions in this ocadm, if ocadm installed them. Their settings stay: the networks and\n" +
			"the kind of backend, the directories of volumes, the private registry and its credentials. Run it on a control-plane node, once all nodes are\n" +
			"upgraded. The images come from the bundle, or from the depot of this node, or are pulled.\n\n" +
			"The addons are upgraded one after another. Pods keep their addresses and connections; volumes are not touched. If an addon does not become\n" +
			"ready, its previous version is restored. The embedded database is not upgraded: its data has a version, too.",
		Example: "  # show what would be done\n  ocadm upgrade addons --bundle ocadm.bundle --dry-run\n\n  ocadm upgrade addons --bundle ocadm.bundle\n\n" +
			"  # do not upgrade the pod network\n  ocadm upgrade addons --skip cni",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := knownAddons(f.skip); err != nil {
				return err
			}
			return a.onUpgradeHost(c.Context(), f.source, f.dryRun, func(h *host.Host) error { return a.upgradeAddons(c, h, f) })
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.source.bundle, "bundle", "", "bundle `FILE` with the images; without it, the depot of this node")
	c.Flags().StringVar(&f.source.key, "bundle-key", "", "public key, in PEM, with which the bundle must be signed")
	c.Flags().StringSliceVar(&f.skip, "skip", nil, "addons that are not upgraded: "+strings.Join(addonNames(), ", "))
	c.Flags().BoolVar(&f.overwrite, "overwrite", false, "replace changes that users or other programs made to the objects of an addon")
	return c
}

func addonNames() []string {
	return lists.Map(addons.Upgradable(), func(a addons.Addon) string { return a.Name })
}

func knownAddons(names []string) error {
	for _, n := range names {
		if !slices.Contains(addonNames(), n) {
			return misspelt(fmt.Sprintf("--skip: no addon is named %q", n), n, addonNames(), "addons: "+strings.Join(addonNames(), ", "))
		}
	}
	return nil
}

// installedAddons compares the addons of the cluster with those of this release.
func installedAddons(ctx context.Context, h *host.Host, leave ...string) ([]addons.Installed, error) {
	k, err := h.Kube(ctx)
	if err != nil {
		return nil, noCluster(err)
	}
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	list, err := addons.FindInstalled(asking, k, h.Config, leave...)
	return list, kube.Explain(err)
}

func (a *app) upgradeAddons(c *cobra.Command, h *host.Host, f addonFlags) error {
	ctx := c.Context()
	if !kubernetes.IsControlPlane(h) {
		return upgrade.NotControlPlane()
	}
	k, err := h.Kube(ctx)
	if err != nil {
		return noCluster(err)
	}
	version, err := kubernetes.ClusterVersion(ctx, k)
	if err != nil {
		return kube.Explain(err)
	}
	if err := kubernetes.AsTheCluster(ctx, h, k, version); err != nil {
		return kube.Explain(err)
	}
	list, err := installedAddons(ctx, h, f.skip...)
	if err != nil {
		return err
	}
	if err := mayUpgrade(ctx, h, k, list, f.overwrite); err != nil {
		return err
	}
	u := &upgrade.Upgrade{Host: h, K: k, ControlPlane: true}
	if u.Target, err = upgrade.NewTarget(ctx, h, version, ""); err != nil {
		return err
	}
	if lines := addonLines(list); len(lines) > 0 {
		if err := a.confirmSteps(c, f.stepFlags, "Nothing was upgraded", "This upgrades "+strings.Join(lines, "; ")); err != nil {
			return err
		}
	}
	run, err := runSteps(ctx, a, h, "upgrade addons", nil, upgrade.AddonSteps(list), u, f.stepFlags)
	if err != nil {
		return kube.Explain(err)
	}
	return a.printSteps(f.stepFlags, upgradedAddons{list, run}, "Nothing to do: the addons already match this ocadm")
}

// mayUpgrade refuses upgrades that would fail halfway, before anything is changed.
func mayUpgrade(ctx context.Context, h *host.Host, k client.Client, list []addons.Installed, overwrite bool) error {
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := upgrade.MayUpgradeAddons(asking, h, k)
	if err != nil {
		return err
	}
	found = append(found, addons.Unusable(list)...)
	if !overwrite {
		conflicts, err := addons.Conflicts(asking, k, list)
		if err != nil {
			return kube.Explain(err)
		}
		found = append(found, conflicts...)
	}
	return found.Err()
}

// addonLines describes what an upgrade does: "cni (flannel v0.28.3 → v0.28.4)".
func addonLines(list []addons.Installed) (lines []string) {
	for _, i := range list {
		if len(i.Changes) == 0 {
			continue
		}
		what := "settings"
		if newer := newerImages(i); len(newer) > 0 {
			what = strings.Join(newer, ", ")
		}
		lines = append(lines, i.Name+" ("+what+")")
	}
	return lines
}

func newerImages(i addons.Installed) (out []string) {
	runs := map[string]string{}
	for _, image := range i.From {
		r := images.Split(image)
		runs[r.Repository] = r.Tag
	}
	for _, image := range i.To {
		r := images.Split(image)
		if is, there := runs[r.Repository]; there && is != r.Tag {
			out = append(out, r.Repository+" "+is+" → "+r.Tag)
		}
	}
	return out
}
