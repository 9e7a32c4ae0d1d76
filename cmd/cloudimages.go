// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/phases/cloud"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/preflight"
	"yunion.io/x/ocadm/phases/vip"
)

// allImages returns, sorted, the images that init needs with a configuration, including those of the cloud, and of a virtual address, which may be
// added later.
func allImages(c *config.Config) ([]string, error) {
	config.Complete(c, config.Machine{Hostname: "node", Address: "192.0.2.1"}) // no image depends on them
	if err := config.Validate(c, config.ForInit); err != nil {
		return nil, err
	}
	of, err := imagesOfCloud(c)
	if err != nil {
		return nil, err
	}
	c.Cloud.Images = of
	list, err := preflight.Images(c, preflight.Init)
	if err != nil {
		return nil, err
	}
	later, err := vip.Image(c)
	return lists.Distinct(append(list, later)), err
}

// imagesOfCloud returns the sorted images of the objects that the operator would render for the configured cloud, if any. The installer must not
// import the operator; this package may.
func imagesOfCloud(c *config.Config) ([]string, error) {
	if c.Cloud.Version == "" {
		return nil, nil
	}
	text, err := manifestOf(c)
	if err != nil {
		return nil, err
	}
	return imagesOf(text)
}

func manifestOf(c *config.Config) ([]byte, error) {
	text, err := yaml.Marshal(cluster.Manifest(cloud.Options(c)))
	if err != nil {
		return nil, fmt.Errorf("writing the cloud's resource: %w", err)
	}
	return text, nil
}

// renderedCloud returns the objects that the operator would render for a cloud's resource.
func renderedCloud(text []byte) ([]map[string]any, error) {
	objs, err := renderCloud(text)
	if err != nil {
		return nil, err
	}
	out := make([]map[string]any, len(objs))
	for i, o := range objs {
		if out[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(o); err != nil {
			return nil, fmt.Errorf("reading %s: %w", o.GetName(), err)
		}
	}
	return out, nil
}

// imagesOf returns the sorted images of the objects that the operator would render for a cloud's resource.
func imagesOf(text []byte) ([]string, error) {
	objs, err := renderedCloud(text)
	return lists.Distinct(slices.Concat(lists.Map(objs, func(o map[string]any) []string { return imagesIn(o) })...)), err
}

// joinImages reads the networks of the cluster, finds its depot, and determines which roles run which images, so that join imports only what this
// node runs. Preflight reports a control plane or a depot that does not answer.
func joinImages(ctx context.Context, _ *app, h *host.Host) error {
	member, err := kubernetes.MemberOf(ctx, h)
	if ctx.Err() != nil {
		return err
	}
	networks := member.Networks // none after an error
	// Preflight compares only known networks with the machine's.
	h.Config.Cluster.PodNetworkCIDR, h.Config.Cluster.ServiceCIDR = "", ""
	config.OfCluster(h.Config, networks.PodSubnet, networks.ServiceSubnet, networks.DNSDomain)
	if err == nil && depot.Wanted(h.Config) {
		if h.Depot, err = depot.ConnectAs(ctx, h, member); ctx.Err() != nil {
			return err
		}
	}
	if h.Source() == nil {
		return nil
	}
	roles, err := imageRoles()
	h.Config.Cloud.ImageRoles = roles
	return err
}

// knownVersion is a release with every current component; the names of images do not depend on it.
const knownVersion = "v4.0.3"

// imageRoles returns the node roles that run an image, by the image's name without registry and tag. An empty list means every node. A joining
// machine does not know the cluster's cloud, so the images of every edition are included; an image that is not in the map may run anywhere.
func imageRoles() (map[string][]string, error) {
	out := map[string][]string{"traefik": {cluster.RoleController}, "mariadb": {cluster.RoleController}, "keepalived": {cluster.RoleController}}
	everywhere := map[string]bool{}
	for _, edition := range []string{"ce", "ee"} {
		c := config.Default()
		c.Cloud.Version, c.Cloud.Edition = knownVersion, edition
		config.Complete(&c, config.Machine{Hostname: "node", Address: "192.0.2.1"}) // no image depends on them
		text, err := manifestOf(&c)
		if err != nil {
			return nil, err
		}
		objs, err := renderedCloud(text)
		if err != nil {
			return nil, err
		}
		for _, o := range objs {
			roles := rolesIn(o)
			for _, image := range imagesIn(o) {
				name := config.ImageName(image)
				everywhere[name] = everywhere[name] || len(roles) == 0
				out[name] = append(out[name], roles...)
			}
		}
	}
	for _, c := range catalog.All() { // those that are off by default or gone
		if name := cmp.Or(c.Image.Name, c.Name); !everywhere[name] && out[name] == nil && c.Workload.NodeRole != "any" {
			out[name] = strings.Split(cmp.Or(c.Workload.NodeRole, cluster.RoleController), ",")
		}
	}
	for name := range out {
		out[name] = lists.Distinct(out[name])
		if everywhere[name] {
			out[name] = nil
		}
	}
	return out, nil
}

// rolesIn returns the roles that an object requires of its nodes: our labels anywhere in a node selector.
func rolesIn(v any) []string {
	var out []string
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			role, ours := strings.CutPrefix(key, v1alpha1.NodeRolePrefix)
			switch {
			case ours && child == v1alpha1.Enable:
				out = append(out, role)
			case key == "key" && v["operator"] == "In":
				if s, _ := child.(string); strings.HasPrefix(s, v1alpha1.NodeRolePrefix) {
					out = append(out, strings.TrimPrefix(s, v1alpha1.NodeRolePrefix))
				}
			case key != "preferredDuringSchedulingIgnoredDuringExecution":
				out = append(out, rolesIn(child)...)
			}
		}
	case []any:
		for _, child := range v {
			out = append(out, rolesIn(child)...)
		}
	}
	return out
}

// imagesIn returns the images of the containers anywhere in an object.
func imagesIn(v any) []string {
	var out []string
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			if key != "containers" && key != "initContainers" {
				out = append(out, imagesIn(child)...)
				continue
			}
			list, _ := child.([]any)
			for _, c := range list {
				if m, ok := c.(map[string]any); ok {
					if image, ok := m["image"].(string); ok && image != "" {
						out = append(out, image)
					}
				}
			}
		}
	case []any:
		for _, child := range v {
			out = append(out, imagesIn(child)...)
		}
	}
	return out
}
