//! Records that a client may write: what the API accepts, every migration, check and list carries.

use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use bbs::testing::database::sql;
use bbs_lens::layout::schema::Sealing;

use crate::api::actual_lrps::{instance, net_info};
use crate::api::{lrp, tag};
use crate::harness::database::{Kind, execute};
use crate::harness::host::{Host, Installation};
use crate::harness::stored::Stored;
use crate::harness::watch::Watch;
use crate::harness::{fixture, modules};

/// Before every migration that transforms actual LRPs but the first.
const EARLY: u64 = 1_529_530_809;
/// The newest version of the default catalog.
const NEWEST: u64 = 1_795_000_010;
/// The oldest version whose columns hold the largest records.
const EARLIEST_LONG: u64 = 1_674_146_125;

/// The process guids, indices and metric tags of the instances of a process guid, as a host lists
/// them.
pub(crate) async fn instances(host: &Host, process_guid: &str) -> Vec<(String, i32, String)> {
    let request = proto::ActualLrPsRequest {
        process_guid: process_guid.into(),
        ..Default::default()
    };
    let answer: proto::ActualLrPsResponse = host.call("/v1/actual_lrps/list", &request).await;
    assert_eq!(answer.error, None);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let listed = answer.actual_lrps.iter().map(|lrp| {
        let key = lrp.actual_lrp_key.as_ref().unwrap();
        let tag = lrp.metric_tags.first().map(|tag| text(&tag.value));
        (text(&key.process_guid), key.index, tag.unwrap_or_default())
    });
    let mut listed: Vec<_> = listed.collect();
    listed.sort();
    listed
}

const TOO_LARGE: &str = "above the limit of 5242880; make them smaller";

/// Text that is stored in sealed columns of at most 5 MiB.
fn long_text() -> Vec<u8> {
    vec![b'x'; 3_900_000]
}

pub(super) fn with_environment(guid: &str, value: Vec<u8>) -> proto::DesiredLrp {
    let variable = proto::EnvironmentVariable {
        name: b"LARGE".to_vec(),
        value,
    };
    proto::DesiredLrp {
        environment_variables: vec![variable],
        instances: 1,
        ..lrp(guid)
    }
}

pub(super) async fn desired(host: &Host, lrp: proto::DesiredLrp) -> Option<proto::Error> {
    let request = proto::DesireLrpRequest {
        desired_lrp: Some(lrp),
    };
    host.call::<proto::DesiredLrpLifecycleResponse>("/v1/desired_lrp/desire.r2", &request)
        .await
        .error
}

async fn updated(host: &Host, guid: &str, update: proto::DesiredLrpUpdate) -> Option<proto::Error> {
    let request = proto::UpdateDesiredLrpRequest {
        process_guid: guid.into(),
        update: Some(update),
    };
    host.call::<proto::DesiredLrpLifecycleResponse>("/v1/desired_lrp/update", &request)
        .await
        .error
}

async fn crashed(
    host: &Host,
    process_guid: &str,
    index: i32,
    reason: Vec<u8>,
) -> Option<proto::Error> {
    let request = proto::CrashActualLrpRequest {
        actual_lrp_key: Some(key(process_guid, index)),
        actual_lrp_instance_key: instance("cell"),
        error_message: reason,
    };
    host.call::<proto::ActualLrpLifecycleResponse>("/v1/actual_lrps/crash", &request)
        .await
        .error
}

fn key(process_guid: &str, index: i32) -> proto::ActualLrpKey {
    proto::ActualLrpKey {
        process_guid: process_guid.into(),
        index,
        domain: b"domain".to_vec(),
    }
}

/// Starts an instance with a metric tag.
pub(crate) async fn started(
    host: &Host,
    process_guid: &str,
    index: i32,
    tag: Vec<u8>,
) -> Option<proto::Error> {
    let request = proto::StartActualLrpRequest {
        actual_lrp_key: Some(key(process_guid, index)),
        actual_lrp_instance_key: instance("cell"),
        actual_lrp_net_info: net_info("cell"),
        metric_tags: vec![proto::TextEntry {
            key: b"tag".to_vec(),
            value: tag,
        }],
        routable: Some(true),
        ..Default::default()
    };
    host.call::<proto::ActualLrpLifecycleResponse>("/v1/actual_lrps/start.r1", &request)
        .await
        .error
}

#[track_caller]
fn assert_rejected(error: Option<proto::Error>, text: &str) {
    let error = error.expect("the request is rejected");
    let message = String::from_utf8(error.message.clone()).unwrap();
    assert_eq!(
        error.r#type(),
        proto::error::Type::InvalidRequest,
        "{message}"
    );
    assert!(message.contains(text), "{message}");
}

/// The list whose answer no translator takes.
const NATIVE_LIST: &str = "/v1/desired_lrps/list.r3";

/// The guids that a client of each version lists: at 0.9, of r0, r2 and the native version.
async fn lists(host: &Host) -> [Vec<String>; 4] {
    let mut lists = Vec::new();
    for path in [
        "/v0.9/desired_lrps/list",
        "/v1/desired_lrps/list",
        "/v1/desired_lrps/list.r2",
        NATIVE_LIST,
    ] {
        lists.push(listed(host, path).await);
    }
    lists.try_into().expect("four lists")
}

/// The guids of a list of desired LRPs.
async fn listed(host: &Host, path: &str) -> Vec<String> {
    // The guid is field 1 of each record of each version, as the record is field 2 of each list.
    let answer: proto::DesiredLrPsResponse =
        host.call(path, &proto::DesiredLrPsRequest::default()).await;
    assert_eq!(answer.error, None, "{path}");
    let mut guids: Vec<_> = answer
        .desired_lrps
        .iter()
        .map(|lrp| String::from_utf8(lrp.process_guid.clone()).unwrap())
        .collect();
    guids.sort();
    guids
}

/// Each value can be read alone, and not within the object that is stored.
#[tokio::test(flavor = "multi_thread")]
async fn routes_that_are_nested_too_deep_to_be_read_again_are_rejected() {
    let installation = Installation::new(&modules::modules(), Kind::Sqlite);
    let host = installation.serve();
    let nested = |depth: usize| {
        let entry = proto::RouteEntry {
            key: b"router".to_vec(),
            value: ["[".repeat(depth), "]".repeat(depth)].concat().into_bytes(),
        };
        Some(proto::ProtoRoutes {
            routes: vec![entry],
        })
    };
    let with_routes = |guid, depth| proto::DesiredLrp {
        instances: 2,
        routes: nested(depth),
        ..lrp(guid)
    };
    assert_rejected(desired(&host, with_routes("too-deep", 10_000)).await, "");
    assert_eq!(desired(&host, with_routes("deep", 9_999)).await, None);
    let deeper = proto::DesiredLrpUpdate {
        instances: Some(1),
        routes: nested(10_000),
        ..Default::default()
    };
    assert_rejected(updated(&host, "deep", deeper).await, "");
    let deep = proto::DesiredLrpUpdate {
        routes: nested(9_999),
        ..Default::default()
    };
    assert_eq!(updated(&host, "deep", deep).await, None);
    assert_eq!(instances(&host, "deep").await.len(), 2);
    assert_eq!(lists(&host).await[1..], [["deep"]; 3]);
}

#[tokio::test(flavor = "multi_thread")]
/// Goal: what the API accepts, every migration, check and list carries; the rest is rejected with
/// the bound. Method: clients write records that are as large as possible, by one call and by
/// several.
async fn largest_records_that_the_api_accepts_migrate_and_are_listed() {
    // A server ends a transaction that is idle for half of this, as one is while a translator has a
    // large page.
    let long = |installation: Installation| installation.set("lock_ttl", "60s");
    let installation = long(Installation::new(&modules::modules(), Kind::Mariadb));
    let host = installation.serve();
    let watch = Watch::on(&host);
    assert_rejected(
        desired(&host, with_environment("too-large", vec![b'x'; 4_000_000])).await,
        TOO_LARGE,
    );
    assert_rejected(
        desired(
            &host,
            proto::DesiredLrp {
                instances: i32::MAX,
                ..lrp("endless")
            },
        )
        .await,
        "at most 10000",
    );
    assert_eq!(
        desired(&host, with_environment("large", long_text())).await,
        None
    );
    let tags = |text: Vec<u8>| vec![tag("source_id", std::str::from_utf8(&text).unwrap())];
    let grown = |text| proto::DesiredLrpUpdate {
        metric_tags: tags(text),
        ..Default::default()
    };
    assert_eq!(updated(&host, "large", grown(long_text())).await, None);
    assert_rejected(
        updated(&host, "large", grown(vec![b'x'; 4_000_000])).await,
        TOO_LARGE,
    );
    let more = proto::DesiredLrpUpdate {
        instances: Some(10_001),
        ..Default::default()
    };
    assert_rejected(updated(&host, "large", more).await, "at most 10000");

    assert_eq!(
        desired(
            &host,
            proto::DesiredLrp {
                instances: 70,
                ..lrp("many")
            }
        )
        .await,
        None
    );
    assert_rejected(
        started(&host, "many", 10_000, Vec::new()).await,
        "below 10000",
    );
    // Almost as much as a body may have.
    let tag = || vec![b'x'; 240 << 10];
    for index in 0..38 {
        assert_eq!(started(&host, "many", index, tag()).await, None, "{index}");
    }
    for index in [38, 69] {
        assert_rejected(
            started(&host, "many", index, tag()).await,
            "above the limit of 12582912",
        );
        assert_eq!(started(&host, "many", index, vec![b'x'; 200]).await, None);
    }
    // Of which an excerpt is stored.
    assert_eq!(crashed(&host, "many", 69, tag()).await, None);
    let all = vec!["large".to_owned(), "many".to_owned()];
    assert_eq!(
        lists(&host).await,
        [all.clone(), all.clone(), all.clone(), all.clone()]
    );
    let before = instances(&host, "many").await;
    watch.assert_unharmed().await;
    host.stop();

    installation.succeed(&["migrate", "down", "--to", &EARLIEST_LONG.to_string()]);
    installation.succeed(&["migrate", "plan", "--check"]);
    let pinned = long(Installation::on(
        installation.database.clone(),
        &modules::modules(),
    ));
    let pinned = pinned.set("pin_data_version", EARLIEST_LONG);
    let host = pinned.serve();
    let watch = Watch::on(&host);
    assert_eq!(
        lists(&host).await,
        [all.clone(), all.clone(), all.clone(), all.clone()]
    );
    watch.assert_unharmed().await;
    host.stop();
    installation.succeed(&["migrate", "up"]);
    let host = installation.serve();
    assert_eq!(
        lists(&host).await,
        [all.clone(), all.clone(), all.clone(), all]
    );
    assert_eq!(instances(&host, "many").await, before);
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
/// Goal: a record that a database held already blocks nothing but itself. Method: another BBS has
/// written a record that no module can take; it is listed, checked and quarantined.
async fn record_too_large_for_modules_is_left_out_alone() {
    let installation = Installation::new(&modules::modules(), Kind::Sqlite);
    let mut host = installation.serve();
    for guid in ["a", "huge", "z"] {
        assert_eq!(desired(&host, lrp(guid)).await, None);
    }
    let run_info = proto::DesiredLrpRunInfo {
        environment_variables: vec![proto::EnvironmentVariable {
            name: b"LARGE".to_vec(),
            value: vec![b'x'; 25 << 20],
        }],
        action: lrp("huge").action,
        ..Default::default()
    };
    let sealed = fixture::keyring().seal(Sealing::Enveloped, &run_info.encode_to_vec());
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let mut tx = stored.context.database.write().await.unwrap();
    let update = sql("UPDATE desired_lrps SET run_info = ? WHERE process_guid = 'huge'");
    tx.execute(update.bind(String::from_utf8(sealed).unwrap()))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    stored.context.database.close().await;

    let watch = Watch::on(&host);
    let all = ["a", "huge", "z"].map(str::to_owned).to_vec();
    let others = ["a", "z"].map(str::to_owned).to_vec();
    assert_eq!(
        lists(&host).await,
        [others, all.clone(), all.clone(), all.clone()]
    );
    host.wait_for_line(|line| {
        line.contains("too large for clients of an older version") && line.contains("huge")
    });
    watch.assert_unharmed().await;
    host.stop();

    let down = ["migrate", "down", "--to", &EARLY.to_string()];
    let plan = installation.run(&["migrate", "plan", "--check", "--to", &EARLY.to_string()]);
    let text =
        String::from_utf8_lossy(&plan.stdout).into_owned() + &String::from_utf8_lossy(&plan.stderr);
    assert!(
        !plan.status.success()
            && text.contains("huge")
            && text.contains("above the limit of 33554432"),
        "{text}"
    );
    let stopped = installation.run(&down);
    assert!(String::from_utf8_lossy(&stopped.stderr).contains("--on-unreadable quarantine"));
    installation.succeed(&[&down[..], &["--on-unreadable", "quarantine"]].concat());
    assert!(
        installation
            .succeed(&["migrate", "quarantine", "list"])
            .contains("huge")
    );
    installation.succeed(&["migrate", "up"]);
    let host = installation.serve();
    assert_eq!(
        listed(&host, NATIVE_LIST).await,
        all,
        "it comes back where no module has to take it"
    );
    host.stop();
}

#[tokio::test(flavor = "multi_thread")]
/// Goal: text that a schema of three-byte characters cannot hold is refused by the name of its
/// column. Method: the database has MySQL's `utf8`, as older Diego databases do; clients write and
/// look up characters of four bytes, natively and through a lens.
async fn characters_of_four_bytes_are_refused_by_column_on_a_three_byte_schema() {
    const GRIN: &str = "\u{1f600}";
    let installation = Installation::new(&modules::modules(), Kind::Mariadb);
    let database = installation.database.open().await;
    execute(&database, "ALTER DATABASE CHARACTER SET utf8mb3").await;
    database.close().await;
    installation.serve().stop();
    for version in [EARLIEST_LONG, NEWEST] {
        let pinned = Installation::on(installation.database.clone(), &modules::modules())
            .set("pin_data_version", version);
        if version < NEWEST {
            installation.succeed(&["migrate", "down", "--to", &version.to_string()]);
        }
        let host = pinned.serve();
        let annotated = proto::DesiredLrp {
            annotation: GRIN.into(),
            ..lrp("guid")
        };
        assert_rejected(
            desired(&host, annotated).await,
            "the value for column annotation has a character",
        );
        let of_domain = proto::DesiredLrp {
            domain: GRIN.into(),
            ..lrp("guid")
        };
        assert_rejected(
            desired(&host, of_domain).await,
            "the value for column domain has a character",
        );
        assert_eq!(
            desired(
                &host,
                proto::DesiredLrp {
                    annotation: "\u{20ac}".into(),
                    ..lrp("guid")
                }
            )
            .await,
            None
        );
        let update = proto::DesiredLrpUpdate {
            annotation: Some(GRIN.into()),
            ..Default::default()
        };
        assert_rejected(
            updated(&host, "guid", update).await,
            "the value for column annotation has a character",
        );
        // Sealed columns hold any text.
        let update = proto::DesiredLrpUpdate {
            metric_tags: vec![tag("source_id", GRIN)],
            ..Default::default()
        };
        assert_eq!(updated(&host, "guid", update).await, None);

        let request = proto::DesiredLrpByProcessGuidRequest {
            process_guid: GRIN.into(),
        };
        let answer: proto::DesiredLrpResponse = host
            .call("/v1/desired_lrps/get_by_process_guid.r3", &request)
            .await;
        assert_rejected(
            answer.error,
            "has a character that the column's character set cannot hold",
        );
        let request = proto::DesiredLrPsRequest {
            domain: GRIN.into(),
            ..Default::default()
        };
        let answer: proto::DesiredLrPsResponse =
            host.call("/v1/desired_lrps/list.r3", &request).await;
        assert_rejected(
            answer.error,
            "has a character that the column's character set cannot hold",
        );
        let request = proto::RemoveDesiredLrpRequest {
            process_guid: b"guid".to_vec(),
        };
        let removed: proto::DesiredLrpLifecycleResponse =
            host.call("/v1/desired_lrp/remove", &request).await;
        assert_eq!(removed.error, None);
        host.stop();
        if version < NEWEST {
            installation.succeed(&["migrate", "up"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_leaves_no_core_dump() {
    let host = Installation::new(&modules::modules(), Kind::Sqlite).serve();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", host.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    let bytes: Vec<_> = line
        .split_whitespace()
        .filter_map(|word| word.parse::<u64>().ok())
        .collect();
    assert!(
        bytes.len() == 2 && bytes.iter().all(|bytes| *bytes <= 1),
        "{line}"
    );
}
