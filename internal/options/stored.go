// SPDX-License-Identifier: Apache-2.0

package options

import "slices"

// Stored reports whether the identity service stores an option, given its name there. A stored value overrides the service's file.
func Stored(name string) bool { return !slices.Contains(fileOnly, name) }

// Shared reports whether an option is stored once for all services, in the record of the service "common".
func Shared(name string) bool { return slices.Contains(shared, name) }

// shared and fileOnly are the lists in pkg/apis/identity/consts.go of the cloud (v4.0.3): the options in the record "common", and those in no record,
// because a wrong value could keep a service from starting, or even from asking.
var shared = []string{
	"enable_quota_check", "default_quota_value", "non_default_domain_projects", "time_zone", "domainized_namespace", "api_server",
	"customized_private_prefixes", "global_http_proxy", "global_https_proxy", "ignore_nonrunning_guests", "platform_name", "platform_names",
	"enable_cloud_shell", "enable_change_owner_auto_rename", "default_handlers_whitelist_user_agents", "metadata_server_ip4s", "metadata_server_ip6s",
}

var fileOnly = []string{
	"region", "application_id", "log_level", "log_verbose_level", "temp_path", "address", "port", "port_v2", "admin_port",
	"notify_admin_users", "session_endpoint_type", "admin_user", "admin_password", "admin_domain", "admin_project", "admin_project_domain",
	"auth_url", "enable_ssl", "ssl_certfile", "ssl_keyfile", "ssl_ca_certs", "is_slave_node", "config_sync_period_seconds", "enable_app_profiling",

	"sql_connection", "clickhouse", "ops_log_with_clickhouse", "db_checksum_skip_init", "db_checksum_tables", "enable_db_checksum_tables",
	"db_checksum_hash_algorithm", "auto_sync_table", "exit_after_db_init", "global_virtual_resource_namespace", "debug_sqlchemy",
	"lockman_method", "etcd_lock_prefix", "etcd_lock_ttl", "etcd_endpoints", "etcd_username", "etcd_password", "etcd_use_tls",
	"etcd_skip_tls_verify", "etcd_cacert", "etcd_cert", "etcd_key", "splitable_max_duration_hours", "splitable_max_keep_segments",
	"ops_log_max_keep_months", "disable_local_vpc",

	"bootstrap_admin_user_password", "reset_admin_user_password", "fernet_key_repository",

	"listen_interface", "access_address", "listen_address", "tftp_root", "baremetals_path", "ipmi_lan_port_shared", "zone", "dhcp_lease_time",
	"dhcp_renewal_time", "enable_general_guest_dhcp", "force_dhcp_probe_ipmi", "tftp_block_size_in_bytes", "tftp_max_timeout_retries",
	"enable_grub_tftp_download", "lengthy_worker_count", "short_worker_count", "cache_path", "enable_pxe_boot", "boot_iso_path",

	"deploy_server_socket_path", "enable_remote_executor", "executor_socket_path", "running_mode", "enable_default_policy",
}
