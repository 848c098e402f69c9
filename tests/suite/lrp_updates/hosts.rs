//! Definitions and updates with a host process: the keys that archived definitions are sealed with,
//! their quarantine, and the log of a halted update.

use bbs_encryption::Keyring;
use bbs_lens::layout::schema::Sealing;
use serde_json::json;

use super::down::{
    BEFORE, change, definitions_of, desire_version_1, run_one_instance, status_of, until_ended,
    update_on,
};
use super::*;
use crate::harness::database::{execute, on_each_database, texts};
use crate::harness::fixture;
use crate::harness::host::{Host, Installation};
use crate::harness::modules;
use crate::harness::until_async;

const PASSPHRASE: &str = "correct horse battery staple";

/// An installation whose database has a desired LRP with one archived definition, and all of its
/// definitions.
async fn with_an_archive(kind: Kind) -> (Installation, Vec<proto::ArchivedLrpDefinition>) {
    let installation = Installation::new(&modules::modules(), kind);
    let host = installation.serve();
    desire_version_1(&host).await;
    update_on(&host, to(definition("version-2"))).await;
    until_ended(&host).await;
    let definitions = definitions_of(&host).await;
    assert_eq!(definitions.len(), 2);
    host.stop();
    (installation, definitions)
}

/// An LRP whose one instance runs version 1 and waits for a cell with version 2.
async fn with_a_pending_update(host: &Host) {
    desire_version_1(host).await;
    run_one_instance(host).await;
    update_on(host, to(definition("version-2"))).await;
    until_async(async || status_of(host).await.waiting > 0).await;
}

async fn roll_back_on(host: &Host, id: &str) {
    let request = proto::RollbackDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        definition_id: id.into(),
    };
    change(host, ROLLBACK, &request).await;
    until_ended(host).await;
}

on_each_database!(archived_definition_is_read_with_the_new_key_alone_after_a_rotation);
async fn archived_definition_is_read_with_the_new_key_alone_after_a_rotation(kind: Kind) {
    let (installation, definitions) = with_an_archive(kind).await;
    let both = json!({ "key-2024": PASSPHRASE, "key-2026": "another passphrase" });
    let installation = installation
        .set("encryption_keys", both)
        .set("active_key_label", "key-2026");
    let status = installation.succeed(&["keys", "status"]);
    assert!(status.contains("bbs_lrp_definitions"), "{status}");
    installation.succeed(&["keys", "rotate"]);
    installation.succeed(&["keys", "verify", "--label", "key-2024"]);
    let installation = installation.set(
        "encryption_keys",
        json!({ "key-2026": "another passphrase" }),
    );
    let host = installation.serve();
    assert_eq!(definitions_of(&host).await, definitions);
    roll_back_on(&host, "version-1").await;
    host.stop();
}

on_each_database!(definition_that_cannot_be_read_is_quarantined_on_the_way_down_and_restored);
async fn definition_that_cannot_be_read_is_quarantined_on_the_way_down_and_restored(kind: Kind) {
    let (installation, definitions) = with_an_archive(kind).await;
    let lost = Keyring::new([("lost", "a passphrase")], "lost").unwrap();
    let database = installation.database.open().await;
    let run_info = texts(&database, "SELECT run_info FROM bbs_lrp_definitions")
        .await
        .remove(0);
    let run_info = fixture::keyring()
        .open(Sealing::Enveloped, run_info.as_bytes())
        .unwrap();
    let sealed = String::from_utf8(lost.seal(Sealing::Enveloped, &run_info)).unwrap();
    execute(
        &database,
        &format!("UPDATE bbs_lrp_definitions SET run_info = '{sealed}'"),
    )
    .await;
    database.close().await;

    let down = ["migrate", "down", "--to", &BEFORE.to_string()];
    assert!(!installation.run(&down).status.success());
    installation.succeed(&[&down[..], &["--on-unreadable", "quarantine"]].concat());
    let listed = installation.succeed(&["migrate", "quarantine", "list"]);
    assert!(
        listed.contains("guid") && listed.contains("bbs_lrp_definitions"),
        "{listed}"
    );
    let keys = json!({ "key-2024": PASSPHRASE, "lost": "a passphrase" });
    let installation = installation.set("encryption_keys", keys);
    let retried = installation.succeed(&["migrate", "quarantine", "retry", "guid"]);
    assert!(retried.contains("restored to its tables"), "{retried}");
    installation.succeed(&["migrate", "up"]);
    let host = installation.serve();
    assert_eq!(definitions_of(&host).await, definitions);
    roll_back_on(&host, "version-1").await;
    host.stop();
}

on_each_database!(instance_may_run_without_being_routable_for_as_long_as_configured);
async fn instance_may_run_without_being_routable_for_as_long_as_configured(kind: Kind) {
    let installation =
        Installation::new(&modules::modules(), kind).set("update_routable_timeout", "10ms");
    let host = installation.serve();
    with_a_pending_update(&host).await;
    let unroutable = proto::StartActualLrpRequest {
        routable: Some(false),
        ..start(0, "new-0")
    };
    host.call::<proto::ActualLrpLifecycleResponse>(CLAIM, &claim(0, "new-0"))
        .await;
    host.call::<proto::ActualLrpLifecycleResponse>(START, &unroutable)
        .await;
    let reason = loop {
        let status = status_of(&host).await;
        if status.failing > 0 {
            break text(&status.halt_reason);
        }
        crate::harness::pause().await;
    };
    assert_eq!(reason, "the instance runs and is not routable");
    host.stop();
}

on_each_database!(halt_of_an_update_and_its_end_are_logged);
async fn halt_of_an_update_and_its_end_are_logged(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind).set("session_name", "bbs");
    let mut host = Host::start(installation.command(&["serve"]), "bbs.started");
    with_a_pending_update(&host).await;
    for name in ["new-0", "new-1", "new-2"] {
        host.call::<proto::ActualLrpLifecycleResponse>(CLAIM, &claim(0, name))
            .await;
        host.call::<proto::ActualLrpLifecycleResponse>(CRASH, &crash(0, name))
            .await;
    }
    let halted = host.wait_for_line(|line| line.contains("\"bbs.lrp-update.halted\""));
    for part in ["\"process_guid\":\"guid\"", "\"index\":0", "it crashed"] {
        assert!(halted.contains(part), "{part} is not in {halted}");
    }
    let request = proto::CancelUpdateDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
    };
    change(&host, CANCEL, &request).await;
    host.wait_for_line(|line| line.contains("\"bbs.lrp-update.resumed\""));
    host.stop();
}
