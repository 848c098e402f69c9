//! Records at another data version than the native one: pinned to an older one, or migrated by
//! modules newer than the host. Every call must answer as it does on a native database.

mod faults;
mod instances;

use std::path::PathBuf;

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use crate::api::{lrp, routes, tag};
use crate::harness::database::{Kind, TestDatabase, on_each_database};
use crate::harness::fixture::{self, OLDEST, UNSPLIT_TAGS, VERSION};
use crate::harness::layouts::{NEWEST, SPLIT};
use crate::harness::server::{Options, Reply, Server};
use crate::harness::stored::Stored;
use crate::harness::{has_all_rounds, modules};

/// One unit of the fixture in so many, where its records are not what a test is about.
const SHARE: u32 = 4;

/// The share of the fixture whose records a test reads through a lens.
fn share(kind: Kind) -> u32 {
    if has_all_rounds(kind) { 1 } else { SHARE }
}

/// Migrates the fixture to a version and serves it there.
async fn serve_at(kind: Kind, modules: PathBuf, version: u64) -> Server {
    serve_share_at(kind, modules, version, 1).await
}

/// [`serve_at`] with one unit of the fixture in `nth`, in pages of which each list has several.
async fn serve_share_at(kind: Kind, modules: PathBuf, version: u64, nth: u32) -> Server {
    let database = TestDatabase::new(kind);
    fixture::write_share_to(&database, nth).await;
    let migrations = fixture::migrations_in(&modules);
    let stored = Stored::open(&database, migrations.clone()).await;
    if version < VERSION {
        stored
            .down(version)
            .await
            .expect("the fixture migrates down");
    } else {
        stored.up(version).await.expect("the fixture migrates up");
    }
    stored.context.database.close().await;
    let options = Options {
        page_units: Some(if nth == 1 { 37 } else { 11 }),
        ..Options::on(kind)
    };
    Server::at(database, &migrations, version, options).await
}

/// A response as text, without the order of lists and random epochs.
fn normalise(path: &str, reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    fn sorted<T: std::fmt::Debug>(list: impl IntoIterator<Item = T>) -> Vec<String> {
        let mut list: Vec<_> = list
            .into_iter()
            .map(|element| format!("{element:?}"))
            .collect();
        list.sort();
        list
    }
    let body = &reply.body[..];
    let untagged =
        |tag: &mut Option<proto::ModificationTag>| tag.iter_mut().for_each(|tag| tag.epoch.clear());
    let desired = |mut lrp: proto::DesiredLrp| {
        untagged(&mut lrp.modification_tag);
        crate::api::answers::in_order(lrp)
    };
    match path {
        "/v1/desired_lrps/list.r3" | "/v1/desired_lrp_routing_infos/list" => {
            let answer = proto::DesiredLrPsResponse::decode(body).unwrap();
            format!(
                "{:?} {:#?}",
                answer.error,
                sorted(answer.desired_lrps.into_iter().map(desired))
            )
        }
        "/v1/desired_lrps/get_by_process_guid.r3" => {
            let answer = proto::DesiredLrpResponse::decode(body).unwrap();
            format!("{:?} {:#?}", answer.error, answer.desired_lrp.map(desired))
        }
        "/v1/desired_lrp_scheduling_infos/list" => {
            let answer = proto::DesiredLrpSchedulingInfosResponse::decode(body).unwrap();
            let infos = answer
                .desired_lrp_scheduling_infos
                .into_iter()
                .map(|mut info| {
                    untagged(&mut info.modification_tag);
                    info.routes
                        .iter_mut()
                        .for_each(|routes| routes.routes.sort_by(|a, b| a.key.cmp(&b.key)));
                    info
                });
            format!("{:?} {:#?}", answer.error, sorted(infos))
        }
        "/v1/actual_lrps/list" => {
            let answer = proto::ActualLrPsResponse::decode(body).unwrap();
            let lrps = answer.actual_lrps.into_iter().map(|mut lrp| {
                untagged(&mut lrp.modification_tag);
                lrp.metric_tags.sort_by(|a, b| a.key.cmp(&b.key));
                lrp
            });
            format!("{:?} {:#?}", answer.error, sorted(lrps))
        }
        "/v1/tasks/list.r3" => {
            let answer = proto::TasksResponse::decode(body).unwrap();
            format!(
                "{:?} {:#?}",
                answer.error,
                sorted(
                    answer
                        .tasks
                        .into_iter()
                        .map(crate::api::answers::task_in_order)
                )
            )
        }
        "/v1/domains/list" => {
            let answer = proto::DomainsResponse::decode(body).unwrap();
            format!("{:?} {:#?}", answer.error, sorted(answer.domains))
        }
        _ if path.contains("/evacuate_") => {
            format!("{:?}", proto::EvacuationResponse::decode(body).unwrap())
        }
        _ => format!(
            "{:?}",
            proto::DesiredLrpLifecycleResponse::decode(body).unwrap()
        ),
    }
}

/// A native server and one at another version; every call goes to both and the responses are
/// compared.
struct ServerPair {
    native: Server,
    other: Server,
}

impl ServerPair {
    /// Both have one unit of the fixture in `nth`.
    async fn at(kind: Kind, modules: PathBuf, version: u64, nth: u32) -> Self {
        Self {
            native: serve_share_at(kind, self::modules::modules(), NEWEST, nth).await,
            other: serve_share_at(kind, modules, version, nth).await,
        }
    }

    async fn call(&self, path: &str, request: &impl Message) {
        self.post(path, request.encode_to_vec()).await;
    }

    async fn post(&self, path: &str, body: Vec<u8>) {
        let native = normalise(path, &self.native.post(path, body.clone()).await);
        let other = normalise(path, &self.other.post(path, body).await);
        if native != other {
            let first =
                native
                    .lines()
                    .zip(other.lines())
                    .enumerate()
                    .find_map(|(at, (native, other))| {
                        (native != other).then(|| {
                            format!("{path}, line {at}: {native} but through the lens {other}")
                        })
                    });
            panic!(
                "{}",
                first.unwrap_or_else(|| format!(
                    "{path}: {} lines but {}",
                    native.len(),
                    other.len()
                ))
            );
        }
    }

    async fn lists(&self) {
        let none = proto::DesiredLrPsRequest::default();
        self.call("/v1/desired_lrps/list.r3", &none).await;
        self.call("/v1/desired_lrp_scheduling_infos/list", &none)
            .await;
        self.call("/v1/desired_lrp_routing_infos/list", &none).await;
        self.call("/v1/actual_lrps/list", &proto::ActualLrPsRequest::default())
            .await;
        self.call("/v1/tasks/list.r3", &proto::TasksRequest::default())
            .await;
        self.post("/v1/domains/list", Vec::new()).await;
    }

    /// Process guids of the fixture.
    async fn some_guids(&self) -> Vec<Vec<u8>> {
        let found = self
            .native
            .texts("SELECT process_guid FROM desired_lrps ORDER BY process_guid LIMIT 12")
            .await;
        found.into_iter().map(String::into_bytes).collect()
    }

    async fn filters(&self) {
        let guids = self.some_guids().await;
        let text = self
            .native
            .texts("SELECT domain FROM desired_lrps ORDER BY process_guid LIMIT 1")
            .await;
        let domain = text[0].clone().into_bytes();
        let cell = self
            .native
            .texts("SELECT cell_id FROM actual_lrps WHERE cell_id <> '' LIMIT 1")
            .await;
        let cell = cell[0].clone().into_bytes();
        let prefix = guids[3][..8].to_vec();
        for request in [
            proto::DesiredLrPsRequest {
                domain: domain.clone(),
                ..Default::default()
            },
            proto::DesiredLrPsRequest {
                domain: b"nowhere".to_vec(),
                ..Default::default()
            },
            proto::DesiredLrPsRequest {
                process_guids: guids.clone(),
                ..Default::default()
            },
            proto::DesiredLrPsRequest {
                process_guids: vec![b"\xff".to_vec()],
                ..Default::default()
            },
            proto::DesiredLrPsRequest {
                app_guids: vec![prefix, b"%-".to_vec()],
                ..Default::default()
            },
            proto::DesiredLrPsRequest {
                domain,
                process_guids: guids.clone(),
                ..Default::default()
            },
        ] {
            self.call("/v1/desired_lrps/list.r3", &request).await;
            self.call("/v1/desired_lrp_scheduling_infos/list", &request)
                .await;
        }
        for request in [
            proto::ActualLrPsRequest {
                cell_id: cell,
                ..Default::default()
            },
            proto::ActualLrPsRequest {
                process_guid: guids[1].clone(),
                ..Default::default()
            },
            proto::ActualLrPsRequest {
                index: Some(1),
                ..Default::default()
            },
        ] {
            self.call("/v1/actual_lrps/list", &request).await;
        }
        for process_guid in guids
            .into_iter()
            .chain([b"unknown".to_vec(), b"\xff".to_vec()])
        {
            let request = proto::DesiredLrpByProcessGuidRequest { process_guid };
            self.call("/v1/desired_lrps/get_by_process_guid.r3", &request)
                .await;
        }
    }

    async fn desire(&self, lrp: proto::DesiredLrp) {
        self.call(
            "/v1/desired_lrp/desire.r2",
            &proto::DesireLrpRequest {
                desired_lrp: Some(lrp),
            },
        )
        .await;
    }

    async fn update(&self, process_guid: impl Into<Vec<u8>>, update: proto::DesiredLrpUpdate) {
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: process_guid.into(),
            update: Some(update),
        };
        self.call("/v1/desired_lrp/update", &request).await;
    }

    async fn remove(&self, process_guid: impl Into<Vec<u8>>) {
        let request = proto::RemoveDesiredLrpRequest {
            process_guid: process_guid.into(),
        };
        self.call("/v1/desired_lrp/remove", &request).await;
    }

    async fn changes(&self) {
        let guids = self.some_guids().await;
        self.desire(lrp("new")).await;
        self.desire(proto::DesiredLrp {
            annotation: b"noted".to_vec(),
            routes: Some(routes(&[("cf-router", "[{\"port\":8080}]")])),
            metric_tags: vec![tag("source_id", "source"), tag("app", "x")],
            image_username: b"me".to_vec(),
            image_password: b"secret".to_vec(),
            instances: 3,
            ..lrp("new-with-more")
        })
        .await;
        self.desire(lrp("new")).await;
        let update = |instances, annotation: &str| proto::DesiredLrpUpdate {
            instances: Some(instances),
            annotation: Some(annotation.into()),
            ..Default::default()
        };
        self.update(guids[0].clone(), update(5, "first")).await;
        self.update(guids[0].clone(), update(1, "second")).await;
        let more = proto::DesiredLrpUpdate {
            routes: Some(routes(&[("other", "{\"a\":1}")])),
            metric_tags: vec![tag("k", "v")],
            image_username: Some(b"user".to_vec()),
            image_password: Some(b"password".to_vec()),
            ..Default::default()
        };
        self.update(guids[1].clone(), more).await;
        self.update("unknown", update(1, "x")).await;
        self.remove(guids[2].clone()).await;
        self.remove("new").await;
        self.remove("unknown").await;
        for (domain, ttl) in [("cf-apps", 120), ("brand-new", 0), ("brand-new", 60)] {
            let request = proto::UpsertDomainRequest {
                domain: domain.into(),
                ttl,
            };
            self.call("/v1/domains/upsert", &request).await;
        }
        self.lists().await;
        self.update(guids[0].clone(), update(2, "third")).await;
        self.update("new-with-more", update(0, "fourth")).await;
        self.lists().await;
    }
}

async fn answers_agree(kind: Kind, modules: PathBuf, version: u64) {
    let pair = ServerPair::at(kind, modules, version, share(kind)).await;
    pair.lists().await;
    pair.filters().await;
    pair.changes().await;
    assert_eq!(
        (pair.native.store.left_out(), pair.other.store.left_out()),
        (0, 0)
    );
}

on_each_database!(split_tables_answer_as_native_ones);
async fn split_tables_answer_as_native_ones(kind: Kind) {
    answers_agree(kind, modules::modules_with_split(), SPLIT).await;
}

/// The versions before `update_strategy`, and before the column of metric tags.
const PINS: [u64; 2] = [VERSION, UNSPLIT_TAGS];

on_each_database!(records_below_a_pin_answer_as_native_ones);
async fn records_below_a_pin_answer_as_native_ones(kind: Kind) {
    for pin in PINS {
        answers_agree(kind, modules::modules(), pin).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_at_the_oldest_layout_answer_as_native_ones() {
    // At this version suspect and evacuating instances are residue, run info holds the metric tags,
    // routes are plain.
    answers_agree(Kind::Sqlite, modules::modules(), 1_461_790_966).await;
}

/// The status and the text of the response to a refused desire.
async fn refused(server: &Server, lrp: proto::DesiredLrp) -> (u16, String) {
    let reply = server
        .call(
            "/v1/desired_lrp/desire.r2",
            &proto::DesireLrpRequest {
                desired_lrp: Some(lrp),
            },
        )
        .await;
    (reply.status, reply.text())
}

on_each_database!(field_missing_in_the_pinned_layout_is_refused_by_name);
async fn field_missing_in_the_pinned_layout_is_refused_by_name(kind: Kind) {
    let server = serve_at(kind, modules::modules(), UNSPLIT_TAGS).await;
    let recreate = proto::desired_lrp::UpdateStrategy::Recreate.into();
    let (status, text) = refused(
        &server,
        proto::DesiredLrp {
            update_strategy: recreate,
            ..lrp("new")
        },
    )
    .await;
    assert_eq!(status, 406, "{text}");
    assert!(
        text.contains(&format!("at data version {UNSPLIT_TAGS}")),
        "{text}"
    );
    assert!(text.contains("desired_lrps.update_strategy"), "{text}");
    let found = server
        .texts("SELECT process_guid FROM desired_lrps WHERE process_guid = 'new'")
        .await;
    assert_eq!(found, Vec::<String>::new(), "a refused record was written");
    crate::api::desire(&server, lrp("new")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_column_newer_than_the_pin_is_refused_by_name() {
    let server = serve_at(Kind::Sqlite, modules::modules(), OLDEST).await;
    let placed = proto::DesiredLrp {
        placement_tags: vec![b"gpu".to_vec()],
        ..lrp("a")
    };
    let limited = proto::DesiredLrp {
        max_pids: 7,
        ..lrp("b")
    };
    let long = proto::DesiredLrp {
        root_fs: format!("preloaded:{}", "x".repeat(400)).into_bytes(),
        ..lrp("c")
    };
    let both = proto::DesiredLrp {
        max_pids: 7,
        ..placed.clone()
    };
    for (lrp, fields) in [
        (placed, &["desired_lrps.placement_tags"][..]),
        (limited, &["desired_lrps.max_pids"]),
        (long, &["desired_lrps.rootfs"]),
        (
            both,
            &["desired_lrps.max_pids", "desired_lrps.placement_tags"],
        ),
    ] {
        let (status, text) = refused(&server, lrp).await;
        assert_eq!(status, 406, "{text}");
        assert!(fields.iter().all(|field| text.contains(field)), "{text}");
    }
}

on_each_database!(residue_of_a_pinned_record_survives_updates);
async fn residue_of_a_pinned_record_survives_updates(kind: Kind) {
    let database = TestDatabase::new(kind);
    fixture::write_to(&database).await;
    let migrations = fixture::migrations();
    let stored = Stored::open(&database, migrations.clone()).await;
    stored.up(NEWEST).await.unwrap();
    let guid = fixture::rows("desired_lrps")[0]["process_guid"]
        .as_str()
        .unwrap()
        .to_owned();
    stored
        .execute(&format!(
            "UPDATE desired_lrps SET update_strategy = 1 WHERE process_guid = '{guid}'"
        ))
        .await;
    stored.down(VERSION).await.unwrap();
    let server = Server::at(database, &migrations, VERSION, Options::on(kind)).await;
    let recreate: i32 = proto::desired_lrp::UpdateStrategy::Recreate.into();
    assert_eq!(
        crate::api::get(&server, &guid).await.update_strategy,
        recreate
    );
    for (instances, annotation) in [(3, "once"), (2, "twice")] {
        let update = proto::DesiredLrpUpdate {
            instances: Some(instances),
            annotation: Some(annotation.into()),
            ..Default::default()
        };
        server.update_lrp(guid.clone(), update).await;
        let found = crate::api::get(&server, &guid).await;
        assert_eq!(
            (found.update_strategy, found.annotation),
            (recreate, annotation.as_bytes().to_vec())
        );
    }
    stored.up(NEWEST).await.unwrap();
    let rows = stored.rows(NEWEST).await;
    let row = rows["desired_lrps"]
        .iter()
        .find(|row| row["process_guid"] == guid)
        .unwrap();
    assert_eq!(
        (row["update_strategy"].as_str(), row["annotation"].as_str()),
        ("1", "twice")
    );
}

on_each_database!(split_tables_merge_into_the_records_written_through_them);
async fn split_tables_merge_into_the_records_written_through_them(kind: Kind) {
    let modules = modules::modules_with_split();
    let pair = ServerPair::at(kind, modules.clone(), SPLIT, share(kind)).await;
    pair.changes().await;
    let database = pair.other.database.clone();
    let migrations = fixture::migrations_in(&modules);
    let stored = Stored::over(database, migrations);
    stored.down(NEWEST).await.unwrap();
    let native = Stored::over(pair.native.database.clone(), fixture::migrations())
        .rows(NEWEST)
        .await;
    let merged = stored.rows(NEWEST).await;
    // Ids are generated in each database.
    let ignored = [
        "modification_tag_epoch",
        "record_version",
        "definition_id",
        "desired_lrp_definition_id",
    ];
    for (table, rows) in &native {
        assert_eq!(merged[table].len(), rows.len(), "{table}");
        for (found, expected) in merged[table].iter().zip(rows) {
            let names: Vec<_> = expected
                .keys()
                .filter(|name| !ignored.contains(&name.as_str()) && found[*name] != expected[*name])
                .collect();
            assert!(
                names.is_empty(),
                "{table}: {names:?} of {expected:?} came back as {found:?}"
            );
        }
    }
}
