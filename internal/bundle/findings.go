// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
)

// Finding codes of bundles.
const (
	CodeUnreadable    = "OCA-2301"
	CodeNotABundle    = "OCA-2302"
	CodeTruncated     = "OCA-2303"
	CodeCorrupt       = "OCA-2304"
	CodeWrongPlatform = "OCA-2305"
	CodeWrongVersion  = "OCA-2306"
	CodeMissingImages = "OCA-2307"
	CodeMissingFile   = "OCA-2308"
	CodeNoBase        = "OCA-2309"
	CodeSignature     = "OCA-2310"
)

const againRemedy = "copy or download the bundle again, then run: ocadm bundle verify %s"

func unreadable(name string, err error) error {
	return finding.Errorf(CodeUnreadable, fmt.Sprintf("Bundle %s cannot be read", name),
		"name a bundle that this user can read, on a local disk", "%w", err)
}

func notABundle(name, format string, args ...any) error {
	return finding.Errorf(CodeNotABundle, fmt.Sprintf("%s is not a bundle", name),
		"name a bundle, as ocadm bundle create makes it", format, args...)
}

func truncated(name, format string, args ...any) error {
	return finding.Errorf(CodeTruncated, fmt.Sprintf("Bundle %s is cut off", name), fmt.Sprintf(againRemedy, name), format, args...)
}

func corrupt(name, format string, args ...any) error {
	return finding.Errorf(CodeCorrupt, fmt.Sprintf("Bundle %s is damaged", name), fmt.Sprintf(againRemedy, name), format, args...)
}

func wrongPlatform(name string, platforms []string, arch string) error {
	return finding.New(CodeWrongPlatform, fmt.Sprintf("Bundle %s is for %s, not for linux/%s", name, strings.Join(platforms, ", "), arch), "",
		"use a bundle that was created with --arch "+arch)
}

func wrongVersion(name string, info Info, version string) error {
	return finding.New(CodeWrongVersion, fmt.Sprintf("Bundle %s is for Kubernetes %s, and %s is to be installed", name, info.KubernetesVersion, version), "",
		fmt.Sprintf("add --kubernetes-version %s; or use a bundle that was created with --kubernetes-version %s", info.KubernetesVersion, version))
}

func missingImages(name string, have, missing []string) error {
	return LackingImages(fmt.Sprintf("Bundle %s lacks %s that this run needs", name, lists.Counted(len(missing), "image")), "the bundle", have, missing,
		"use a bundle that contains them; this shows the content of this one: ocadm bundle list "+name)
}

// namedImages is how many missing images the cause names: the images of a cloud are dozens.
const namedImages = 3

// LackingImages returns the finding about images that a source, such as "the bundle", does not have. If it has most of them in another version, the
// cause says so. The evidence has all names, unless the cause does.
func LackingImages(what, source string, have, missing []string, remedy string) finding.Finding {
	shown := lists.Some(missing, namedImages)
	cause := strings.Join(shown, ", ")
	if is, wanted := otherVersion(have, missing); is != "" {
		cause = fmt.Sprintf("%s has the images of %s, and %s was requested: %s", source, is, wanted, cause)
	}
	f := finding.New(CodeMissingImages, what, cause, remedy)
	if len(missing) > len(shown) {
		return f.With(strings.Join(missing, ", "))
	}
	return f
}

// otherVersion returns the version that the source has of most missing images, and the missing one; "" if there is no such version.
func otherVersion(have, missing []string) (is, wanted string) {
	tags := map[string]string{}
	for _, image := range have {
		r := images.Split(image)
		tags[r.Repository] = r.Tag
	}
	count := map[[2]string]int{}
	for _, image := range missing {
		r := images.Split(image)
		if has := tags[r.Repository]; has != "" {
			pair := [2]string{has, r.Tag}
			if count[pair]++; 2*count[pair] > len(missing) {
				is, wanted = has, r.Tag
			}
		}
	}
	return is, wanted
}

func missingFile(name, path string) error {
	return finding.New(CodeMissingFile, fmt.Sprintf("Bundle %s lacks the file %s", name, path), "",
		"use a bundle that contains it; this shows the content of this one: ocadm bundle list "+name)
}

func noBase(name string, since *Since, err error) error {
	return finding.Errorf(CodeNoBase, fmt.Sprintf("Bundle %s needs the bundle %s, which is not in the same directory", name, since.Name),
		fmt.Sprintf("put the bundle with the ID %s into the same directory, under the name %s", since.ID, since.Name), "%w", err)
}

func badSignature(name, format string, args ...any) error {
	return finding.Errorf(CodeSignature, fmt.Sprintf("The signature of bundle %s cannot be trusted", name),
		"get the bundle, and the public key, again from its publisher; do not install from this one", format, args...)
}
