//! Diego's own file: it is read completely, and every missing required key is an error.

use super::*;

/// The file as BOSH renders it, except for paths.
pub(super) const DIEGO: &str = include_str!("../../../../tests/fixtures/bbs.json");

/// The sample as a map, from which a test may remove keys.
fn sample() -> Map<String, Value> {
    let mut file = parse(DIEGO).unwrap();
    file.insert("modules_dir".to_owned(), "modules".into());
    file
}

#[test]
fn file_rendered_by_bosh_is_read_completely() {
    let config = check(sample(), folders()).unwrap();
    assert_eq!(config.ignored.unknown, [""; 0]);
    // Today's job has no etcd.
    let rendered = WITHOUT_MEANING.into_iter().filter(|key| {
        !["debug_lrp_start_heartbeats", "replay_dir"].contains(key)
            && !key.starts_with("loggregator.")
            && !key.starts_with("etcd_")
    });
    assert_eq!(config.ignored.known, rendered.collect::<Vec<_>>());
    let listeners = &config.listeners;
    assert_eq!(listeners.api.to_string(), "0.0.0.0:8889");
    assert_eq!(listeners.health.unwrap().to_string(), "127.0.0.1:8890");
    assert_eq!(listeners.debug.unwrap().to_string(), "127.0.0.1:17017");
    assert_eq!(
        listeners.access_log.as_deref(),
        Some(Path::new("/var/vcap/sys/log/bbs/bbs.access.log"))
    );
    assert_eq!(
        listeners.tls.as_ref().unwrap().ca_file,
        Path::new("/var/vcap/jobs/bbs/config/certs/ca.crt")
    );
    let auctioneer = config.clients.auctioneer.as_ref().unwrap();
    assert_eq!(
        auctioneer.address,
        "https://auctioneer.service.cf.internal:9016"
    );
    assert!(auctioneer.tls.is_some() && config.clients.rep.tls.is_some() && auctioneer.require_tls);
    let loggregator = config.clients.loggregator.as_ref().unwrap();
    assert_eq!(
        (loggregator.api_port, &*loggregator.source_id),
        (3458, "bbs")
    );
    let clients = &config.clients;
    let intervals = [
        clients.report_interval,
        clients.convergence_report_interval,
        clients.database_report_interval,
    ];
    assert_eq!(intervals.map(|interval| interval.as_secs()), [60, 15, 60]);
    assert_eq!(
        config.clients.communication_timeout,
        Duration::from_secs(10)
    );
    assert_eq!(
        (config.tasks.clone(), config.convergence.clone()),
        (Tasks::BOSH, Convergence::default())
    );
    let logging = Logging {
        format: None,
        session_name: Some("bbs".to_owned()),
        level: LogLevel::Info,
        time_format: TimeFormat::Rfc3339,
        max_data_string_length: Some(640),
        redact: None,
    };
    assert_eq!(config.logging, logging);
    assert_eq!(config.lock.ttl, Duration::from_secs(15));
}

/// The sample without one key.
fn without(key: &str) -> Result<Config, ConfigError> {
    let mut file = sample();
    file.remove(key)
        .unwrap_or_else(|| panic!("{key} is in the sample"));
    check(file, folders()).map_err(|mut faults| faults.remove(0))
}

#[test]
fn incomplete_configuration_of_a_diego_host_is_rejected() {
    for key in [
        "auctioneer_address",
        "auctioneer_ca_cert",
        "auctioneer_client_cert",
        "auctioneer_client_key",
        "ca_file",
        "cert_file",
        "key_file",
        "database_driver",
        "database_connection_string",
        "health_address",
        "locket_address",
        "locket_ca_cert_file",
        "locket_client_cert_file",
        "locket_client_key_file",
        "modules_dir",
        "uuid",
    ] {
        match without(key) {
            Err(ConfigError::Missing { key: named, .. }) => assert_eq!(named, key),
            Err(ConfigError::NoModules { .. }) if key == "modules_dir" => {}
            other => panic!("{key}: {other:?}"),
        }
    }
    for key in [
        "log_level",
        "report_interval",
        "convergence_workers",
        "debug_address",
        "rep_ca_cert",
        "access_log_path",
    ] {
        without(key).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
}

/// Covers every number and duration for which Diego's BBS accepts zero: absent, `null` and zero are
/// the same.
#[test]
fn absent_number_is_zero_where_zero_has_an_effect() {
    let keys = [
        "max_task_retries",
        "kick_task_duration",
        "expire_pending_task_duration",
        "expire_completed_task_duration",
    ];
    let zero = |key: &str| {
        if key == "max_task_retries" {
            "0"
        } else {
            r#""0s""#
        }
    };
    let zeros = keys
        .map(|key| format!(r#""{key}":{}"#, zero(key)))
        .join(",");
    let nulls = keys.map(|key| format!(r#""{key}":null"#)).join(",");
    for file in [SMALLEST.to_owned(), with(&zeros), with(&nulls)] {
        let tasks = read(&file).unwrap().tasks;
        assert_eq!(
            (tasks.max_retries, tasks.kick),
            (0, Duration::ZERO),
            "{file}"
        );
        assert_eq!(
            (tasks.expire_pending, tasks.expire_completed),
            (Duration::ZERO, Duration::ZERO),
            "{file}"
        );
    }
}

/// With zero, Diego's BBS would end, do no work, or wait without a limit.
#[test]
fn absent_number_has_boshs_value_where_zero_cannot_work() {
    let zeros = r#""task_callback_workers":0,"converge_repeat_interval":"0s","convergence_workers":0,"update_workers":-1,
        "communication_timeout":"0s","report_interval":"0s","lock_ttl":"0s","lock_retry_interval":"0s",
        "max_open_database_connections":-1"#;
    for file in [SMALLEST.to_owned(), with(zeros)] {
        let config = read(&file).unwrap();
        assert_eq!(config.tasks.callback_workers, 1000, "{file}");
        assert_eq!(config.convergence, Convergence::default(), "{file}");
        assert_eq!(
            (config.clients, config.lock),
            (ClientsConfig::default(), Lock::default()),
            "{file}"
        );
    }
}

#[test]
fn metrics_are_sent_where_an_agent_is_named() {
    let certificates =
        r#""loggregator_ca_path":"ca","loggregator_cert_path":"c","loggregator_key_path":"k""#;
    let agent = |keys: &str| {
        let section = format!(r#""loggregator":{{{keys}}}"#);
        read(&with(&section)).map(|config| {
            config
                .clients
                .loggregator
                .map(|agent| (agent.api_host, agent.api_port))
        })
    };
    let local = |port| Some(("127.0.0.1".to_owned(), port));
    for (keys, expected) in [
        ("", None),
        (r#""loggregator_source_id":"bbs""#, None),
        (r#""loggregator_api_port":0"#, None),
        (
            r#""loggregator_use_v2_api":false,"loggregator_api_port":3458"#,
            None,
        ),
        (
            &format!(r#""loggregator_use_v2_api":false,{certificates}"#),
            None,
        ),
        (
            &format!(r#""loggregator_use_v2_api":null,{certificates}"#),
            local(3458),
        ),
        (
            &format!(r#""loggregator_use_v2_api":true,{certificates}"#),
            local(3458),
        ),
        (certificates, local(3458)),
        (
            &format!(r#""loggregator_api_port":9,{certificates}"#),
            local(9),
        ),
        (
            &format!(
                r#""loggregator_api_host":"10.0.0.9","loggregator_api_port":9,{certificates}"#
            ),
            Some(("10.0.0.9".to_owned(), 9)),
        ),
    ] {
        assert_eq!(agent(keys).unwrap(), expected, "{keys}");
    }
    for keys in [
        r#""loggregator_use_v2_api":true"#,
        r#""loggregator_api_port":3458"#,
    ] {
        let error = agent(keys).unwrap_err();
        assert!(
            matches!(
                error,
                ConfigError::Missing {
                    key: "loggregator_ca_path",
                    ..
                }
            ),
            "{keys}: {error}"
        );
    }
}

#[test]
fn rarely_used_keys_are_read() {
    let config = read(&with(
        r#""enable_db_health_check":true,"health_check_timeout":"1s","redact_secrets":true,"redact_patterns":["x"],
        "advanced_metrics":{"enabled":true,"route_config":{"request_count":["Ping"],"request_latency":["Ping","Tasks"]}},
        "time_format":1, "convergence_report_interval":"1s", "database_report_interval":"2s""#,
    ))
    .unwrap();
    let clients = &config.clients;
    let every_s = (
        clients.convergence_report_interval.as_secs(),
        clients.database_report_interval.as_secs(),
    );
    assert_eq!((every_s, clients.report_interval.as_secs()), ((1, 2), 60));
    let check = config.listeners.health_check.unwrap();
    assert_eq!(
        (
            check.interval.as_secs(),
            check.timeout.as_secs(),
            check.attempts
        ),
        (10, 1, 3)
    );
    assert_eq!(
        config.logging.redact.as_deref(),
        Some(&["x".to_owned()][..])
    );
    assert_eq!(
        config.clients.advanced_metrics.request_latency,
        ["Ping", "Tasks"]
    );
    assert_eq!(config.logging.time_format, TimeFormat::Rfc3339);
    let off = read(&with(
        r#""advanced_metrics":{"enabled":false,"route_config":{"request_count":["Ping"]}}"#,
    ))
    .unwrap();
    assert_eq!(
        (off.clients.advanced_metrics, off.listeners.health_check),
        (clients::AdvancedMetrics::default(), None)
    );
}

#[test]
fn overlap_and_patience_of_an_update_are_configured() {
    let seconds = |keys: &str| {
        let pace = read(&with(keys)).unwrap().updates.pace;
        [pace.overlap, pace.routable_timeout].map(|time| time.as_secs())
    };
    assert_eq!(seconds(r#""uuid":"a""#), [60, 180]);
    assert_eq!(
        seconds(r#""update_overlap":"0s","update_routable_timeout":"5m""#),
        [0, 300]
    );
}
