// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"path"
	"slices"

	"yunion.io/x/ocadm/internal/images"
)

// InForce leaves out those images of the depot that only releases have which the cluster does not run: of an image with several tags, those
// that the pods of the control-plane node use. An image that none of them uses, such as one of compute nodes alone, has the tag that its neighbours in the
// registry have. What that does not decide stays.
func (r *Remote) InForce() []string {
	var names []string
	for _, i := range r.contents.Images {
		names = append(names, i.Name)
	}
	return inForce(names, r.inUse)
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
