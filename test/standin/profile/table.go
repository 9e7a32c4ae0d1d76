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
			Options: `admin_port:int bootstrap_admin_user_password reset_admin_user_password:bool fernet_key_repository
				token_expiration_seconds:int no_policy_violation_check:bool default_user_quota:int default_group_quota:int
				default_project_quota:int default_role_quota:int default_policy_quota:int password_expiration_seconds:int
				password_minimal_length:int password_character_complexity:int auto_sync_interval_seconds:int`,
		},
		{
			Name: "region", Type: "compute_v2", Component: "region", Database: OwnDatabase, Port: 8888, NeedsService: "compute_v2",
			Options: `port_v2:int dns_server dns_domain baremetal_prepare_package_url default_bandwidth:int default_mtu:int
				snapshot_expire_days:int auto_snapshot_day:int prepaid_expire_check:bool enable_host_health_check:bool
				host_offline_max_seconds:int cloud_auto_sync_interval_seconds:int pending_delete_expire_seconds:int
				enable_pending_delete:bool default_cpu_overcommit_bound default_memory_overcommit_bound default_storage_overcommit_bound`,
			Tables: regionTables(),
		},
		{
			Name: "scheduler", Component: "scheduler", Database: RegionDatabase, NeverSyncs: true, IgnoresInit: true,
			PortKey: "scheduler_port", Port: 8897, OpenDefaults: true,
			Options: `scheduler_port:int expired_queue_max_length:int scheduler_test_limit:int`,
		},
		{
			Name: "glance", Type: "image", Component: "glance", Database: OwnDatabase, Port: 9292,
			Options: `filesystem_store_datadir enable_torrent_service:bool torrent_store_dir target_image_formats:list storage_driver
				s3_endpoint s3_access_key s3_secret_key s3_use_ssl:bool s3_bucket_name pending_delete_expire_seconds:int
				default_image_service_home_dir image_stream_worker_count:int`,
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
	return []string{"cloudregions", "zones", "wires", "schedtags", "dynamicschedtags", "servers"}
}

func gateway(name string) Profile {
	return Profile{
		Name: name, Type: "yunionapi", Component: "apigateway", Port: 9300, SecondPortKey: "ws_port", SecondPort: 10443, Quiet: true,
		Options: `ws_port:int cors_hosts:list show_captcha:bool enable_totp:bool default_region disable_reporting:bool
			enable_organization:bool sso_redirect_url session_level_auth_cookie:bool enable_quota_check:bool`,
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
	kube := typed(own("kubeserver", "kubeserver", `https_port:int tls_cert_file tls_private_key_file running_mode`), "k8s")
	kube.PortKey, kube.CertKey, kube.KeyKey = "https_port", "tls_cert_file", "tls_private_key_file"
	console := own("webconsole", "webconsole", `ipmitool_path enable_auto_login:bool`)
	console.OpenDefaults = true
	monitor := own("monitor", "monitor", `influxdb_meter_name tsdb_driver`)
	monitor.NeedsEndpoint = []string{"victoria-metrics", "influxdb"}
	tables := func(p Profile, names ...string) Profile { p.Tables = append(p.Tables, names...); return p }
	return []Profile{
		tables(kube, "components"), console, tables(monitor, "commonalerts"),
		tables(typed(own("ansibleserver", "ansibleserver", ""), "ansible"), "ansibleplaybookreferences"),
		own("notify", "notify", ""),
		own("cloudid", "cloudid", ""),
		own("cloudevent", "cloudevent", ""),
		tables(own("cloudproxy", "cloudproxy", `enable_proxy_agent:bool proxy_agent_id`), "proxy_agents"),
		own("cloudnet", "cloudnet", ""),
		tables(own("devtool", "devtool", ""), "devtool_templates", "scripts"),
		own("llm", "llm", ""),
		own("aiproxy", "aiproxy", `api_log_s3_endpoint api_log_s3_access_key api_log_s3_secret_key`),
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
		{Name: "vpcagent", Component: "vpcagent", Options: `ovn_north_database fetch_data_from_compute_service:bool`},
		{Name: "mcp-server", Component: "mcp-server", PlainHTTP: true, OpenDefaults: true},
	}
}

func agents() []Profile {
	return []Profile{
		{Name: "host", Port: 8885, Options: hostKeys},
		{Name: "lbagent", Port: 8895, Options: hostKeys + ` base_data_dir`, NodeFile: "/etc/yunion/lbagent.conf"},
		{Name: "baremetal-agent", Type: "baremetal", Port: 8879,
			Options: `auto_register_baremetal:bool linux_default_root_user:bool default_ipmi_password`},
		{Name: "esxi-agent", Type: "esxiagent", Port: 8883},
		{Name: "host-health", Role: Agent, Options: hostKeys},
		{Name: "host-deployer", Role: Agent, Options: hostKeys, NodeFile: hostFile},
		{Name: "host-image", Role: Agent, Options: hostKeys, NodeFile: hostFile},
		{Name: "sdnagent", Role: Agent, Options: hostKeys},
		{Name: "region-dns", Role: Raw},
		{Name: "onecloud-service-operator", Role: Agent, Options: `admin_username ap_dense:bool enable_webhooks:bool sync_period:int`},
	}
}

const hostFile = "/etc/yunion/host.conf"

// foreign programs go by the name of the program, or of the program and what it is told to be: "openvswitch-north".
func foreign() []Profile {
	return []Profile{
		{Name: "victoria-metrics", Role: Foreign, Port: 8428},
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
