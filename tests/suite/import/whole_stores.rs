//! Whole stores in the layout of each release, imported into each database: the records that the
//! API returns, the rows in the database, and the store afterwards.

use bbs_proto::models as proto;
use serde_json::Value;

use super::stores::{self, StoreLayout};
use super::{Listed, NEWEST, import, importing, is_marked, listed, records, served};
use crate::harness::database::{Kind, on_each_database, texts};
use crate::harness::etcd::Etcd;
use crate::harness::host::Host;
use crate::harness::proxy::Proxy;

/// The largest time.
const FOREVER: &str = "9223372036854775807";

/// The records of [`stores::write`] as a client of the current API sees them.
fn expected() -> Listed {
    let desired = |guid: &str| proto::DesiredLrp {
        // From the metrics guid, by Diego's migration 1722634733.
        metric_tags: vec![proto::MetricTagEntry {
            key: "source_id".into(),
            value: Some(proto::MetricTagValue {
                r#static: format!("log-{guid}").into(),
                ..Default::default()
            }),
        }],
        start_timeout_ms: 60_000,
        ..stores::whole(guid, StoreLayout::Milliseconds)
    };
    let instance = |guid, index, state, cell| {
        let lrp = stores::instance(guid, index, state, cell);
        let key = lrp.actual_lrp_instance_key.clone();
        let net_info = lrp.actual_lrp_net_info.clone();
        proto::ActualLrp {
            // Always there, as in Diego's answers.
            actual_lrp_instance_key: Some(key.unwrap_or_default()),
            actual_lrp_net_info: Some(net_info.unwrap_or_default()),
            routable: Some(state == "RUNNING"),
            ..lrp
        }
    };
    let evacuating = proto::ActualLrp {
        presence: proto::actual_lrp::Presence::Evacuating.into(),
        ..instance("web", 0, "RUNNING", "cell-0")
    };
    let crashed = proto::ActualLrp {
        crash_count: 3,
        crash_reason: "out of memory".into(),
        ..instance("web", 1, "CRASHED", "")
    };
    let waiting = proto::ActualLrp {
        placement_error: "no cells".into(),
        ..instance("worker", 0, "UNCLAIMED", "")
    };
    let task = |(guid, state)| stores::task(guid, state, StoreLayout::Milliseconds);
    Listed {
        desired: ["web", "worker"].map(desired).into(),
        actual: vec![
            instance("web", 0, "RUNNING", "cell-1"),
            evacuating,
            crashed,
            waiting,
        ],
        tasks: [("task-1", 1), ("task-2", 3)].map(task).into(),
        domains: ["cf-apps", "forever"].map(str::to_owned).into(),
    }
}

on_each_database!(store_of_each_layout_is_imported_whole);
async fn store_of_each_layout_is_imported_whole(kind: Kind) {
    for layout in StoreLayout::ALL {
        let etcd = Etcd::start().await;
        stores::write(&etcd, layout).await;
        let before = records(&etcd).await;
        let installation = importing(kind, &etcd);
        let report = import(&installation);
        let case = format!("{layout:?}");
        let total = |what: &str| -> u64 {
            let kinds = report["kinds"]
                .as_object()
                .expect("counts by kind")
                .values();
            kinds
                .map(|counts| counts[what].as_u64().expect("a count"))
                .sum()
        };
        let leaves = before.len() as u64 + u64::from(!report["version"].is_null());
        assert_eq!(
            (total("seen"), total("imported")),
            (leaves, leaves),
            "{case}: {report}"
        );
        assert_eq!(installation.data_version(), NEWEST, "{case}");
        assert_eq!(records(&etcd).await, before, "{case}: the store is changed");
        assert!(is_marked(&etcd).await, "{case}");

        let database = installation.database.open().await;
        let rows = async |query: &str| {
            // PostgreSQL pads what is cast to CHAR.
            let rows = texts(&database, query).await.into_iter();
            rows.map(|text| text.trim_end().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            rows("SELECT CAST(expire_time AS CHAR(20)) FROM domains WHERE domain = 'forever'")
                .await,
            [FOREVER],
            "{case}"
        );
        let evacuating = "SELECT CAST(presence AS CHAR(2)) FROM actual_lrps WHERE expire_time > 0";
        assert_eq!(rows(evacuating).await, ["1"], "{case}");
        assert_eq!(
            rows("SELECT value FROM configurations WHERE id = 'encryption_key_label'").await,
            ["key1"],
            "{case}"
        );
        // `Q1`: sealed with the active key, its label in the header.
        let opened = rows(
            "SELECT process_guid FROM desired_lrps WHERE routes NOT LIKE '02BGtleT%' OR run_info NOT LIKE '02BGtleT%'",
        )
        .await;
        assert_eq!(opened, Vec::<String>::new(), "{case}");
        assert_eq!(
            rows("SELECT process_guid FROM bbs_import_run").await,
            Vec::<String>::new(),
            "{case}"
        );
        database.close().await;

        drop(etcd);
        let found = served(&installation).await;
        let expected = expected();
        assert_eq!(found.desired, expected.desired, "{case}");
        assert_eq!(found.actual, expected.actual, "{case}");
        assert_eq!(found.tasks, expected.tasks, "{case}");
        assert_eq!(found.domains, expected.domains, "{case}");
    }
}

on_each_database!(host_imports_at_its_start_and_answers_503_meanwhile);
/// Method: etcd does not answer until a call has its answer.
async fn host_imports_at_its_start_and_answers_503_meanwhile(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let proxy = Proxy::to(etcd.address(0));
    let through = serde_json::json!([format!("http://{}", proxy.address())]);
    let installation = importing(kind, &etcd).set("etcd_cluster_urls", through);
    let mut command = installation.command(&["serve"]);
    command.env("BBS_FAULT", "stop:after-import-tables");
    let mut host = Host::start(command, "listening");
    host.until_stopped().await;
    proxy.stall();
    host.signal("CONT");
    let call = crate::harness::http_client()
        .post(host.url("/v1/domains/list"))
        .send();
    let answer = call.await.expect("the port is open");
    proxy.resume();
    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"));
    let progress: Value = answer.json().await.expect("the progress is JSON");
    assert!(
        ["prepare", "import"].contains(&progress["phase"].as_str().unwrap_or_default()),
        "{progress}"
    );
    host.wait_for_line(|line| line.contains("is marked as imported"));
    host.wait_for_line(|line| line.contains("serving"));
    assert_eq!(listed(&host).await, expected());
    assert!(is_marked(&etcd).await);

    // The next start neither reads etcd nor needs it.
    drop((host, etcd));
    assert_eq!(served(&installation).await, expected());
}

on_each_database!(store_without_records_gives_an_empty_database);
async fn store_without_records_gives_an_empty_database(kind: Kind) {
    let etcd = Etcd::start().await;
    let installation = importing(kind, &etcd);
    let report = import(&installation);
    assert_eq!(report["kinds"], serde_json::json!({}));
    assert!(is_marked(&etcd).await);
    assert_eq!(served(&installation).await, Listed::default());
}
