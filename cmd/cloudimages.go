// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/phases"
	"yunion.io/x/ocadm/phases/cloud"
	"yunion.io/x/ocadm/phases/config"
)

// allImages are the images that init needs with a configuration, those of the cloud included.
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
	return phases.Images(c)
}

// imagesOfCloud are the images that the cloud of a configuration will run, sorted: those of the objects that the operator would
// render. Without a cloud there are none. The installer may not know the operator; this package knows both.
func imagesOfCloud(c *config.Config) ([]string, error) {
	if c.Cloud.Version == "" {
		return nil, nil
	}
	text, err := yaml.Marshal(cluster.Manifest(cloud.Options(c)))
	if err != nil {
		return nil, fmt.Errorf("writing the cloud's resource: %w", err)
	}
	objs, err := renderCloud(text)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, o := range objs {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", o.GetName(), err)
		}
		out = append(out, imagesIn(u)...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// imagesIn finds the images of the containers anywhere in an object.
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
