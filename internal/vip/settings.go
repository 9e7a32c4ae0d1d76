// SPDX-License-Identifier: Apache-2.0

// Package vip manages the control plane's virtual address: it renders the configuration of keepalived, checks the node's own API server for it, and
// follows the settings in the cluster. keepalived alone decides which node holds the address.
package vip

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The Secret with the settings, and the directory on a control-plane node for a copy of them and keepalived's configuration.
const (
	SecretNamespace = metav1.NamespaceSystem
	SecretName      = "ocadm-vip"
	Dir             = "/var/lib/ocadm/vip"
	// ConfigFile is keepalived's configuration. It holds the password: mode 0600.
	ConfigFile = Dir + "/keepalived.conf"
	// SettingsFile is the node's copy of the settings: also mode 0600.
	SettingsFile = Dir + "/settings.yaml"
)

// Settings are the VRRP settings, the same on every control-plane node.
type Settings struct {
	Address string
	// RouterID distinguishes the VRRP group from others in the network: 1 to 255.
	RouterID int
	// Password is the VRRP 2 password: 8 characters, sent in clear text.
	Password string
	// Peers are the addresses of all control-plane nodes, sorted.
	Peers []string
	// Instance is the name of keepalived's instance, "" for the first one.
	Instance string
	// Other is a second address that is held while the virtual address changes: first the new one, and after the swap the old one.
	Other Group
}

// Group is a virtual address with its VRRP router ID.
type Group struct {
	Address  string
	RouterID int
}

// Names of keepalived instances. On a reload, keepalived identifies an instance by name, so the name for an address must not change.
const (
	firstInstance  = "ocadm"
	secondInstance = "ocadm-2"
)

// Swap exchanges Address and Other. keepalived's configuration remains the same.
func (s Settings) Swap() Settings {
	s.Address, s.RouterID, s.Other = s.Other.Address, s.Other.RouterID, Group{s.Address, s.RouterID}
	s.Instance = s.otherInstance()
	return s
}

func (s Settings) otherInstance() string {
	if s.Instance == secondInstance {
		return firstInstance
	}
	return secondInstance
}

const passwordLength = 8 // the maximum of VRRP 2: RFC 2338, section 5.3.10

const alphabet = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"

// NewPassword returns a random password with 46 bits of entropy.
func NewPassword() string {
	out := make([]byte, 0, passwordLength)
	one := make([]byte, 1)
	for len(out) < passwordLength {
		_, _ = rand.Read(one)                    // never fails
		if int(one[0]) < 256-256%len(alphabet) { // keeps the distribution uniform
			out = append(out, alphabet[int(one[0])%len(alphabet)])
		}
	}
	return string(out)
}

// With returns the settings with an additional control-plane node.
func (s Settings) With(peer string) Settings {
	s.Peers = append(slices.Clone(s.Peers), peer)
	slices.Sort(s.Peers)
	s.Peers = slices.Compact(s.Peers)
	return s
}

// Without returns the settings without a control-plane node.
func (s Settings) Without(peer string) Settings {
	s.Peers = slices.DeleteFunc(slices.Clone(s.Peers), func(p string) bool { return p == peer })
	return s
}

func (s Settings) Secret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: SecretNamespace, Name: SecretName, Labels: map[string]string{"app.kubernetes.io/managed-by": "ocadm"}},
		Data:       s.Data(),
	}
}

func (s Settings) Data() map[string][]byte {
	out := map[string][]byte{
		"address": []byte(s.Address), "routerID": []byte(strconv.Itoa(s.RouterID)), "password": []byte(s.Password),
		"peers": []byte(strings.Join(s.Peers, ",")),
	}
	if s.Instance != "" {
		out["instance"] = []byte(s.Instance)
	}
	if s.Other.Address != "" {
		out["otherAddress"], out["otherRouterID"] = []byte(s.Other.Address), []byte(strconv.Itoa(s.Other.RouterID))
	}
	return out
}

func (s Settings) Text() ([]byte, error) {
	data := map[string]string{}
	for k, v := range s.Data() {
		data[k] = string(v)
	}
	text, err := yaml.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("writing the settings of the virtual address: %w", err)
	}
	return text, nil
}

// Parse parses the content of the Secret.
func Parse(data map[string][]byte) (Settings, error) {
	id, err := strconv.Atoi(string(data["routerID"]))
	s := Settings{Address: string(data["address"]), RouterID: id, Password: string(data["password"]), Instance: string(data["instance"])}
	if other := string(data["otherAddress"]); other != "" {
		oid, oerr := strconv.Atoi(string(data["otherRouterID"]))
		_, aerr := netip.ParseAddr(other)
		err, s.Other = errors.Join(err, oerr, aerr), Group{other, oid}
		if oid < 1 || oid > 255 || oid == id || other == s.Address { // keepalived would drop one group, or both
			err = errors.Join(err, errors.New("the second group is not one of its own"))
		}
	}
	if peers := string(data["peers"]); peers != "" {
		s.Peers = strings.Split(peers, ",")
	}
	_, aerr := netip.ParseAddr(s.Address)
	if _, has := data["peers"]; !has { // without peers, each node would use multicast, and might hold the address itself
		err = errors.Join(err, errors.New("there are no peers"))
	}
	if err != nil || aerr != nil || id < 1 || id > 255 || s.Password == "" {
		return Settings{}, errors.New("reading the Secret kube-system/ocadm-vip: it is not complete") // never print its values
	}
	for _, p := range s.Peers {
		if _, err := netip.ParseAddr(p); err != nil {
			return Settings{}, errors.New("reading the Secret kube-system/ocadm-vip: a peer is not an address")
		}
	}
	return s, nil
}

// Paths in the pod.
const (
	RunDir = "/run/ocadm-vip"
	// HealthFile contains 0 while the node's API server answers, otherwise 1.
	HealthFile = RunDir + "/apiserver"
)

// Config returns keepalived's configuration for the node with this address on this interface.
//
// No node is preferred (nopreempt with state BACKUP everywhere): the address moves when its holder is lost, and does not move back. Priorities differ
// so that two nodes do not claim it simultaneously. A node whose API server does not answer is in state FAULT.
func (s Settings) Config(node, self, iface string) []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# written by ocadm; the Secret %s/%s has the settings", SecretNamespace, SecretName)
	line("global_defs {\n  router_id %s\n  vrrp_version 2\n  vrrp_garp_master_delay 1\n  vrrp_garp_master_refresh 10\n}", node)
	line("vrrp_track_file apiserver {\n  file %q\n  weight 0\n  init_file 1\n}", HealthFile)
	groups := map[string]Group{cmp.Or(s.Instance, firstInstance): {s.Address, s.RouterID}}
	if s.Other.Address != "" {
		groups[s.otherInstance()] = s.Other
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		line("vrrp_instance %s {\n  state BACKUP\n  nopreempt\n  interface %s\n  virtual_router_id %d\n  priority %d\n  advert_int 1",
			name, iface, groups[name].RouterID, s.priority(self))
		line("  authentication {\n    auth_type PASS\n    auth_pass %s\n  }", s.Password)
		if others := s.Without(self).Peers; len(others) > 0 {
			line("  unicast_src_ip %s\n  unicast_peer {\n    %s\n  }", self, strings.Join(others, "\n    "))
		}
		line("  virtual_ipaddress {\n    %s/32 dev %s\n  }\n  track_file {\n    apiserver\n  }\n}", groups[name].Address, iface)
	}
	return []byte(b.String())
}

// priority decreases with the node's rank among the peers.
func (s Settings) priority(self string) int {
	const highest, step, lowest = 240, 40, 40
	rank, found := slices.BinarySearch(s.Peers, self)
	if !found {
		return lowest
	}
	return max(lowest, highest-step*rank)
}
