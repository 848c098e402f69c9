//! Names of keys: this project's own, Diego's without effect, and the likely meaning of a misspelt
//! one. Reads no value.

/// This project's keys. Diego's BBS ignores unknown keys, and so does this host, so a misspelt one
/// would silently change behaviour: a host with `pin_data_versoin` would migrate the database that
/// it was meant to leave alone.
pub(super) const OURS: [&str; 29] = [
    "accept_older_catalogs",
    "admin_socket",
    "convergence_report_interval",
    "data_dir",
    "database_report_interval",
    "definitions_kept",
    "definitions_max_age",
    "etcd_answer_timeout",
    "etcd_connect_timeout",
    "etcd_max_answer_bytes",
    "metrics_address",
    "migration_batch_time",
    "migration_lock_timeout",
    "migration_mode",
    "migration_units_per_second",
    "module_cache_dir",
    "modules_dir",
    "modules_dirs",
    "on_unreadable",
    "pin_api_version",
    "pin_data_version",
    "pin_release",
    "quarantine_limit",
    "rollback_on_drain_to_version",
    "trusted_keys",
    "update_max_in_flight",
    "update_max_in_flight_total",
    "update_overlap",
    "update_routable_timeout",
];

/// Diego's keys that have no effect here: those that its own BBS ignores, those for other
/// components (`loggregator_app_metric_exclusion_filter`), the one that logs repeated start reports
/// of instances, which this host never logs, and those for a pool of connections to etcd, which is
/// read over one. And `replay_dir`, which hosts of this project had until 0.2.
pub(super) const WITHOUT_MEANING: [&str; 10] = [
    "advertise_url",
    "cell_registrations_locket_enabled",
    "debug_lrp_start_heartbeats",
    "desired_lrp_creation_timeout",
    "etcd_client_session_cache_size",
    "etcd_max_idle_conns_per_host",
    "locks_locket_enabled",
    "loggregator.loggregator_app_metric_exclusion_filter",
    "replay_dir",
    "require_ssl",
];

/// The key that `unknown` resembles most, within one edit plus another per eight characters.
pub(super) fn resembled<'a>(
    unknown: &str,
    keys: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let written = unknown.replace('-', "_");
    let distances = keys
        .into_iter()
        .map(|key| (strsim::osa_distance(&written, key), key));
    let (distance, key) = distances.min()?;
    (distance <= 1 + key.len() / 8).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_key_of_ours_is_recognised() {
        for (written, meant) in [
            ("pin_data_versoin", "pin_data_version"),
            ("pin-data-version", "pin_data_version"),
            ("pindataversion", "pin_data_version"),
            ("pin_apiversion", "pin_api_version"),
            ("rollback_on_drain_version", "rollback_on_drain_to_version"),
            ("migrations_mode", "migration_mode"),
            ("migration_units_per_sec", "migration_units_per_second"),
            ("on_unreadeble", "on_unreadable"),
            ("module_dir", "modules_dir"),
            ("datadir", "data_dir"),
            ("metric_address", "metrics_address"),
            ("admin_sock", "admin_socket"),
        ] {
            assert_eq!(resembled(written, OURS), Some(meant), "{written}");
        }
    }

    /// All keys of Diego's BBS from its first commit to `b2385bea`, and other names that an
    /// operator may add.
    #[test]
    fn diegos_and_unrelated_keys_resemble_none_of_ours() {
        let diegos = "access_log_path active_key_label advanced_metrics advertise_url auctioneer_address \
            auctioneer_ca_cert auctioneer_client_cert auctioneer_client_key auctioneer_require_tls ca_file \
            cell_registrations_locket_enabled cert_file communication_timeout consul_cluster \
            converge_repeat_interval convergence_workers database_connection_string database_driver \
            db_connection_timeout db_read_timeout db_write_timeout debug_address debug_lrp_start_heartbeats \
            desired_lrp_creation_timeout detect_consul_cell_registrations dropsonde_port \
            enable_consul_service_registration enable_db_health_check encryption_keys \
            expire_completed_task_duration expire_pending_task_duration generate_suspect_actual_lrps \
            health_address health_check_failure_threshold health_check_interval health_check_timeout key_file \
            kick_task_duration listen_address lock_retry_interval lock_ttl locket_address locket_ca_cert_file \
            locket_client_cert_file locket_client_key_file locket_client_keepalive_time \
            locket_client_keepalive_timeout locket_enabled locks_locket_enabled log_level loggregator \
            max_data_string_length max_database_connection_lifetime max_database_connections \
            max_idle_database_connections max_open_database_connections max_task_placement_retries \
            max_task_retries redact_patterns redact_secrets rep_ca_cert rep_client_cert rep_client_key \
            rep_client_session_cache_size rep_require_tls report_interval require_ssl session_name \
            skip_consul_lock sql_ca_cert_file sql_enable_identity_verification task_callback_workers time_format \
            update_workers uuid";
        for key in diegos
            .split_whitespace()
            .chain(["comment", "_comment", "version", "name", "x", ""])
        {
            assert_eq!(resembled(key, OURS), None, "{key}");
        }
    }
}
