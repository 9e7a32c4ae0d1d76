// SPDX-License-Identifier: Apache-2.0

package servicespec

import "strings"

// VersionVariable names the version that a program plays: its image sets it, as one program serves every version.
const VersionVariable = "STANDIN_VERSION"

// Version is the version that an image plays: its tag.
func Version(image string) string { return image[strings.LastIndex(image, ":")+1:] }
