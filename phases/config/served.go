// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/url"
	"regexp"
	"strings"
)

// BundleServed reports whether --bundle names a server of "ocadm bundle serve", not a file.
func (n Node) BundleServed() bool { return strings.Contains(n.Bundle, "://") }

func (v *validation) bundle() {
	n := v.c.Node
	if !n.BundleServed() {
		for key, value := range map[string]string{"node.bundleCAHash": n.BundleCAHash, "node.bundleToken": n.BundleToken} {
			if value != "" {
				v.add(key, "--bundle is not https://HOST:PORT")
			}
		}
		if n.BundleKey != "" && n.Bundle == "" {
			v.add("node.bundleKey", "it needs a --bundle to verify")
		}
		return
	}
	u, err := url.Parse(n.Bundle)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
		v.add("node.bundle", "it is neither a file nor https://HOST:PORT")
	}
	if !authorityHash.MatchString(n.BundleCAHash) {
		v.add("node.bundleCAHash", `it is not sha256: and 64 digits; "ocadm bundle serve" prints it`)
	}
	if n.BundleToken == "" {
		v.add("node.bundleToken", `it is missing; "ocadm bundle serve" prints it`)
	}
	if n.BundleKey != "" {
		v.add("node.bundleKey", "the server checks the signature: ocadm bundle serve FILE --key "+n.BundleKey)
	}
}

var authorityHash = regexp.MustCompile(`^sha256:[0-9a-fA-F]{64}$`)
