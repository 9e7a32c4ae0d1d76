// SPDX-License-Identifier: Apache-2.0

package servicespec

// Groups of options for programs whose own options are not known (templates/services/options has the others).
const (
	tlsKeys = `enable_ssl:bool ssl_ca_certs ssl_certfile ssl_keyfile`

	baseKeys = `region port:int address application_id log_level log_file_prefix temp_path zone listen_interface
		cron_job_worker_count:int local_task_worker_count:int request_worker_count:int task_worker_count:int
		default_handlers_whitelist_user_agents:list rbac_policy_refresh_interval_seconds:int
		config_sync_period_seconds:int enable_rbac:bool rbac_debug:bool calculate_quota_usage_interval_seconds:int
		max_request_body_size:int debug_client:bool enable_app_profiling:bool
		etcd_endpoints:list etcd_username etcd_password etcd_use_tls:bool etcd_skip_tls_verify:bool etcd_cacert etcd_cert etcd_key
		lockman_method is_slave_node:bool executor_socket_path deploy_server_socket_path enable_remote_executor:bool`

	accountKeys = `auth_url admin_user admin_password admin_domain admin_project admin_project_domain session_endpoint_type
		auth_token_cache_size:int tenant_cache_expire_seconds:int`

	databaseKeys = `sql_connection db_engine auto_sync_table:bool exit_after_db_init:bool
		clickhouse ops_log_with_clickhouse:bool ops_log_max_keep_months:int splitable_max_duration_hours:int splitable_max_keep_segments:int
		db_checksum_tables:bool enable_hashed_tables:bool global_virtual_resource_namespace:bool lock_storage_from_allocate:bool
		history_retention_days:int allow_vip:bool`

	// sharedKeys are in the stored configuration of the service "common".
	sharedKeys = `api_server time_zone platform_name enable_quota_check:bool default_quota_value domainized_namespace:bool
		non_default_domain_projects:bool customized_private_prefixes:list global_http_proxy global_https_proxy
		ignore_nonrunning_guests:bool enable_cloud_shell:bool`

	// nodeKeys may be in a compute node's own file.
	nodeKeys = `hostname networks:list servers_path listen_interface s3_use_ssl:bool image_cache_path image_cache_limit:int local_image_path:list
		rack slots ovn_south_database ovn_encap_ip_detection_method zone
		report_interval:int bridge_driver agent_temp_path base_data_dir disable_probe_kubelet:bool hugepages_option hugepage_size_mb:int`
)
