//! Key rotation by a host process: it serves from the start while it reseals all texts, and
//! operator commands show when the old key can be removed.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bbs::testing::migrate::fault::AFTER_INDEXES;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use serde_json::json;

use super::*;
use crate::api::answers::answers_as_diego_did;
use crate::api::{lrp, routes};
use crate::harness::database::{dump, on_each_server};
use crate::harness::fixture;
use crate::harness::host::{Host, Installation};
use crate::harness::layouts::NEWEST;
use crate::harness::modules::{
    add_ons_at_places_of_their_own, between_splits_add_on, modules, modules_with_split,
};
use crate::harness::output::text;
use crate::harness::packages::Packages;
use crate::harness::ports::free_address;

const BEFORE: &str = "key-2024";
const AFTER: &str = "key-2026";

fn both_keys() -> serde_json::Value {
    json!({ BEFORE: "correct horse battery staple", AFTER: "another passphrase" })
}

/// An installation on the fixture's database with a second key, which is active.
async fn with_a_new_key(kind: Kind) -> Installation {
    add_a_new_key(Installation::of_diego(&modules(), kind).await)
}

/// [`with_a_new_key`] with a quarter of the fixture.
async fn small_with_a_new_key(kind: Kind) -> Installation {
    add_a_new_key(Installation::of_small_diego(&modules(), kind).await)
}

fn add_a_new_key(installation: Installation) -> Installation {
    installation
        .set("encryption_keys", both_keys())
        .set("active_key_label", AFTER)
}

fn only(installation: Installation, label: &str, passphrase: &str) -> Installation {
    installation
        .set("encryption_keys", json!({ label: passphrase }))
        .set("active_key_label", label)
}

/// Re-seals everything by the command, which has nothing to do the second time.
fn rotate_by_command(installation: &Installation) {
    let done = installation.succeed(&["keys", "rotate"]);
    assert!(
        done.contains("Everything is sealed under \"key-2026\""),
        "{done}"
    );
    assert!(
        installation
            .succeed(&["keys", "rotate"])
            .contains("Nothing to do")
    );
}

fn wait_until_rotated(host: &mut Host) {
    host.wait_for_line(|line| line.contains("everything is sealed under the active key"));
}

async fn change<M: Message>(client: &reqwest::Client, host: &str, path: &str, request: &M) {
    let response = client
        .post(format!("{host}{path}"))
        .body(request.encode_to_vec())
        .send()
        .await
        .unwrap();
    let status = response.status();
    let body = response.bytes().await.unwrap();
    assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
    let answer = proto::DesiredLrpLifecycleResponse::decode(&body[..]).unwrap();
    assert_eq!(answer.error, None, "{path}");
}

async fn annotations(client: &reqwest::Client, host: &str) -> BTreeMap<String, String> {
    let response = client
        .post(format!("{host}/v1/desired_lrps/list.r3"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let answer = proto::DesiredLrPsResponse::decode(&response.bytes().await.unwrap()[..]).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let ours = answer
        .desired_lrps
        .into_iter()
        .filter(|lrp| lrp.process_guid.starts_with(b"ours-"));
    ours.map(|lrp| {
        assert_eq!(
            lrp.routes.unwrap(),
            route(std::str::from_utf8(&lrp.annotation).unwrap()),
            "one write, both columns"
        );
        (text(lrp.process_guid), text(lrp.annotation))
    })
    .collect()
}

fn route(value: &str) -> proto::ProtoRoutes {
    routes(&[("cf-router", &format!("\"{value}\""))])
}

/// Creates, updates and removes LRPs until `stop` is set. Returns the expected annotations by guid.
async fn write_until(
    host: String,
    mut stop: tokio::sync::watch::Receiver<bool>,
) -> BTreeMap<String, String> {
    let client = crate::harness::http_client();
    let mut model = BTreeMap::new();
    for number in 0_usize.. {
        if *stop.borrow_and_update() && number > 60 {
            break;
        }
        let guid = format!("ours-{}", number % 20);
        let value = format!("write {number}");
        let is_new = !model.contains_key(&guid);
        if is_new {
            let annotation = value.clone().into_bytes();
            let desired = proto::DesiredLrp {
                annotation,
                routes: Some(route(&value)),
                ..lrp(&guid)
            };
            let request = proto::DesireLrpRequest {
                desired_lrp: Some(desired),
            };
            change(&client, &host, "/v1/desired_lrp/desire.r2", &request).await;
            model.insert(guid, value);
        } else if number % 7 == 0 {
            let request = proto::RemoveDesiredLrpRequest {
                process_guid: guid.clone().into_bytes(),
            };
            change(&client, &host, "/v1/desired_lrp/remove", &request).await;
            model.remove(&guid);
        } else {
            let update = proto::DesiredLrpUpdate {
                annotation: Some(value.clone().into_bytes()),
                routes: Some(route(&value)),
                ..Default::default()
            };
            let request = proto::UpdateDesiredLrpRequest {
                process_guid: guid.clone().into_bytes(),
                update: Some(update),
            };
            change(&client, &host, "/v1/desired_lrp/update", &request).await;
            model.insert(guid, value);
        }
        if number % 20 == 0 {
            assert!(
                annotations(&client, &host).await == model,
                "acknowledged writes are read during the rotation"
            );
        }
    }
    model
}

on_each_database!(host_rotates_while_serving_and_the_old_key_can_then_be_removed);
async fn host_rotates_while_serving_and_the_old_key_can_then_be_removed(kind: Kind) {
    let installation = with_a_new_key(kind).await;
    let mut host = installation.serve();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let writing = tokio::spawn(write_until(format!("http://{}", host.address), stopped));
    wait_until_rotated(&mut host);
    assert_fixture_tasks_are_listed(host.address).await;
    stop.send(true).unwrap();
    let model = writing.await.unwrap();

    let verified = installation.succeed(&["keys", "verify", "--label", BEFORE]);
    assert!(verified.contains("may be removed"), "{verified}");
    let in_use = installation.fail(&["keys", "verify", "--label", AFTER]);
    assert!(in_use.contains("is the active key"), "{in_use}");
    let status: serde_json::Value =
        serde_json::from_str(&installation.succeed(&["keys", "status", "--json"])).unwrap();
    assert_eq!(
        (&status["label"], &status["rotation"]),
        (&json!(AFTER), &json!(null)),
        "{status}"
    );
    for place in status["places"].as_array().unwrap() {
        assert_eq!(
            place["labels"]
                .as_object()
                .unwrap()
                .keys()
                .filter(|label| *label != AFTER)
                .count(),
            0,
            "{status}"
        );
    }
    assert!(host.terminate().success());

    let installation = only(installation, AFTER, "another passphrase");
    let host = installation.serve();
    assert_eq!(
        annotations(
            &crate::harness::http_client(),
            &format!("http://{}", host.address)
        )
        .await,
        model
    );
}

/// Asserts that the list of tasks, which the load does not change, is that of the fixture.
async fn assert_fixture_tasks_are_listed(address: std::net::SocketAddr) {
    let (request, expected) = fixture::expected("tasks_list.r3");
    let response = crate::harness::http_client()
        .post(format!("http://{address}/v1/tasks/list.r3"))
        .body(request)
        .send()
        .await
        .unwrap();
    let answer = proto::TasksResponse::decode(&response.bytes().await.unwrap()[..]).unwrap();
    let expected = proto::TasksResponse::decode(&expected[..]).unwrap();
    assert_eq!(answer.tasks.len(), expected.tasks.len());
}

on_each_database!(keys_rotate_takes_the_lock_and_reports_the_result);
async fn keys_rotate_takes_the_lock_and_reports_the_result(kind: Kind) {
    let installation = with_a_new_key(kind).await;
    let status = installation.succeed(&["keys", "status"]);
    for part in [
        "Label      everything is sealed under key-2024",
        "Active     key-2026",
        "desired_lrps",
    ] {
        assert!(status.contains(part), "{part:?} is not in:\n{status}");
    }
    let refused = installation.fail(&["keys", "verify", "--label", BEFORE]);
    assert!(
        refused.contains("must stay in `encryption_keys`"),
        "{refused}"
    );
    rotate_by_command(&installation);
    installation.succeed(&["keys", "verify", "--label", BEFORE]);

    let installation = only(installation, AFTER, "another passphrase");
    let host = installation.serve();
    answers_as_diego_did(host.address).await;
    let busy = installation.fail(&["keys", "rotate"]);
    assert!(busy.contains("a host holds the lock"), "{busy}");
    assert!(
        busy.contains(&format!("(pid {} on this machine)", host.pid())),
        "{busy}"
    );
}

on_each_database!(keys_are_not_examined_without_the_modules_that_ran);
/// Method: the columns of a module that is missing are not in the layout, so their texts would
/// count as none, and the old key as unused.
async fn keys_are_not_examined_without_the_modules_that_ran(kind: Kind) {
    let packages = Packages::new();
    let [_, tags, newest] = add_ons_at_places_of_their_own();
    packages.install("sorted-tags", &tags);
    packages.install("after-gpu", &newest);
    let installation = packages.beside(small_with_a_new_key(kind).await);
    let before_rotation = installation.set("active_key_label", BEFORE);
    before_rotation.succeed(&["migrate", "up"]);
    let installation = before_rotation.set("active_key_label", AFTER);
    let refuse = async |reason: &str| {
        let before = dump(&installation.database).await;
        let mut messages = Vec::new();
        for arguments in [
            &["keys", "status"][..],
            &["keys", "rotate"],
            &["keys", "rotate", "--dry-run"],
            &["keys", "verify", "--label", BEFORE],
        ] {
            let message = installation.fail(arguments);
            for part in ["its sealed columns are not known", reason] {
                assert!(message.contains(part), "{arguments:?}: {message}");
            }
            messages.push(message);
        }
        let after = dump(&installation.database).await;
        assert_eq!(after, before, "one of these commands wrote: {messages:#?}");
    };
    for (missing, reason) in [
        ("after-gpu", "the catalog has no migration 1795000020"),
        ("sorted-tags", "migration 1790000000 ran on this database"),
    ] {
        packages.remove(missing);
        refuse(reason).await;
        packages.put_back(missing);
    }

    rotate_by_command(&installation);
    installation.succeed(&["keys", "verify", "--label", BEFORE]);
    let database = installation.database.open().await;
    execute(&database, "DELETE FROM configurations WHERE id = 'version'").await;
    database.close().await;
    refuse("but no version").await;
}

on_each_database!(rows_that_diegos_rotation_left_out_are_re_sealed_by_the_command);
/// Method: the database has the label of the new key, as after a rotation by Diego's BBS, which
/// left out all rows.
async fn rows_that_diegos_rotation_left_out_are_re_sealed_by_the_command(kind: Kind) {
    let installation = with_a_new_key(kind).await;
    let database = installation.database.open().await;
    let label =
        format!("UPDATE configurations SET value = '{AFTER}' WHERE id = 'encryption_key_label'");
    execute(&database, &label).await;
    database.close().await;
    let host = installation.serve();
    answers_as_diego_did(host.address).await;
    assert!(host.terminate().success());
    let status = installation.succeed(&["keys", "status"]);
    assert!(
        status.contains("texts are under key-2024, which no serving host re-seals"),
        "{status}"
    );
    let refused = installation.fail(&["keys", "verify", "--label", BEFORE]);
    assert!(
        refused.contains("`bbs keys rotate` re-seals them"),
        "{refused}"
    );

    let mut killed = installation.command(&["keys", "rotate"]);
    killed.env("BBS_FAULT", "after-rotation-batch:1");
    assert!(!killed.output().unwrap().status.success());
    let without = only(installation, AFTER, "another passphrase");
    let refused = text(&without.run(&["serve"]));
    assert!(
        refused.contains("still under the key \"key-2024\""),
        "{refused}"
    );

    let installation = without.set("encryption_keys", both_keys());
    rotate_by_command(&installation);
    let installation = only(installation, AFTER, "another passphrase");
    answers_as_diego_did(installation.serve().address).await;
}

on_each_database!(host_killed_during_rotation_requires_the_old_key_and_completes_it);
async fn host_killed_during_rotation_requires_the_old_key_and_completes_it(kind: Kind) {
    let installation = with_a_new_key(kind).await;
    let mut command = installation.command(&["serve"]);
    command.env("BBS_FAULT", "after-rotation-batch:2");
    assert!(
        !command.output().unwrap().status.success(),
        "the host is killed by the fault"
    );

    let installation = only(installation, AFTER, "another passphrase");
    let refused = installation.fail(&["serve"]);
    assert!(
        refused.contains("still under the key \"key-2024\""),
        "{refused}"
    );

    let installation = installation.set("encryption_keys", both_keys());
    let mut host = installation.serve();
    wait_until_rotated(&mut host);
    answers_as_diego_did(host.address).await;
    assert!(host.terminate().success());
    let installation = only(installation, AFTER, "another passphrase");
    answers_as_diego_did(installation.serve().address).await;
}

on_each_server!(keys_are_rotated_beside_a_migration_that_has_failed);
/// Goal: a leaked key can go while a module fails at each start. Method: a copy loses its rows, so
/// that it does not pass the verification.
async fn keys_are_rotated_beside_a_migration_that_has_failed(kind: Kind) {
    let installation = with_a_new_key(kind)
        .await
        .set("migration_mode", "online")
        .set("health_address", free_address().to_string());
    let mut command = installation.command(&["serve"]);
    command.env("BBS_FAULT", format!("stop:{AFTER_INDEXES}"));
    let mut host = Host::start(command, "serving");
    host.until_stopped().await;
    let database = installation.database.open().await;
    execute(&database, &format!("DELETE FROM desired_lrps__{NEWEST}")).await;
    database.close().await;
    host.signal("CONT");
    host.wait_for_line(|line| line.contains("the migration failed; the API continues"));
    wait_until_rotated(&mut host);
    installation.succeed(&["keys", "verify", "--label", BEFORE]);
    for arguments in [
        &["migrate", "watch"][..],
        &["ready", "--migrated", "--wait", "3600"],
    ] {
        let stopped = installation.fail(arguments);
        assert!(stopped.contains("the migration is stopped"), "{stopped}");
    }
    assert!(host.terminate().success());

    let installation = only(installation, AFTER, "another passphrase");
    let mut host = installation.serve();
    host.wait_for_line(|line| line.contains("cut over"));
    assert_fixture_tasks_are_listed(host.address).await;
}

on_each_database!(removed_key_is_found_in_the_layout_that_ran);
/// Method: a rotation is interrupted. Then the catalog inserts a migration that moves sealed
/// columns to other tables, which has not run.
async fn removed_key_is_found_in_the_layout_that_ran(kind: Kind) {
    let packages = Packages::new();
    packages.install("between-splits", &between_splits_add_on());
    let installation = packages.installation(kind);
    let host = installation.serve();
    let request = proto::DesireLrpRequest {
        desired_lrp: Some(lrp("one")),
    };
    let client = crate::harness::http_client();
    change(
        &client,
        &host.url(""),
        "/v1/desired_lrp/desire.r2",
        &request,
    )
    .await;
    assert!(host.terminate().success());
    let installation = installation
        .set("encryption_keys", both_keys())
        .set("active_key_label", AFTER);
    let mut killed = installation.command(&["serve"]);
    killed.env("BBS_FAULT", "after-rotation-begin");
    assert!(!killed.output().unwrap().status.success());

    let installation = only(installation, AFTER, "another passphrase")
        .set("modules_dir", modules_with_split().display().to_string());
    let refused = installation.fail(&["serve"]);
    assert!(
        refused.contains("still under the key \"key-2024\"")
            && refused
                .split(['(', ',', ' ', ')'])
                .any(|place| place == "desired_lrps"),
        "{refused}"
    );
}

on_each_database!(damaged_record_is_reported_and_the_host_keeps_serving);
async fn damaged_record_is_reported_and_the_host_keeps_serving(kind: Kind) {
    let installation = small_with_a_new_key(kind).await;
    let database = installation.database.open().await;
    let first = texts(&database, "SELECT MIN(guid) FROM tasks")
        .await
        .remove(0);
    execute(
        &database,
        &format!("UPDATE tasks SET task_definition = '02/w==' WHERE guid = '{first}'"),
    )
    .await;
    let mut host = installation.serve();
    let line =
        host.wait_for_line(|line| line.contains("texts that do not open stay under other keys"));
    assert!(
        line.contains("unreadable=1") && line.contains("tasks "),
        "{line}"
    );
    let response = crate::harness::http_client()
        .post(host.url("/v1/domains/list"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let status = installation.succeed(&["keys", "status"]);
    assert!(
        status.contains("Label      none") && status.contains("(no key)"),
        "{status}"
    );
    assert!(
        status.contains("Unreadable 1 row has") && status.contains(&format!("tasks {first}")),
        "{status}"
    );
    assert!(host.terminate().success());

    // A label of control characters, in a header that is whole otherwise: `put key ^@^@^B4 back`.
    let label = STANDARD.encode([&[4, 0, 0, 2, b'4'][..], &[7; 64]].concat());
    execute(
        &database,
        &format!("UPDATE tasks SET task_definition = '02{label}' WHERE guid = '{first}'"),
    )
    .await;
    for arguments in [&["keys", "status"][..], &["keys", "rotate", "--dry-run"]] {
        let shown = text(&installation.run(arguments));
        assert!(shown.contains(&format!("tasks {first}: ")), "{shown}");
        assert!(
            !shown.chars().any(|c| c.is_control() && c != '\n'),
            "{shown:?}"
        );
    }
    let status: serde_json::Value =
        serde_json::from_str(&installation.succeed(&["keys", "status", "--json"])).unwrap();
    assert_eq!(status["unreadable"], 1);
    let examples = status["unreadable_examples"].as_array().unwrap();
    assert!(
        examples[0]
            .as_str()
            .unwrap()
            .contains(&format!("tasks {first}: ")),
        "{status}"
    );
    database.close().await;
}

/// The log of a host that has not read in time whether its rotation is complete.
const UNKNOWN: &str = "the state of a key rotation could not be read in time";
/// A busy machine may delay a host that ends beyond that time, and then it is tried again.
const ATTEMPTS: usize = 4;

/// Stops a host until it has read in time whether its rotation is complete; returns its output.
async fn stopped<T>(stop: impl AsyncFn() -> (T, String)) -> (T, String) {
    for _ in 1..ATTEMPTS {
        let (result, output) = stop().await;
        if !output.contains(UNKNOWN) {
            return (result, output);
        }
    }
    stop().await
}

async fn output_of_end(host: Host) -> String {
    let (status, output) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    assert_eq!(status.code(), Some(0), "{output}");
    output
}

on_each_database!(clean_stop_completes_the_rotation_under_way);
async fn clean_stop_completes_the_rotation_under_way(kind: Kind) {
    let stop = async || {
        let installation = with_a_new_key(kind).await;
        let mut command = installation.command(&["serve"]);
        command.env("BBS_FAULT", "stop:after-rotation-batch:1");
        let host = Host::start(command, "serving");
        // The signal is delivered before the rotation writes another batch.
        host.until_stopped().await;
        host.signal("TERM");
        host.signal("CONT");
        (installation, output_of_end(host).await)
    };
    let (installation, output) = stopped(stop).await;
    assert!(
        output.contains("this host ends when it is complete"),
        "{output}"
    );
    assert!(
        output.contains("everything is sealed under the active key")
            && !output.contains("not complete"),
        "{output}"
    );

    installation.succeed(&["keys", "verify", "--label", BEFORE]);
    let installation = only(installation, AFTER, "another passphrase");
    answers_as_diego_did(installation.serve().address).await;
}

/// An installation whose rotation does not complete within a test.
async fn with_a_slow_rotation(kind: Kind) -> Installation {
    let installation = small_with_a_new_key(kind).await;
    let installation = installation.set("active_key_label", BEFORE);
    installation.succeed(&["migrate", "up"]);
    installation
        .set("active_key_label", AFTER)
        .set("migration_units_per_second", 1)
}

/// Starts a host that re-seals everything.
fn begin_rotation(installation: &Installation) -> Host {
    let mut host = installation.serve();
    host.wait_for_line(|line| {
        line.contains("re-sealing everything under the active key") && line.contains(BEFORE)
    });
    host
}

/// Ends a host that completes its rotation by a second signal; returns its output.
async fn cut_short(mut host: Host) -> String {
    host.signal("TERM");
    host.wait_for_line(|line| {
        line.contains("this host ends when it is complete") || line.contains(UNKNOWN)
    });
    host.signal("TERM");
    output_of_end(host).await
}

const UNFINISHED: &str = "the key rotation is not complete: keep these keys";

on_each_database!(stop_before_the_rotation_completes_names_the_keys_to_keep);
async fn stop_before_the_rotation_completes_names_the_keys_to_keep(kind: Kind) {
    let stop = async || {
        let installation = with_a_slow_rotation(kind).await;
        let output = cut_short(begin_rotation(&installation)).await;
        (installation, output)
    };
    let (installation, output) = stopped(stop).await;
    assert!(
        output.contains(UNFINISHED) && output.contains(BEFORE),
        "{output}"
    );
    let status = installation.succeed(&["keys", "status"]);
    assert!(
        status.contains("Keep key-2024 in `encryption_keys` until then"),
        "{status}"
    );

    let stop_paused = async || {
        let host = installation.serve();
        installation.succeed(&["migrate", "pause"]);
        host.signal("TERM");
        ((), output_of_end(host).await)
    };
    let ((), output) = stopped(stop_paused).await;
    assert!(output.contains(UNFINISHED), "{output}");
    assert!(
        !output.contains("this host ends when it is complete"),
        "{output}"
    );

    let installation = only(installation, AFTER, "another passphrase");
    let refused = installation.fail(&["serve"]);
    assert!(
        refused.contains("still under the key \"key-2024\""),
        "{refused}"
    );
}

/// Goal: an operator who goes back to an older host learns which keys it needs. Method: a host that
/// has nothing to take back is cut short; then one is drained that has not re-sealed anything.
#[tokio::test(flavor = "multi_thread")]
async fn host_that_takes_the_database_back_completes_the_rotation_or_names_the_keys_to_keep() {
    let installation = with_a_slow_rotation(Kind::Sqlite).await;
    let installation = installation.set("rollback_on_drain_to_version", NEWEST);
    let stop = async || ((), cut_short(begin_rotation(&installation)).await);
    let ((), output) = stopped(stop).await;
    assert!(
        output.contains(UNFINISHED) && output.contains(BEFORE),
        "{output}"
    );

    let installation = installation.set("rollback_on_drain_to_version", fixture::VERSION);
    let host = begin_rotation(&installation);
    installation.succeed(&["migrate", "pause"]);
    installation.succeed(&["migrate", "rate", "none"]);
    installation.succeed(&["drain"]);
    let output = output_of_end(host).await;
    assert!(!output.contains(UNFINISHED), "{output}");
    assert_eq!(installation.data_version(), fixture::VERSION);
    installation.succeed(&["keys", "verify", "--label", BEFORE]);
}
