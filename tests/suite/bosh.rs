//! The BOSH release: its templates, its scripts, and the configuration that it renders.

mod add_on;
mod bpm;
mod files;

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::bosh::{RenderedJob, release};

/// Keys that the job leaves out unless their properties are set: the host's limits are longer, since
/// they are also those of a migration's statements.
const DEFAULTS_OF_DIEGO: [(&str, &str); 2] =
    [("db_read_timeout", "60s"), ("db_write_timeout", "60s")];

/// Properties of Diego's job, and the `bbs.json` that Diego's job renders from them, by a name for
/// the combination. Those of `cf_deployment` are the ones that the manifest of cf-deployment sets.
const OF_DIEGOS_JOB: &str = include_str!("../fixtures/bosh-bbs-job.json");
/// A public key of minisign.
const PUBLIC_KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
/// Keys that Diego's job does not write.
const ADDITIONS: [&str; 4] = [
    "migration_mode",
    "modules_dir",
    "modules_dirs",
    "on_unreadable",
];

/// Properties of Diego's job that configure its runtime.
const WITHOUT_EFFECT: [&str; 2] = ["diego.bbs.gogc", "diego.bbs.gomemlimit"];

fn of_diegos_job(combination: &str) -> (Value, Value) {
    let mut combinations: Value = serde_json::from_str(OF_DIEGOS_JOB).expect("the fixture is JSON");
    let mut found = combinations[combination].take();
    (found["properties"].take(), found["config"].take())
}

fn required() -> Value {
    of_diegos_job("required").0
}

/// All properties, also those of this release.
fn all() -> Value {
    let mut properties = of_diegos_job("all").0;
    properties["diego"]["bbs"]["metrics_port"] = 9100.into();
    properties["diego"]["bbs"]["migration"] = json!({
        "mode": "online", "on_unreadable": "quarantine", "rate": 500, "lock_timeout": "1h", "quarantine_limit": 7,
        "batch_time": "100ms", "rollback_on_drain_to": 1722634733,
    });
    properties["diego"]["bbs"]["etcd"] = json!({
        "machines": ["one.example", "two.example"], "ca_cert": "CA", "client_cert": "CERTIFICATE", "client_key": "KEY",
    });
    properties["diego"]["bbs"]["lrp_updates"] = json!({ "max_in_flight": "25%", "max_in_flight_total": 50, "routable_timeout": "5m", "overlap": "5s", "definitions_kept": 3, "definitions_max_age": "24h" });
    properties["diego"]["bbs"]["lock_ttl"] = 30.into();
    properties["diego"]["bbs"]["pin"] = json!({ "data_version": 1722634733, "api_version": "1.1" });
    properties["diego"]["bbs"]["modules"] =
        json!({ "trusted_keys": { "bbs": [PUBLIC_KEY] }, "accept_older_catalogs": ["bbs"] });
    properties
}

/// Sets a property by its path.
fn with(mut properties: Value, path: &str, value: Value) -> Value {
    *path
        .split('.')
        .fold(&mut properties, |within, name| &mut within[name]) = value;
    properties
}

fn rendered_config(properties: &Value) -> Value {
    serde_json::from_str(RenderedJob::render("bbs", properties).text("config/bbs.json"))
        .expect("it is JSON")
}

#[test]
fn every_template_is_listed_and_every_property_is_used() {
    for (job, properties, unused) in [
        ("bbs", all(), &WITHOUT_EFFECT[..]),
        ("bbs-migrate", json!({}), &[]),
    ] {
        let folder = release().join("jobs").join(job);
        let spec = std::fs::read_to_string(folder.join("spec")).expect("the job has a spec");
        let listed = spec
            .lines()
            .filter_map(|line| line.strip_prefix("  ")?.split_once(".erb:"));
        let listed: BTreeSet<_> = listed.map(|(name, _)| format!("{name}.erb")).collect();
        let files = std::fs::read_dir(folder.join("templates")).expect("the job has templates");
        let files: BTreeSet<_> = files
            .map(|file| {
                file.expect("a file")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        assert_eq!(listed, files, "{job}");
        let job = RenderedJob::render(job, &properties);
        assert_eq!(job.errors(), Vec::<&str>::new());
        assert_eq!(job.unused, unused);
    }
}

#[test]
fn configuration_is_that_of_diegos_job_and_the_additions() {
    for combination in ["required", "all", "some_certificates", "cf_deployment"] {
        let (properties, mut expected) = of_diegos_job(combination);
        let mut config = rendered_config(&properties);
        for (key, default) in DEFAULTS_OF_DIEGO {
            if expected[key] == default {
                expected.as_object_mut().expect("an object").remove(key);
            }
        }
        let keys = config.as_object_mut().expect("an object");
        assert!(
            ADDITIONS.iter().all(|key| keys.remove(*key).is_some()),
            "{combination}"
        );
        assert_eq!(config, expected, "{combination}");
    }
}

#[test]
fn properties_of_this_release_are_rendered() {
    let config = rendered_config(&all());
    for (key, expected) in [
        ("metrics_address", json!("127.0.0.1:9100")),
        ("migration_mode", json!("online")),
        ("on_unreadable", json!("quarantine")),
        ("migration_units_per_second", json!(500)),
        ("migration_lock_timeout", json!("1h")),
        ("migration_batch_time", json!("100ms")),
        ("lock_ttl", json!("30s")),
        ("pin_data_version", json!(1722634733)),
        ("pin_api_version", json!("1.1")),
        ("quarantine_limit", json!(7)),
        ("rollback_on_drain_to_version", json!(1722634733)),
        ("update_max_in_flight", json!("25%")),
        ("update_max_in_flight_total", json!(50)),
        ("update_routable_timeout", json!("5m")),
        ("update_overlap", json!("5s")),
        ("definitions_kept", json!(3)),
        ("definitions_max_age", json!("24h")),
        ("trusted_keys", json!({ "bbs": [PUBLIC_KEY] })),
        ("accept_older_catalogs", json!(["bbs"])),
        (
            "etcd_cluster_urls",
            json!(["https://one.example:4001", "https://two.example:4001"]),
        ),
        (
            "etcd_ca_file",
            json!("/var/vcap/jobs/bbs/config/certs/etcd/ca.crt"),
        ),
    ] {
        assert_eq!(config[key], expected, "{key}");
        assert!(
            rendered_config(&required())
                .get(key)
                .is_none_or(|default| *default != expected),
            "{key}"
        );
    }
    let of_a_release = with(all(), "diego.bbs.pin", json!({ "release": "0.1" }));
    assert_eq!(rendered_config(&of_a_release)["pin_release"], "0.1");
    let plain = with(
        all(),
        "diego.bbs.etcd",
        json!({ "machines": ["one.example"], "port": 2379, "require_ssl": false }),
    );
    assert_eq!(
        rendered_config(&plain)["etcd_cluster_urls"],
        json!(["http://one.example:2379"])
    );
    let scraped = RenderedJob::render("bbs", &all());
    assert!(
        scraped
            .text("config/prom_scraper_config.yml")
            .contains("port: 9100\n")
    );
    assert_eq!(
        RenderedJob::render("bbs", &required())
            .text("config/prom_scraper_config.yml")
            .trim(),
        ""
    );
}

/// Diego's BBS ignores the certificate on PostgreSQL, and does not start without it on MySQL.
#[test]
fn database_without_a_ca_certificate_is_reached_with_tls_on_postgresql_alone() {
    let tls = with(required(), "diego.bbs.sql.require_ssl", true.into());
    let job = RenderedJob::render("bbs", &tls);
    let is_named = |error: &&str| error.contains("diego.bbs.sql.ca_cert: required");
    assert!(job.errors().iter().any(is_named), "{:?}", job.errors());
    let config = rendered_config(&with(tls, "diego.bbs.sql.db_driver", "postgres".into()));
    let connection = config["database_connection_string"].as_str();
    assert!(
        connection.is_some_and(|text| text.ends_with("/d?sslmode=require")),
        "{connection:?}"
    );
    assert_eq!(config.get("sql_ca_cert_file"), None);
}

#[test]
fn post_start_waits_for_the_migration_unless_it_is_turned_off() {
    let path = "diego.bbs.migration.post_start_wait";
    for (properties, wait) in [
        (required(), Some("--wait 3600 ")),
        (with(required(), path, 60.into()), Some("--wait 60 ")),
        (with(required(), path, 0.into()), None),
    ] {
        let job = RenderedJob::render("bbs", &properties);
        let script = job.text("bin/post-start");
        assert_eq!(
            script.contains("bbs ready --migrated"),
            wait.is_some(),
            "{script}"
        );
        assert!(wait.is_none_or(|wait| script.contains(wait)), "{script}");
    }
}

/// Newer jobs of Diego do not have the property that turns metrics on, and manifests for them do
/// not set it.
#[test]
fn metrics_are_sent_if_there_are_certificates_unless_they_are_turned_off() {
    let certificates = json!({ "ca_cert": "CA", "cert": "C", "key": "K" });
    let with_certificates = with(required(), "loggregator", certificates);
    let off = with(
        with_certificates.clone(),
        "loggregator.use_v2_api",
        false.into(),
    );
    for (properties, is_on) in [(required(), false), (with_certificates, true), (off, false)] {
        let section = rendered_config(&properties)["loggregator"].take();
        assert_eq!(section["loggregator_use_v2_api"], is_on, "{properties}");
        assert_eq!(
            section["loggregator_ca_path"].is_string(),
            is_on,
            "{properties}"
        );
    }
    for section in [json!({ "use_v2_api": true }), json!({ "ca_cert": "CA" })] {
        let job = RenderedJob::render("bbs", &with(required(), "loggregator", section));
        let is_named = |error: &&str| error.contains("loggregator.key: required to send metrics");
        assert!(job.errors().iter().any(is_named), "{:?}", job.errors());
    }
}

#[test]
fn empty_values_that_diegos_job_accepts_leave_their_keys_out() {
    for (path, value, key) in [
        ("diego.bbs.debug_addr", json!(""), "debug_address"),
        ("diego.bbs.etcd.machines", json!([]), "etcd_cluster_urls"),
    ] {
        let config = rendered_config(&with(all(), path, value));
        assert_eq!(config.get(key), None, "{path}");
        assert!(rendered_config(&all()).get(key).is_some(), "{path}");
    }
}

#[test]
fn missing_properties_are_errors_that_name_the_property() {
    for path in [
        "diego.bbs.ca_cert",
        "diego.bbs.server_cert",
        "diego.bbs.server_key",
        "diego.bbs.active_key_label",
        "diego.bbs.sql.db_host",
        "diego.bbs.sql.db_port",
        "diego.bbs.sql.db_schema",
        "diego.bbs.sql.db_username",
        "diego.bbs.sql.db_password",
    ] {
        let job = RenderedJob::render("bbs", &with(required(), path, Value::Null));
        assert!(
            job.errors().iter().any(|error| error.contains(path)),
            "{path}: {:?}",
            job.errors()
        );
    }
}

/// Asserts that a value of a property is an error that names it.
#[track_caller]
fn assert_refused(path: &str, value: &Value) {
    let job = RenderedJob::render("bbs", &with(required(), path, value.clone()));
    assert!(
        job.errors().iter().any(|error| error.contains(path)),
        "{path} {value}: {:?}",
        job.errors()
    );
    assert!(
        job.errors()
            .iter()
            .all(|error| !error.contains("undefined method")),
        "{:?}",
        job.errors()
    );
}

#[test]
fn wrong_properties_are_errors_that_name_the_property() {
    for (path, value) in [
        ("diego.bbs.listen_addr", json!("bbs:8889")),
        ("diego.bbs.health_addr", json!("127.0.0.1")),
        ("diego.bbs.health_addr", json!(":8890")),
        ("diego.bbs.debug_addr", json!("localhost:17017")),
        ("diego.bbs.sql.db_driver", json!("oracle")),
        ("diego.bbs.locket.client_keepalive_time", json!(23)),
        ("diego.bbs.migration.mode", json!("later")),
        ("diego.bbs.migration.on_unreadable", json!("skip")),
        ("logging.format.timestamp", json!("iso")),
        ("limits.open_files", json!("many")),
        ("limits.open_files", json!(0)),
        ("bpm.enabled", json!(false)),
        ("diego.bbs.encryption_keys", json!([])),
        ("diego.bbs.encryption_keys", json!({ "a": "b" })),
        ("diego.bbs.encryption_keys", json!(["a"])),
        ("diego.bbs.encryption_keys", json!([{ "label": "a" }])),
        (
            "diego.bbs.encryption_keys",
            json!([{ "label": "a", "passphrase": 5 }]),
        ),
        ("diego.bbs.active_key_label", json!("nope")),
        ("diego.bbs.migration.rate", json!("500/s")),
        ("diego.bbs.migration.rate", json!(0)),
        ("diego.bbs.migration.rollback_on_drain_to", json!("abc")),
        ("diego.bbs.migration.rollback_on_drain_to", json!(1.5)),
        ("diego.bbs.modules.trusted_keys", json!({ "bbs": ["RW"] })),
        (
            "diego.bbs.modules.trusted_keys",
            json!({ "bbs": PUBLIC_KEY }),
        ),
        ("diego.bbs.modules.trusted_keys", json!({ "bbs": [] })),
        ("diego.bbs.modules.trusted_keys", json!([PUBLIC_KEY])),
    ] {
        assert_refused(path, &value);
    }
    let job = RenderedJob::render("bbs", &with(all(), "diego.bbs.etcd.client_key", json!("")));
    assert!(
        job.errors()
            .iter()
            .any(|error| error.contains("diego.bbs.etcd.client_key")),
        "{:?}",
        job.errors()
    );
}

/// Goal: no value reaches an instance with which its host would not start.
#[test]
fn values_that_a_host_refuses_are_errors_that_name_the_property() {
    for (path, value) in [
        ("tasks.max_retries", json!("3")),
        ("logging.max_data_string_length", json!("640")),
        ("loggregator.use_v2_api", json!("true")),
        ("diego.bbs.listen_addr", json!("0.0.0.0:70000")),
        ("diego.bbs.log_level", json!("warn")),
        ("diego.bbs.debug_lrp_start_heartbeats", json!(1)),
        ("diego.bbs.enable_db_health_check", json!("yes")),
        ("diego.bbs.health_check_interval", json!("10s")),
        ("diego.bbs.health_check_failure_threshold", json!("3")),
        ("diego.bbs.metrics.advanced_metrics.enabled", json!("true")),
        ("diego.bbs.metrics.advanced_metrics.enabled", json!(true)),
        ("diego.bbs.metrics_port", json!("")),
        ("diego.bbs.metrics_port", json!(65_536)),
        ("diego.bbs.sql.db_port", json!("mysql")),
        ("diego.bbs.sql.max_open_connections", json!("200")),
        ("diego.bbs.sql.require_ssl", json!("false")),
        ("diego.bbs.enable_access_log", json!("false")),
        ("diego.bbs.health_addr", json!("127.0.0.0/8:8890")),
        ("diego.bbs.sql.db_read_timeout", json!("60s")),
        ("diego.bbs.sql.db_write_timeout", json!(-1)),
        ("diego.bbs.rep.require_tls", json!("true")),
        ("diego.bbs.rep.client_session_cache_size", json!("9")),
        ("diego.bbs.locket.client_keepalive_timeout", json!("22")),
        (
            "diego.bbs.convergence.repeat_interval_in_seconds",
            json!("30s"),
        ),
        ("diego.bbs.etcd.machines", json!("one.example")),
        (
            "diego.bbs.encryption_keys",
            json!([{ "label": "k".repeat(128), "passphrase": "s" }]),
        ),
        ("diego.bbs.lrp_updates.max_in_flight", json!(0)),
        ("diego.bbs.lrp_updates.max_in_flight", json!("25")),
        ("diego.bbs.lrp_updates.max_in_flight", json!("101%")),
        ("diego.bbs.lrp_updates.max_in_flight_total", json!(0)),
        ("diego.bbs.lrp_updates.routable_timeout", json!(5)),
        ("diego.bbs.lrp_updates.overlap", json!(5)),
        ("diego.bbs.lrp_updates.definitions_kept", json!(-1)),
        ("diego.bbs.lrp_updates.definitions_max_age", json!("1d")),
        ("diego.bbs.modules.dirs", json!("/x")),
        ("diego.bbs.modules.accept_older_catalogs", json!(["Bbs"])),
        (
            "diego.bbs.modules.trusted_keys",
            json!({ "Bbs": [PUBLIC_KEY] }),
        ),
        ("diego.bbs.lock_ttl", json!(0)),
        ("diego.bbs.lock_ttl", json!("30s")),
        ("diego.bbs.pin.data_version", json!("newest")),
        ("diego.bbs.pin.api_version", json!(1.1)),
        ("diego.bbs.pin.release", json!(0.1)),
        (
            "diego.bbs.pin",
            json!({ "release": "0.1", "data_version": 1722634733 }),
        ),
        ("diego.bbs.migration.batch_time", json!("0s")),
        ("diego.bbs.migration.lock_timeout", json!(5)),
        ("diego.bbs.migration.quarantine_limit", json!("x")),
        ("diego.bbs.migration.post_start_wait", json!("1h")),
        ("diego.bbs.migration.post_start_wait", json!(-1)),
    ] {
        assert_refused(path, &value);
    }
}

#[test]
fn keys_of_one_label_are_an_error() {
    let of_one_label =
        json!([{ "label": "a", "passphrase": "s1" }, { "label": "a", "passphrase": "s2" }]);
    let job = RenderedJob::render(
        "bbs",
        &with(required(), "diego.bbs.encryption_keys", of_one_label),
    );
    let is_named =
        |error: &&str| error.contains("diego.bbs.encryption_keys has two keys of one label: a, a");
    assert!(job.errors().iter().any(is_named), "{:?}", job.errors());
}

#[test]
fn wrong_properties_of_an_errand_are_errors_that_name_the_property() {
    for (properties, part) in [
        (
            json!({ "bbs_migrate": { "action": "drop" } }),
            "bbs_migrate.action",
        ),
        (
            json!({ "bbs_migrate": { "action": "down" } }),
            "bbs_migrate.to",
        ),
        (
            json!({ "bbs_migrate": { "action": "up", "to": "newest" } }),
            "bbs_migrate.to",
        ),
        (
            json!({ "bbs_migrate": { "action": "status", "to": 1 } }),
            "bbs_migrate.to",
        ),
        (
            json!({ "bbs_migrate": { "action": "up", "check": true } }),
            "bbs_migrate.check",
        ),
        (
            json!({ "bbs_migrate": { "action": "plan", "check": "yes" } }),
            "bbs_migrate.check",
        ),
        (
            json!({ "bbs_migrate": { "action": "plan", "on_unreadable": "stop" } }),
            "bbs_migrate.on_unreadable",
        ),
        (
            json!({ "bbs_migrate": { "action": "up", "on_unreadable": "skip" } }),
            "bbs_migrate.on_unreadable",
        ),
        (
            json!({ "bbs_migrate": { "action": "status", "max_count": 5 } }),
            "bbs_migrate.max_count",
        ),
        (
            json!({ "bbs_migrate": { "action": "up", "max_count": 0 } }),
            "bbs_migrate.max_count",
        ),
        (
            json!({ "bbs_migrate": { "action": "quarantine", "to": 5 } }),
            "bbs_migrate.to",
        ),
        (
            json!({ "bbs_migrate": { "action": "abort", "to": 5 } }),
            "bbs_migrate.to",
        ),
        (
            json!({ "bbs_migrate": { "action": "history", "max_count": 5 } }),
            "bbs_migrate.max_count",
        ),
    ] {
        let job = RenderedJob::render("bbs-migrate", &properties);
        assert!(
            job.errors().iter().any(|error| error.contains(part)),
            "{part}: {:?}",
            job.errors()
        );
    }
}

/// Checks a script with `bash -n` and shellcheck.
fn check_script(name: &str, script: &str) {
    for checker in [&["bash", "-n"][..], &["shellcheck", "-"]] {
        let mut child = Command::new(checker[0])
            .args(&checker[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; `tests/run` installs it", checker[0]));
        child
            .stdin
            .take()
            .expect("a pipe")
            .write_all(script.as_bytes())
            .expect("the checker reads");
        let output = child.wait_with_output().expect("the checker ends");
        assert!(
            output.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}

#[test]
fn scripts_are_valid() {
    for properties in [required(), all()] {
        let job = RenderedJob::render("bbs", &properties);
        let scripts: Vec<_> = job
            .texts()
            .into_iter()
            .filter(|(path, _)| path.starts_with("bin/"))
            .collect();
        assert_eq!(scripts.len(), 3);
        scripts
            .iter()
            .for_each(|(path, script)| check_script(path, script));
    }
    for properties in [
        json!({ "action": "status" }),
        json!({ "action": "plan", "to": 1722634733, "check": true }),
        json!({ "action": "down", "to": 1722634733, "on_unreadable": "quarantine", "max_count": 5 }),
        json!({ "action": "quarantine" }),
        json!({ "action": "history" }),
        json!({ "action": "abort" }),
    ] {
        let properties = json!({ "bbs_migrate": properties });
        check_script(
            "run",
            RenderedJob::render("bbs-migrate", &properties).text("bin/run"),
        );
    }
    for path in [
        "stage",
        "packages/bbs/packaging",
        "packages/bbs-modules/packaging",
    ] {
        check_script(
            path,
            &std::fs::read_to_string(release().join(path)).expect("the script is there"),
        );
    }
}
