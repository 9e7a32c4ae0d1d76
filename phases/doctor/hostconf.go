// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/host"
)

// ineffective lists the options that agents in pods take from the cloud's ConfigMap, whatever host.conf says (cloudpods, pkg/hostman/options: Parse
// replaces every field of SHostBaseOptions). host-image reads enable_remote_executor and executor_socket_path in host.conf only.
var ineffective = []string{"default_qemu_version", "deploy_concurrent", "disable_local_vpc", "image_deploy_driver", "manage_ntp_configuration"}

// nodeConfiguration reads host.conf as the agent does and compares it with the machine.
func nodeConfiguration(_ context.Context, h *host.Host) []finding.Finding {
	raw, err := h.Files.ReadFile(hostConf)
	if err != nil {
		return []finding.Finding{finding.Errorf(CodeHostConf, hostConf+" cannot be read", "ocadm join phase compute --enable-host-agent", "%w", err)}
	}
	conf, err := parse(string(raw))
	if err != nil {
		return []finding.Finding{finding.Errorf(CodeHostConf, hostConf+" cannot be parsed",
			"correct the line; every value is YAML, as in networks: [eth0/br0/192.0.2.10]", "%w", err)}
	}
	out := judgeNetworks(conf, h.Facts)
	if conf["disable_probe_kubelet"] != true && conf["disable_probe_kubelet"] != "true" {
		out = append(out, finding.New("OCA-7111", "The host agent will look for Docker and exit",
			hostConf+" lacks disable_probe_kubelet: true, which a node with containerd needs", "set disable_probe_kubelet: true in "+hostConf))
	}
	without := lists.Filter(ineffective, func(key string) bool {
		_, set := conf[key]
		return set
	})
	if len(without) > 0 {
		out = append(out, finding.Warn(CodeIneffective, "Options in host.conf have no effect: "+strings.Join(without, ", "),
			"agents in pods read them from the cloud's ConfigMap, which overrides host.conf",
			"move them to /etc/yunion/host_local.conf, which overrides both"))
	}
	return append(out, judgeStorage(conf, h)...)
}

// parse reads YAML, or lines of the form key = value, which the agent accepts as well.
func parse(text string) (map[string]any, error) {
	conf := map[string]any{}
	err := yaml.Unmarshal([]byte(text), &conf)
	if err == nil {
		return conf, nil
	}
	conf = map[string]any{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '[' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, err
		}
		conf[strings.TrimSpace(key)] = strings.Trim(strings.TrimSpace(value), `"'`)
	}
	return conf, nil
}

// texts converts a list of strings, or a single string, to a slice.
func texts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		return lists.Map(v, func(e any) string { return fmt.Sprint(e) })
	}
	return nil
}

func judgeNetworks(conf map[string]any, facts host.Facts) []finding.Finding {
	var out []finding.Finding
	report := func(code, what, cause string) {
		out = append(out, finding.New(code, what, cause, "ip -br address; then correct "+hostConf))
	}
	for _, n := range texts(conf["networks"]) {
		parts := strings.Split(n, "/")
		if len(parts) < 3 {
			report(CodeHostConf, "networks has the entry "+n, "an entry is NIC/BRIDGE/ADDRESS or NIC/BRIDGE/WIRE")
			continue
		}
		nic, bridge := parts[0], parts[1]
		if _, found := facts.Named(nic); !found {
			report("OCA-7135", "The interface "+nic+" does not exist on the node", "networks of host.conf has "+n)
			continue
		}
		for _, part := range parts[2:] { // the agent compares the text
			if _, err := netip.ParseAddr(part); err == nil && !hasAddress(facts, nic, part) && !hasAddress(facts, bridge, part) {
				report("OCA-7135", fmt.Sprintf("The address %s is on neither %s nor %s", part, nic, bridge), "networks of host.conf has "+n)
			}
		}
	}
	name, _ := conf["listen_interface"].(string)
	if _, found := facts.Named(name); name != "" && !found {
		// Before the first start the bridge does not exist yet; the agent creates it.
		if !slices.ContainsFunc(texts(conf["networks"]), func(n string) bool { return strings.Contains(n, "/"+name+"/") }) {
			report("OCA-7138", "The listen interface "+name+" does not exist on the node",
				"listen_interface of host.conf names neither a NIC nor a bridge of networks")
		}
	}
	return out
}

func hasAddress(facts host.Facts, name, address string) bool {
	i, _ := facts.Named(name)
	return slices.ContainsFunc(i.Prefixes, func(p netip.Prefix) bool { return p.Addr().String() == address })
}

func judgeStorage(conf map[string]any, h *host.Host) []finding.Finding {
	var out []finding.Finding
	paths := texts(conf["local_image_path"])
	if len(paths) == 0 {
		out = append(out, finding.New("OCA-7117", "The host agent has no space for disks", "host.conf has no local_image_path",
			"set local_image_path: [/opt/cloud/workspace/disks] in "+hostConf))
	}
	for _, p := range paths {
		if n, ok := free(h.Files, p); ok && n < imageSpace {
			out = append(out, finding.New("OCA-7117", "The host agent has too little space for disks in "+p,
				fmt.Sprintf("%d MiB are free, and the agent needs %d", n/mebibyte, imageSpace/mebibyte),
				"free some space, or mount a larger disk there: df -h "+p))
		}
	}
	if conf["hugepages_option"] == "native" {
		size := "1048576"
		if n, ok := conf["hugepage_size_mb"].(int); ok {
			size = fmt.Sprint(n * 1024)
		}
		raw, _ := h.Files.ReadFile("/sys/kernel/mm/hugepages/hugepages-" + size + "kB/nr_hugepages") // a missing file means no pages
		if n := strings.TrimSpace(string(raw)); n == "" || n == "0" {
			out = append(out, finding.New("OCA-7118", "No huge pages are reserved", "host.conf has hugepages_option: native",
				"boot with default_hugepagesz=1G hugepagesz=1G hugepages=NUMBER, or set hugepages_option: transparent in "+hostConf))
		}
	}
	return out
}
