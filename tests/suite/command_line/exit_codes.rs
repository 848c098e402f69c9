//! Exit codes: one table in the program and in the documents, and the code of every failed start.

use std::net::TcpListener;
use std::process::Output;

use regex::Regex;
use serde_json::json;

use crate::harness::database::{Kind, execute};
use crate::harness::deployment::Deployment;
use crate::harness::fixture::OLDEST;
use crate::harness::host::{Host, Installation};
use crate::harness::modules::modules;
use crate::harness::output::errors;
use crate::harness::{command, workspace};

/// Goal: the documents have the table of the program.
/// Method: help wraps its lines, so words are compared.
#[test]
fn table_of_the_documents_is_that_of_the_program() {
    let help = command()
        .args(["--help"])
        .output()
        .expect("the executable starts");
    let help = String::from_utf8(help.stdout).expect("text");
    let (_, table) = help
        .split_once("Exit codes:\n")
        .unwrap_or_else(|| panic!("no table in {help}"));
    let in_program = table.split_whitespace().collect::<Vec<_>>().join(" ");
    let guide =
        std::fs::read_to_string(workspace().join("host/OPERATING.md")).expect("the document");
    let (_, section) = guide
        .split_once("\n## Exit codes\n")
        .expect("the document has a section");
    let row = Regex::new(r"(?m)^\| (\d+) \| (.+) \|$").unwrap();
    let rows = row.captures_iter(section.split("\n## ").next().unwrap_or_default());
    let rows: Vec<_> = rows
        .map(|found| format!("{} {}", &found[1], &found[2]))
        .collect();
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert_eq!(rows.join(" "), in_program);
}

#[track_caller]
fn assert_not_started(installation: &Installation, reason: &str) {
    let output = installation.run(&["serve"]);
    let errors = errors(&output);
    assert!(
        output.status.code() == Some(2) && errors.contains(reason),
        "{:?}: {errors}",
        output.status
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_failed_start_ends_with_2() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let wrong = json!({ "key-2024": "wrong" });
    let installation = installation.set("encryption_keys", wrong);
    assert_not_started(&installation, "opens none of the");
    let installation = installation
        .set("encryption_keys", json!({ "other": "x" }))
        .set("active_key_label", "other");
    assert_not_started(&installation, "key-2024");
    let installation = installation
        .set(
            "encryption_keys",
            json!({ "key-2024": "correct horse battery staple" }),
        )
        .set("active_key_label", "key-2024");

    let occupied = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = occupied.local_addr().expect("an address").to_string();
    for key in [
        "listen_address",
        "metrics_address",
        "health_address",
        "debug_address",
    ] {
        let beside = Installation::on(installation.database.clone(), &modules());
        assert_not_started(
            &beside.set(key, address.clone()),
            &format!("the `{key}`; stop the process"),
        );
    }

    let damage = "UPDATE desired_lrps SET run_info = 'damaged' WHERE process_guid = (SELECT MIN(process_guid) FROM desired_lrps)";
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let opened = installation.database.open().await;
    execute(&opened, damage).await;
    opened.close().await;
    assert_not_started(&installation, "the migration failed");
    let newest =
        r#"UPDATE configurations SET value = '{"CurrentVersion":1999999999}' WHERE id = 'version'"#;
    let opened = installation.database.open().await;
    execute(&opened, newest).await;
    opened.close().await;
    assert_not_started(&installation, "newer than the");
}

fn run(arguments: &[&str]) -> Output {
    command()
        .args(arguments)
        .output()
        .expect("the executable starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_end_with_1_if_they_fail_and_with_2_if_they_cannot_be_understood() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let no_host = installation.run(&["migrate", "pause"]);
    assert_eq!(no_host.status.code(), Some(1), "{}", errors(&no_host));
    let wrong = installation.set("pin_data_versoin", 7);
    for arguments in [
        &["migrate", "status"][..],
        &["keys", "status"],
        &["drain"],
        &["serve"],
    ] {
        let output = wrong.run(arguments);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            errors(&output)
        );
    }
    assert_eq!(run(&["serve", "--nope"]).status.code(), Some(2));
    let unknown = run(&["quarantine", "list"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        errors(&unknown).contains("`bbs migrate quarantine`"),
        "{}",
        errors(&unknown)
    );
    assert_eq!(
        run(&["module", "check", "/nonexistent"]).status.code(),
        Some(1)
    );
}

/// Goal: one run names all that keeps a host from starting, and a start names what this command
/// names.
#[tokio::test(flavor = "multi_thread")]
async fn check_config_reports_all_faults_at_once() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let checked = installation.run(&["check-config"]);
    assert!(
        checked.status.success()
            && String::from_utf8_lossy(&checked.stdout).ends_with("can be used.\n")
    );
    let warned = installation
        .set("converge_repeat_intervall", "1s")
        .run(&["check-config"]);
    assert_eq!(warned.status.code(), Some(0));
    assert!(
        errors(&warned).contains("it resembles `converge_repeat_interval`"),
        "{}",
        errors(&warned)
    );

    let diegos = Deployment::new(Kind::Sqlite);
    let lacking = [
        "cert_file",
        "key_file",
        "ca_file",
        "locket_address",
        "uuid",
        "health_address",
        "database_driver",
    ];
    let diegos = lacking
        .iter()
        .fold(diegos, |deployment, key| deployment.without(key))
        .set("log_level", "loud");
    let output = diegos.run(&["check-config"]);
    assert_eq!(output.status.code(), Some(2));
    for part in lacking
        .iter()
        .map(|key| format!("`{key}` is required"))
        .chain(["`log_level` is \"loud\"".to_owned()])
    {
        assert!(
            errors(&output).contains(&part),
            "{part}: {}",
            errors(&output)
        );
    }
    let (code, started) = diegos.fail().await;
    assert!(
        code == Some(2) && started.contains(&errors(&output)),
        "{started}"
    );

    let unusable = Deployment::new(Kind::Sqlite)
        .set("cert_file", "/nonexistent/server.crt")
        .set("auctioneer_client_cert", "/nonexistent/client.crt")
        .set("rep_client_cert", "/nonexistent/rep.crt")
        .set("active_key_label", "another")
        .set("pin_data_version", 7);
    let of_values = [
        "/nonexistent/server.crt",
        "/nonexistent/client.crt",
        "/nonexistent/rep.crt",
        "\"another\" must be listed",
        "`pin_data_version` is 7",
    ];
    let output = unusable.run(&["check-config"]);
    assert_eq!(output.status.code(), Some(2));
    for part in of_values {
        assert!(
            errors(&output).contains(part),
            "{part}: {}",
            errors(&output)
        );
    }

    let unusable = unusable
        .set("log_level", "loud")
        .set("migration_mod", "online");
    let output = unusable.run(&["check-config"]);
    assert_eq!(output.status.code(), Some(2));
    for part in of_values
        .into_iter()
        .chain(["`log_level` is \"loud\"", "write `migration_mode`"])
    {
        assert!(
            errors(&output).contains(part),
            "{part}: {}",
            errors(&output)
        );
    }
    let output = unusable.run(&["check-config", "--json"]);
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        result["faults"].as_array().unwrap().len(),
        of_values.len() + 2,
        "{result}"
    );
}

#[test]
fn check_config_reads_the_certificates_of_the_database_and_of_etcd() {
    let at = |name: &str| format!("/nonexistent/{name}");
    let of_server = |driver: &str, connection: &str| {
        Installation::new(&modules(), Kind::Sqlite)
            .set("database_driver", driver)
            .set("database_connection_string", connection)
    };
    let mysql = of_server("mysql", "diego:p@tcp(127.0.0.1:1)/diego")
        .set("sql_ca_cert_file", at("sql-ca.crt"))
        .set("etcd_cluster_urls", json!(["https://127.0.0.1:1"]))
        .set("etcd_ca_file", at("etcd-ca.crt"))
        .set("etcd_cert_file", at("etcd.crt"))
        .set("etcd_key_file", at("etcd.key"));
    let postgres = of_server(
        "postgres",
        "postgres://diego:p@127.0.0.1:1/diego?sslcert=/nonexistent/sql.crt&sslkey=/nonexistent/sql.key",
    );
    let of_etcd = "correct `etcd_cert_file`, `etcd_key_file` or `etcd_ca_file`";
    for (installation, parts) in [
        (
            mysql,
            &[
                "correct `sql_ca_cert_file`",
                "cannot read /nonexistent/sql-ca.crt",
                of_etcd,
                "cannot read /nonexistent/etcd-ca.crt",
            ][..],
        ),
        (
            postgres,
            &[
                "the files that `database_connection_string` names",
                "cannot read /nonexistent/sql.crt",
            ][..],
        ),
    ] {
        let output = installation.run(&["check-config"]);
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        for part in parts {
            assert!(errors.contains(part), "{part:?} is not in {errors}");
        }
    }
}

#[test]
fn check_config_finds_places_that_a_host_cannot_use() {
    let installation = Installation::new(&modules(), Kind::Sqlite);
    let folder = installation.folder().to_owned();
    let at = |name: &str| folder.join(name).display().to_string();
    let refused = installation.set("access_log_path", at("nowhere/access.log"));
    for arguments in [&["check-config"][..], &["serve"]] {
        let output = refused.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert!(errors(&output).contains("cannot open the access log"));
    }
    std::fs::write(folder.join("file"), "").unwrap();
    let mut warned = refused.set("access_log_path", at("access.log"));
    let socket = format!("{}/admin.sock", "x".repeat(120));
    for (key, value) in [("data_dir", at("file")), ("admin_socket", at(&socket))] {
        warned = warned.set(key, value);
        let output = warned.run(&["check-config"]);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let warning = "warning: cannot make the admin socket";
        assert!(errors(&output).contains(warning), "{}", errors(&output));
    }
}

/// Goal: no fault is a consequence of another one.
#[tokio::test(flavor = "multi_thread")]
async fn check_config_reports_the_fault_of_a_key_alone() {
    for (key, value) in [
        ("encryption_keys", json!(7)),
        ("active_key_label", json!(7)),
        ("cert_file", json!(7)),
        ("auctioneer_client_cert", json!(7)),
        ("locket_ca_cert_file", json!(7)),
        ("modules_dir", json!(7)),
        ("modules_dirs", json!(7)),
        ("trusted_keys", json!({ "host": ["RW"] })),
        ("pin_data_version", json!("newest")),
    ] {
        let output = Deployment::new(Kind::Sqlite)
            .set(key, value)
            .run(&["check-config", "--json"]);
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let [fault] = &result["faults"].as_array().unwrap()[..] else {
            panic!("{key}: {result}")
        };
        assert!(
            fault.as_str().unwrap().contains(&format!("`{key}`")),
            "{fault}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_migration_says_so_and_leaves_no_socket() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    let installation = installation.set("migration_units_per_second", 1);
    let mut up = Host::begin(installation.command(&["migrate", "up"]));
    up.wait_for_line(|line| line.starts_with("copy"));
    up.signal("INT");
    let (ended, output) = up.wait_for_end();
    assert_eq!(ended.code(), Some(1), "{output}");
    assert!(
        output.contains("interrupted; nothing is lost: the same command continues"),
        "{output}"
    );
    let watched = installation.run(&["migrate", "watch"]);
    assert!(
        errors(&watched).contains("there is no admin socket"),
        "{}",
        errors(&watched)
    );
    installation
        .set("migration_units_per_second", serde_json::Value::Null)
        .succeed(&["migrate", "up"]);
}
