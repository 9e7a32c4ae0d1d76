// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"path"
	"slices"
	"strings"
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
		repository, tag := splitTag(image)
		for _, wanted := range [][]string{usedTags[repository], around[path.Dir(repository)]} {
			if slices.ContainsFunc(tags[repository], func(t string) bool { return slices.Contains(wanted, t) }) {
				return !slices.Contains(wanted, tag)
			}
		}
		return false
	})
}

func byRepository(images []string) map[string][]string {
	out := map[string][]string{}
	for _, i := range images {
		repository, tag := splitTag(i)
		out[repository] = append(out[repository], tag)
	}
	return out
}

func splitTag(image string) (repository, tag string) {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:]
	}
	return image, ""
}
