//! The meaning of each key, and the errors of files that cannot be used.

mod any;
mod connection_strings;
mod connections;
mod diego;
mod places;

use std::time::Duration;

use bbs_database::Server;

use super::*;

/// The configuration, or its first fault.
fn read(json: &str) -> Result<Config, ConfigError> {
    read_all(json).map_err(|mut faults| faults.remove(0))
}

/// The configuration, or all of its faults.
fn read_all(json: &str) -> Result<Config, Vec<ConfigError>> {
    check(parse(json).expect("the test's JSON parses"), folders())
}

fn check(file: Map<String, Value>, folders: Folders) -> Result<Config, Vec<ConfigError>> {
    let ExaminedConfig { config, faults, .. } = examine(file, folders);
    if faults.is_empty() {
        Ok(config)
    } else {
        Err(faults)
    }
}

/// The folders of a file `/etc/bbs/bbs.json` that is read by a process elsewhere.
fn folders() -> Folders {
    Folders {
        path: "/etc/bbs/bbs.json".into(),
        file: "/etc/bbs".into(),
        working: "/nonexistent".into(),
    }
}

const SMALLEST: &str = r#"{"database_connection_string":"data/bbs.db","modules_dir":"modules"}"#;

/// The smallest file plus more keys.
fn with(keys: &str) -> String {
    SMALLEST.replace('}', &format!(",{keys}}}"))
}

fn on_mysql(keys: &str) -> Server {
    server("mysql", "diego:p@ss@tcp(db:3306)/cf", keys)
}

fn server(driver: &str, connection_string: &str, keys: &str) -> Server {
    let json = format!(
        r#"{{"database_driver":"{driver}","database_connection_string":"{connection_string}","modules_dir":"m"{keys}}}"#
    );
    match read(&json).unwrap().database {
        Address::Server(server) => *server,
        Address::Sqlite(path) => panic!("a file: {}", path.display()),
    }
}

#[test]
fn smallest_file_has_defaults_beside_the_database() {
    let config = read(SMALLEST).unwrap();
    assert_eq!(config.listeners.api.to_string(), "127.0.0.1:8889");
    assert_eq!(
        config.database,
        Address::Sqlite("/etc/bbs/data/bbs.db".into())
    );
    assert_eq!(config.modules_dir, Path::new("/etc/bbs/modules"));
    assert_eq!(
        config.module_caches.last().unwrap(),
        Path::new("/etc/bbs/data/bbs.db.data/module-cache")
    );
    assert_eq!(
        config.admin_socket,
        Path::new("/etc/bbs/data/bbs.db.data/admin.sock")
    );
    assert_eq!(config.lock, Lock::default());
    assert_eq!(config.migration, MigrationConfig::default());
    assert_eq!(config.ignored, Ignored::default());
}

#[test]
fn folders_default_to_the_data_folder_and_can_be_set() {
    let moved = read(&with(r#""data_dir":"/var/lib/bbs""#)).unwrap();
    assert_eq!(
        moved.module_caches.last().unwrap(),
        Path::new("/var/lib/bbs/module-cache")
    );
    let named = read(&with(r#""module_cache_dir":"cache""#)).unwrap();
    assert_eq!(named.module_caches, [Path::new("/etc/bbs/cache")]);
}

/// A file that names a database of a server, and no folder.
const ON_A_SERVER: &str = r#"{"database_driver":"postgres","database_connection_string":"host=db user=u dbname=d","modules_dir":"m"}"#;

#[test]
fn hosts_of_one_folder_have_data_folders_of_their_own_and_none_beside_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str, json: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, json).unwrap();
        Config::read(&path).unwrap()
    };
    let [one, other] = ["one.json", "other.json"].map(|name| named(name, ON_A_SERVER));
    assert_ne!(one.admin_socket, other.admin_socket);
    for config in [&one, &other] {
        for place in [&config.admin_socket, config.module_caches.last().unwrap()] {
            assert!(
                place.starts_with("/var/tmp") && !place.starts_with(folder.path()),
                "{}",
                place.display()
            );
        }
        assert!(config.admin_socket.as_os_str().len() < 100);
    }
    let link = folder.path().join("link.json");
    std::os::unix::fs::symlink("one.json", &link).unwrap();
    assert_eq!(Config::read(&link).unwrap().admin_socket, one.admin_socket);
    let files = ["one.db", "other.db"].map(|name| SMALLEST.replace("data/bbs.db", name));
    let [one, other] = files.map(|json| named("files.json", &json));
    assert_ne!(one.admin_socket, other.admin_socket);
}

#[test]
fn admin_socket_is_in_the_data_folder_or_where_its_key_says() {
    for named in [r#""data_dir":"d""#, r#""admin_socket":"d/admin.sock""#] {
        let config = read(&with(named)).unwrap();
        assert_eq!(config.admin_socket, Path::new("/etc/bbs/d/admin.sock"));
    }
}

const LOCKET: &str = r#""uuid":"me","lock_ttl":"30s","lock_retry_interval":"1s","locket_address":"locket:8891",
    "locket_ca_cert_file":"ca.crt","locket_client_cert_file":"c.crt","locket_client_key_file":"c.key",
    "locket_client_keepalive_time":10,"locket_client_keepalive_timeout":22"#;

#[test]
fn locket_address_selects_locket() {
    let keys = LOCKET;
    let lock = read(&with(keys)).unwrap().lock;
    assert_eq!(
        (
            lock.ttl.as_secs(),
            lock.retry_interval.as_secs(),
            lock.uuid.as_deref()
        ),
        (30, 1, Some("me"))
    );
    let locket = lock.locket.unwrap();
    assert_eq!(
        (&*locket.address, &*locket.tls.key_file),
        ("locket:8891", Path::new("/etc/bbs/c.key"))
    );
    assert_eq!(locket.keepalive_timeout, Some(Duration::from_secs(22)));
    for missing in [
        "uuid",
        "locket_ca_cert_file",
        "locket_client_cert_file",
        "locket_client_key_file",
    ] {
        let error = read(&with(
            &keys.replace(&format!(r#""{missing}""#), r#""other""#),
        ))
        .unwrap_err();
        assert!(
            matches!(error, ConfigError::Missing { key, .. } if key == missing),
            "{missing}: {error}"
        );
    }
}

#[test]
fn migration_keys_are_read() {
    let keys = r#""migration_mode":"online","on_unreadable":"quarantine","rollback_on_drain_to_version":1722634733,
        "migration_units_per_second":500,"migration_batch_time":"100ms","migration_lock_timeout":"1h","quarantine_limit":7"#;
    let expected = MigrationConfig {
        mode: MigrationMode::Online,
        on_unreadable: OnUnreadable::Quarantine,
        rollback_on_drain_to: Some(1_722_634_733),
        quarantine_limit: Some(7),
        units_per_second: Some(500),
        batch_time: Some(Duration::from_millis(100)),
        lock_timeout: Some(Duration::from_secs(3600)),
    };
    assert_eq!(read(&with(keys)).unwrap().migration, expected);
}

#[test]
fn keys_without_effect_are_listed() {
    let ignored = read(&with(
        r#""locket_adress":"x","advertise_url":"y","require_ssl":true"#,
    ))
    .unwrap()
    .ignored;
    assert_eq!(
        (&ignored.known[..], &ignored.unknown[..]),
        (
            &["advertise_url".to_owned(), "require_ssl".to_owned()][..],
            &["locket_adress".to_owned()][..]
        )
    );
    let nested = r#""loggregator":{"loggregator_use_v2_api":false,"Dropsonde_Port":1,"loggregator_app_metric_exclusion_filter":[]},
        "advanced_metrics":{"route_config":{"request_size":[]}}"#;
    let ignored = read(&with(nested)).unwrap().ignored;
    assert_eq!(
        ignored.known,
        ["loggregator.loggregator_app_metric_exclusion_filter"]
    );
    assert_eq!(
        ignored.unknown,
        [
            "advanced_metrics.route_config.request_size",
            "loggregator.dropsonde_port"
        ]
    );
    let json = r#"{"database_driver":"mysql","database_connection_string":"u:p@tcp(db)/d?parseTime=true","modules_dir":"m"}"#;
    assert_eq!(
        read(json).unwrap().ignored.unknown,
        ["database_connection_string: parseTime"]
    );
    let json = r#"{"database_driver":"postgres","database_connection_string":"postgres://u@db/d","modules_dir":"m",
        "sql_enable_identity_verification":true}"#;
    assert_eq!(
        read(json).unwrap().ignored.unknown,
        ["sql_enable_identity_verification: without sql_ca_cert_file"]
    );
}

#[test]
fn misspelt_key_of_ours_is_rejected_with_the_right_name() {
    let error = read(&with(r#""pin_data_versoin":1722634733"#)).unwrap_err();
    assert!(
        matches!(&error, ConfigError::Misspelt { written, meant: "pin_data_version" } if written == "pin_data_versoin"),
        "{error}"
    );
    let said = error.to_string();
    assert!(
        said.contains("`pin_data_versoin`") && said.contains("write `pin_data_version`"),
        "{said}"
    );
}

#[test]
fn each_key_in_the_list_of_ours_is_read() {
    for key in names::OURS
        .into_iter()
        .filter(|key| !["modules_dir"].contains(key))
    {
        let config = read(&with(&format!(r#""{key}":null"#))).unwrap();
        assert_eq!(config.ignored, Ignored::default(), "{key}");
    }
}

#[test]
fn unusable_values_are_rejected() {
    for (key, value) in [
        ("listen_address", r#""0.0.0.0:8889""#),
        ("listen_address", r#"":8889""#),
        ("health_address", r#""127.0.0.1:8889""#),
        ("metrics_address", r#"":8889""#),
        ("auctioneer_address", r#""auctioneer:9016""#),
        ("lock_ttl", r#""500ms""#),
        ("migration_units_per_second", "0"),
        ("migration_batch_time", r#""0s""#),
    ] {
        let refused = read(&with(&format!(r#""{key}":{value}"#)));
        assert!(
            matches!(refused, Err(ConfigError::Refused { key: named, .. }) if named == key),
            "{key}"
        );
    }
    let json = with(r#""database_driver":"oracle""#);
    assert!(matches!(read(&json), Err(ConfigError::Driver(driver)) if driver == "oracle"));
}

#[test]
fn value_of_a_wrong_type_is_rejected_with_key_value_and_form() {
    for (key, value, part) in [
        (
            "migration_mode",
            r#""fast""#,
            r#"`migration_mode` is "fast"; write "offline" or "online""#,
        ),
        (
            "on_unreadable",
            r#""skip""#,
            r#"`on_unreadable` is "skip"; write "stop" or "quarantine""#,
        ),
        (
            "lock_ttl",
            "15",
            r#"`lock_ttl` is 15; write a duration as in "10s", "1m30s" or "500ms""#,
        ),
        (
            "communication_timeout",
            r#""15""#,
            r#"`communication_timeout` is "15"; write a duration as in"#,
        ),
        (
            "converge_repeat_interval",
            r#""""#,
            r#"`converge_repeat_interval` is ""; write a duration as in"#,
        ),
        (
            "max_open_database_connections",
            "1.5",
            "`max_open_database_connections` is 1.5; write a whole number",
        ),
        (
            "advanced_metrics",
            r#"{"route_config":{"request_count":"Ping"}}"#,
            r#"`request_count` is "Ping"; write a list of texts"#,
        ),
        (
            "log_level",
            r#""loud""#,
            r#"`log_level` is "loud"; write "debug", "info", "error" or "fatal""#,
        ),
        (
            "time_format",
            r#""iso""#,
            r#"`time_format` is "iso"; write "unix-epoch" or "rfc3339""#,
        ),
        (
            "loggregator",
            "true",
            "`loggregator` is true; write an object",
        ),
        (
            "pin_data_version",
            "\"diego\"",
            "`pin_data_version` is \"diego\"; write a whole number, or name a release with `pin_release`",
        ),
        ("uuid", "1", "`uuid` is 1; write a text"),
        ("uuid", "[]", "`uuid` is a list; write a text"),
        (
            "update_max_in_flight",
            "0",
            r#"`update_max_in_flight` is 0; write a number of instances above 0, or a percentage from "1%" to "100%""#,
        ),
        (
            "trusted_keys",
            r#"{"bbs":"RW"}"#,
            "`trusted_keys` is an object; write an object whose values are lists",
        ),
    ] {
        match read(&with(&format!(r#""{key}":{value}"#))) {
            Err(error @ ConfigError::Value { .. }) => {
                let message = error.to_string();
                assert!(message.starts_with(part), "{key}: {message}");
                // The message is the whole description.
                assert!(std::error::Error::source(&error).is_none());
            }
            other => panic!("{key}: {other:?}"),
        }
    }
}

#[test]
fn address_is_ip_and_port_or_gos_shorter_forms() {
    let health = |text: &str| {
        read(&with(&format!(r#""health_address":"{text}""#))).map(|read| read.listeners.health)
    };
    for (text, address) in [
        ("127.0.0.1:8890", "127.0.0.1:8890"),
        ("[::1]:8890", "[::1]:8890"),
        ("localhost:8890", "127.0.0.1:8890"),
        (":8890", "0.0.0.0:8890"),
    ] {
        assert_eq!(
            health(text)
                .unwrap()
                .map(|address| address.to_string())
                .as_deref(),
            Some(address)
        );
    }
    assert_eq!(health("").unwrap(), None);
    for text in [
        "8890",
        "bbs:8890",
        "127.0.0.1",
        "127.0.0.1:port",
        "localhost:99999",
        ":",
    ] {
        let error = health(text).unwrap_err();
        assert!(
            matches!(
                &error,
                ConfigError::Address {
                    key: "health_address",
                    ..
                }
            ),
            "{text}: {error}"
        );
    }
}

#[test]
fn keys_are_read_as_go_reads_them() {
    let json = r#"{"Database_Connection_String":"bbs.db","MODULES_DIR":"m","lock_TTL":"30s","uuid":null,
        "log_level":"debug","encryption_keys":{"Key-A":"Pass"},"active_key_label":"Key-A"} trailing {"#;
    let config = read(json).unwrap();
    assert_eq!(
        (config.lock.ttl.as_secs(), config.lock.uuid.as_deref()),
        (30, None)
    );
    assert_eq!(
        (
            config.logging.level,
            config.encryption_keys["Key-A"].as_str()
        ),
        (LogLevel::Debug, "Pass")
    );
    let config = read(&with(
        r#""Advanced_Metrics":{"ENABLED":true,"Route_Config":{"Request_Count":null,"request_latency":["Ping",null]}},
        "Loggregator":null,"redact_secrets":true,"redact_patterns":[null],"encryption_keys":{"Key-A":null}"#,
    ));
    let config = config.unwrap();
    let routes = &config.clients.advanced_metrics;
    assert_eq!(
        (&routes.request_count[..], &routes.request_latency[..]),
        (&[][..], &["Ping".to_owned(), "".into()][..])
    );
    assert_eq!(config.logging.redact, Some(vec![String::new()]));
    assert_eq!(config.encryption_keys["Key-A"].as_str(), "");
    assert_eq!(config.ignored, Ignored::default());
    for broken in ["", "   ", "[]", "null", "{", "bbs", r#"{"a":1,}"#] {
        assert!(parse(broken).is_err(), "{broken:?}");
    }
}

#[test]
fn missing_required_keys_are_named() {
    let key = |json| match read(json) {
        Err(ConfigError::Missing { key, .. }) => key,
        other => panic!("expected a missing key, got {other:?}"),
    };
    assert_eq!(key("{}"), "database_connection_string");
    assert_eq!(
        key(r#"{"database_connection_string":" "}"#),
        "database_connection_string"
    );
    let no_modules = read(r#"{"database_connection_string":"x"}"#).unwrap_err();
    assert!(
        matches!(&no_modules, ConfigError::NoModules { places } if places.contains("modules or ")),
        "{no_modules}"
    );
}

/// Keys at fault, in the order of the report.
fn faults(json: &str) -> Vec<String> {
    let faults = read_all(json).unwrap_err();
    faults
        .iter()
        .map(|fault| fault.key().expect("it is that of a key").to_owned())
        .collect()
}

#[test]
fn all_faults_are_reported_at_once_each_key_with_its_first() {
    let diegos =
        r#"{"database_connection_string":"x","modules_dir":"m","auctioneer_address":"https://a"}"#;
    let missing = [
        "cert_file",
        "key_file",
        "ca_file",
        "database_driver",
        "locket_address",
        "health_address",
        "locket_ca_cert_file",
        "locket_client_cert_file",
        "locket_client_key_file",
        "uuid",
    ];
    assert_eq!(faults(diegos), missing);
    let json = with(
        r#""log_level":"loud","lock_ttl":15,"health_address":"here","listen_address":"0.0.0.0:1","uuid":7,
        "locket_address":"l","pin_data_versoin":1,"on_unreadeble":"stop","encryption_keys":5,"trusted_keys":{"A":[]},
        "migration_batch_time":"0s","loggregator":{"loggregator_api_port":"x"},"auctioneer_client_key":"k""#,
    );
    let expected = [
        "uuid",
        "lock_ttl",
        "locket_ca_cert_file",
        "locket_client_cert_file",
        "locket_client_key_file",
        "health_address",
        "listen_address",
        "auctioneer_client_cert",
        "auctioneer_ca_cert",
        "loggregator_api_port",
        "migration_batch_time",
        "encryption_keys",
        "trusted_keys",
        "log_level",
        "on_unreadeble",
        "pin_data_versoin",
    ];
    assert_eq!(faults(&json), expected);
}

#[test]
fn unknown_key_that_resembles_one_of_diegos_is_ignored_with_that_key() {
    let keys = r#""converge_repeat_intervall":"1s","advertise_ur":"x","comment":1,"loggregator":{"loggregator_api_prt":1}"#;
    let ignored = read(&with(keys)).unwrap().ignored;
    let resembled: Vec<_> = ignored
        .resembled
        .iter()
        .map(|(written, meant)| (&**written, &**meant))
        .collect();
    assert_eq!(
        resembled,
        [
            ("advertise_ur", "advertise_url"),
            ("converge_repeat_intervall", "converge_repeat_interval"),
            (
                "loggregator.loggregator_api_prt",
                "loggregator.loggregator_api_port"
            ),
        ]
    );
    assert_eq!(ignored.unknown.len(), 4);
}

#[test]
fn debug_output_and_errors_have_no_secrets() {
    let json = r#"{"database_driver":"mysql","database_connection_string":"diego:hunter2@tcp(db)/cf","modules_dir":"m",
        "encryption_keys":{"k":"hunter1"},"active_key_label":"k"}"#;
    let printed = format!("{:?}", read(json).unwrap());
    assert!(!printed.contains("hunter"), "{printed}");
    for passphrases in [
        r#""hunter2""#,
        r#"["hunter2"]"#,
        r#"{"k":["hunter2"]}"#,
        r#"{"k":{"p":"hunter2"}}"#,
        r#"{"k":81549}"#,
    ] {
        let error = read(&with(&format!(r#""encryption_keys":{passphrases}"#))).unwrap_err();
        let said = format!("{error} {error:?}");
        assert!(
            said.contains("encryption_keys")
                && !said.contains("hunter2")
                && !said.contains("81549"),
            "{said}"
        );
    }
    let broken = json.replace("@tcp", "@udp");
    let error = read(&broken).unwrap_err();
    let said = format!("{error} {error:?}");
    assert!(!said.contains("hunter") && said.contains("tcp"), "{said}");
}

#[test]
fn trusted_keys_and_accepted_catalogs_are_read() {
    let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    let keys = format!(
        r#""trusted_keys":{{"bbs":["{key}"],"colours":null}},"accept_older_catalogs":["colours"]"#
    );
    let config = read(&with(&keys)).unwrap();
    assert!(!config.trusted_keys.is_empty());
    assert_eq!(config.accept_older_catalogs, ["colours"]);
    for none in [
        SMALLEST,
        &with(r#""trusted_keys":null,"accept_older_catalogs":null"#),
        &with(r#""trusted_keys":{}"#),
    ] {
        let config = read(none).unwrap();
        assert!(config.trusted_keys.is_empty() && config.accept_older_catalogs.is_empty());
    }
    for (keys, named, part) in [
        (
            format!(r#""trusted_keys":{{"bbs":["{key}","{key}x"]}}"#),
            "trusted_keys",
            "number 2 of the keys for \"bbs\"",
        ),
        (
            r#""trusted_keys":{"bbs":[null]}"#.to_owned(),
            "trusted_keys",
            "number 1 of the keys for \"bbs\"",
        ),
        (
            r#""trusted_keys":{"BBS":[]}"#.to_owned(),
            "trusted_keys",
            "\"BBS\" is not the name of a catalog",
        ),
        (
            r#""accept_older_catalogs":["a b"]"#.to_owned(),
            "accept_older_catalogs",
            "\"a b\" is not the name",
        ),
    ] {
        match read(&with(&keys)) {
            Err(ConfigError::Catalogs { key, reason }) => {
                assert!(
                    key == named && reason.to_string().contains(part),
                    "{key}: {reason}"
                );
            }
            other => panic!("{keys}: {other:?}"),
        }
    }
}
