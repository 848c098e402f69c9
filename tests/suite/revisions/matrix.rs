//! Clients of every version of the API on one host: before, during and after migrations, on each
//! layout, and below a pin. A client of each version writes a desired LRP and a task, and a client
//! of each version reads what all of them wrote, with the instances, and receives the events.

use bbs_proto::{v0_9, v0_10};

use super::*;
use crate::api::run_action;
use crate::harness::database::on_each_database;
use crate::harness::event_stream::EventStream;
use crate::harness::fixture::{self, UNSPLIT_TAGS};
use crate::harness::host::{Host, Installation};
use crate::harness::load::across::progress;
use crate::harness::stored::Stored;
use crate::harness::{modules, until_async};

mod client;
mod round_trips;
mod views;

use client::ClientVersion::{self, V0_10, V0_11, V1_1, V1_2};
use client::VersionedClient;

const DOMAIN: &str = "matrix";

fn timeout(timeout_ms: i64) -> proto::Action {
    let timeout = proto::TimeoutAction {
        action: Some(Box::new(run_action())),
        timeout_ms,
        ..Default::default()
    };
    proto::Action {
        timeout_action: Some(Box::new(timeout)),
        ..Default::default()
    }
}

fn dependency() -> proto::CachedDependency {
    proto::CachedDependency {
        from: b"http://cached".to_vec(),
        to: b"/cached".to_vec(),
        ..Default::default()
    }
}

fn layer() -> proto::ImageLayer {
    proto::ImageLayer {
        url: b"http://layer".to_vec(),
        destination_path: b"/layer".to_vec(),
        layer_type: proto::image_layer::Type::Shared.into(),
        media_type: proto::image_layer::MediaType::Tgz.into(),
        ..Default::default()
    }
}

/// A record with a value in a field of each version. Whole seconds, which are all that the oldest
/// versions know.
fn lrp(process_guid: &str) -> proto::DesiredLrp {
    proto::DesiredLrp {
        domain: DOMAIN.into(),
        instances: 1,
        setup: Some(timeout(2_000)),
        action: Some(run_action()),
        monitor: Some(timeout(3_000)),
        start_timeout_ms: 61_000,
        memory_mb: 64,
        routes: Some(crate::api::routes(&[("cf-router", "[]")])),
        annotation: b"annotation".to_vec(),
        metrics_guid: b"metrics".to_vec(),
        metric_tags: vec![
            crate::api::tag("app", "x"),
            crate::api::tag("source_id", "metrics"),
        ],
        legacy_download_user: b"vcap".to_vec(),
        placement_tags: vec![b"gpu".to_vec()],
        max_pids: 7,
        cached_dependencies: vec![dependency()],
        image_layers: vec![layer()],
        ..crate::api::lrp(process_guid)
    }
}

fn definition() -> proto::TaskDefinition {
    proto::TaskDefinition {
        action: Some(timeout(4_000)),
        annotation: b"annotation".to_vec(),
        legacy_download_user: b"vcap".to_vec(),
        cached_dependencies: vec![dependency()],
        image_layers: vec![layer()],
        ..crate::tasks::definition()
    }
}

/// The records that a client of a version wrote. The task has the guid of the desired LRP.
struct Records {
    version: ClientVersion,
    lrp: proto::DesiredLrp,
    definition: proto::TaskDefinition,
}

/// Writes a desired LRP and a task with a client of each of these versions.
async fn write(clients: &[VersionedClient], phase: &str) -> Vec<Records> {
    let mut all = Vec::new();
    for client in clients {
        let version = client.version;
        let lrp = views::known(
            version,
            lrp(&format!("{phase}-{}", version.number().replace('.', "-"))),
        );
        let definition = views::known_of_task(version, definition());
        client.create(&views::written(version, lrp.clone())).await;
        client
            .create_task(
                &lrp.process_guid,
                DOMAIN,
                &views::written_task(version, definition.clone()),
            )
            .await;
        all.push(Records {
            version,
            lrp,
            definition,
        });
    }
    all
}

/// Compares what a client found with what it is expected to find, as far as the writer knew it too.
fn assert_agree(reader: ClientVersion, found: proto::DesiredLrp, records: &Records) {
    let found = views::understood(reader, found);
    let expected = views::expected(reader, &records.lrp);
    let of = format!("{reader:?} reads what {:?} wrote", records.version);
    if records.version <= V0_10 {
        let found = views::fields_of_0_9(&found);
        let expected = views::fields_of_0_9(&expected);
        return assert_eq!(found, expected, "{of}");
    }
    assert_eq!(found, expected, "{of}");
}

/// Asserts that each client lists and reads all of these records, and lists no others of the
/// domain.
async fn assert_are_read(clients: &[VersionedClient], all: &[Records]) {
    for client in clients {
        let reader = client.version;
        let listed = client.list(DOMAIN).await;
        let tasks = client.list_tasks(DOMAIN).await;
        assert_eq!(
            (listed.len(), tasks.len()),
            (all.len(), all.len()),
            "{reader:?}"
        );
        for records in all {
            let guid = &records.lrp.process_guid;
            let found = listed.iter().find(|lrp| lrp.process_guid == *guid).cloned();
            assert_agree(
                reader,
                found.unwrap_or_else(|| panic!("{reader:?} does not list {guid:?}")),
                records,
            );
            let one = client.get(guid).await;
            assert_agree(
                reader,
                one.unwrap_or_else(|| panic!("{reader:?} does not find {guid:?}")),
                records,
            );
            let listed = tasks.iter().find(|task| task.task_guid == *guid).cloned();
            let expected = views::expected_task(reader, &records.definition);
            for found in [listed, client.get_task(guid).await] {
                let found = views::understood_task(reader, found.expect("the task is there"));
                assert_eq!(
                    found, expected,
                    "{reader:?} reads what {:?} wrote",
                    records.version
                );
            }
        }
    }
}

/// Asserts that each client lists an instance of each of these records, and a scheduling info if it
/// knows them; with the ids of definitions, which a client of 1.2 reads.
async fn assert_instances_are_read(clients: &[VersionedClient], all: &[Records]) {
    let mut guids: Vec<_> = all
        .iter()
        .map(|records| records.lrp.process_guid.clone())
        .collect();
    guids.sort();
    for client in clients {
        let reader = client.version;
        let instances = client.instances(DOMAIN).await;
        assert_eq!(
            instances.iter().map(|(guid, _)| guid).collect::<Vec<_>>(),
            guids.iter().collect::<Vec<_>>(),
            "{reader:?}"
        );
        let Some(infos) = client.scheduling_infos(DOMAIN).await else {
            continue;
        };
        assert_eq!(
            infos.iter().map(|(guid, _)| guid).collect::<Vec<_>>(),
            guids.iter().collect::<Vec<_>>(),
            "{reader:?}"
        );
        if reader == V1_2 {
            assert_eq!(infos, instances, "each instance runs the only definition");
            assert!(infos.iter().all(|(_, definition)| !definition.is_empty()));
        }
    }
}

/// The streams of a client of each version: of LRPs and of tasks.
struct Subscribers(Vec<(ClientVersion, [EventStream; 2])>);

impl Subscribers {
    async fn of(clients: &[VersionedClient]) -> Self {
        let mut subscribed = Vec::new();
        for client in clients {
            subscribed.push((client.version, client.subscribe().await));
        }
        Self(subscribed)
    }

    /// Reads the events of each stream until it had those of all records, their instances and
    /// tasks, which were `created` or `removed`.
    async fn assert_receive(&mut self, change: &str, all: &[Records]) {
        for (version, [lrps, tasks]) in &mut self.0 {
            let instance = if version.has_group_events() {
                "actual_lrp"
            } else {
                "actual_lrp_instance"
            };
            assert_receives(
                *version,
                lrps,
                &[
                    format!("desired_lrp_{change}"),
                    format!("{instance}_{change}"),
                ],
                all,
            )
            .await;
            assert_receives(*version, tasks, &[format!("task_{change}")], all).await;
        }
    }
}

/// Reads the events of a stream until it had one of each name for each of the records.
async fn assert_receives(
    version: ClientVersion,
    stream: &mut EventStream,
    names: &[String],
    all: &[Records],
) {
    let guids = all.iter().map(|records| &records.lrp.process_guid[..]);
    let mut missing: Vec<_> = guids
        .flat_map(|guid| names.iter().map(move |name| (name, guid)))
        .collect();
    while !missing.is_empty() {
        let event = stream
            .next()
            .await
            .unwrap_or_else(|| panic!("{version:?}: the stream ended before {missing:?}"));
        // The guid is in the record, in any version's message.
        let has = |guid: &[u8]| event.message.windows(guid.len()).any(|part| part == guid);
        missing.retain(|(name, guid)| **name != event.name || !has(guid));
    }
}

/// Removes each record with a client of the version that wrote it.
async fn remove(clients: &[VersionedClient], all: &[Records]) {
    for records in all {
        let client = clients
            .iter()
            .find(|client| client.version == records.version)
            .expect("a client of each version");
        client.remove(&records.lrp.process_guid).await;
        client.remove_task(&records.lrp.process_guid).await;
    }
}

on_layouts_of_sqlite!(clients_of_all_versions_read_what_each_of_them_writes);
async fn clients_of_all_versions_read_what_each_of_them_writes(kind: Kind) {
    let server = served::server(kind, None).await;
    let clients = VersionedClient::all(&server.url(""));
    let mut subscribers = Subscribers::of(&clients).await;
    let all = write(&clients, "only").await;
    assert_are_read(&clients, &all).await;
    assert_instances_are_read(&clients, &all).await;
    subscribers.assert_receive("created", &all).await;
    remove(&clients, &all).await;
    assert_are_read(&clients, &[]).await;
    assert_instances_are_read(&clients, &[]).await;
    subscribers.assert_receive("removed", &all).await;
    let kept = write(&clients, "kept").await;
    assert_are_read(&clients, &kept).await;
}

/// A quarter of the fixture at [`UNSPLIT_TAGS`].
async fn at_unsplit_tags(kind: Kind) -> Installation {
    let installation = Installation::of_small_diego(&modules::modules(), kind).await;
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    stored.down(UNSPLIT_TAGS).await.unwrap();
    stored.context.database.close().await;
    installation
}

/// Serves an installation at [`UNSPLIT_TAGS`], and writes records with clients of all versions.
async fn written_before(installation: Installation) -> (Installation, Vec<Records>) {
    let installation = installation.set("pin_data_version", UNSPLIT_TAGS);
    let host = installation.serve();
    let clients = VersionedClient::all(&host.url(""));
    let removed = write(&clients, "removed").await;
    remove(&clients, &removed).await;
    let before = write(&clients, "before").await;
    assert_are_read(&clients, &before).await;
    assert!(host.terminate().success());
    // Slow enough not to end before its rate is raised.
    let installation = installation.set("pin_data_version", serde_json::Value::Null);
    (installation.set("migration_units_per_second", 1), before)
}

on_each_database!(clients_of_all_versions_are_served_before_during_and_after_an_online_migration);
async fn clients_of_all_versions_are_served_before_during_and_after_an_online_migration(
    kind: Kind,
) {
    let (installation, mut all) = written_before(at_unsplit_tags(kind).await).await;
    let installation = installation.set("migration_mode", "online");
    let mut host = installation.serve();
    let clients = VersionedClient::all(&host.url(""));
    let mut subscribers = Subscribers::of(&clients).await;
    let removed = write(&clients, "removed").await;
    remove(&clients, &removed).await;
    subscribers.assert_receive("removed", &removed).await;
    let during = write(&clients, "during").await;
    subscribers.assert_receive("created", &during).await;
    all.extend(during);
    assert_are_read(&clients, &all).await;
    assert_instances_are_read(&clients, &all).await;
    assert!(
        !host.output().iter().any(|line| line.contains("cut over")),
        "the migration ended before the calls"
    );

    installation.succeed(&["migrate", "rate", "none"]);
    host.wait_for_line(|line| line.contains("cut over"));
    assert_serves_to_the_end(host, &clients, subscribers, all).await;
}

/// Asserts that a host whose migration has ended serves the records from before, takes new ones,
/// and removes all. The subscribers may be those from before the end.
async fn assert_serves_to_the_end(
    host: Host,
    clients: &[VersionedClient],
    mut subscribers: Subscribers,
    mut all: Vec<Records>,
) {
    let after = write(clients, "after").await;
    subscribers.assert_receive("created", &after).await;
    all.extend(after);
    assert_are_read(clients, &all).await;
    assert_instances_are_read(clients, &all).await;
    remove(clients, &all).await;
    assert_are_read(clients, &[]).await;
    subscribers.assert_receive("removed", &all).await;
    drop(subscribers);
    assert!(host.terminate().success());
}

on_each_database!(
    clients_of_all_versions_get_503_during_an_offline_migration_and_their_records_after_it
);
async fn clients_of_all_versions_get_503_during_an_offline_migration_and_their_records_after_it(
    kind: Kind,
) {
    let (installation, all) = written_before(at_unsplit_tags(kind).await).await;
    let mut host = Host::start(installation.command(&["serve"]), "listening");
    let clients = VersionedClient::all(&host.url(""));
    for client in &clients {
        for (verb, path) in client.version.calls() {
            let reply = client.send(verb, &path, Vec::new()).await;
            assert_eq!(reply.status, 503, "{:?} {verb} {path}", client.version);
            assert!(
                reply.header("retry-after").parse::<u32>().unwrap() >= 1,
                "{:?} {verb} {path}",
                client.version
            );
        }
    }
    // The rate can be set once the host controls the migration.
    until_async(async || progress(&installation).await.is_some()).await;
    installation.succeed(&["migrate", "rate", "none"]);
    host.wait_for_line(|line| line.contains("serving") && line.contains("data_version"));
    let subscribers = Subscribers::of(&clients).await;
    assert_serves_to_the_end(host, &clients, subscribers, all).await;
}

/// Verbs and paths that a client without a version finds on a host pinned to a version: those of
/// that version, at most of Diego's current one, and those of Diego in the older ones.
fn found_below(pin: ClientVersion) -> Vec<(&'static str, String)> {
    let newest = pin.min(V1_1);
    let is_found =
        |version: &ClientVersion| *version == newest || (V0_11..=newest).contains(version);
    ClientVersion::ALL
        .into_iter()
        .filter(is_found)
        .flat_map(ClientVersion::calls)
        .collect()
}

on_each_database!(pinned_host_serves_its_version_and_older_ones_alone);
async fn pinned_host_serves_its_version_and_older_ones_alone(kind: Kind) {
    for pin in ClientVersion::ALL {
        let server = served::server(kind, Some(pin.number())).await;
        let clients = VersionedClient::all(&server.url(""));
        let (served, newer): (Vec<_>, Vec<_>) = clients
            .into_iter()
            .partition(|client| client.version <= pin);
        let all = write(&served, "pinned").await;
        assert_are_read(&served, &all).await;
        let found = found_below(pin);
        for version in newer.iter().map(|client| client.version) {
            let header = [("x-diego-api-version", version.number())];
            for (verb, path) in version.calls() {
                let of = format!("{version:?} on a host pinned to {pin:?}: {verb} {path}");
                let by_path = server
                    .send(verb, &format!("/v{}/{path}", version.number()), &[], vec![])
                    .await;
                let by_header = server
                    .send(verb, &format!("/v1/{path}"), &header, vec![])
                    .await;
                assert_eq!((by_path.status, by_header.status), (406, 406), "{of}");
                assert_eq!(
                    by_path.header("x-diego-api-max-version"),
                    pin.number(),
                    "{of}"
                );
                if !found.contains(&(verb, path.clone())) {
                    assert_eq!(
                        server
                            .send(verb, &format!("/v1/{path}"), &[], vec![])
                            .await
                            .status,
                        404,
                        "{of}"
                    );
                }
            }
        }
        for (verb, path) in &found {
            let reply = server.send(verb, &format!("/v1/{path}"), &[], vec![]).await;
            assert_eq!(
                reply.status, 200,
                "on a host pinned to {pin:?}: {verb} {path}"
            );
        }
        if pin >= ClientVersion::V1_0 {
            assert_instances_are_read(&served, &all).await;
        }
        remove(&served, &all).await;
        assert_are_read(&served, &[]).await;
    }
}
