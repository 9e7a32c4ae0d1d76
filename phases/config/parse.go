// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/kubelet/pkg/apis"

	"yunion.io/x/ocadm/internal/images"
)

var (
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	labelKey = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelVal = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

const maxDNSName = 253

// SplitEndpoint splits HOST[:PORT]. An IPv6 address needs brackets if a port follows. An empty endpoint has an empty host. Kubernetes accepts no capitals in a name.
func SplitEndpoint(s string, defaultPort int) (host string, port int, err error) {
	if s == "" {
		return "", 0, nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return a.String(), defaultPort, nil
	}
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			a, err := netip.ParseAddr(inner)
			if err != nil || !a.Is6() {
				return "", 0, fmt.Errorf("%q is not an IPv6 address", inner)
			}
			return a.String(), defaultPort, nil
		}
	}
	host, port = s, defaultPort
	if strings.Contains(s, ":") {
		h, p, err := net.SplitHostPort(s)
		if err != nil {
			return "", 0, fmt.Errorf("%q is not HOST[:PORT]; an IPv6 address with a port is written [ADDRESS]:PORT", s)
		}
		if port, err = Port(p); err != nil {
			return "", 0, err
		}
		host = h
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.String(), port, nil
	}
	if err := Hostname(host); err != nil {
		return "", 0, err
	}
	return strings.ToLower(host), port, nil
}

// HostOf returns the host of a possibly malformed endpoint: "host", "host:port", "[v6]" or "[v6]:port".
func HostOf(endpoint string) string {
	if h, _, err := net.SplitHostPort(endpoint); err == nil {
		return h
	}
	return strings.Trim(endpoint, "[]")
}

// Port parses a port number.
func Port(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a port; a port is 1 to 65535", s)
	}
	return int(n), nil
}

// Hostname returns an error if s is not a DNS name.
func Hostname(s string) error {
	if s == "" || len(s) > maxDNSName {
		return errors.New("a host name has 1 to 253 characters")
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if !dnsLabel.MatchString(strings.ToLower(label)) {
			return fmt.Errorf("%q is not a host name: %q does not consist of 1 to 63 letters, digits and inner hyphens", s, label)
		}
		last = label
	}
	if strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("%q is neither an address nor a host name", s)
	}
	return nil
}

// NodeName returns an error if s cannot be the name of a node. Machine names may have capitals and underscores, node names may not.
func NodeName(s string) error {
	if len(s) > maxDNSName {
		return errors.New("it is longer than 253 characters")
	}
	for label := range strings.SplitSeq(s, ".") {
		if !dnsLabel.MatchString(label) {
			return fmt.Errorf("%q does not consist of 1 to 63 lower case letters, digits and inner hyphens", label)
		}
	}
	return nil
}

// CIDR parses an address range, whose host bits must be zero.
func CIDR(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not an address range such as 10.40.0.0/16 or fd00:40::/56", s)
	}
	if p.Masked() != p {
		return netip.Prefix{}, fmt.Errorf("%s has bits below its prefix; the range is %s", s, p.Masked())
	}
	return p, nil
}

// CIDRs parses one range, or two comma-separated ranges of different families.
func CIDRs(s string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for part := range strings.SplitSeq(s, ",") {
		p, err := CIDR(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	if len(out) > 2 || len(out) == 2 && out[0].Addr().Is4() == out[1].Addr().Is4() {
		return nil, fmt.Errorf("%q: at most one IPv4 and one IPv6 range", s)
	}
	return out, nil
}

// ImageName returns the name of an image without registry, path, tag and digest: "keystone" for "registry.example.org:5000/cloud/keystone:v4".
func ImageName(ref string) string { return path.Base(images.Split(ref).Repository) }

// Labels parses labels of a node, each key=value, and returns an error for each wrong one. A key may not have two values.
func Labels(all []string) (labels map[string]string, errs []error) {
	labels = map[string]string{}
	for _, l := range all {
		key, value, err := Label(l)
		if old, ok := labels[key]; ok && old != value {
			err = fmt.Errorf("%s is given twice", key)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		labels[key] = value
	}
	return labels, errs
}

// Label parses the key=value of a node label. It refuses those of Kubernetes that a kubelet may not set, because it would not start.
func Label(s string) (key, value string, err error) {
	key, value, ok := strings.Cut(s, "=")
	if !ok {
		return "", "", fmt.Errorf("%q is not key=value", s)
	}
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		name = key
	} else if err := NodeName(prefix); err != nil {
		return "", "", fmt.Errorf("the label's prefix: %w", err)
	}
	if !labelKey.MatchString(name) {
		return "", "", fmt.Errorf("%q is not a valid label name", key)
	}
	if !labelVal.MatchString(value) {
		return "", "", fmt.Errorf("%q is not a valid label value", value)
	}
	domain := "." + prefix
	if prefixed && (strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io")) && !apis.IsKubeletLabel(key) {
		return "", "", fmt.Errorf("a kubelet does not start with label %s: set it later, with kubectl label node NAME %s", key, s)
	}
	return key, value, nil
}
