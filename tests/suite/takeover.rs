//! The database that Diego's own BBS wrote: taken over through the real modules, and handed back. What
//! the API then answers is `api`'s.

use bbs::migrate::Decision;

use crate::harness::database::{Kind, TestDatabase, on_each_database};
use crate::harness::fixture::{self, VERSION};
use crate::harness::stored::{Rows, Stored};

/// The columns of ours that Diego does not know.
const OURS: &str = "record_version";
/// Before `encrypt_routes`, `add_presence` and the others: the oldest to which rows go back.
const OLDEST: u64 = 1_471_030_898;

async fn taken_over(kind: Kind) -> Stored {
    let database = TestDatabase::new(kind);
    fixture::write_to(&database).await;
    Stored::open(&database, fixture::migrations()).await
}

fn newest(stored: &Stored) -> u64 {
    stored.context.migrations.last().unwrap().manifest().version
}

on_each_database!(every_row_is_there_after_the_way_up_and_equal_after_the_way_back);
async fn every_row_is_there_after_the_way_up_and_equal_after_the_way_back(kind: Kind) {
    let stored = taken_over(kind).await;
    let original = stored.rows(VERSION).await;
    assert_eq!(
        (original["desired_lrps"].len(), original["actual_lrps"].len(), original["tasks"].len()),
        (300, 665, 60)
    );
    let newest = newest(&stored);
    assert_eq!(stored.up(newest).await.unwrap(), Decision::Begin { from: VERSION, to: newest });
    stored.assert_layout(newest).await;
    let taken = stored.rows(newest).await;
    for table in fixture::TABLES {
        assert_eq!(taken[table].len(), original[table].len());
        for (now, then) in taken[table].iter().zip(&original[table]) {
            assert!(then.iter().all(|(name, value)| now[name] == *value), "{table}: {now:?} was {then:?}");
        }
    }
    assert!(taken["desired_lrps"].iter().all(|row| row["update_strategy"] == "0"));
    stored.down(VERSION).await.unwrap();
    assert_eq!(stored.version().await, VERSION);
    stored.assert_layout(VERSION).await;
    assert_eq!(stored.rows(VERSION).await, original);
}

on_each_database!(it_goes_back_to_plain_routes_and_no_presence_and_up_again);
async fn it_goes_back_to_plain_routes_and_no_presence_and_up_again(kind: Kind) {
    let stored = taken_over(kind).await;
    let newest = newest(&stored);
    stored.up(newest).await.unwrap();
    let taken = stored.rows(newest).await;
    stored.down(OLDEST).await.unwrap();
    stored.assert_layout(OLDEST).await;
    let oldest = stored.rows(OLDEST).await;
    assert!(!oldest["desired_lrps"][0].contains_key("metric_tags"));
    assert!(!oldest["actual_lrps"][0].contains_key("presence"));
    for (old, new) in oldest["desired_lrps"].iter().zip(&taken["desired_lrps"]) {
        assert_eq!(old["routes"], new["routes"], "the plain text of what was sealed");
        assert!(old["routes"].starts_with('{') || old["routes"] == "null");
    }
    let evacuating =
        |rows: &Rows, column: &str, value: &str| rows["actual_lrps"].iter().filter(|row| row[column] == value).count();
    assert_eq!(evacuating(&oldest, "evacuating", "1"), evacuating(&taken, "presence", "1"));
    assert!(evacuating(&oldest, "evacuating", "1") > 0, "the fixture has evacuating instances");

    stored.up(newest).await.unwrap();
    let again = stored.rows(newest).await;
    // `evacuating` is dead at the newest version, but the way down has to use it; copies are stamped.
    let ignored = ["evacuating", OURS];
    for (table, rows) in &taken {
        assert_eq!(again[table].len(), rows.len(), "{table}");
        for (now, then) in again[table].iter().zip(rows) {
            let differs = |name: &&String| now[*name] != then[*name] && !ignored.contains(&name.as_str());
            let differing: Vec<_> = then.keys().filter(differs).map(|name| (name, &then[name], &now[name])).collect();
            assert!(differing.is_empty(), "{table}: {differing:?}");
        }
    }
}
