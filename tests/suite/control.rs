//! Operator commands against a running host: watch, pause, resume and throttle while it migrates
//! and serves, and rollback at termination.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::database::{Kind, on_each_database};
use crate::harness::fixture::{DIEGOS_NEWEST, OLDEST, VERSION};
use crate::harness::host::{Host, Installation};
use crate::harness::layouts::NEWEST;
use crate::harness::modules::modules;
use crate::harness::output::{full_disk, succeeded, text};
use crate::harness::{pause, until};

/// An installation at the oldest version, whose next start copies rows.
async fn at_oldest(kind: Kind) -> Installation {
    let installation = Installation::of_small_diego(&modules(), kind).await;
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
    installation
}

/// Repeats a call until the body of its 503 response satisfies `wanted`. Returns the body.
async fn unavailable_until(host: &Host, wanted: impl Fn(&Value) -> bool) -> Value {
    let client = crate::harness::http_client();
    loop {
        let response = client
            .post(host.url("/v1/domains/list"))
            .send()
            .await
            .unwrap();
        // A host that has just received the signal may still serve.
        if response.status() == 503 {
            assert!(response.headers().contains_key("retry-after"));
            let body = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
            if wanted(&body) {
                return body;
            }
        }
        pause().await;
    }
}

fn waits_for<'a>(reason: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |body| body["phase"] == "copy" && body["waiting"]["reason"] == reason
}

on_each_database!(running_migration_is_paused_resumed_throttled_and_watched);
async fn running_migration_is_paused_resumed_throttled_and_watched(kind: Kind) {
    let installation = at_oldest(kind).await.set("migration_units_per_second", 1);
    let mut host = Host::start(installation.command(&["serve"]), "listening");
    let throttled = unavailable_until(&host, waits_for("rate")).await;
    assert!(throttled["total"].as_u64().unwrap() > throttled["done"].as_u64().unwrap());

    assert!(
        installation
            .succeed(&["migrate", "pause"])
            .starts_with("Paused")
    );
    let paused = unavailable_until(&host, waits_for("paused")).await;
    assert_eq!(paused["eta_seconds"], Value::Null);
    let report: Value =
        serde_json::from_str(&installation.succeed(&["migrate", "rate", "none", "--json"]))
            .unwrap();
    assert_eq!(
        (
            &report["pace"]["paused"],
            &report["pace"]["units_per_second"]
        ),
        (&Value::Bool(true), &Value::Null)
    );
    let status = installation.succeed(&["migrate", "status"]);
    assert!(
        status.contains("Next       `bbs migrate resume` continues the work of process"),
        "{status}"
    );

    assert_eq!(paused["counted"], "units");
    let shown = installation.succeed(&["migrate", "status"]);
    let copied = shown
        .lines()
        .find(|line| line.starts_with("Under way"))
        .expect("a migration is under way");
    assert!(
        copied.contains(&format!("of {} units are copied", paused["total"])),
        "{copied}: {paused}"
    );

    assert_eq!(installation.succeed(&["migrate", "resume"]), "Resumed.\n");
    let watched = installation.run(&["migrate", "watch"]);
    assert!(
        watched.status.success() && watched.stdout == b"The host serves.\n",
        "{}",
        text(&watched)
    );
    host.wait_for_line(|line| line.contains("serving") && line.contains("data_version"));
    for (command, says) in [
        (
            &["pause"][..],
            "no migration is in progress. One that `bbs module reload` begins",
        ),
        (
            &["rate", "500"],
            "For the next one: at most 500 units a second",
        ),
    ] {
        let idle = installation.succeed(&[&["migrate"], command].concat());
        assert!(idle.contains(says) && !idle.contains("Paused"), "{idle}");
    }
    let status = installation.succeed(&["migrate", "status"]);
    assert!(
        status.contains("Next       nothing: the host serves"),
        "{status}"
    );
    assert!(status.contains("; all of them have run here"), "{status}");
    assert!(
        status.contains(
            "serving; the next migration waits for `bbs migrate resume`; at most 500 units"
        ),
        "{status}"
    );
    let idle = installation.succeed(&["migrate", "resume"]);
    assert!(
        idle.contains("no migration is in progress. The next one does not wait"),
        "{idle}"
    );
    host.stop();
}

#[tokio::test]
async fn json_watch_reports_progress_and_fails_when_the_host_is_killed() {
    let installation = at_oldest(Kind::Sqlite)
        .await
        .set("migration_units_per_second", 1);
    let host = Host::start(installation.command(&["serve"]), "listening");
    unavailable_until(&host, waits_for("rate")).await;
    let watching = installation
        .command(&["migrate", "watch", "--json"])
        .stdout(Stdio::piped())
        .spawn();
    let mut watching = watching.unwrap();
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(watching.stdout.take().unwrap()));
    for _ in 0..2 {
        let report: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(
            (&report["progress"]["phase"], report["pid"].as_u64()),
            (&"copy".into(), Some(host.pid().into()))
        );
    }
    host.kill();
    assert!(!watching.wait().unwrap().success());
    let stale = installation.fail(&["migrate", "pause"]);
    assert!(stale.contains("since the last one was killed"), "{stale}");
    // Neither the socket nor the pause survives a restart.
    let installation = installation.set("migration_units_per_second", Value::Null);
    installation.serve().stop();
    let absent = installation.fail(&["migrate", "watch"]);
    assert!(
        absent.contains("no host is running with this configuration"),
        "{absent}"
    );
}

#[tokio::test]
async fn migrate_down_can_be_throttled_while_it_runs() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite)
        .await
        .set("migration_units_per_second", 1);
    let down = installation
        .command(&["migrate", "down", "--to", &OLDEST.to_string()])
        .spawn();
    let mut down = down.unwrap();
    until(|| {
        let output = installation.run(&["migrate", "rate", "none"]);
        let is_running = down.try_wait().unwrap().is_none();
        assert!(output.status.success() || is_running, "{}", text(&output));
        output.status.success()
    })
    .await;
    assert!(down.wait().unwrap().success());
    assert_eq!(installation.data_version(), OLDEST);
}

#[tokio::test]
async fn invalid_rate_is_rejected_with_an_example() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    for (rate, part) in [
        ("0/s", "use `bbs migrate pause`"),
        ("fast", "write it as in 500/s"),
        ("5/m", "500/s"),
    ] {
        let output = installation.fail(&["migrate", "rate", rate]);
        assert!(output.contains(part), "{output}");
    }
}

#[tokio::test]
async fn metrics_have_a_separate_listener() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite)
        .await
        .set("metrics_address", "127.0.0.1:0");
    let mut host = Host::start(installation.command(&["serve"]), "metrics=");
    let metrics = format!("http://{}/metrics", host.address);
    let serving =
        host.wait_for_line(|line| line.contains("serving") && line.contains("data_version"));
    let api = serving
        .split("address=")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    let client = crate::harness::http_client();
    let listed = client
        .post(format!("http://{api}/v1/domains/list"))
        .send()
        .await
        .unwrap();
    assert_eq!(listed.status(), 200);
    let hidden = client
        .get(format!("http://{api}/metrics"))
        .send()
        .await
        .unwrap();
    assert_eq!(hidden.status(), 404);
    let accepted = client
        .get(&metrics)
        .header("accept", "application/openmetrics-text;version=1.0.0")
        .send()
        .await
        .unwrap();
    assert!(
        accepted.headers()["content-type"]
            .to_str()
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    let response = client.get(&metrics).send().await.unwrap();
    assert!(
        response.headers()["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let text = String::from_utf8(response.bytes().await.unwrap().to_vec()).unwrap();
    for line in [
        "bbs_lock_held 1",
        r#"bbs_work_phase{phase="serving"} 1"#,
        r#"bbs_requests_total{route="Domains",status="200"} 1"#,
        r#"bbs_requests_total{route="none",status="404"} 1"#,
        "# TYPE bbs_records_left_out_total counter",
        "bbs_records_left_out_total 0",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in:\n{text}"
        );
    }
    host.stop();
}

on_each_database!(rollback_on_drain_migrates_down_at_termination);
async fn rollback_on_drain_migrates_down_at_termination(kind: Kind) {
    let installation = Installation::of_small_diego(&modules(), kind).await;
    let command = installation.command(&[
        "serve",
        "--rollback-on-drain-to-version",
        &VERSION.to_string(),
    ]);
    let host = Host::start(command, "serving");
    assert!(installation.data_version() > VERSION);
    host.stop();
    assert_eq!(installation.data_version(), VERSION);
    // A rollback version above the served one requires no rollback.
    let installation = installation
        .set("rollback_on_drain_to_version", NEWEST)
        .set("pin_data_version", DIEGOS_NEWEST);
    installation.serve().stop();
    assert_eq!(installation.data_version(), DIEGOS_NEWEST);
}

on_each_database!(interrupted_rollback_is_completed_only_by_a_host_with_the_same_setting);
async fn interrupted_rollback_is_completed_only_by_a_host_with_the_same_setting(kind: Kind) {
    let installation = Installation::of_small_diego(&modules(), kind).await;
    assert!(
        installation.serve().terminate().success(),
        "it migrates without the limit below"
    );
    let rolling_back = |installation: Installation| {
        installation
            .set("rollback_on_drain_to_version", OLDEST)
            .set("migration_units_per_second", 1)
    };
    let installation = rolling_back(installation);
    let host = installation.serve();
    host.signal("TERM");
    unavailable_until(&host, waits_for("rate")).await;
    assert!(!host.terminate().success(), "the second signal ends it");
    assert!(installation.data_version() > VERSION);

    let other = installation.set("rollback_on_drain_to_version", Value::Null);
    let output = other.fail(&["serve"]);
    assert!(
        output.contains(&format!("finish it with `bbs migrate down --to {OLDEST}`")),
        "{output}"
    );
    let same = rolling_back(other).set("migration_units_per_second", Value::Null);
    let finished = same.run(&["serve"]);
    assert!(finished.status.success(), "{}", text(&finished));
    assert_eq!(same.data_version(), OLDEST);
}

on_each_database!(drain_migrates_down_and_returns_once_the_host_has_ended);
async fn drain_migrates_down_and_returns_once_the_host_has_ended(kind: Kind) {
    let installation = Installation::of_small_diego(&modules(), kind)
        .await
        .set("rollback_on_drain_to_version", VERSION);
    let mut host = installation.serve();
    let drained = installation.run(&["drain"]);
    assert!(drained.status.success(), "{}", text(&drained));
    assert_eq!(
        String::from_utf8_lossy(&drained.stdout),
        format!("The host has ended; the database is at {VERSION}.\n")
    );
    assert!(
        text(&drained).contains("\nended the database is at"),
        "no progress was shown: {}",
        text(&drained)
    );
    assert_eq!(installation.data_version(), VERSION);
    assert!(host.wait().success());
    let socket = installation.admin_socket();
    assert_eq!(
        installation.succeed(&["drain"]),
        format!(
            "No host answers at the admin socket {}.\n\
             The database is not above {VERSION}: there is nothing to take back.\n",
            socket.display()
        )
    );
}

/// Goal: where no host answers, `bbs drain` takes the database back, unless another host holds the
/// lock, whose drain does that.
#[tokio::test]
async fn drain_without_a_host_takes_the_database_back_once_the_lock_is_free() {
    let master = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let absent = Installation::on(master.database.clone(), &modules())
        .set("rollback_on_drain_to_version", VERSION)
        .set("lock_ttl", "1s");
    let serving = master.serve();
    let drained = absent.run(&["drain"]);
    assert!(
        drained.status.success() && text(&drained).contains("Another host holds the lock"),
        "{}",
        text(&drained)
    );
    assert_eq!(absent.data_version(), NEWEST);
    serving.stop();
    let migrated = format!("Migrated from {NEWEST} to {VERSION}.");
    let drained = absent.succeed(&["drain"]);
    assert!(drained.contains(&migrated), "{drained}");
    assert_eq!(absent.data_version(), VERSION);
    // The option takes the place of the key.
    absent.succeed(&["migrate", "up"]);
    let absent = absent.set("rollback_on_drain_to_version", NEWEST);
    let version = VERSION.to_string();
    let drained = absent.succeed(&["drain", "--rollback-on-drain-to-version", &version]);
    assert!(drained.contains(&migrated), "{drained}");
    assert_eq!(absent.data_version(), VERSION);
}

/// Goal: the drain script of a job does its work and reports its success while the log disk is
/// full.
#[tokio::test]
async fn drain_does_its_work_and_succeeds_with_a_full_disk_at_standard_output() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite)
        .await
        .set("rollback_on_drain_to_version", VERSION);
    let drain = |arguments: &[&str]| {
        let mut command = installation.command(arguments);
        let drained = command.stdout(full_disk()).output();
        succeeded(drained.expect("the executable starts"));
        assert_eq!(installation.data_version(), VERSION, "{arguments:?}");
    };
    for arguments in [&["drain"][..], &["drain", "--json"]] {
        let mut host = installation.serve();
        drain(arguments);
        assert!(host.wait().success(), "{arguments:?}");
        // Without a host, and with nothing to do.
        installation.succeed(&["migrate", "up"]);
        drain(arguments);
        drain(arguments);
    }
}

on_each_database!(drain_fails_while_the_host_of_its_configuration_holds_the_lock);
/// Method: a second installation with the `uuid` of the host, which has another admin socket.
async fn drain_fails_while_the_host_of_its_configuration_holds_the_lock(kind: Kind) {
    let master = Installation::of_small_diego(&modules(), kind)
        .await
        .set("uuid", "bbs-1");
    let serving = master.serve();
    let unreachable = Installation::on(master.database.clone(), &modules())
        .set("rollback_on_drain_to_version", VERSION)
        .set("uuid", "bbs-1");
    let drained = unreachable.fail(&["drain"]);
    assert!(
        drained.contains("the host of this configuration holds the lock")
            && drained.contains("stop it, then drain again"),
        "{drained}"
    );
    let other = unreachable.set("uuid", "bbs-10").run(&["drain"]);
    let shown = text(&other);
    assert!(
        other.status.success() && shown.contains("Another host holds the lock"),
        "{shown}"
    );
    assert_eq!(master.data_version(), NEWEST);
    serving.stop();
}

/// Goal: a fault that an operator writes into the file does not keep the host from being drained.
/// Where no host answers it is reported: the host may listen at another socket.
#[tokio::test]
async fn host_whose_configuration_has_become_faulty_is_drained() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let mut host = installation.serve();
    let faulty = installation.set("quarantine_limit", "x");
    assert_eq!(faulty.succeed(&["drain"]), "The host has ended.\n");
    assert!(host.wait().success());
    let drained = faulty.run(&["drain"]);
    assert_eq!(drained.status.code(), Some(2), "{}", text(&drained));
    assert!(
        text(&drained).contains("`quarantine_limit` is"),
        "{}",
        text(&drained)
    );
}

#[tokio::test]
async fn drain_without_a_rollback_ends_the_host() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let mut host = installation.serve();
    let reports = installation.succeed(&["drain", "--json"]);
    let last: Value = serde_json::from_str(reports.lines().last().unwrap()).unwrap();
    assert_eq!(last["progress"]["phase"], "ended");
    assert!(host.wait().success());
    assert_eq!(installation.data_version(), NEWEST);
    let nothing = installation.succeed(&["drain", "--json"]);
    let nothing: Value = serde_json::from_str(&nothing).unwrap();
    assert_eq!(nothing, serde_json::json!({ "outcome": null }));
}

/// Starts a host that waits for the lock, and does not wait until it serves.
fn waiting(standby: &Installation) -> Child {
    let mut serve = standby.command(&["serve"]);
    serve.stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn drain_of_a_standby_ends_it_and_leaves_the_master_alone() {
    let master = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let standby = Installation::on(master.database.clone(), &modules());
    let serving = master.serve();
    let mut waiting = waiting(&standby);
    until(|| standby.succeed(&["drain"]) == "The host has ended.\n").await;
    assert!(waiting.wait().unwrap().success());
    serving.ping().await;
}

/// Goal: an operator who drains in order to go back learns that a standby leaves that to the
/// master.
#[tokio::test]
async fn drain_of_a_standby_leaves_the_way_back_to_the_master() {
    let master = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    let standby = Installation::on(master.database.clone(), &modules())
        .set("rollback_on_drain_to_version", VERSION);
    let serving = master.serve();
    let mut waiting = waiting(&standby);
    let mut shown = String::new();
    until(|| {
        shown = standby.succeed(&["drain"]);
        shown.starts_with("The host has ended.\n")
    })
    .await;
    assert!(
        shown.contains("Another host holds the lock")
            && shown.contains(&format!("has to take the database back to {VERSION}")),
        "{shown}"
    );
    assert!(waiting.wait().unwrap().success());
    assert_eq!(master.data_version(), NEWEST);
    serving.ping().await;
}

on_each_database!(drain_takes_the_database_back_after_a_host_that_has_not);
/// Method: the key is set after the host has read its configuration.
async fn drain_takes_the_database_back_after_a_host_that_has_not(kind: Kind) {
    let installation = Installation::of_small_diego(&modules(), kind).await;
    let mut host = installation.serve();
    let installation = installation.set("rollback_on_drain_to_version", VERSION);
    let shown = installation.succeed(&["drain"]);
    assert!(
        shown.starts_with("The host has ended.\n")
            && shown.contains(&format!("Migrated from {NEWEST} to {VERSION}.")),
        "{shown}"
    );
    assert!(host.wait().success());
    assert_eq!(installation.data_version(), VERSION);

    installation.succeed(&["migrate", "up"]);
    let without = installation.set("rollback_on_drain_to_version", Value::Null);
    let mut host = without.serve();
    let faulty = without.set("rollback_on_drain_to_version", "x");
    let drained = faulty.run(&["drain"]);
    assert_eq!(drained.status.code(), Some(2), "{}", text(&drained));
    assert!(
        text(&drained).contains("the host has ended, and the database may be above"),
        "{}",
        text(&drained)
    );
    assert!(host.wait().success());
}

#[tokio::test]
async fn drain_fails_if_the_host_is_killed_and_the_next_one_completes_it() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite).await;
    assert!(
        installation.serve().terminate().success(),
        "it migrates without the limit below"
    );
    let throttled = installation
        .set("rollback_on_drain_to_version", OLDEST)
        .set("migration_units_per_second", 1);
    let host = throttled.serve();
    let draining = throttled
        .command(&["drain"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    unavailable_until(&host, waits_for("rate")).await;
    host.kill();
    let drained = draining.wait_with_output().unwrap();
    assert!(
        !drained.status.success() && text(&drained).contains("start it again"),
        "{}",
        text(&drained)
    );
    let installation = throttled.set("migration_units_per_second", Value::Null);
    assert!(installation.run(&["serve"]).status.success());
    assert_eq!(installation.data_version(), OLDEST);
}

#[tokio::test]
async fn drain_fails_with_the_reason_if_the_rollback_does() {
    let installation = Installation::of_small_diego(&modules(), Kind::Sqlite)
        .await
        .set("rollback_on_drain_to_version", OLDEST);
    let host = installation.serve();
    let opened = installation.database.open().await;
    crate::harness::database::execute(&opened, "UPDATE desired_lrps SET run_info = 'damaged'")
        .await;
    opened.close().await;
    let drained = installation.fail(&["drain"]);
    assert!(
        drained.contains("the host failed while it was ending"),
        "{drained}"
    );
    assert!(!host.wait_for_end().0.success());
    let drained = installation.fail(&["drain"]);
    assert!(
        drained.contains("No host answers") && drained.contains("bbs: "),
        "{drained}"
    );
}

on_each_database!(sigquit_ends_a_rollback_and_releases_the_lock);
async fn sigquit_ends_a_rollback_and_releases_the_lock(kind: Kind) {
    // On a server, a lease that is not released outlives this test.
    let installation = Installation::of_small_diego(&modules(), kind)
        .await
        .set("lock_ttl", "1h");
    assert!(
        installation.serve().terminate().success(),
        "it migrates without the limit below"
    );
    let installation = installation
        .set("rollback_on_drain_to_version", OLDEST)
        .set("migration_units_per_second", 1);
    let host = installation.serve();
    host.signal("TERM");
    unavailable_until(&host, waits_for("rate")).await;
    host.signal("QUIT");
    let (ended, output) = host.wait_for_end();
    assert_eq!(ended.code(), Some(1), "{output}");
    // The command fails if the lock is not free.
    let installation = installation.set("migration_units_per_second", Value::Null);
    installation.succeed(&["migrate", "down", "--to", &OLDEST.to_string()]);
}

#[tokio::test]
async fn secrets_of_the_configuration_are_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bbs.json");
    let json = r#"{"database_driver":"mysql","database_connection_string":"diego:hunter2@udp(127.0.0.1:1)/diego",
        "modules_dir":"modules"}"#;
    std::fs::File::create(&path)
        .unwrap()
        .write_all(json.as_bytes())
        .unwrap();
    for json in [json.to_owned(), json.replace("@udp", "@tcp")] {
        std::fs::write(&path, json).unwrap();
        let output = Command::new(crate::harness::bbs())
            .args(["serve", "--config"])
            .arg(&path)
            .output()
            .unwrap();
        let text = text(&output);
        assert!(
            !output.status.success() && !text.contains("hunter2"),
            "{text}"
        );
    }
}

on_each_database!(hosts_whose_configurations_lie_in_one_folder_both_serve);
/// Goal: hosts whose configurations lie in one folder do not get in each other's way, and write
/// nothing into it. Method: two hosts with default places; commands with each configuration reach
/// its own host. Then both name one data folder.
async fn hosts_whose_configurations_lie_in_one_folder_both_serve(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let names = ["one.json", "other.json"];
    let installations = names.map(|_| Installation::new(&modules(), kind).set("data_dir", ""));
    let command = |at: usize, arguments: &[&str]| {
        installations[at].command_with(&folder.path().join(names[at]), arguments)
    };
    let hosts = [0, 1].map(|at| Host::start(command(at, &["serve"]), "serving"));
    for (at, host) in hosts.iter().enumerate() {
        let output = command(at, &["migrate", "resume", "--json"])
            .output()
            .unwrap();
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)));
        assert_eq!(report["pid"], host.pid());
    }
    let mut beside: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    beside.sort();
    assert_eq!(beside, names);
    hosts
        .into_iter()
        .for_each(|host| assert!(host.terminate().success()));
    for at in [0, 1] {
        // `No host answers at the admin socket /var/tmp/…/admin.sock.`
        let drained = text(&command(at, &["drain"]).output().unwrap());
        let socket = drained.trim_end_matches(".\n").rsplit(' ').next().unwrap();
        let data = std::path::Path::new(socket).parent().unwrap();
        std::fs::remove_dir(data)
            .unwrap_or_else(|error| panic!("{}: {error}; {drained}", data.display()));
    }
    let sharing = installations
        .map(|installation| installation.set("data_dir", folder.path().to_str().unwrap()));
    let first = sharing[0].serve();
    let mut second = sharing[1].serve();
    let log = second.output().join("\n");
    assert!(
        log.contains("works without its admin socket") && log.contains("another host answers at"),
        "{log}"
    );
    let report: Value =
        serde_json::from_str(&sharing[1].succeed(&["migrate", "resume", "--json"])).unwrap();
    assert_eq!(report["pid"], first.pid());
}
