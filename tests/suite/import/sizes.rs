//! Stores whose records are large: what one transaction of an import writes, and holds in memory,
//! is bounded in bytes.

use bbs::testing::migrate::fault::AFTER_IMPORT_BATCH;

use super::importing;
use super::stores::{self, StoreLayout, sealed};
use crate::harness::database::{Kind, on_each_database, texts};
use crate::harness::etcd::Etcd;
use crate::harness::host::{Host, Installation};

const LAYOUT: StoreLayout = StoreLayout::Halves;
/// Bytes of each run information; etcd refuses values above 1.5 MB.
const LARGE: usize = 900_000;
const LRPS: usize = 8;
/// Records that fit into one transaction: the one that reaches 4 MiB of sealed text, which is a
/// third longer, is the last.
const FITTING: usize = 4;

/// Desired LRPs in halves; of as many others only the run information is there.
async fn store() -> Etcd {
    let etcd = Etcd::start().await;
    etcd.put(
        "/version",
        &stores::version(1_451_635_200, 1_451_635_200),
        None,
    )
    .await;
    for number in 0..LRPS {
        for guid in [format!("alone-{number:02}"), format!("whole-{number:02}")] {
            let mut run = stores::run_info(&guid, LAYOUT);
            run.environment_variables[0].value = "v".repeat(LARGE).into();
            etcd.put(&format!("/v1/desired_lrp/run/{guid}"), &sealed(&run), None)
                .await;
            if guid.starts_with("whole") {
                let schedule = sealed(&stores::scheduling(&guid));
                etcd.put(&format!("/v1/desired_lrp/schedule/{guid}"), &schedule, None)
                    .await;
            }
        }
    }
    etcd
}

async fn count(installation: &Installation, query: &str) -> usize {
    let database = installation.database.open().await;
    let rows = texts(&database, query).await.len();
    database.close().await;
    rows
}

on_each_database!(large_halves_of_desired_lrps_are_imported_in_small_transactions);
/// Goal: scheduling information is small, and each brings its run information with it, so that a
/// batch of the former is no bound. Method: an import is stopped after each of its transactions,
/// which has written a few of the rows.
async fn large_halves_of_desired_lrps_are_imported_in_small_transactions(kind: Kind) {
    const TABLES: [&str; 3] = [
        "SELECT process_guid FROM bbs_import_run",
        "SELECT process_guid FROM desired_lrps",
        "SELECT unit_digest FROM bbs_quarantine",
    ];
    let etcd = store().await;
    let installation = importing(kind, &etcd);
    let mut command = installation.command(&["import", "etcd", "--json"]);
    command.env("BBS_FAULT", format!("stop:{AFTER_IMPORT_BATCH}:each"));
    let mut import = Host::begin(command);
    let mut before = [0; TABLES.len()];
    let mut transactions = 0;
    while import.stops().await {
        transactions += 1;
        for (table, before) in TABLES.into_iter().zip(&mut before) {
            let rows = count(&installation, table).await;
            assert!(
                rows.abs_diff(*before) <= FITTING,
                "transaction {transactions}: from {before} to {rows}: {table}"
            );
            *before = rows;
        }
        import.signal("CONT");
    }
    assert!(import.wait().success(), "{:#?}", import.output());
    assert!(
        transactions >= 4 * LRPS / FITTING,
        "{transactions} transactions"
    );
    assert_eq!(count(&installation, TABLES[0]).await, 0);
    assert_eq!(count(&installation, TABLES[1]).await, LRPS);
    assert_eq!(count(&installation, TABLES[2]).await, LRPS);
}
