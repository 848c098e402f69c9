//! The import of etcd stores: real stores in a real etcd, imported by the host's executable into
//! each database, and read through its API.

mod faults;
mod kills;
mod leftovers;
mod members;
mod refusals;
mod sizes;
pub(super) mod stores;
mod vectors;
mod whole_stores;

use bbs_proto::models as proto;
use serde_json::{Value, json};

use crate::harness::database::Kind;
use crate::harness::etcd::Etcd;
use crate::harness::host::{Host, Installation};
use crate::harness::layouts::NEWEST;
use crate::harness::modules;

/// The version that an earlier release has set for an imported store.
const MARK: &str = r#"{"CurrentVersion":9223372036854775807,"TargetVersion":9223372036854775807}"#;

/// An installation on an empty database. Its file is there, as `--check` requires it.
fn on_empty_database(kind: Kind) -> Installation {
    let installation = Installation::new(&modules::modules(), kind);
    if kind == Kind::Sqlite {
        std::fs::write(installation.database.path(), "").expect("the file can be made");
    }
    installation
}

/// An installation on an empty database that imports from a store.
pub(super) fn importing(kind: Kind, etcd: &Etcd) -> Installation {
    let installation = on_empty_database(kind)
        .set(
            "encryption_keys",
            json!({ "key1": "correct horse battery staple", "old-2015": "tr0ub4dor&3" }),
        )
        .set("active_key_label", "key1");
    etcd.configuration()
        .into_iter()
        .fold(installation, |installation, (key, value)| {
            installation.set(key, value)
        })
}

/// Runs `bbs import etcd`, which must succeed; returns its report.
#[track_caller]
pub(super) fn import(installation: &Installation) -> Value {
    report(&installation.succeed(&["import", "etcd", "--json"]))
}

fn report(text: &str) -> Value {
    serde_json::from_str(text).expect("the report is JSON")
}

/// The tables that a database has; for one that was not changed, none.
async fn tables(installation: &Installation) -> Vec<String> {
    let database = installation.database.open().await;
    let tables = crate::harness::database::tables(&database).await;
    database.close().await;
    tables
}

/// The leaves of the store but for the version.
async fn records(etcd: &Etcd) -> Vec<(String, String, u64)> {
    etcd.everything()
        .await
        .into_iter()
        .filter(|(key, ..)| key != "/version")
        .collect()
}

/// Whether the store has the mark of an import by this host.
async fn is_marked(etcd: &Etcd) -> bool {
    const BEGIN: &str =
        r#"{"CurrentVersion":9223372036854775807,"TargetVersion":9223372036854775807,"ImportId":""#;
    let version = etcd.get("/version").await;
    version.is_some_and(|version| version.starts_with(BEGIN))
}

/// The lists of the API, sorted, without values that each database draws for itself.
#[derive(Debug, Default, PartialEq)]
struct Listed {
    desired: Vec<proto::DesiredLrp>,
    actual: Vec<proto::ActualLrp>,
    tasks: Vec<proto::Task>,
    domains: Vec<String>,
}

async fn listed(host: &Host) -> Listed {
    let lrps: proto::DesiredLrPsResponse = host
        .call(
            "/v1/desired_lrps/list.r3",
            &proto::DesiredLrPsRequest::default(),
        )
        .await;
    let actual: proto::ActualLrPsResponse = host
        .call("/v1/actual_lrps/list", &proto::ActualLrPsRequest::default())
        .await;
    let tasks: proto::TasksResponse = host
        .call("/v1/tasks/list.r3", &proto::TasksRequest::default())
        .await;
    let domains: proto::DomainsResponse = host
        .call("/v1/domains/list", &proto::DesiredLrPsRequest::default())
        .await;
    assert_eq!(
        (lrps.error, actual.error, tasks.error, domains.error),
        (None, None, None, None)
    );
    let mut listed = Listed {
        desired: lrps.desired_lrps,
        actual: actual.actual_lrps,
        tasks: tasks.tasks,
        domains: domains
            .domains
            .into_iter()
            .map(|name| String::from_utf8(name).expect("text"))
            .collect(),
    };
    listed
        .desired
        .sort_by(|one, other| one.process_guid.cmp(&other.process_guid));
    listed.actual.sort_by_key(|lrp| {
        (
            lrp.actual_lrp_key
                .clone()
                .map(|key| (key.process_guid, key.index)),
            lrp.presence,
        )
    });
    listed
        .tasks
        .sort_by(|one, other| one.task_guid.cmp(&other.task_guid));
    listed.domains.sort();
    listed
}

/// Serves the imported database, whose store need not be there any more, and reads its lists.
async fn served(installation: &Installation) -> Listed {
    let host = installation.serve();
    let listed = listed(&host).await;
    host.stop();
    listed
}
