//! The migration that adds definitions, up and down: the rows stay, and an update under way
//! continues.

use crate::api::actual_lrps::{CLAIM, REMOVE, START, claim, remove, start};
use crate::harness::database::{on_each_database, texts};
use crate::harness::fixture::{self, VERSION};
use crate::harness::host::{Host, Installation};
use crate::harness::modules;
use crate::harness::stored::{Rows, Stored};
use crate::harness::until_async;

use super::*;

const DEFINITIONS: u64 = 1_795_000_010;
pub(super) const BEFORE: u64 = 1_795_000_000;

on_each_database!(fixture_is_equal_after_the_migration_up_and_down);
async fn fixture_is_equal_after_the_migration_up_and_down(kind: Kind) {
    let stored = Stored::with_fixture(kind, fixture::migrations()).await;
    let diegos = stored.rows(VERSION).await;
    stored.up(BEFORE).await.unwrap();
    let before = stored.rows(BEFORE).await;
    stored.up(DEFINITIONS).await.unwrap();
    let with_definitions = stored.rows(DEFINITIONS).await;
    assert!(
        with_definitions["desired_lrps"]
            .iter()
            .all(|row| row["definition_id"].len() == 36)
    );
    stored.down(BEFORE).await.unwrap();
    assert_eq!(stored.rows(BEFORE).await, before);
    stored.down(VERSION).await.unwrap();
    assert_eq!(stored.rows(VERSION).await, diegos);
    stored.up(DEFINITIONS).await.unwrap();
    assert_eq!(stored.rows(DEFINITIONS).await, with_definitions);
}

pub(super) async fn status_of(host: &Host) -> proto::DesiredLrpUpdateStatus {
    let request = proto::DesiredLrpUpdateStatusRequest {
        process_guid: b"guid".to_vec(),
    };
    host.call::<proto::DesiredLrpUpdateStatusResponse>("/v1.2/desired_lrp/update_status", &request)
        .await
        .status
        .unwrap()
}

pub(super) async fn definitions_of(host: &Host) -> Vec<proto::ArchivedLrpDefinition> {
    let request = proto::LrpDefinitionsRequest {
        process_guid: b"guid".to_vec(),
    };
    let answer: proto::LrpDefinitionsResponse = host
        .call("/v1.2/desired_lrp/definitions/list", &request)
        .await;
    assert_eq!(answer.error, None);
    answer.definitions
}

async fn listed_ids(host: &Host) -> Vec<String> {
    let definitions = definitions_of(host).await.into_iter();
    definitions
        .filter_map(|archived| archived.definition)
        .map(|definition| text(&definition.definition_id))
        .collect()
}

pub(super) async fn change(host: &Host, path: &str, request: &impl Message) {
    let answer: proto::DesiredLrpLifecycleResponse = host.call(path, request).await;
    assert_eq!(answer.error, None, "{path}");
}

/// Desires version-1 without instances.
pub(super) async fn desire_version_1(host: &Host) {
    let request = proto::DesireLrpRequest {
        desired_lrp: Some(proto::DesiredLrp {
            instances: 0,
            ..version_1()
        }),
    };
    change(host, "/v1.2/desired_lrp/desire.r2", &request).await;
}

pub(super) async fn update_on(host: &Host, update: proto::DesiredLrpUpdate) {
    let request = proto::UpdateDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        update: Some(update),
    };
    change(host, UPDATE, &request).await;
}

/// Waits until no update is under way.
pub(super) async fn until_ended(host: &Host) {
    until_async(async || status_of(host).await.started_at == 0).await;
}

pub(super) fn scaled_to(instances: i32) -> proto::DesiredLrpUpdate {
    proto::DesiredLrpUpdate {
        instances: Some(instances),
        ..Default::default()
    }
}

async fn desired(host: &Host) -> proto::DesiredLrp {
    let request = proto::DesiredLrpByProcessGuidRequest {
        process_guid: b"guid".to_vec(),
    };
    let path = "/v1.2/desired_lrps/get_by_process_guid.r3";
    host.call::<proto::DesiredLrpResponse>(path, &request)
        .await
        .desired_lrp
        .unwrap()
}

/// Scales the LRP to one instance, whose container starts.
pub(super) async fn run_one_instance(host: &Host) {
    update_on(host, scaled_to(1)).await;
    host.call::<proto::ActualLrpLifecycleResponse>(CLAIM, &claim(0, "old-0"))
        .await;
    host.call::<proto::ActualLrpLifecycleResponse>(START, &start(0, "old-0"))
        .await;
}

/// Leaves an update under way, of the one instance that runs `version-2`; `version-1` is in the
/// archive.
async fn begin_update_to_version_3(host: &Host) {
    desire_version_1(host).await;
    update_on(host, to(definition("version-2"))).await;
    until_ended(host).await;
    run_one_instance(host).await;
    update_on(
        host,
        to(proto::LrpDefinition {
            memory_mb: 256,
            ..definition("version-3")
        }),
    )
    .await;
}

on_each_database!(update_under_way_continues_after_a_migration_down_and_up);
async fn update_under_way_continues_after_a_migration_down_and_up(kind: Kind) {
    let installation =
        Installation::new(&modules::modules(), kind).set("converge_repeat_interval", "200ms");
    let host = installation.serve();
    begin_update_to_version_3(&host).await;
    until_async(async || status_of(&host).await.waiting > 0).await;
    let before = status_of(&host).await;
    let known = desired(&host).await;
    let definitions = definitions_of(&host).await;
    let ids: Vec<_> = definitions
        .iter()
        .flat_map(|archived| &archived.definition)
        .map(|of| &of.definition_id)
        .collect();
    assert_eq!(ids, [b"version-3", b"version-2", b"version-1"]);
    host.stop();

    installation.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let rows = stored.rows(VERSION).await;
    assert_eq!(
        rows["desired_lrps"][0]["memory_mb"], "256",
        "Diego finds the current definition"
    );
    assert_eq!(rows["actual_lrps"].len(), 2);
    installation.succeed(&["migrate", "up"]);
    let host = installation.serve();
    assert_eq!(
        (status_of(&host).await, desired(&host).await),
        (before, known)
    );
    assert_eq!(definitions_of(&host).await, definitions);
    host.call::<proto::ActualLrpLifecycleResponse>(CLAIM, &claim(0, "new-0"))
        .await;
    host.call::<proto::ActualLrpLifecycleResponse>(START, &start(0, "new-0"))
        .await;
    host.call::<proto::ActualLrpLifecycleResponse>(REMOVE, &remove(0, Some("old-0")))
        .await;
    until_ended(&host).await;
    host.stop();
}

/// Goal: no LRP can keep a database from a migration down. Method: all definitions that one is
/// updated to are larger together than a unit of a migration may be.
#[tokio::test(flavor = "multi_thread")]
async fn lrp_with_many_large_definitions_migrates_down_and_up() {
    let installation = Installation::new(&modules::modules(), Kind::Sqlite)
        .set("converge_repeat_interval", "200ms");
    let host = installation.serve();
    desire_version_1(&host).await;
    for version in 2..=12 {
        update_on(&host, to(large(&format!("version-{version}")))).await;
        until_ended(&host).await;
    }
    let kept = ["version-12", "version-11", "version-10"];
    assert_eq!(listed_ids(&host).await, kept);
    host.stop();

    installation.succeed(&["migrate", "down", "--to", &BEFORE.to_string()]);
    installation.succeed(&["migrate", "up"]);
    let host = installation.serve();
    assert_eq!(listed_ids(&host).await, kept);
    host.stop();
}

on_each_database!(residue_of_a_record_stays_when_an_update_begins_and_ends);
/// Method: residue that the way up has given back and removed is put into its place again, as a
/// migration leaves it there on its way up.
async fn residue_of_a_record_stays_when_an_update_begins_and_ends(kind: Kind) {
    let installation =
        Installation::new(&modules::modules(), kind).set("converge_repeat_interval", "200ms");
    let host = installation.serve();
    desire_version_1(&host).await;
    host.stop();
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    stored
        .execute("UPDATE desired_lrps SET update_strategy = 1")
        .await;
    installation.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    stored
        .execute(
            "CREATE TABLE saved AS SELECT * FROM bbs_residue WHERE table_name = 'desired_lrps'",
        )
        .await;
    installation.succeed(&["migrate", "up"]);
    stored
        .execute("INSERT INTO bbs_residue SELECT * FROM saved")
        .await;
    let residue = async || {
        let query = "SELECT row_digest FROM bbs_residue ORDER BY row_digest";
        texts(&stored.context.database, query).await
    };
    let before = residue().await;
    assert_ne!(before, [""; 0]);

    let host = installation.serve();
    update_on(&host, to(definition("version-2"))).await;
    until_ended(&host).await;
    host.stop();
    assert_eq!(residue().await, before);
}

on_each_database!(definitions_return_to_an_lrp_that_was_scaled_meanwhile);
/// Method: after the migration down, with an update under way, there is a container more, as Diego's
/// BBS starts one.
async fn definitions_return_to_an_lrp_that_was_scaled_meanwhile(kind: Kind) {
    let installation =
        Installation::new(&modules::modules(), kind).set("converge_repeat_interval", "200ms");
    let host = installation.serve();
    begin_update_to_version_3(&host).await;
    until_async(async || status_of(&host).await.waiting > 0).await;
    host.stop();
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let before = stored.rows(DEFINITIONS).await;

    installation.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    let layout = stored.layout(VERSION);
    let columns: Vec<_> = layout.tables["actual_lrps"]
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    let values: Vec<_> = columns
        .iter()
        .map(|column| match *column {
            "instance_index" => "1",
            "instance_guid" => "'of-diego'",
            column => column,
        })
        .collect();
    stored
        .execute(&format!(
            "INSERT INTO actual_lrps ({}) SELECT {} FROM actual_lrps WHERE instance_guid = 'old-0'",
            columns.join(", "),
            values.join(", ")
        ))
        .await;
    installation.succeed(&["migrate", "up"]);

    let after = stored.rows(DEFINITIONS).await;
    for (table, column) in [
        ("desired_lrps", "definition_id"),
        ("desired_lrps", "previous_definition_id"),
        ("bbs_lrp_updates", "started_at"),
        ("bbs_lrp_definitions", "definition_id"),
        ("bbs_lrp_definitions", "last_active_at"),
    ] {
        let of =
            |rows: &Rows| -> Vec<_> { rows[table].iter().map(|row| row[column].clone()).collect() };
        assert_eq!(of(&after), of(&before), "{column} of {table}");
    }
    let definition = |container: &str| {
        let mut rows = after["actual_lrps"].iter();
        let row = rows.find(|row| row["instance_guid"] == container);
        row.unwrap()["desired_lrp_definition_id"].clone()
    };
    assert_eq!(
        [definition("old-0"), definition("of-diego")],
        ["version-2", "version-3"]
    );
}

on_each_database!(record_that_is_made_anew_gets_nothing_of_its_predecessor);
/// Method: after the migration down, the desired LRP gets another modification tag, as one has that
/// Diego's BBS desires under the same guid after it has removed the first.
async fn record_that_is_made_anew_gets_nothing_of_its_predecessor(kind: Kind) {
    let installation =
        Installation::new(&modules::modules(), kind).set("converge_repeat_interval", "200ms");
    let host = installation.serve();
    begin_update_to_version_3(&host).await;
    assert_ne!(
        status_of(&host).await.started_at,
        0,
        "an update is under way"
    );
    host.stop();

    installation.succeed(&["migrate", "down", "--to", &VERSION.to_string()]);
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    stored.execute("DELETE FROM actual_lrps").await;
    stored.execute("UPDATE desired_lrps SET modification_tag_epoch = 'made anew', modification_tag_index = 0").await;
    let host = installation.serve();
    let definitions = definitions_of(&host).await;
    let ids: Vec<_> = definitions
        .iter()
        .flat_map(|archived| &archived.definition)
        .map(|of| &of.definition_id)
        .collect();
    assert!(ids.len() == 1 && ids[0].len() == 36, "{ids:?}");
    let status = status_of(&host).await;
    assert_eq!((&status.definition_id, status.started_at), (ids[0], 0));
    assert_eq!(status.previous_definition_id, Vec::<u8>::new());
    host.stop();
}
