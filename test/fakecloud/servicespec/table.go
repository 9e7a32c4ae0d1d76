// SPDX-License-Identifier: Apache-2.0

package servicespec

import (
	"slices"

	"yunion.io/x/ocadm/operatorctl/catalog"
)

// table has a row for each program that is not an ordinary service. Ports are the programs' own defaults where known, never the operator's: a test
// must notice an operator that does not set the port.
func table() []Spec {
	return slices.Concat(core(), others(), agents(), foreign())
}

func core() []Spec {
	return []Spec{
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

// regionTables returns region's tables, which programs that share its database require.
func regionTables() []string {
	return []string{"cloudregions", "zones", "wires", "schedtags", "dynamicschedtags", "servers", "hosts", "networks"}
}

func gateway(name string) Spec {
	return Spec{
		Name: name, Type: "yunionapi", Component: "apigateway", Port: 9300, SecondPortKey: "ws_port", SecondPort: 10443, Table: "apigateway",
	}
}

// ordinary returns the row of a service that is not in the table: an API with database and type from the catalogue. An unknown name is an API with its own database.
func ordinary(name string) Spec {
	p := Spec{Name: name, Component: name, Database: OwnDatabase, Tables: []string{"records"}}
	c, known := catalog.Get(name)
	if known && c.Database == nil {
		p.Database, p.Tables = NoDatabase, nil
	}
	if len(c.Endpoints) > 0 {
		p.Type = c.Endpoints[0].Type
	}
	return p
}

// others returns the services that differ from an ordinary one.
func others() []Spec {
	but := func(name string, change func(*Spec)) Spec {
		p := ordinary(name)
		change(&p)
		return p
	}
	tables := func(name string, names ...string) Spec {
		return but(name, func(p *Spec) { p.Tables = append(p.Tables, names...) })
	}
	knows := func(name, options string) Spec { return but(name, func(p *Spec) { p.Options = options }) }
	return []Spec{
		but("kubeserver", func(p *Spec) {
			p.PortKey, p.CertKey, p.KeyKey, p.Tables = "https_port", "tls_cert_file", "tls_private_key_file", append(p.Tables, "components")
		}),
		but("webconsole", func(p *Spec) { p.OpenDefaults = true }),
		but("monitor", func(p *Spec) {
			p.NeedsEndpoint, p.Tables = []string{"victoria-metrics", "influxdb"}, append(p.Tables, "commonalerts")
		}),
		tables("ansibleserver", "ansibleplaybookreferences"),
		tables("cloudproxy", "proxy_agents"),
		tables("devtool", "devtool_templates", "scripts"),
		knows("meter", `billing_file_directory cloudrates_file_directory aws_ri_plan_id_handle influxdb_meter_name monthly_bill:bool`),
		knows("autoupdate", `update_server update_check_interval_hours:int host_update_start_hour:int
			host_update_stop_hour:int host_update_time_zone kubernetes_mode:bool channel`),
		but("yunionagent", func(p *Spec) { p.Component = "" }),
		{Name: "scheduledtask", Component: "scheduledtask", Database: RegionDatabase, Tables: append(regionTables(), "scheduledtasks")},
		{Name: "apimap", Component: "apimap", Database: RegionDatabase, NeverSyncs: true},
		but("mcp-server", func(p *Spec) { p.PlainHTTP, p.OpenDefaults = true, true }),
	}
}

func agents() []Spec {
	return []Spec{
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

// foreign returns the foreign programs, named after the program or the program and its role: "openvswitch-north".
func foreign() []Spec {
	return []Spec{
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
		{Name: "sleep", Role: Foreign},
		{Name: "tail", Role: Foreign},
		{Name: "kubectl", Role: Once},
	}
}
