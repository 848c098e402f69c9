//! The archive of definitions: rolled back to, listed and pruned.

use std::time::Duration;

use bbs::testing::database::Dialect;
use bbs::testing::domain::{Policy, convergence};
use bbs_lens::layout::schema::Sealing;

use super::*;
use crate::harness::database::on_each_database;
use crate::harness::fixture;
use crate::harness::layouts::on_each_layout;
use crate::harness::on_each::on_one_server;
use crate::harness::server::NOW_NS;
use crate::harness::until_async;

/// The definitions as they are listed: the id, the memory, and whether each is current or previous.
pub(super) async fn definitions(server: &Server) -> Vec<(String, i32, bool)> {
    let request = proto::LrpDefinitionsRequest {
        process_guid: b"guid".to_vec(),
    };
    let answer: proto::LrpDefinitionsResponse = server
        .call("/v1.2/desired_lrp/definitions/list", &request)
        .await
        .message();
    assert_eq!(answer.error, None);
    answer
        .definitions
        .into_iter()
        .map(|archived| {
            let definition = archived.definition.unwrap_or_default();
            assert!(archived.created_at >= NOW_NS, "{definition:?}");
            (
                text(&definition.definition_id),
                definition.memory_mb,
                archived.last_active_at == 0,
            )
        })
        .collect()
}

/// Updates an LRP without instances, so that each update ends at once.
async fn after_updates(server: &Server, ids: &[&str]) {
    for (at, id) in (1..).zip(ids) {
        server.clock.set(NOW_NS + at * 1_000_000_000);
        update_to(server, id).await;
        until_done(server).await;
    }
}

on_each_layout!(definitions_are_listed_with_their_content_the_last_active_first);
async fn definitions_are_listed_with_their_content_the_last_active_first(kind: Kind) {
    let server = running(kind, 0).await;
    assert_eq!(definitions(&server).await, [("version-1".into(), 64, true)]);
    after_updates(&server, &["version-2", "version-3"]).await;
    let expected = [
        ("version-3".into(), 128, true),
        ("version-2".into(), 128, false),
        ("version-1".into(), 64, false),
    ];
    assert_eq!(definitions(&server).await, expected);
}

on_each_database!(update_to_an_id_that_differs_in_case_alone_can_be_cancelled);
async fn update_to_an_id_that_differs_in_case_alone_can_be_cancelled(kind: Kind) {
    let server = running(kind, 1).await;
    update_to(&server, "Version-1").await;
    assert_eq!(ids(&server).await, ("Version-1".into(), "version-1".into()));
    assert_eq!(cancel(&server).await, None);
    assert_eq!(ids(&server).await.0, "version-1");
}

on_each_layout!(rollback_restores_an_archived_definition);
async fn rollback_restores_an_archived_definition(kind: Kind) {
    let server = running(kind, 0).await;
    let first = get(&server, "guid").await;
    after_updates(&server, &["version-2", "version-3"]).await;
    server.clock.set(NOW_NS + 3 * 1_000_000_000);
    assert_eq!(roll_back(&server, "version-1").await, None);
    until_done(&server).await;
    let now = get(&server, "guid").await;
    assert_eq!(
        proto::LrpDefinition::from(&now),
        proto::LrpDefinition::from(&first)
    );
    let listed: Vec<_> = definitions(&server)
        .await
        .into_iter()
        .map(|(id, _, _)| id)
        .collect();
    assert_eq!(listed, ["version-1", "version-3", "version-2"]);
}

on_each_layout!(rollback_to_the_current_definition_changes_nothing);
async fn rollback_to_the_current_definition_changes_nothing(kind: Kind) {
    let server = running(kind, 1).await;
    let before = (get(&server, "guid").await, rows(&server).await);
    assert_eq!(roll_back(&server, "version-1").await, None);
    assert_eq!(
        roll_back(&server, "version-0").await,
        Some(Type::DefinitionNotFound)
    );
    assert_eq!((get(&server, "guid").await, rows(&server).await), before);
}

on_each_layout!(id_with_other_content_is_refused_and_with_the_same_content_changes_nothing);
async fn id_with_other_content_is_refused_and_with_the_same_content_changes_nothing(kind: Kind) {
    let server = running(kind, 0).await;
    after_updates(&server, &["version-2"]).await;
    let before = get(&server, "guid").await;
    update_to(&server, "version-2").await;
    assert_eq!(get(&server, "guid").await, before);
    let other = |id| proto::LrpDefinition {
        disk_mb: 9,
        ..definition(id)
    };
    assert_eq!(
        update(&server, to(other("version-2"))).await,
        Some(Type::DefinitionExists)
    );
    assert_eq!(
        update(&server, to(other("version-1"))).await,
        Some(Type::DefinitionExists)
    );
    assert_eq!(get(&server, "guid").await, before);
    // An update to an archived definition with its own content is a rollback.
    let first = proto::LrpDefinition {
        memory_mb: 64,
        ..definition("version-1")
    };
    assert_eq!(update(&server, to(first)).await, None);
    until_done(&server).await;
    assert_eq!(get(&server, "guid").await.memory_mb, 64);
}

on_each_layout!(repeated_update_with_tags_that_are_stored_in_another_form_changes_nothing);
/// Method: a client sends an unknown dynamic value, which is not stored, and text that is not
/// UTF-8.
async fn repeated_update_with_tags_that_are_stored_in_another_form_changes_nothing(kind: Kind) {
    let server = running(kind, 0).await;
    let mut with_unknown_value = tag("source_id", "source");
    with_unknown_value.value.as_mut().unwrap().dynamic = 3;
    let second = proto::LrpDefinition {
        metric_tags: vec![with_unknown_value],
        placement_tags: vec![b"\xff".to_vec()],
        ..definition("version-2")
    };
    assert_eq!(update(&server, to(second.clone())).await, None);
    until_done(&server).await;
    let before = get(&server, "guid").await;
    assert_eq!(update(&server, to(second.clone())).await, None);
    assert_eq!(get(&server, "guid").await, before);
    after_updates(&server, &["version-3"]).await;
    assert_eq!(update(&server, to(second)).await, None, "it is archived");
    until_done(&server).await;
}

fn with_password(password: &str) -> proto::DesiredLrpUpdate {
    proto::DesiredLrpUpdate {
        image_username: Some(b"user".to_vec()),
        image_password: Some(password.into()),
        ..Default::default()
    }
}

on_each_layout!(rollback_brings_no_revoked_credentials_back);
async fn rollback_brings_no_revoked_credentials_back(kind: Kind) {
    let server = running(kind, 1).await;
    assert_eq!(update(&server, with_password("revoked")).await, None);
    let second = proto::LrpDefinition {
        image_username: b"user".to_vec(),
        image_password: b"revoked".to_vec(),
        ..definition("version-2")
    };
    assert_eq!(update(&server, to(second)).await, None);
    until_rows(&server, &REPLACED).await;
    start_new(&server, 0, "new-0").await;
    until_done(&server).await;
    assert_eq!(update(&server, with_password("valid")).await, None);
    assert_eq!(roll_back(&server, "version-1").await, None);
    let replaced = ["0/0 UNCLAIMED  version-1", "0/1 RUNNING new-0 version-2"];
    until_rows(&server, &replaced).await;
    start_new(&server, 0, "back-0").await;
    until_done(&server).await;
    let lrp = get(&server, "guid").await;
    assert_eq!(
        (lrp.definition_id, lrp.image_password),
        (b"version-1".to_vec(), b"valid".to_vec())
    );
}

on_each_layout!(rollback_gives_no_credentials_to_a_public_image);
async fn rollback_gives_no_credentials_to_a_public_image(kind: Kind) {
    let server = running(kind, 1).await;
    update_to(&server, "version-2").await;
    until_rows(&server, &REPLACED).await;
    start_new(&server, 0, "new-0").await;
    until_done(&server).await;
    assert_eq!(update(&server, with_password("secret")).await, None);
    assert_eq!(roll_back(&server, "version-1").await, None);
    let replaced = ["0/0 UNCLAIMED  version-1", "0/1 RUNNING new-0 version-2"];
    until_rows(&server, &replaced).await;
    start_new(&server, 0, "back-0").await;
    until_done(&server).await;
    assert_eq!(get(&server, "guid").await.image_password, b"");
}

on_one_server!(
    credentials_are_changed_beside_definitions_that_cannot_be_read,
    postgres
);
/// Goal: archived definitions do not fail a call about the current one. Method: their column gets
/// another type, by hand.
async fn credentials_are_changed_beside_definitions_that_cannot_be_read() {
    let server = running(Kind::Postgres, 0).await;
    after_updates(&server, &["version-2"]).await;
    server
        .sql("ALTER TABLE bbs_lrp_definitions ALTER COLUMN last_active_at TYPE TEXT")
        .await;
    assert_eq!(update(&server, with_password("valid")).await, None);
    assert_eq!(get(&server, "guid").await.image_password, b"valid");
    assert!(server.store.left_out() > 0);
}

on_each_database!(definition_that_another_bbs_stored_above_the_limit_is_replaced_and_restored);
/// Method: the run information of the LRP is written into its column.
async fn definition_that_another_bbs_stored_above_the_limit_is_replaced_and_restored(kind: Kind) {
    let server = running(kind, 1).await;
    let run_info = proto::DesiredLrpRunInfo {
        environment_variables: environment(4_200_000),
        action: lrp("guid").action,
        ..Default::default()
    };
    let sealed = fixture::keyring().seal(Sealing::Enveloped, &run_info.encode_to_vec());
    let sealed = String::from_utf8(sealed).unwrap();
    server
        .sql(&format!("UPDATE desired_lrps SET run_info = '{sealed}'"))
        .await;
    let too_large = proto::LrpDefinition {
        environment_variables: environment(4_000_000),
        ..definition("version-2")
    };
    assert_eq!(
        update(&server, to(too_large)).await,
        Some(Type::InvalidRequest)
    );
    update_to(&server, "version-2").await;
    assert_eq!(update(&server, with_password("next")).await, None);
    assert_eq!(cancel(&server).await, None);
    let lrp = get(&server, "guid").await;
    assert_eq!(
        (text(&lrp.definition_id), text(&lrp.image_password)),
        ("version-1".into(), "next".into())
    );
    assert!(lrp.environment_variables == run_info.environment_variables);
}

// A client sends the definition as it was before the credentials of its image were changed.
on_each_layout!(definition_with_earlier_credentials_is_rolled_back_to_and_keeps_the_later_ones);
async fn definition_with_earlier_credentials_is_rolled_back_to_and_keeps_the_later_ones(
    kind: Kind,
) {
    let server = running(kind, 1).await;
    assert_eq!(update(&server, with_password("earlier")).await, None);
    update_to(&server, "version-2").await;
    assert_eq!(update(&server, with_password("later")).await, None);
    until_rows(&server, &REPLACED).await;
    start_new(&server, 0, "new-0").await;
    until_done(&server).await;
    let first = proto::LrpDefinition {
        memory_mb: 64,
        image_username: b"user".to_vec(),
        image_password: b"earlier".to_vec(),
        ..definition("version-1")
    };
    assert_eq!(update(&server, to(first.clone())).await, None);
    let replaced = ["0/0 UNCLAIMED  version-1", "0/1 RUNNING new-0 version-2"];
    until_rows(&server, &replaced).await;
    start_new(&server, 0, "back-0").await;
    until_done(&server).await;
    // The client sends it again, because it got no answer.
    assert_eq!(update(&server, to(first)).await, None);
    let lrp = get(&server, "guid").await;
    assert_eq!(
        (lrp.definition_id, lrp.image_password),
        (b"version-1".to_vec(), b"later".to_vec())
    );
}

on_each_layout!(last_definitions_are_kept);
async fn last_definitions_are_kept(kind: Kind) {
    let policy = Policy {
        definitions_kept: 2,
        ..Policy::default()
    };
    let server = running_under(kind, policy, 0).await;
    after_updates(&server, &["version-2", "version-3", "version-4"]).await;
    let listed: Vec<_> = definitions(&server)
        .await
        .into_iter()
        .map(|(id, _, _)| id)
        .collect();
    assert_eq!(listed, ["version-4", "version-3", "version-2"]);
    assert_eq!(
        roll_back(&server, "version-1").await,
        Some(Type::DefinitionNotFound)
    );
}

on_each_database!(oldest_definitions_are_deleted_while_all_are_too_large_together);
/// Method: two definitions are within the limit, and three are above it.
async fn oldest_definitions_are_deleted_while_all_are_too_large_together(kind: Kind) {
    let server = running(kind, 0).await;
    for (at, id) in (1..).zip(["version-2", "version-3", "version-4", "version-5"]) {
        server.clock.set(NOW_NS + at * 1_000_000_000);
        assert_eq!(update(&server, to(large(id))).await, None);
        until_done(&server).await;
    }
    let kept = [
        ("version-5".into(), 128, true),
        ("version-4".into(), 128, false),
        ("version-3".into(), 128, false),
    ];
    assert_eq!(definitions(&server).await, kept);
    let scaled = proto::DesiredLrpUpdate {
        instances: Some(1),
        ..Default::default()
    };
    assert_eq!(update(&server, scaled).await, None);
    start_new(&server, 0, "old-0").await;
    assert_eq!(update(&server, to(large("version-6"))).await, None);
    let kept = [
        ("version-6".into(), 128, true),
        ("version-5".into(), 128, true),
        ("version-4".into(), 128, false),
    ];
    assert_eq!(
        definitions(&server).await,
        kept,
        "also while an update is under way"
    );
}

on_each_layout!(convergence_prunes_definitions_that_are_too_old);
async fn convergence_prunes_definitions_that_are_too_old(kind: Kind) {
    let policy = Policy {
        definitions_max_age: Duration::from_secs(100),
        ..Policy::default()
    };
    let server = running_under(kind, policy, 0).await;
    after_updates(&server, &["version-2", "version-3"]).await;
    server.clock.set(NOW_NS + 101_500_000_000);
    convergence::run(&server.service).await.unwrap();
    let listed: Vec<_> = definitions(&server)
        .await
        .into_iter()
        .map(|(id, _, _)| id)
        .collect();
    assert_eq!(listed, ["version-3", "version-2"]);
}

/// Process guids and ids of all definitions that are not current.
async fn archive(server: &Server) -> Vec<String> {
    let both = match server.database.dialect() {
        Dialect::Mysql => "CONCAT(process_guid, ' ', definition_id)",
        Dialect::Sqlite | Dialect::Postgres => "process_guid || ' ' || definition_id",
    };
    server
        .texts(&format!(
            "SELECT {both} FROM bbs_lrp_definitions ORDER BY process_guid, definition_id"
        ))
        .await
}

async fn update_of(server: &Server, guid: &str, id: &str) {
    let request = proto::UpdateDesiredLrpRequest {
        process_guid: guid.into(),
        update: Some(to(definition(id))),
    };
    assert_eq!(error_of(server, UPDATE, &request).await, None, "{guid}");
    until_async(async || get(server, guid).await.previous_definition_id.is_empty()).await;
}

on_each_database!(each_run_of_convergence_prunes_the_next_archives_and_then_the_first_ones_again);
async fn each_run_of_convergence_prunes_the_next_archives_and_then_the_first_ones_again(
    kind: Kind,
) {
    let policy = Policy {
        definitions_max_age: Duration::from_secs(100),
        archives_per_run: 1,
        ..Policy::default()
    };
    let server = running_under(kind, policy, 0).await;
    for guid in ["a", "b", "c"] {
        let first = proto::DesiredLrp {
            process_guid: guid.into(),
            instances: 0,
            ..version_1()
        };
        desire(&server, first).await;
        update_of(&server, guid, "version-2").await;
    }
    let converge_at = async |seconds: i64| {
        server.clock.set(NOW_NS + seconds * 1_000_000_000);
        convergence::run(&server.service).await.unwrap();
        archive(&server).await
    };
    assert_eq!(
        converge_at(99).await,
        ["a version-1", "b version-1", "c version-1"]
    );
    assert_eq!(converge_at(101).await, ["a version-1", "c version-1"]);
    assert_eq!(converge_at(101).await, ["a version-1"]);
    update_of(&server, "b", "version-3").await;
    assert_eq!(converge_at(202).await, ["b version-2"]);
    assert_eq!(converge_at(202).await, [""; 0]);
}

on_each_layout!(removal_deletes_the_archive);
async fn removal_deletes_the_archive(kind: Kind) {
    let server = running(kind, 0).await;
    after_updates(&server, &["version-2"]).await;
    assert_eq!(remove_lrp(&server).await, None);
    desire(
        &server,
        proto::DesiredLrp {
            instances: 0,
            ..version_1()
        },
    )
    .await;
    assert_eq!(definitions(&server).await, [("version-1".into(), 64, true)]);
}
