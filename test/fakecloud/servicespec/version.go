// SPDX-License-Identifier: Apache-2.0

package servicespec

import "strings"

// VersionVariable is the environment variable with the version to play. The image sets it, because one program plays all versions.
const VersionVariable = "STANDIN_VERSION"

// Version returns the version that an image plays: its tag.
func Version(image string) string { return image[strings.LastIndex(image, ":")+1:] }
