// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/config"
)

// Every field has a setting and every setting a field; flags and keys are unique per command.
func TestSettingsMatchTheType(t *testing.T) {
	var fields []string
	typ := reflect.TypeFor[config.Config]()
	for i := range typ.NumField() {
		section := typ.Field(i)
		if section.Type.Kind() != reflect.Struct || section.Tag.Get("json") == "-" {
			continue
		}
		for j := range section.Type.NumField() {
			if name := section.Type.Field(j).Tag.Get("json"); name != "-" {
				fields = append(fields, section.Tag.Get("json")+"."+name)
			}
		}
	}
	var keys []string
	c := config.Default()
	for _, s := range config.Settings() {
		keys = append(keys, s.Key)
		config.Field(&c, s.Key)
		if s.For == 0 || s.Usage == "" || strings.HasSuffix(s.Usage, ".") {
			t.Errorf("%s: the table's line lacks something", s.Key)
		}
	}
	slices.Sort(fields)
	slices.Sort(keys)
	if diff := cmp.Diff(fields, keys); diff != "" {
		t.Error(diff)
	}
	for _, command := range []config.For{config.ForInit, config.ForJoin, config.ForReset} {
		seen := map[string]bool{}
		for _, s := range config.Settings() {
			if s.For&command == 0 || s.Flag == "" {
				continue
			}
			if seen[s.Flag] {
				t.Errorf("--%s occurs twice for command %d", s.Flag, command)
			}
			seen[s.Flag] = true
		}
	}
}

func good(change func(*config.Config)) *config.Config {
	c := config.Default()
	c.Join.Endpoint = "10.0.0.1"
	if change != nil {
		change(&c)
	}
	config.Complete(&c, config.Machine{Hostname: "Node-1.example.org", Address: "192.168.7.9"})
	return &c
}

func TestDefaultsAreValid(t *testing.T) {
	for _, command := range []config.For{config.ForInit, config.ForJoin, config.ForReset} {
		if errs := config.Errors(good(nil), command); len(errs) > 0 {
			t.Errorf("command %d: %v", command, errs)
		}
	}
}

func TestComplete(t *testing.T) {
	c := good(func(c *config.Config) { c.Cluster.ImageRepository = "10.0.0.9:5000/yunionio/" })
	got := map[string]string{
		"name": c.Node.Name, "ip": c.Node.IP, "advertise": c.Node.AdvertiseAddress, "endpoint": c.Cluster.ControlPlaneEndpoint,
		"lb": c.Cloud.LoadBalancerEndpoint, "join": c.Join.Endpoint, "kube images": c.Cluster.KubernetesImageRepository,
	}
	want := map[string]string{
		"name": "node-1", "ip": "192.168.7.9", "advertise": "192.168.7.9", "endpoint": "192.168.7.9:6443", "lb": "192.168.7.9",
		"join": "10.0.0.1:6443", "kube images": "10.0.0.9:5000/yunionio",
	}
	got["kube images"] = strings.TrimSuffix(got["kube images"], "/")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	c = good(func(c *config.Config) { c.Node.IP, c.Cluster.ControlPlaneEndpoint = "fd00::7", "cloud.example.org" })
	if c.Cluster.ControlPlaneEndpoint != "cloud.example.org:6443" || c.Cloud.LoadBalancerEndpoint != "cloud.example.org" {
		t.Error(c.Cluster.ControlPlaneEndpoint, c.Cloud.LoadBalancerEndpoint)
	}
	if c = good(func(c *config.Config) { c.Node.IP = "fd00::7" }); c.Cluster.ControlPlaneEndpoint != "[fd00::7]:6443" {
		t.Error(c.Cluster.ControlPlaneEndpoint)
	}
}

// NoProxy contains the cluster, this network and the user's entries. Without a proxy it is empty.
func TestCompleteNoProxy(t *testing.T) {
	c := config.Default()
	c.Node.NoProxy, c.Cluster.ControlPlaneEndpoint, c.Join.Endpoint = []string{"10.0.0.0/8", " .example.org", ".svc"}, "cloud.example.org", "10.0.0.9"
	m := config.Machine{Hostname: "node-1", Address: "192.168.7.9", Network: "192.168.7.0/24"}
	config.Complete(&c, m)
	if d := cmp.Diff([]string{"10.0.0.0/8", " .example.org", ".svc"}, c.Node.NoProxy); d != "" {
		t.Error(d)
	}
	c.Node.HTTPSProxy = "http://p:3128"
	want := []string{"10.0.0.0/8", ".example.org", ".svc", "localhost", "127.0.0.1", "::1", "192.168.7.9", "192.168.7.0/24", "cloud.example.org", "10.0.0.9"}
	own := c
	own.Join.Endpoint = ""
	for range 2 {
		config.Complete(&c, m)
		if d := cmp.Diff(want, c.Node.NoProxy); d != "" {
			t.Error(d)
		}
	}
	// A joining machine learns the networks from its cluster; init knows them.
	config.OfCluster(&c, "10.1.0.0/16,fd00::/48", "10.2.0.0/16", "example.internal")
	if d := cmp.Diff(append(want, ".example.internal", "10.1.0.0/16", "fd00::/48", "10.2.0.0/16"), c.Node.NoProxy); d != "" {
		t.Error(d)
	}
	if c.Cluster.PodNetworkCIDR != "10.1.0.0/16,fd00::/48" || c.Cluster.ServiceCIDR != "10.2.0.0/16" {
		t.Errorf("networks %+v", c.Cluster)
	}
	for range 2 {
		config.Complete(&own, m)
		if d := cmp.Diff(append(want[:len(want)-1:len(want)-1], ".cluster.local", "10.40.0.0/16", "10.96.0.0/12"), own.Node.NoProxy); d != "" {
			t.Error(d)
		}
	}
	config.OfCluster(&own, "", "", "")
	if own.Cluster.PodNetworkCIDR != "10.40.0.0/16" {
		t.Errorf("without an answer: %+v", own.Cluster)
	}
}

// served returns the settings for an install from a bundle server, with a change.
func served(change func(*config.Node)) func(*config.Config) {
	return func(c *config.Config) {
		c.Node.Bundle, c.Node.BundleToken = "https://10.0.0.9:6444", "canary"
		c.Node.BundleCAHash = "sha256:" + strings.Repeat("0a", 32)
		change(&c.Node)
	}
}

func TestErrorsNameFlagAndKey(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"node name":        {func(c *config.Config) { c.Node.Name = "cloud_poc" }, "--node-name (node.name)"},
		"address":          {func(c *config.Config) { c.Node.IP = "10.0.0" }, "--node-ip (node.ip)"},
		"loopback":         {func(c *config.Config) { c.Node.IP = "127.0.0.1" }, "not an address that other nodes can reach"},
		"pod cidr":         {func(c *config.Config) { c.Cluster.PodNetworkCIDR = "10.40.0.1/16" }, "the range is 10.40.0.0/16"},
		"overlap":          {func(c *config.Config) { c.Cluster.ServiceCIDR = "10.40.8.0/24" }, "overlaps the pods' 10.40.0.0/16"},
		"port of depot":    {func(c *config.Config) { c.Node.BindPort = config.DepotPort }, "6444 is the port of the depot"},
		"node in pods":     {func(c *config.Config) { c.Cluster.PodNetworkCIDR = "192.168.0.0/16" }, "contains this node's address"},
		"mirror":           {func(c *config.Config) { c.Node.Mirror = "mirror.example.org/x" }, "--mirror (node.mirror): it is not https://"},
		"mirror's scheme":  {func(c *config.Config) { c.Node.Mirror = "ftp://mirror.example.org" }, "or the same with http"},
		"mirror's query":   {func(c *config.Config) { c.Node.Mirror = "http://mirror.example.org/?path=" }, "a query or a fragment"},
		"mirror's account": {func(c *config.Config) { c.Node.Mirror = "https://u:canary@mirror.example.org" }, "it contains a password"},
		"registry mirror":  {func(c *config.Config) { c.Node.RegistryMirrors = []string{"https://m.example.org"} }, "--registry-mirror (node.registryMirrors): it is not REGISTRY=URL"},
		"mirror of a path": {func(c *config.Config) { c.Node.RegistryMirrors = []string{"docker.io/library=https://m.example.org"} }, "it is not REGISTRY=URL"},
		"mirror's login":   {func(c *config.Config) { c.Node.RegistryMirrors = []string{"docker.io=https://u:canary@m"} }, "it contains a password"},
		"mirror's address": {func(c *config.Config) { c.Node.RegistryMirrors = []string{"docker.io="} }, "it has no address"},
		"proxy":            {func(c *config.Config) { c.Node.HTTPSProxy = "u:canary@p:3128" }, "--https-proxy (node.httpsProxy): it is not http://"},
		"proxy's scheme":   {func(c *config.Config) { c.Node.HTTPProxy = "ftp://u:canary@p" }, "--http-proxy (node.httpProxy): it is not http://"},
		"mask":             {func(c *config.Config) { c.Cluster.NodeCIDRMaskSize = 12 }, "--node-cidr-mask-size"},
		"mask of IPv6": {func(c *config.Config) {
			c.Cluster.PodNetworkCIDR, c.Cluster.ServiceCIDR, c.Node.IP, c.Cluster.NodeCIDRMaskSize = "fd00:40::/56", "fd00:41::/112", "fd00::7", 80
		}, "80 is not from 56 (the pod network's) to 72"},
		"key alone":        {func(c *config.Config) { c.Node.BundleKey = "key.pem" }, "--bundle-key (node.bundleKey): it needs a --bundle"},
		"server's form":    {served(func(n *config.Node) { n.Bundle = "http://10.0.0.9:6444" }), "--bundle (node.bundle): it is neither a file nor https://HOST:PORT"},
		"server's path":    {served(func(n *config.Node) { n.Bundle = "https://10.0.0.9:6444/ocadm.bundle" }), "neither a file nor https"},
		"server's login":   {served(func(n *config.Node) { n.Bundle = "https://u:canary@10.0.0.9:6444" }), "neither a file nor https"},
		"server's hash":    {served(func(n *config.Node) { n.BundleCAHash = "sha256:1234" }), "--bundle-ca-hash (node.bundleCAHash): it is not sha256: and 64 digits"},
		"server's token":   {served(func(n *config.Node) { n.BundleToken = "" }), "--bundle-token (node.bundleToken): it is missing"},
		"server and key":   {served(func(n *config.Node) { n.BundleKey = "key.pem" }), "bundle serve FILE --key key.pem"},
		"token of a file":  {served(func(n *config.Node) { n.Bundle, n.BundleCAHash = "ocadm.bundle", "" }), "--bundle-token (node.bundleToken): --bundle is not https://HOST:PORT"},
		"patch":            {func(c *config.Config) { c.Cluster.KubernetesVersion = "v1.36" }, "this ocadm installs v1.36 and v1.35"},
		"version":          {func(c *config.Config) { c.Cluster.KubernetesVersion = "v1.30.0" }, "this ocadm installs v1.36"},
		"cni":              {func(c *config.Config) { c.Addons.CNI = "calico" }, `--cni (addons.cni): "calico" is not one of flannel, none`},
		"token":            {func(c *config.Config) { c.Cluster.Token = "abc" }, "--token (cluster.token)"},
		"repository":       {func(c *config.Config) { c.Cluster.ImageRepository = "https://x/y" }, "without a scheme"},
		"database host":    {func(c *config.Config) { c.Database.Host = "10.0.0.5:3306" }, "the port is --mysql-port"},
		"two passwords":    {func(c *config.Config) { c.Database.Password, c.Database.PasswordFile = "x", "/y" }, "given twice"},
		"no storage":       {func(c *config.Config) { c.Addons.Storage = "none" }, "needs storage"},
		"labels":           {func(c *config.Config) { c.Node.Labels = []string{"a"} }, "not key=value"},
		"reserved labels":  {func(c *config.Config) { c.Node.Labels = []string{"node-role.kubernetes.io/worker="} }, "set it later"},
		"contrary labels":  {func(c *config.Config) { c.Node.Labels = []string{"a=1", "a=2"} }, "a is given twice"},
		"two wrong labels": {func(c *config.Config) { c.Node.Labels = []string{"a", "b=1", "b=2", "c"} }, "3 settings are not valid"},
		"contrary gates":   {func(c *config.Config) { c.Cluster.FeatureGates = "A=true,B=true,A=false" }, "A is given twice"},
		"endpoint":         {func(c *config.Config) { c.Cluster.ControlPlaneEndpoint = "a:b:c" }, "--control-plane-endpoint"},
		"storage size":     {func(c *config.Config) { c.Database.StorageSize = "lots" }, "--mysql-storage-size"},
		"on failure":       {func(c *config.Config) { c.Run.OnFailure = "cry" }, "--on-failure"},
		"storage path":     {func(c *config.Config) { c.Addons.StoragePath = "/" }, "--storage-path"},
		"same family":      {func(c *config.Config) { c.Cluster.ServiceCIDR = "10.96.0.0/16,10.97.0.0/16" }, "at most one IPv4 and one IPv6"},
		"family of node":   {func(c *config.Config) { c.Node.IP, c.Node.AdvertiseAddress = "fd00::7", "fd00::7" }, "family as the API server's address"},
		"family of pods":   {func(c *config.Config) { c.Cluster.PodNetworkCIDR = "fd00:40::/56" }, "family as the services'"},
		"conntrack":        {func(c *config.Config) { n := int32(-1); c.Node.ConntrackMaxPerCore = &n }, "--conntrack-max-per-core"},
		"cri socket":       {func(c *config.Config) { c.Node.CRISocket = "tcp://x" }, "--cri-socket"},
		"feature gates":    {func(c *config.Config) { c.Cluster.FeatureGates = "A" }, "--feature-gates"},
		"cloud's own name": {func(c *config.Config) { c.Cloud.Name = "My Cloud" }, "--cloud-name"},
		"name with digit":  {func(c *config.Config) { c.Cloud.Name = "1st" }, "--cloud-name"},
		"long name":        {func(c *config.Config) { c.Cloud.Name = strings.Repeat("a", 31) }, "29 lower case"},
		"region":           {func(c *config.Config) { c.Cloud.Region = "北京" }, "--region"},
		"zone":             {func(c *config.Config) { c.Cloud.Zone = "a/b" }, "--zone"},
		"long node name":   {func(c *config.Config) { c.Node.Name = strings.Repeat("a", 64) }, "1 to 63"},
		"own database":     {func(c *config.Config) { c.Database.Host = "127.0.0.1" }, "--mysql-host (database.host): 127.0.0.1 is each machine itself"},
		"own cloud":        {func(c *config.Config) { c.Cloud.LoadBalancerEndpoint = "localhost" }, "--load-balancer-endpoint"},
		"own machine":      {func(c *config.Config) { c.Database.Host = "localhost.localdomain" }, "each machine itself"},
		"own IPv6":         {func(c *config.Config) { c.Database.Host = "::1" }, "each machine itself"},
		"own mapped":       {func(c *config.Config) { c.Database.Host = "::ffff:127.0.0.1" }, "each machine itself"},
		"no address":       {func(c *config.Config) { c.Database.Host = "0.0.0.0" }, "each machine itself"},
		"cloud's port":     {func(c *config.Config) { c.Cloud.LoadBalancerEndpoint = "10.0.0.1:443" }, "without a port"},
		"storage class":    {func(c *config.Config) { c.Cloud.StorageClass = "My_Class" }, "--storage-class"},
	} {
		err := config.Validate(good(c.change), config.ForInit)
		l := finding.Of(err)
		if len(l) != 1 || l[0].ExitCode() != finding.ExitConfig || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	for _, name := range []string{"a b", "[::1", "x:0", "x:70000", "", "1.2.3.4.5"} {
		c := good(nil)
		c.Join.Endpoint = name
		if err := config.Validate(c, config.ForJoin); err == nil {
			t.Errorf("endpoint %q is accepted", name)
		}
	}
}

// A wrong endpoint or token was most likely copied from a join command: the remedy prints that again.
func TestJoinRemedy(t *testing.T) {
	const again = "ocadm token create --print-join-command"
	for name, tt := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"no endpoint":        {func(c *config.Config) { c.Join.Endpoint = "" }, again},
		"malformed token":    {func(c *config.Config) { c.Join.Token = "abc" }, again},
		"no certificate key": {func(c *config.Config) { c.Join.ControlPlane = true }, again + " --control-plane"},
		"another setting":    {func(c *config.Config) { c.Join.Timeout = 0 }, "ocadm config print shows every setting with its default"},
	} {
		c := good(nil)
		c.Join.Endpoint = "10.0.0.1"
		tt.change(c)
		l := finding.Of(config.Validate(c, config.ForJoin))
		if len(l) != 1 || !strings.HasSuffix(l[0].Remedy, tt.want) {
			t.Errorf("%s: %+v, want %q", name, l, tt.want)
		}
	}
}

func TestCertificateKey(t *testing.T) {
	key := strings.Repeat("0a", 32)
	for name, tt := range map[string]struct {
		on   bool
		key  string
		want string
	}{
		"worker": {false, "", ""}, "control plane": {true, key, ""}, "missing": {true, "", "--certificate-key"},
		"of a worker": {false, key, "--control-plane"}, "malformed": {true, "canary", "64 hexadecimal digits"},
	} {
		c := good(nil)
		c.Join.Endpoint, c.Join.ControlPlane, c.Join.CertificateKey = "10.0.0.1", tt.on, tt.key
		err := config.Validate(c, config.ForJoin)
		if got := fmt.Sprint(err); (tt.want == "") != (err == nil) || !strings.Contains(got, tt.want) || strings.Contains(got, "canary") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// etcd is reachable from outside only if other control-plane nodes can join.
func TestPortsOfEtcd(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*config.Config)
		want   bool
	}{
		"one control plane": {func(*config.Config) {}, false},
		"an endpoint":       {func(c *config.Config) { c.Cluster.ControlPlaneEndpoint = "api.example.org:6443" }, true},
	} {
		c := good(tt.change)
		config.Complete(c, config.Machine{})
		for _, p := range config.Ports(c, true) {
			if p.First == 2380 && p.Reached != tt.want {
				t.Errorf("%s: %s is reached: %v", name, p, p.Reached)
			}
		}
	}
	c := good(func(c *config.Config) { c.Join.ControlPlane = true })
	if !slices.ContainsFunc(config.Ports(c, false), func(p config.PortUse) bool { return p.First == 2380 && p.Reached }) {
		t.Error("a control-plane node that joins opens no port for etcd")
	}
}

func TestEveryErrorIsReportedAtOnce(t *testing.T) {
	err := config.Validate(good(func(c *config.Config) {
		c.Node.Name, c.Addons.CNI, c.Cluster.Token = "A_B", "x", "s3cret"
	}), config.ForInit)
	l := finding.Of(err)
	if len(l) != 1 || len(l[0].Evidence) != 3 || !strings.HasPrefix(l[0].Evidence[0], "--node-name") {
		t.Fatalf("%+v", l)
	}
	if strings.Contains(strings.Join(l[0].Evidence, " "), "s3cret") {
		t.Error("the error shows the token")
	}
}

func TestInputsHoldNoSecret(t *testing.T) {
	c := config.Default()
	c.Database.Password, c.Cluster.Token, c.Cloud.Region = "canary-1", "canary-2", "r1"
	want := map[string]string{"--mysql-password": "(secret)", "--token": "(secret)", "--region": "r1"}
	if diff := cmp.Diff(want, config.Inputs(&c, config.ForInit)); diff != "" {
		t.Error(diff)
	}
	if got := config.Inputs(&c, config.ForReset); len(got) > 0 {
		t.Errorf("reset: %v", slices.Sorted(maps.Keys(got)))
	}
	out, err := config.Print(&c)
	if err != nil || strings.Contains(string(out), "canary") {
		t.Errorf("%v, %s", err, out)
	}
}

func TestDepotPort(t *testing.T) {
	for depot, want := range map[string]bool{"": true, config.None: false} {
		c := config.Default()
		config.Complete(&c, config.Machine{Hostname: "node", Address: "192.0.2.7"})
		c.Node.Depot = depot
		if got := slices.ContainsFunc(config.Ports(&c, true), func(p config.PortUse) bool { return p.First == config.DepotPort }); got != want {
			t.Errorf("--depot %q uses the port: %v", depot, got)
		}
		c.Node.BindPort = config.DepotPort
		if err := config.Validate(&c, config.ForInit); (err != nil) != want {
			t.Errorf("--depot %q with --apiserver-bind-port %d: %v", depot, config.DepotPort, err)
		}
	}
}
