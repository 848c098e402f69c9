//! The database that Diego's BBS wrote, migrated up and down through the default modules: all rows
//! are preserved. The API's responses on it are tested in `api`.

use bbs::testing::migrate::Decision;

use crate::harness::database::{Kind, on_each_database};
use crate::harness::fixture::{self, OLDEST, VERSION};
use crate::harness::modules::chain;
use crate::harness::on_each::on_one_server;
use crate::harness::stored::{Rows, Stored};

/// A column that only this project's migrations add.
const OURS: &str = "record_version";

fn newest(stored: &Stored) -> u64 {
    stored.context.migrations.last().unwrap().manifest().version
}

on_each_database!(rows_survive_a_migration_up_and_are_equal_after_the_migration_down);
async fn rows_survive_a_migration_up_and_are_equal_after_the_migration_down(kind: Kind) {
    let stored = Stored::with_fixture(kind, fixture::migrations()).await;
    let original = stored.rows(VERSION).await;
    assert_eq!(
        (
            original["desired_lrps"].len(),
            original["actual_lrps"].len(),
            original["tasks"].len()
        ),
        (300, 665, 60)
    );
    let newest = newest(&stored);
    assert_eq!(
        stored.up(newest).await.unwrap(),
        Decision::Begin {
            from: VERSION,
            to: newest
        }
    );
    stored.assert_layout(newest).await;
    let migrated = stored.rows(newest).await;
    for table in fixture::TABLES {
        assert_eq!(migrated[table].len(), original[table].len());
        for (now, then) in migrated[table].iter().zip(&original[table]) {
            assert!(
                then.iter().all(|(name, value)| now[name] == *value),
                "{table}: {now:?} was {then:?}"
            );
        }
    }
    assert!(
        migrated["desired_lrps"]
            .iter()
            .all(|row| row["update_strategy"] == "0")
    );
    stored.down(VERSION).await.unwrap();
    assert_eq!(stored.version().await, VERSION);
    stored.assert_layout(VERSION).await;
    assert_eq!(stored.rows(VERSION).await, original);
}

on_one_server!(policy_that_hides_rows_stops_a_migration, postgres);
/// Goal: a migration does not drop rows with the table that they are in because a policy hides them
/// from it.
async fn policy_that_hides_rows_stops_a_migration() {
    let stored = Stored::with_fixture(Kind::Postgres, fixture::migrations()).await;
    let newest = newest(&stored);
    for statement in [
        "CREATE POLICY first_instances ON actual_lrps USING (instance_index = 0)",
        "ALTER TABLE actual_lrps ENABLE ROW LEVEL SECURITY",
        // Also for the owner.
        "ALTER TABLE actual_lrps FORCE ROW LEVEL SECURITY",
    ] {
        stored.execute(statement).await;
    }
    let refused = chain(&stored.up(newest).await.unwrap_err());
    for words in [
        "may not read every row of table actual_lrps",
        "DROP POLICY first_instances",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    assert!(
        !stored.tables().await.contains(&"bbs_migration".to_owned()),
        "nothing was written"
    );
    stored
        .execute("ALTER TABLE actual_lrps DISABLE ROW LEVEL SECURITY")
        .await;
    stored
        .execute("DROP POLICY first_instances ON actual_lrps")
        .await;
    stored.up(newest).await.unwrap();
    assert_eq!(stored.rows(newest).await["actual_lrps"].len(), 665);
}

on_each_database!(rows_survive_a_migration_to_the_oldest_layout_and_up_again);
async fn rows_survive_a_migration_to_the_oldest_layout_and_up_again(kind: Kind) {
    let stored = Stored::with_fixture(kind, fixture::migrations()).await;
    let newest = newest(&stored);
    stored.up(newest).await.unwrap();
    let migrated = stored.rows(newest).await;
    stored.down(OLDEST).await.unwrap();
    stored.assert_layout(OLDEST).await;
    let oldest = stored.rows(OLDEST).await;
    assert!(!oldest["desired_lrps"][0].contains_key("metric_tags"));
    assert!(!oldest["actual_lrps"][0].contains_key("presence"));
    for (old, new) in oldest["desired_lrps"].iter().zip(&migrated["desired_lrps"]) {
        assert_eq!(old["routes"], new["routes"], "the routes are decrypted");
        assert!(old["routes"].starts_with('{') || old["routes"] == "null");
    }
    let evacuating = |rows: &Rows, column: &str, value: &str| {
        rows["actual_lrps"]
            .iter()
            .filter(|row| row[column] == value)
            .count()
    };
    assert_eq!(
        evacuating(&oldest, "evacuating", "1"),
        evacuating(&migrated, "presence", "1")
    );
    assert!(
        evacuating(&oldest, "evacuating", "1") > 0,
        "the fixture has evacuating instances"
    );

    stored.up(newest).await.unwrap();
    let again = stored.rows(newest).await;
    // `evacuating` is unused at the newest version but written by the migration down; copied rows
    // get a record version.
    let ignored = ["evacuating", OURS];
    for (table, rows) in &migrated {
        assert_eq!(again[table].len(), rows.len(), "{table}");
        for (now, then) in again[table].iter().zip(rows) {
            let differs =
                |name: &&String| now[*name] != then[*name] && !ignored.contains(&name.as_str());
            let differing: Vec<_> = then
                .keys()
                .filter(differs)
                .map(|name| (name, &then[name], &now[name]))
                .collect();
            assert!(differing.is_empty(), "{table}: {differing:?}");
        }
    }
}
