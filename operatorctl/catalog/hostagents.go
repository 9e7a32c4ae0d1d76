// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

// What the agents of compute nodes share: one file of options from the cloud, and one from the node.
const (
	hostConfDir  = "/etc/yunion/common"
	hostConf     = hostConfDir + "/common.conf"
	nodeHostConf = "/etc/yunion/host.conf"
)

// hostAgent is a privileged agent that shares directories with its node.
func hostAgent(program string) component.Workload {
	return component.Workload{
		Kind: component.DaemonSet, NodeRole: "host", Privileged: true, HostNetwork: true, HostNamespaces: true, EtcdTLS: true,
		ContainerName: program, Command: []string{"/opt/yunion/bin/" + program, "--common-config-file", hostConf},
		PriorityClass: "system-node-critical", MaxUnavailable: 3,
		Mounts: hostMounts(),
	}
}

// ofHost is the configuration of an agent that has none of its own.
func ofHost() *component.Config {
	return &component.Config{Of: "host", File: "common.conf", Dir: hostConfDir}
}

func hostHealth() component.Component {
	return component.Component{
		Name: "host-health", SpecKey: "hostagent.HostHealth", Summary: "tells the cloud that a compute node lives",
		Products: withHosts,
		After:    []string{"keystone"},
		Image:    component.Image{Tag: "v0.0.4"},
		Workload: hostAgent("host-health"),
		Config:   ofHost(),
	}
}

func sdnAgent() component.Component {
	return component.Component{
		Name: "host-sdnagent", SpecKey: "hostagent.SdnAgent", Summary: "the flows of servers on a compute node",
		Products: withHosts,
		After:    []string{"keystone", "region", "host-ovs-vswitchd"},
		Image:    component.Image{Name: "sdnagent", Hyper: true},
		Workload: hostAgent("sdnagent"),
		Config:   ofHost(),
	}
}

func hostImage() component.Component {
	w := hostAgent("host-image")
	w.Command, w.EtcdTLS = append(w.Command, "--config", nodeHostConf), false
	w.Mounts = pick(w.Mounts, "etc-yunion", "var-run-onecloud")
	return component.Component{
		Name: "host-image", SpecKey: "hostimage", Summary: "reads images of other compute nodes",
		Products: withHosts,
		After:    []string{"keystone"},
		Image:    component.Image{Tag: "v1.0.8"},
		Workload: w,
		Config:   ofHost(),
	}
}

// hostDeployer writes into disks. It serves host, glance and esxi-agent on their nodes by a socket.
func hostDeployer() component.Component {
	w := hostAgent("host-deployer")
	w.Command, w.EtcdTLS, w.NoCerts = append(w.Command, "--config", nodeHostConf), false, true
	w.NodeRole, w.MaxUnavailable = "host,controller", 999
	w.Mounts = pick(w.Mounts, "etc-yunion", "cloud", "usr", "dev", "sys", "var-run-onecloud", "var-run-vmware")
	return component.Component{
		Name: "host-deployer", SpecKey: "hostdeployer", Summary: "writes files into disks of servers",
		After:    []string{"keystone"},
		Workload: w,
		Config:   ofHost(),
	}
}

func lbagent() component.Component {
	w := hostAgent("lbagent")
	w.Command = []string{"/opt/yunion/bin/lbagent", "--config", "/etc/yunion/lbagent.conf", "--common-config-file", hostConf}
	w.NodeRole, w.PriorityClass, w.Env, w.WorkingDir, w.GracePeriod = "lbagent", "", ovnEnv, "/opt/cloud", 300
	return component.Component{
		Name: "lbagent", SpecKey: "lbagent", Summary: "load balancers on a node",
		Products: []component.Product{component.FullStack, component.Edge, component.AI},
		After:    []string{"keystone", "region"},
		Image:    component.Image{Hyper: true},
		Workload: w,
		Config: &component.Config{Groups: noDatabase, NotStored: true, File: "common.conf", Dir: hostConfDir, Options: func(in component.Inputs) map[string]any {
			return map[string]any{
				"port": 8895, "base_data_dir": "/opt/cloud/workspace/lbagent", "enable_remote_executor": true,
				"disable_local_vpc": localVPC(*in.Cluster.Spec) != "",
			}
		}},
		Account:  &component.Account{User: "lbagentadm"},
		Register: []component.CatalogService{{Name: "lbagent", Type: "lbagent"}},
	}
}

// hostMounts are the directories of the node that its agents share.
func hostMounts() []component.Mount {
	dir := func(name, path string) component.Mount {
		return component.Mount{Name: name, Path: path, HostPath: path, HostPathType: corev1.HostPathDirectoryOrCreate}
	}
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
