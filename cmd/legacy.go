// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"strings"

	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/phases/config"
)

// legacyFlag is a flag of an earlier ocadm, or of kubeadm, that scripts may still give. It is accepted with a warning.
type legacyFlag struct {
	name, advice string
	boolean      bool
	command      config.For
}

func legacyFlags() []legacyFlag {
	const nodes = config.ForInit | config.ForJoin
	const label = "it set a label that nothing reads; choose the nodes of a service with spec.COMPONENT.affinity"
	const calico = "the pod network is flannel; to install Calico yourself, give --cni none"
	const vip = "this release determines the version of keepalived"
	const keys = "ocadm token create --print-join-command --control-plane stores the keys of the control plane in the cluster when they are needed"
	return []legacyFlag{
		{name: "host-name", command: nodes, advice: "the host agent uses the name of the node; set it with --node-name"},
		{name: "glance-node", boolean: true, command: nodes, advice: label},
		{name: "esxi-node", boolean: true, command: nodes, advice: label},
		{name: "high-availability-vip", command: config.ForJoin, advice: "the virtual address is stored in the cluster"},
		{name: "keepalived-version-tag", command: nodes, advice: vip},
		{name: "addon-calico-ip-autodetection-method", command: config.ForInit, advice: "set the address of the node with --node-ip"},
		{name: "addon-calico-felix-chaininsertmode", command: config.ForInit, advice: calico},
		{name: "addon-calico-ipv4-block-size", command: config.ForInit, advice: calico + ", or set --node-cidr-mask-size"},
		{name: "print-addon-yaml", boolean: true, command: config.ForInit, advice: "ocadm init --dry-run shows what would be applied"},
		{name: "upgrade-from-v2", boolean: true, command: nodes, advice: "clouds of version 2 cannot be upgraded"},
		{name: "upload-certs", boolean: true, command: config.ForInit, advice: keys},
		{name: "certificate-key", command: config.ForInit, advice: keys},
		{name: "cert-dir", command: config.ForInit | config.ForReset, advice: "certificates are always in /etc/kubernetes/pki"},
		{name: "patches", command: nodes, advice: "ocadm writes the kubeadm patches itself, to /etc/ocadm/patches"},
		{name: "skip-token-print", boolean: true, command: config.ForInit, advice: "redirect standard output"},
		{name: "skip-certificate-key-print", boolean: true, command: config.ForInit, advice: "there is no certificate key"},
		{name: "cleanup-tmp-dir", boolean: true, command: config.ForReset, advice: "reset always cleans up"},
	}
}

// formerCommands maps commands of an earlier ocadm, without "ocadm", to what does their work now.
var formerCommands = map[string]string{
	"baremetal": "kubectl label node NODE onecloud.yunion.io/baremetal=enable (or disable); ocadm component options set baremetal-agent listen_interface=NIC",
	"longhorn":  "install Longhorn with its own manifests; ocadm init --storage-class CLASS gives its class to a new cloud",
	"alpha":     "ocadm certs --help",

	"component config":        "ocadm component options --help",
	"config images pull":      "ocadm init and join pull what they need; without internet access: ocadm bundle create",
	"init phase keepalived":   "ocadm ha enable gives a cluster its virtual address",
	"init phase upload-certs": "ocadm token create --print-join-command --control-plane",
}

func addLegacy(fs *pflag.FlagSet, command config.For) {
	for _, l := range legacyFlags() {
		if l.command&command == 0 {
			continue
		}
		if l.boolean {
			fs.Bool(l.name, false, l.advice)
		} else {
			fs.StringSlice(l.name, nil, l.advice)
		}
		hide(fs, l.name)
	}
	if command&(config.ForInit|config.ForJoin) != 0 {
		fs.Bool("enable-hugepage", false, "")
		hide(fs, "enable-hugepage")
	}
	if command&config.ForJoin != 0 {
		fs.String("discovery-token", "", "")
		fs.String("tls-bootstrap-token", "", "")
		for _, name := range []string{"discovery-token", "tls-bootstrap-token"} {
			hide(fs, name)
		}
	}
}

// legacy warns about flags without effect, and applies those that still have one.
func (a *app) legacy(fs *pflag.FlagSet, cfg *config.Config, command config.For) {
	for _, l := range legacyFlags() {
		if l.command&command != 0 && fs.Changed(l.name) {
			a.warn("--%s no longer has an effect: %s", l.name, l.advice)
		}
	}
	if old, err := fs.GetBool("enable-hugepage"); err == nil && old {
		cfg.Node.Hugepages = cmp.Or(cfg.Node.Hugepages, "native")
	}
	if names := config.HostAgentOnly(cfg); len(names) > 0 {
		a.warn("%s: no effect without --enable-host-agent, because this node runs no virtual machines", strings.Join(names, ", "))
	}
	if command&config.ForJoin == 0 {
		return
	}
	for _, name := range []string{"discovery-token", "tls-bootstrap-token"} {
		if old, err := fs.GetString(name); err == nil && old != "" {
			cfg.Join.Token = cmp.Or(cfg.Join.Token, old)
		}
	}
}

func hide(fs *pflag.FlagSet, name string) { fs.Lookup(name).Hidden = true }

// annotationAdvanced marks a flag that help lists last.
const annotationAdvanced = "ocadm-advanced"

// annotationSetting marks a flag whose value is from a variable or the configuration file.
const annotationSetting = "ocadm-setting"

func mark(fs *pflag.FlagSet, name, annotation string) {
	f := fs.Lookup(name)
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[annotation] = []string{"true"}
}
