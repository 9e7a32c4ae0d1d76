// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/api/resource"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/version"
)

// KeepImages makes reset keep container images for the next init.
const KeepImages = "images"

// shortestValidity is the minimum lifetime of certificates. The API server rereads its kubelet client certificate every five minutes, and
// certificates are renewed after two thirds of their lifetime.
const shortestValidity = 15 * time.Minute

// FieldError is a setting with an invalid value.
type FieldError struct {
	Key, Flag string
	Problem   string
}

func (e FieldError) Error() string {
	if e.Flag == "" {
		return e.Key + ": " + e.Problem
	}
	return "--" + e.Flag + " (" + e.Key + "): " + e.Problem
}

// printed reports whether the setting is one that users copy from a printed join command.
func (e FieldError) printed() bool {
	return slices.Contains([]string{"join.endpoint", "join.token", "join.certificateKey"}, e.Key)
}

// Validate returns all invalid settings of a command as one finding.
func Validate(c *Config, command For) error {
	errs := Errors(c, command)
	if len(errs) == 0 {
		return nil
	}
	f := finding.New("OCA-0320", "A setting is not valid", errs[0].Error(), "ocadm config print shows every setting with its default")
	if slices.ContainsFunc(errs, FieldError.printed) {
		f.Remedy = "on a control-plane node, print the complete join command: ocadm token create --print-join-command"
		if c.Join.ControlPlane {
			f.Remedy += " --control-plane"
		}
	}
	if len(errs) > 1 {
		f.What, f.Cause = fmt.Sprintf("%d settings are not valid", len(errs)), ""
		f.Evidence = lists.Map(errs, FieldError.Error)
	}
	return f
}

// Errors returns all field errors of the settings that a command uses.
func Errors(c *Config, command For) []FieldError {
	v := &validation{c: c, command: command}
	v.choices()
	if command&ForInstall == 0 {
		v.node()
	} else {
		v.repository("cluster.imageRepository", c.Cluster.ImageRepository)
		v.database()
		v.cloud()
	}
	if command&ForInit != 0 {
		v.cluster()
		v.database()
		v.cloud()
		v.addons()
	}
	if command&ForJoin != 0 {
		v.join()
	}
	v.oneOf("onFailure", "on-failure", c.Run.OnFailure, "keep", "rollback")
	for _, keep := range c.Run.Keep {
		v.oneOf("keep", "keep", keep, KeepImages)
	}
	slices.SortStableFunc(v.errs, func(a, b FieldError) int { return cmp.Compare(position(a.Key), position(b.Key)) })
	return v.errs
}

// position returns the index of a key in Settings; errors are sorted by it.
func position(key string) int {
	return slices.IndexFunc(Settings(), func(s Setting) bool { return s.Key == key })
}

type validation struct {
	c       *Config
	command For
	errs    []FieldError
}

func (v *validation) add(key, problem string) {
	v.errs = append(v.errs, FieldError{Key: key, Flag: Find(key).Flag, Problem: problem})
}

func (v *validation) check(key string, err error) {
	if err != nil {
		v.add(key, err.Error())
	}
}

func (v *validation) endpoint(key, value string) {
	_, _, err := SplitEndpoint(value, DefaultPort)
	v.check(key, err)
}

// host checks a host that pods reach. port says which setting has the port.
func (v *validation) host(key, value, port string) {
	host, _, err := SplitEndpoint(value, DefaultPort)
	address, notAddress := netip.ParseAddr(value)
	switch {
	case err != nil:
		v.check(key, err)
	case notAddress != nil && !strings.EqualFold(host, value):
		v.add(key, "it is a host without a port; "+port)
	case strings.HasPrefix(strings.ToLower(host)+".", "localhost."), address.Unmap().IsLoopback(), address.IsUnspecified():
		v.add(key, host+" is each machine itself; give an address that pods and other nodes reach")
	}
}

func (v *validation) oneOf(key, flag, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		v.errs = append(v.errs, FieldError{Key: key, Flag: flag, Problem: fmt.Sprintf("%q is not one of %s", value, strings.Join(allowed, ", "))})
	}
}

// choices checks the settings with a fixed set of values. For some of them, empty is the default.
func (v *validation) choices() {
	for _, s := range Settings() {
		if value := Text(v.c, s.Key); s.For&v.command != 0 && len(s.Choices) > 0 && value != "" {
			v.oneOf(s.Key, s.Flag, value, s.Choices...)
		}
	}
}

func (v *validation) port(key string, p int) {
	if p < 1 || p > 65535 {
		v.add(key, fmt.Sprintf("%d is not a port; a port is 1 to 65535", p))
	}
}

var repository = regexp.MustCompile(`^[a-zA-Z0-9.\-\[\]:]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

func (v *validation) repository(key, r string) {
	if r != "" && !repository.MatchString(r) {
		v.add(key, fmt.Sprintf("%q is not REGISTRY[:PORT][/PATH], without a scheme", r))
	}
}

func (v *validation) cluster() {
	c := v.c.Cluster
	v.endpoint("cluster.controlPlaneEndpoint", c.ControlPlaneEndpoint)
	v.virtualAddress()
	pods, perr := CIDRs(c.PodNetworkCIDR)
	v.check("cluster.podNetworkCIDR", perr)
	services, serr := CIDRs(c.ServiceCIDR)
	v.check("cluster.serviceCIDR", serr)
	for _, p := range pods {
		for _, s := range services {
			if p.Overlaps(s) {
				v.add("cluster.serviceCIDR", fmt.Sprintf("%s overlaps the pods' %s", s, p))
			}
		}
		if a, err := netip.ParseAddr(v.c.Node.IP); err == nil && p.Contains(a) {
			v.add("cluster.podNetworkCIDR", fmt.Sprintf("%s contains this node's address %s", p, a))
		}
	}
	if a, err := netip.ParseAddr(v.c.Node.AdvertiseAddress); err == nil && len(services) > 0 && services[0].Addr().Is4() != a.Is4() {
		v.add("cluster.serviceCIDR", fmt.Sprintf("its first range, %s, is not of the same family as the API server's address %s", services[0], a))
	}
	if len(pods) > 0 && len(services) > 0 && pods[0].Addr().Is4() != services[0].Addr().Is4() {
		v.add("cluster.podNetworkCIDR", fmt.Sprintf("its first range, %s, is not of the same family as the services' %s", pods[0], services[0]))
	}
	for _, s := range services {
		const least, most = 6, 20 // a cloud has about 35 services, and Kubernetes accepts at most 2^20 addresses
		if size := s.Addr().BitLen() - s.Bits(); size < least || size > most {
			v.add("cluster.serviceCIDR", fmt.Sprintf("the prefix of %s is not from /%d to /%d", s, s.Addr().BitLen()-most, s.Addr().BitLen()-least))
		}
		if a, err := netip.ParseAddr(v.c.Node.IP); err == nil && s.Contains(a) {
			v.add("cluster.serviceCIDR", fmt.Sprintf("%s contains this node's address %s", s, a))
		}
	}
	v.podNetwork(pods)
	v.check("cluster.serviceDNSDomain", Hostname(c.ServiceDNSDomain))
	if c.ServiceDNSDomain != strings.ToLower(c.ServiceDNSDomain) {
		v.add("cluster.serviceDNSDomain", "it has capital letters")
	}
	for _, san := range c.APIServerCertExtraSANs {
		if _, err := netip.ParseAddr(san); err != nil {
			v.check("cluster.apiserverCertExtraSANs", Hostname(strings.TrimPrefix(san, "*.")))
		}
	}
	if c.TokenTTL < 0 {
		v.add("cluster.tokenTTL", "it is negative")
	}
	if c.CertificateValidity != 0 && c.CertificateValidity < shortestValidity {
		v.add("cluster.certificateValidityPeriod", fmt.Sprintf("it is shorter than %s", shortestValidity))
	}
	v.token("cluster.token", c.Token)
	gates := map[string]string{}
	for gate := range strings.SplitSeq(c.FeatureGates, ",") { // preflight compares the names with those of kubeadm
		name, value, _ := strings.Cut(gate, "=")
		if gate != "" && (name == "" || value != "true" && value != "false") {
			v.add("cluster.featureGates", fmt.Sprintf("%q is not NAME=true or NAME=false", gate))
		} else if before := gates[name]; before != "" && before != value {
			v.add("cluster.featureGates", name+" is given twice")
		}
		gates[name] = value
	}
}

// podNetwork checks the sizes that kubeadm and the controller manager accept. kubeadm knows the size of a node's range only in a cluster of both families; in others it
// assumes the defaults, /24 and /64.
func (v *validation) podNetwork(pods []netip.Prefix) {
	const most = 16 // the bits between the prefixes of the pod network and of a node
	for _, p := range pods {
		node, usual, longest, six := v.c.Cluster.NodeCIDRMaskSize, 24, 30, p.Addr().Is6()
		if six {
			usual, longest = 64, p.Bits()+most
		} else if len(pods) > 1 {
			longest = min(longest, p.Bits()+most)
		}
		unused := six && (len(pods) > 1 || node < p.Bits()) // by the configuration of the controller manager
		if !unused && (node < p.Bits() || node > longest) {
			v.add("cluster.nodeCIDRMaskSize", fmt.Sprintf("%d is not from %d (the pod network's) to %d", node, p.Bits(), longest))
		}
		if (six || len(pods) == 1) && (p.Bits() > usual || p.Bits() < usual-most) {
			v.add("cluster.podNetworkCIDR", fmt.Sprintf("the prefix of %s is not from /%d to /%d", p, usual-most, usual))
		}
	}
}

// virtualAddress checks an address that no machine may have yet.
func (v *validation) virtualAddress() {
	c, n := v.c.Cluster, v.c.Node
	if c.VirtualAddress == "" {
		return
	}
	a, err := netip.ParseAddr(c.VirtualAddress)
	if err := address(c.VirtualAddress); err != nil {
		v.check("cluster.highAvailabilityVIP", err)
		return
	}
	if err == nil && !a.Is4() {
		v.add("cluster.highAvailabilityVIP", "it is not an IPv4 address")
	}
	if c.VirtualAddress == n.AdvertiseAddress || c.VirtualAddress == n.IP {
		v.add("cluster.highAvailabilityVIP", "it is the address of this node; give an address that no machine has")
	}
	if host, _, err := SplitEndpoint(c.ControlPlaneEndpoint, DefaultPort); err == nil && host != c.VirtualAddress {
		if _, err := netip.ParseAddr(host); err == nil {
			v.add("cluster.controlPlaneEndpoint", fmt.Sprintf("%s is not the address of --high-availability-vip; give a name that resolves to it, or omit this setting", host))
		}
	}
}

var token = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

var certificateKey = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// token checks a bootstrap token. Its error never repeats the value, which is secret.
func (v *validation) token(key, t string) {
	if t != "" && !token.MatchString(t) {
		v.add(key, "it is not of the form [a-z0-9]{6}.[a-z0-9]{16}")
	}
}

func (v *validation) database() {
	d := v.c.Database
	if d.Password != "" && d.PasswordFile != "" {
		v.add("database.passwordFile", "the password is given twice, in clear text and in a file")
	}
	if d.Host == "" {
		if q, err := resource.ParseQuantity(d.StorageSize); err != nil || q.Sign() <= 0 {
			v.add("database.storageSize", fmt.Sprintf("%q is not a size such as 20Gi", d.StorageSize))
		}
		return
	}
	v.host("database.host", d.Host, "the port is --mysql-port")
	v.port("database.port", d.Port)
	if err := mysql.CheckTLS(mysql.TLSMode(d.TLS), d.CA); err != nil && slices.Contains(mysql.TLSModes(), d.TLS) {
		v.add("database.tls", err.Error())
	}
	if d.User == "" {
		v.add("database.user", "it is empty")
	}
}

// The rules of the definition of OnecloudCluster: by them, the API server would refuse the cloud at the end of a long installation.
var (
	imageTag  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	cloudName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$`)
	placeName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`)
)

func (v *validation) cloud() {
	c := v.c.Cloud
	if c.Version != "" && !imageTag.MatchString(c.Version) {
		v.add("cloud.version", fmt.Sprintf("%q is not a valid image tag", c.Version))
	}
	if hint := version.CloudHint(c.Version); hint != "" {
		v.add("cloud.version", fmt.Sprintf("%q is not the version of a release: %s", c.Version, hint))
	} else if version.UnknownRelease(c.Version) {
		v.add("cloud.version", fmt.Sprintf("%s is of a release that this ocadm does not know; it knows %s", c.Version, strings.Join(version.CloudReleases(), ", ")))
	}
	if !imageTag.MatchString(c.OperatorVersion) {
		v.add("cloud.operatorVersion", fmt.Sprintf("%q is not a valid image tag", c.OperatorVersion))
	}
	if c.OperatorImage != "" {
		if _, err := name.ParseReference(c.OperatorImage, name.WeakValidation); err != nil {
			v.add("cloud.operatorImage", err.Error())
		}
	}
	if !cloudName.MatchString(c.Name) {
		v.add("cloud.name", fmt.Sprintf("%q is not a letter and then at most 29 lower case letters, digits and inner hyphens", c.Name))
	}
	if !dnsLabel.MatchString(c.Namespace) {
		v.add("cloud.namespace", fmt.Sprintf("%q does not consist of 1 to 63 lower case letters, digits and inner hyphens", c.Namespace))
	}
	for key, value := range map[string]string{"cloud.region": c.Region, "cloud.zone": c.Zone} {
		if !placeName.MatchString(value) {
			v.add(key, fmt.Sprintf("%q is not a letter or digit (a to z) and then at most 63 letters, digits, '-', '_' and '.'", value))
		}
	}
	v.check("cloud.storageClass", NodeName(cmp.Or(c.StorageClass, DefaultStorageClass)))
	v.check("cloud.ingressClass", NodeName(cmp.Or(c.IngressClass, None)))
	v.host("cloud.loadBalancerEndpoint", c.LoadBalancerEndpoint, "each service has its own")
}

func (v *validation) addons() {
	if p := v.c.Addons.StoragePath; !cleanPath(p) {
		v.add("addons.storagePath", fmt.Sprintf("%q is not an absolute path", p))
	}
	if v.c.Addons.Storage == None && v.c.Database.Host == "" {
		v.add("addons.storage", "the embedded database needs storage; give --mysql-host or --storage local-path")
	}
}

// cleanPath reports whether p can be the absolute path of a directory below the root.
func cleanPath(p string) bool { return path.IsAbs(p) && path.Clean(p) != "/" }

func (v *validation) join() {
	j := v.c.Join
	if j.Endpoint == "" && j.DiscoveryFile == "" {
		v.add("join.endpoint", "it is missing: ocadm join HOST[:PORT]")
	} else {
		v.endpoint("join.endpoint", j.Endpoint)
	}
	v.token("join.token", j.Token)
	if j.Timeout <= 0 {
		v.add("join.timeout", "it must be longer than 0")
	}
	switch {
	case !j.ControlPlane && j.CertificateKey != "":
		v.add("join.certificateKey", "it is allowed only with --control-plane")
	case j.ControlPlane && j.CertificateKey == "":
		v.add("join.certificateKey", `it is missing; on a control-plane node: ocadm token create --print-join-command --control-plane`)
	case j.ControlPlane && !certificateKey.MatchString(j.CertificateKey):
		v.add("join.certificateKey", "it is not 64 hexadecimal digits") // without the value, which is secret
	}
	if j.ControlPlane && v.c.Node.BindPort == DepotPort && v.c.Node.Depot != None {
		v.add("node.bindPort", fmt.Sprintf("%d is the port of the depot; choose another, or give --depot none", DepotPort))
	}
}
