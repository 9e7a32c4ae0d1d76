// SPDX-License-Identifier: Apache-2.0

package profile

import "slices"

// table has one row per program. Ports are the programs' own defaults where they are known, never the operator's:
// an operator that forgets the port must be seen.
func table() []Profile {
	return slices.Concat(core(), others(), agents(), foreign())
}

func core() []Profile {
	return []Profile{
		{
			Name: "keystone", Role: Identity, Type: "identity", Component: "keystone", Database: OwnDatabase,
			Port: 5000, SecondPortKey: "admin_port", SecondPort: 35357,
		},
		{
			Name: "region", Type: "compute_v2", Component: "region", Database: OwnDatabase, Port: 8888, NeedsService: "compute_v2",
			Tables: regionTables(),
		},
		{
			Name: "scheduler", Component: "scheduler", Database: RegionDatabase, NeverSyncs: true, IgnoresInit: true,
			PortKey: "scheduler_port", Port: 8897, OpenDefaults: true, StoredIn: "compute_v2",
		},
		{
			Name: "glance", Type: "image", Component: "glance", Database: OwnDatabase, Port: 9292,
			Tables: []string{"images"},
		},
		{Name: "logger", Type: "log", Component: "logger", Database: OwnDatabase, Port: 9999, Tables: []string{"actions"}},
		{
			Name: "yunionconf", Component: "yunionconf", Database: OwnDatabase, Port: 9889, IgnoresInit: true,
			Tables: []string{"parameters"},
		},
		gateway("apigateway"),
		// The enterprise image starts the same service under two names.
		gateway("yunionapi"),
		gateway("ws"),
		{Name: "climc", Role: CLI},
	}
}

// regionTables are also what the programs expect that share region's database.
func regionTables() []string {
	return []string{"cloudregions", "zones", "wires", "schedtags", "dynamicschedtags", "servers", "hosts", "networks"}
}

func gateway(name string) Profile {
	return Profile{
		Name: name, Type: "yunionapi", Component: "apigateway", Port: 9300, SecondPortKey: "ws_port", SecondPort: 10443, Quiet: true, Table: "apigateway",
	}
}

// generic is the row of every program that has none.
func generic(name string) Profile {
	return Profile{Name: name, Component: name, Database: OwnDatabase, Tables: []string{"records"}}
}

func others() []Profile {
	own := func(name, component string, options string) Profile {
		p := generic(name)
		p.Component, p.Options = component, options
		return p
	}
	typed := func(p Profile, serviceType string) Profile { p.Type = serviceType; return p }
	kube := typed(own("kubeserver", "kubeserver", ""), "k8s")
	kube.PortKey, kube.CertKey, kube.KeyKey = "https_port", "tls_cert_file", "tls_private_key_file"
	console := own("webconsole", "webconsole", "")
	console.OpenDefaults = true
	monitor := own("monitor", "monitor", "")
	monitor.NeedsEndpoint = []string{"victoria-metrics", "influxdb"}
	tables := func(p Profile, names ...string) Profile { p.Tables = append(p.Tables, names...); return p }
	return []Profile{
		tables(kube, "components"), console, tables(monitor, "commonalerts"),
		tables(typed(own("ansibleserver", "ansibleserver", ""), "ansible"), "ansibleplaybookreferences"),
		own("notify", "notify", ""),
		own("cloudid", "cloudid", ""),
		own("cloudevent", "cloudevent", ""),
		tables(own("cloudproxy", "cloudproxy", ""), "proxy_agents"),
		own("cloudnet", "cloudnet", ""),
		tables(own("devtool", "devtool", ""), "devtool_templates", "scripts"),
		own("llm", "llm", ""),
		own("aiproxy", "aiproxy", ""),
		own("meter", "meter", `billing_file_directory cloudrates_file_directory aws_ri_plan_id_handle influxdb_meter_name monthly_bill:bool`),
		own("billing", "billing", ""),
		own("autoupdate", "autoupdate", `update_server update_check_interval_hours:int host_update_start_hour:int
			host_update_stop_hour:int host_update_time_zone kubernetes_mode:bool channel`),
		own("suggestion", "suggestion", ""),
		own("report", "report", ""),
		own("bastionhost", "bastionhost", ""),
		own("extdb", "extdb", ""),
		own("yunionagent", "", ""),
		{Name: "scheduledtask", Component: "scheduledtask", Database: RegionDatabase, Tables: append(regionTables(), "scheduledtasks")},
		{Name: "apimap", Component: "apimap", Database: RegionDatabase, NeverSyncs: true},
		{Name: "cloudmon", Component: "cloudmon"},
		{Name: "s3gateway", Component: "s3gateway"},
		{Name: "vpcagent", Component: "vpcagent"},
		{Name: "mcp-server", Component: "mcp-server", PlainHTTP: true, OpenDefaults: true},
	}
}

func agents() []Profile {
	return []Profile{
		{Name: "host", Port: 8885, StoredIn: "-", Options: nodeKeys},
		{Name: "lbagent", Port: 8895, StoredIn: "-", Options: nodeKeys, NodeFile: "/etc/yunion/lbagent.conf"},
		{Name: "baremetal-agent", Type: "baremetal", Port: 8879},
		{Name: "esxi-agent", Type: "esxiagent", Port: 8883, StoredIn: "-"},
		{Name: "host-health", Role: Agent, Table: "host", Options: nodeKeys},
		{Name: "host-deployer", Role: Agent, Table: "host", Options: nodeKeys, NodeFile: hostFile},
		{Name: "host-image", Role: Agent, Table: "host", Options: nodeKeys, NodeFile: hostFile},
		{Name: "sdnagent", Role: Agent, Table: "host", Options: nodeKeys},
		{Name: "region-dns", Role: Raw},
		{Name: "onecloud-service-operator", Role: Agent},
	}
}

const hostFile = "/etc/yunion/host.conf"

// foreign programs go by the name of the program, or of the program and what it is told to be: "openvswitch-north".
func foreign() []Profile {
	return []Profile{
		{Name: "victoria-metrics", Role: Foreign, Port: 8428},
		{Name: "influxd", Role: Foreign, PortFile: "/etc/yunion/influxdb.conf"},
		{Name: "telegraf", Role: Foreign},
		{Name: "telegraf-init", Role: Once},
		{Name: "telegraf-raid-plugin", Role: Foreign},
		{Name: "guacd", Role: Foreign, Port: 4822},
		{Name: "echarts-ssr", Role: Foreign, Port: 8081},
		{Name: "itsm", Role: Foreign, Port: 8080, PortFile: "/deployments/config/application.properties"},
		{Name: "openvswitch-north", Role: Foreign, Port: 6641, SecondPort: 6642},
		{Name: "openvswitch-ovsdb", Role: Foreign},
		{Name: "openvswitch-vswitchd", Role: Foreign},
		{Name: "openvswitch-controller", Role: Foreign},
		{Name: "tail", Role: Foreign},
		{Name: "kubectl", Role: Once},
	}
}
