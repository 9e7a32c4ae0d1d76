// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"slices"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
)

// Images are all images that init needs with a configuration, those of the cloud included where the caller has computed them.
func Images(c *config.Config) ([]string, error) {
	k8s, err := kubernetes.Images(c)
	if err != nil {
		return nil, err
	}
	more, err := addons.Images(c)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(k8s, more, []string{c.OperatorImage()}, c.Cloud.Images)
	slices.Sort(all)
	return slices.Compact(all), nil
}

func imagesOfControlPlane() node.ImageGroup {
	return node.ImageGroup{Name: "control-plane", Short: "Import the images of the control plane",
		Need: func(h *host.Host) ([]string, error) { return kubernetes.Images(h.Config) }}
}

func imagesOfAddons() node.ImageGroup {
	return node.ImageGroup{Name: "addons", Short: "Import the images of pod network, storage, web access and database",
		Need: func(h *host.Host) ([]string, error) { return addons.Images(h.Config) }}
}

func imagesOfTheCloud() node.ImageGroup {
	return node.ImageGroup{Name: "cloud", Short: "Import the images of the operator and the cloud",
		Need: func(h *host.Host) ([]string, error) {
			return append([]string{h.Config.OperatorImage()}, h.Config.Cloud.Images...), nil
		}}
}

func imagesOfWorker() node.ImageGroup {
	return node.ImageGroup{Name: "worker", Short: "Import the images that every node runs",
		Need: func(h *host.Host) ([]string, error) { return kubernetes.WorkerImages(h.Config) }}
}

// otherImages are all that the bundle has and this node may come to run: which cloud will be created later is not known yet. On join,
// images that run only on nodes with other roles are left out.
func otherImages() node.ImageGroup {
	return node.ImageGroup{Name: "others", Short: "Import the other images that this node may run",
		Need: func(h *host.Host) ([]string, error) {
			control, err := kubernetes.Images(h.Config)
			if err != nil {
				return nil, err
			}
			var out []string
			for _, i := range h.Bundle.Contents().Images {
				if !slices.Contains(control, i.Name) && runsHere(h.Config, i.Name) {
					out = append(out, i.Name)
				}
			}
			return out, nil
		}}
}

// runsHere reports whether a node with the roles of the configuration may run the image.
func runsHere(c *config.Config, image string) bool {
	roles := c.Cloud.ImageRoles[config.ImageName(image)]
	labels := kubernetes.NodeLabels(c, kubernetes.Worker)
	return len(roles) == 0 || slices.ContainsFunc(roles, func(role string) bool {
		return slices.Contains(labels, v1alpha1.NodeRolePrefix+role+"="+v1alpha1.Enable)
	})
}
