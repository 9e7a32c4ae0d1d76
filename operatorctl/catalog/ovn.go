// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/operatorctl/component"
)

// openvswitchImage contains the programs of Open vSwitch and OVN.
var openvswitchImage = component.Image{Name: "openvswitch", Tag: "2.12.4-20260415", Older: []component.OlderTag{
	{Until: "v3.1", Tag: "2.9.6-2"}, {Until: "v3.4", Tag: "2.10.4-0"}, {Until: "v3.9", Tag: "2.10.5-1"}, {Until: "v3.11", Tag: "2.12.4-2"},
}}

func ovnNorth() component.Component {
	return component.Component{
		Name: "ovn-north", SpecKey: "ovnNorth", StatusKey: "ovnNorth", Summary: "OVN databases and ovn-northd",
		Single:   "its container holds the network's databases, which have one writer",
		Products: withHosts, Gate: localVPC,
		Image: openvswitchImage,
		Workload: component.Workload{
			Command: []string{"/start.sh", "north"}, NoCerts: true, Listens: true,
			Security: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_NICE"}}},
		},
		Service: &component.Service{Ports: []component.Port{
			{Name: "north-db", Port: 32241, TargetPort: 6641, SpecKey: "northService.nodePort"},
			{Name: "south-db", Port: 32242, TargetPort: 6642, SpecKey: "southService.nodePort"},
		}},
	}
}

// ofSwitch adds the defaults of the Open vSwitch and OVN components of a node.
func ofSwitch(c component.Component) component.Component {
	c.SpecKey, c.Releases.First, c.Products, c.Image = "hostagent.OvnController", agentsSplit, withHosts, openvswitchImage
	return c
}

// ovsImage pulls the image of the switch. The switch starts after it, so that no node loses its network while the image is pulled.
func ovsImage() component.Component {
	return ofSwitch(component.Component{
		Name: "host-ovs-image", Summary: "pulls the Open vSwitch image before the switch is replaced",
		Workload: pullsSwitch(),
	})
}

// pullsSwitch returns a container that does nothing and has no permissions.
func pullsSwitch() component.Workload {
	w := openvswitch("image", "")
	w.Command, w.GracePeriod = []string{"sleep", "2147483647"}, 1
	w.Privileged, w.HostNetwork, w.HostNamespaces, w.Mounts = false, false, false, nil
	w.MaxUnavailable, w.CPU, w.Memory = 1000, "1m", "4Mi"
	return w
}

func ovsdbServer() component.Component {
	return ofSwitch(component.Component{
		Name: "host-ovsdb-server", Summary: "Open vSwitch database of a node",
		After:    []string{"host-ovs-image"},
		Workload: openvswitch("ovsdb-server", "ovsdb"),
	})
}

func ovsVswitchd() component.Component {
	return ofSwitch(component.Component{
		Name: "host-ovs-vswitchd", Summary: "Open vSwitch of a node",
		After:    []string{"host-ovsdb-server"},
		Workload: openvswitch("ovs-vswitchd", "vswitchd"),
	})
}

func ovnController() component.Component {
	return ofSwitch(component.Component{
		Name: "host-ovn-controller", Summary: "OVN controller of a node", Gate: localVPC,
		After:    []string{"host-ovs-vswitchd", "ovn-north"},
		Workload: openvswitch("ovn-controller", "controller"),
	})
}

// openvswitch returns the workload of one of its programs on nodes that run servers or load balancers.
func openvswitch(container, program string) component.Workload {
	return component.Workload{
		Kind: component.DaemonSet, NodeRole: "host,lbagent", Privileged: true, HostNetwork: true, HostNamespaces: true, NoCerts: true,
		ContainerName: container, Command: []string{"/start.sh", program},
		PriorityClass: "system-node-critical",
		Mounts: []component.Mount{
			dir("var-run-openvswitch", "/var/run/openvswitch"), dir("var-log-openvswitch", "/var/log/openvswitch"),
			dir("etc-openvswitch", "/etc/openvswitch"), dir("lib-modules", "/lib/modules"),
		},
	}
}

// localVPC is the Gate of components that provide networks for servers on the cloud's own nodes.
func localVPC(s component.Spec) string {
	if s.ProductVersion == string(component.LightEdge) {
		return "product LightEdge has no local VPC"
	}
	return unless(!s.DisableLocalVpc, "spec.disableLocalVpc is set")
}

// ovnAddress returns the address of one of ovn-north's databases.
func ovnAddress(in component.Inputs, port string) string {
	return fmt.Sprintf("tcp:%s:%d", in.Cluster.Object("ovn-north"), in.Cluster.NodePort("ovn-north", port))
}
