// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/templates/nodefiles"
)

// The agents of compute nodes share one options file from the cloud and one from the node.
const (
	hostConfDir  = "/etc/yunion/common"
	hostConf     = hostConfDir + "/common.conf"
	nodeHostConf = "/etc/yunion/host.conf"
)

// fileOnNode creates a configuration file of the agent on the node if it is missing. From then on it belongs to the node: users add what only that node
// has, mainly its networks, and nothing overwrites it, except an agent without networks: it writes all its options there, with its password. Agents of one
// node may do this concurrently.
func fileOnNode(agent, name string) component.Sidecar {
	script := fmt.Sprintf("target=/etc/yunion/%[1]s; new=/etc/yunion/.%[1]s.%[2]s; test -e $target || "+
		"{ cp %[3]s/%[1]s $new; ln $new $target || test -e $target; rm $new; }; chmod go= $target || :", name, agent, hostConfDir)
	return component.Sidecar{
		Name: "node-conf", Init: true, Image: component.Image{Reference: "busybox"}, Command: []string{"sh", "-ec", script},
		Volumes: []string{"etc-yunion", "config"},
	}
}

// hostAgent returns the workload of a privileged agent that shares directories with its node. The differ functions modify it.
func hostAgent(program string, differ ...func(*component.Workload)) component.Workload {
	w := component.Workload{
		Kind: component.DaemonSet, NodeRole: "host", Privileged: true, HostNetwork: true, HostNamespaces: true, EtcdTLS: true,
		ContainerName: program, Command: []string{"/opt/yunion/bin/" + program, "--common-config-file", hostConf},
		PriorityClass: "system-node-critical",
		Mounts:        hostMounts(),
	}
	for _, change := range differ {
		change(&w)
	}
	return w
}

// ofHost returns the configuration of an agent that uses host's.
func ofHost() *component.Config {
	return &component.Config{Of: "host", File: "common.conf", Dir: hostConfDir}
}

func hostHealth() component.Component {
	return component.Component{
		Name: "host-health", SpecKey: "hostagent.HostHealth", Summary: "reports the health of a compute node",
		Releases: component.Releases{First: "v3.10.0"},
		Products: withHosts,
		After:    []string{"keystone", "region"}, // it exits unless region returns the control plane
		Image:    component.Image{Tag: "v0.0.4", Older: []component.OlderTag{{Until: "v3.10", Tag: "v0.0.1"}, {Until: "v3.11", Tag: "v0.0.3"}}},
		Workload: hostAgent("host-health"),
		Config:   ofHost(),
	}
}

func sdnAgent() component.Component {
	return component.Component{
		Name: "host-sdnagent", SpecKey: "hostagent.SdnAgent", Summary: "network flows of virtual machines on a compute node",
		Releases: component.Releases{First: "v4.0.2"},
		Products: withHosts,
		After:    []string{"keystone", "region", "host-ovs-vswitchd"},
		Image:    component.Image{Name: "sdnagent", Hyper: true},
		Workload: hostAgent("sdnagent"),
		Config:   ofHost(),
	}
}

func hostImage() component.Component {
	return component.Component{
		Name: "host-image", SpecKey: "hostimage", Summary: "serves disks and images to other compute nodes",
		Releases: component.Releases{First: "v3.3.0"},
		Products: withHosts,
		After:    []string{"keystone"},
		Image: component.Image{Tag: "v1.0.8", Older: []component.OlderTag{
			{Until: "v3.7", Tag: "v1.0.1"}, {Until: "v3.8", Tag: "v1.0.3"}, {Until: "v3.10", Tag: "v1.0.6"}, {Until: "v3.11", Tag: "v1.0.7"},
		}},
		Workload: hostAgent("host-image", onNode("host-image", "etc-yunion", "var-run-onecloud")),
		Config:   ofHost(),
	}
}

// onNode returns a change for an agent with its own file on the node, some of the directories, and no access to etcd.
func onNode(agent string, mounts ...string) func(*component.Workload) {
	return func(w *component.Workload) {
		w.Command, w.EtcdTLS = append(w.Command, "--config", nodeHostConf), false
		w.Mounts, w.Sidecars = pick(w.Mounts, mounts...), []component.Sidecar{fileOnNode(agent, "host.conf")}
	}
}

// hostDeployer writes to disks. It serves host, glance and esxi-agent on their nodes over a socket.
func hostDeployer() component.Component {
	return component.Component{
		Name: "host-deployer", SpecKey: "hostdeployer", Summary: "writes files into the disks of virtual machines",
		After: []string{"keystone"},
		Workload: hostAgent("host-deployer", func(w *component.Workload) { w.NoCerts, w.NodeRole = true, "host,controller" },
			onNode("host-deployer", "etc-yunion", "cloud", "usr", "dev", "sys", "var-run-onecloud", "var-run-vmware")),
		Config: ofHost(),
	}
}

func lbagent() component.Component {
	return component.Component{
		Name: "lbagent", SpecKey: "lbagent", Summary: "runs load balancers on a node",
		Releases: component.Releases{First: "v3.10.0"},
		Products: []component.Product{component.FullStack, component.Edge, component.AI},
		After:    []string{"keystone", "region"},
		Image:    component.Image{Hyper: true},
		Workload: hostAgent("lbagent", lbagentWorkload),
		Config:   &component.Config{Groups: noDatabase, NotStored: true, File: "common.conf", Dir: hostConfDir, Options: lbagentOptions, Files: lbagentFiles},
		Account:  &component.Account{User: "lbagentadm"},
		Register: []component.CatalogService{{Name: "lbagent", Type: "lbagent"}},
	}
}

func lbagentWorkload(w *component.Workload) {
	w.Command = []string{"/opt/yunion/bin/lbagent", "--config", "/etc/yunion/lbagent.conf", "--common-config-file", hostConf}
	w.NodeRole, w.Env, w.WorkingDir, w.GracePeriod = "lbagent", ovnEnv, "/opt/cloud", 300
	w.Sidecars = []component.Sidecar{fileOnNode("lbagent", "lbagent.conf")}
}

func lbagentOptions(in component.Inputs) map[string]any {
	return map[string]any{
		"port": 8895, "base_data_dir": "/opt/cloud/workspace/lbagent", "enable_remote_executor": true,
		"disable_local_vpc": localVPC(*in.Cluster.Spec) != "",
	}
}

func lbagentFiles(component.Inputs) map[string]string {
	return map[string]string{"lbagent.conf": nodefiles.LBAgent}
}

// dir mounts a directory of the node at the same path in the container.
func dir(name, path string) component.Mount {
	return component.Mount{Name: name, Path: path, HostPath: path, HostPathType: corev1.HostPathDirectoryOrCreate}
}

// hostMounts returns the directories of the node that its agents share.
func hostMounts() []component.Mount {
	shared := func(m component.Mount) component.Mount { m.Bidirectional = true; return m }
	return []component.Mount{
		dir("etc-yunion", "/etc/yunion"),
		shared(dir("cloud", "/opt/cloud")),
		dir("usr", "/usr/local"),
		dir("dev", "/dev"),
		dir("sys", "/sys"),
		shared(dir("tmp", "/tmp")),
		shared(dir("var-run-onecloud", "/var/run/onecloud")),
		shared(dir("var-run-vmware", "/var/run/vmware")),
		dir("var-run-openvswitch", "/var/run/openvswitch"),
		dir("var-log-openvswitch", "/var/log/openvswitch"),
		dir("etc-openvswitch", "/etc/openvswitch"),
	}
}

func pick(mounts []component.Mount, names ...string) []component.Mount {
	return slices.DeleteFunc(mounts, func(m component.Mount) bool { return !slices.Contains(names, m.Name) })
}
