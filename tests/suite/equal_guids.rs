//! Guids that a database's collation treats as equal.

use std::collections::BTreeSet;

use bbs::testing::database::Dialect;

use crate::attacks::records::{instances, started};
use crate::harness::database::{Kind, on_each_server};
use crate::harness::host::{Host, Installation};
use crate::harness::modules;

/// Every process guid.
const ANY: &str = "";
/// Before every migration that transforms actual LRPs but the first.
const EARLY: u64 = 1_529_530_809;
/// Before all of them.
const EARLIEST: u64 = 1_528_928_964;

/// Starts an instance that is tagged with its guid.
async fn begin(host: &Host, process_guid: &str, index: i32) {
    let error = started(host, process_guid, index, process_guid.into()).await;
    assert_eq!(error, None, "{process_guid:?}");
}

on_each_server!(instances_whose_guids_the_database_treats_as_equal_migrate);
/// Goal: guids that a collation treats as equal block no migration, check or list. Method: cells
/// start instances of guids that differ in case, trailing spaces and accents; the database is
/// checked, migrated down, served through the lens, changed there, and migrated up while the host
/// serves.
async fn instances_whose_guids_the_database_treats_as_equal_migrate(kind: Kind) {
    const GUIDS: [&str; 9] = [
        "caseA",
        "casea",
        "CASEA",
        "a",
        "a ",
        "A  ",
        "cafe",
        "caf\u{e9}",
        "other",
    ];
    let installation = Installation::new(&modules::modules(), kind);
    let host = installation.serve();
    for (index, guid) in (0..).zip(GUIDS) {
        begin(&host, guid, index).await;
    }
    let before = instances(&host, ANY).await;
    let of_case_a = instances(&host, "CaseA").await.len();
    assert_eq!(
        (before.len(), of_case_a),
        (
            GUIDS.len(),
            if kind.dialect() == Dialect::Mysql {
                3
            } else {
                0
            }
        )
    );
    host.stop();

    for to in [EARLY, EARLIEST] {
        installation.succeed(&["migrate", "down", "--to", &to.to_string()]);
        installation.succeed(&["migrate", "plan", "--check"]);
        let pinned = Installation::on(installation.database.clone(), &modules::modules())
            .set("pin_data_version", to);
        let host = pinned.serve();
        assert_eq!(instances(&host, ANY).await, before, "at {to}");
        assert_eq!(instances(&host, "CaseA").await.len(), of_case_a, "at {to}");
        host.stop();
        installation.succeed(&["migrate", "up"]);
        let host = installation.serve();
        assert_eq!(instances(&host, ANY).await, before, "from {to}");
        host.stop();
    }

    installation.succeed(&["migrate", "down", "--to", &EARLY.to_string()]);
    let online = Installation::on(installation.database.clone(), &modules::modules())
        .set("migration_mode", "online")
        .set("migration_units_per_second", 2);
    let mut host = online.serve();
    for (index, guid) in (100..).zip(GUIDS) {
        begin(&host, guid, index).await;
    }
    host.wait_for_line(|line| line.contains("cut over"));
    let after = instances(&host, ANY).await;
    let expected = (0..)
        .zip(GUIDS)
        .chain((100..).zip(GUIDS))
        .map(|(index, guid)| (guid.to_owned(), index, guid.to_owned()));
    assert_eq!(
        after.into_iter().collect::<BTreeSet<_>>(),
        expected.collect()
    );
    host.stop();
}
