// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"path"
	"slices"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
)

// InForce returns the depot's images, without versions of releases that the cluster does not run. If an image has several tags, it keeps those used
// by pods of the control-plane node. If no pod uses the image, as with images of compute nodes only, it keeps the tags used by neighbours in the
// registry. Without such a hint it keeps all tags.
func (r *Remote) InForce() []string {
	return inForce(lists.Map(r.contents.Images, func(i bundle.ImageInfo) string { return i.Name }), r.inUse)
}

func inForce(all, used []string) []string {
	tags, usedTags, around := byRepository(all), byRepository(used), map[string][]string{}
	for repository, list := range usedTags {
		around[path.Dir(repository)] = append(around[path.Dir(repository)], list...)
	}
	return slices.DeleteFunc(slices.Clone(all), func(image string) bool {
		ref := images.Split(image)
		for _, wanted := range [][]string{usedTags[ref.Repository], around[path.Dir(ref.Repository)]} {
			if slices.ContainsFunc(tags[ref.Repository], func(t string) bool { return slices.Contains(wanted, t) }) {
				return !slices.Contains(wanted, ref.Tag)
			}
		}
		return false
	})
}

func byRepository(list []string) map[string][]string {
	out := map[string][]string{}
	for _, i := range list {
		ref := images.Split(i)
		out[ref.Repository] = append(out[ref.Repository], ref.Tag)
	}
	return out
}
