// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ownimage"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
	"yunion.io/x/ocadm/phases/preflight"
	"yunion.io/x/ocadm/phases/vip"
)

func imagesOfControlPlane() node.ImageGroup {
	return node.ImageGroup{Name: "control-plane", Short: "Import or pull the images of the control plane",
		Need: func(h *host.Host) ([]string, error) { return kubernetes.Images(h.Config) }}
}

func imageOfKeepalived() node.ImageGroup {
	return node.ImageGroup{Name: "keepalived", Short: "Import or pull the image for the virtual address of the control plane",
		Need: func(h *host.Host) ([]string, error) { return vip.Images(h.Config) }}
}

func imagesOfAddons() node.ImageGroup {
	return node.ImageGroup{Name: "addons", Short: "Import or pull the images of pod network, storage, web access and database",
		Need: func(h *host.Host) ([]string, error) { return addons.Images(h.Config, addons.All()...) }}
}

// imageOfTheOperator is the image of this program. The operator may run on every node.
func imageOfTheOperator() node.ImageGroup {
	return node.ImageGroup{Name: "operator", Short: "Pack this program as the operator's image and import it", Own: true,
		Need: func(h *host.Host) ([]string, error) {
			if !h.Config.PacksOperator() {
				return nil, nil
			}
			return ownName(h.Config.OperatorImage())
		}}
}

// BringOperator imports this program under the name of an image if the machine is a node with containerd, and reports whether it is. A control-plane node
// also stores the image in its depot, if it has one, from which the other nodes pull it.
func BringOperator(ctx context.Context, h *host.Host, r workflow.Reporter, image string) (imported, stored bool, err error) {
	g := imageOfTheOperator()
	g.Need = func(*host.Host) ([]string, error) { return ownName(image) }
	if !h.Files.Exists(kubernetes.KubeletKubeconfig) {
		return false, false, nil
	}
	if imported, err = g.Bring(ctx, h, r); err != nil || !imported {
		return imported, false, err
	}
	stored, err = depot.StoreProgram(ctx, h, r, image)
	return imported, stored, err
}

func ownName(image string) ([]string, error) {
	ref, err := ownimage.Reference(image, version.Version, false)
	return []string{ownimage.FullName(ref)}, err
}

// imagesOfTheCloud are the images that the operator waits for. Pulling dozens of images from registries takes long, so without a bundle it waits only
// for its own.
func imagesOfTheCloud() node.ImageGroup {
	return node.ImageGroup{Name: "cloud", Short: "Import or pull the images of the operator and the cloud",
		Need: func(h *host.Host) ([]string, error) {
			list := preflight.OperatorImages(h.Config)
			if h.Bundled() {
				list = append(list, h.Config.Cloud.Images...)
			}
			return list, nil
		}}
}

func imagesOfWorker() node.ImageGroup {
	return node.ImageGroup{Name: "worker", Short: "Import or pull the images that every node runs",
		Need: func(h *host.Host) ([]string, error) {
			var from []bundle.ImageInfo
			if s := h.Source(); s != nil {
				from = s.Contents().Images
			}
			return preflight.NodeImages(h.Config, from...)
		}}
}

// otherImages are the other images of the bundle or the cloud that this node may run. Which cloud will be created is not known yet. On join, they
// exclude images that run only on nodes with other roles, or only in releases that the cluster does not run.
func otherImages() node.ImageGroup {
	return node.ImageGroup{Name: "others", Short: "Import or pull the other images that this node may run", Optional: true,
		Need: func(h *host.Host) ([]string, error) {
			control, err := kubernetes.Images(h.Config)
			if err != nil {
				return nil, err
			}
			all := slices.Clone(h.Config.Cloud.Images)
			if s := h.Source(); s != nil {
				all = lists.Map(s.Contents().Images, func(i bundle.ImageInfo) string { return i.Name })
			}
			if h.Depot != nil && h.Bundle == nil {
				all = h.Depot.InForce()
			}
			return slices.DeleteFunc(all, func(i string) bool {
				// Excluded even if the bundle has one; the depot may have those of several releases.
				own := i == h.Config.OperatorImage() && h.Config.PacksOperator() || h.Depot != nil && config.ImageName(i) == "ocadm"
				return own || slices.Contains(control, i) || !runsHere(h.Config, i)
			}), nil
		}}
}

// runsHere reports whether a node with the roles of the configuration may run the image.
func runsHere(c *config.Config, image string) bool {
	roles := c.Cloud.ImageRoles[config.ImageName(image)]
	labels := kubernetes.NodeLabels(c, kubernetes.JoinRole(c))
	return len(roles) == 0 || slices.ContainsFunc(roles, func(role string) bool {
		return slices.Contains(labels, v1alpha1.NodeRolePrefix+role+"="+v1alpha1.Enable)
	})
}
