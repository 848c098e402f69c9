//! The default catalog's migrations on a database: all at once, version by version, and down.

use bbs::testing::database::{schema, sql};
use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::online::{self, Start};
use bbs::testing::migrate::{
    Decision, Intent, LayoutStep, MigrateError, Strategy, layout_sql, plan, run, status,
};

use crate::harness::database::{Kind, TestDatabase, execute, on_each_database};
use crate::harness::fixture::{self, OLDEST, VERSION};
use crate::harness::host::Installation;
use crate::harness::modules::modules;
use crate::harness::on_each::{on_each_mysql, on_one_server};
use crate::harness::stored::Stored;
use crate::harness::{PATIENCE, until};

async fn empty(kind: Kind) -> Stored {
    Stored::open(&TestDatabase::new(kind), fixture::migrations()).await
}

fn versions(stored: &Stored) -> Vec<u64> {
    stored
        .context
        .migrations
        .iter()
        .map(|migration| migration.manifest().version)
        .collect()
}

async fn tables(stored: &Stored, version: u64) -> Vec<(String, schema::PhysicalTable)> {
    let mut reader = stored.context.database.read().await.unwrap();
    let mut tables = Vec::new();
    for name in stored.layout(version).tables.keys() {
        let mut found = schema::read_back(&mut reader, name)
            .await
            .unwrap()
            .expect("the table is there");
        found
            .columns
            .sort_by(|one, other| one.name.cmp(&other.name));
        tables.push((name.clone(), found));
    }
    tables
}

on_each_database!(a_fresh_database_equals_one_migrated_from_the_first_version);
async fn a_fresh_database_equals_one_migrated_from_the_first_version(kind: Kind) {
    let fresh = empty(kind).await;
    let versions = versions(&fresh);
    let first = versions[0];
    let newest = *versions.last().unwrap();
    fresh.up(newest).await.unwrap();
    let stepped = empty(kind).await;
    for version in versions {
        stepped.up(version).await.unwrap();
        stepped.assert_layout(version).await;
    }
    let from_first = empty(kind).await;
    from_first.up(first).await.unwrap();
    from_first.up(newest).await.unwrap();
    let wanted = tables(&fresh, newest).await;
    assert_eq!(tables(&stepped, newest).await, wanted);
    assert_eq!(tables(&from_first, newest).await, wanted);
}

on_each_database!(first_migration_is_not_reversible);
async fn first_migration_is_not_reversible(kind: Kind) {
    let stored = empty(kind).await;
    let versions = versions(&stored);
    stored.up(*versions.last().unwrap()).await.unwrap();
    for &version in versions.iter().rev().skip(1) {
        stored.down(version).await.unwrap();
        stored.assert_layout(version).await;
    }
    let error = stored.down(0).await.unwrap_err();
    assert!(
        matches!(error, MigrateError::NotReversible { version, .. } if version == versions[0]),
        "{error}"
    );
}

on_each_mysql!(way_down_waits_for_the_commit_of_a_cut_over);
/// Goal: a host that takes a database back while the commit of its cut-over is in flight decides on
/// the version that this commit makes durable. Method: another transaction has written what the
/// cut-over's writes, and commits once the way down waits for it.
async fn way_down_waits_for_the_commit_of_a_cut_over(kind: Kind) {
    let stored = Stored::with_fixture(kind, fixture::migrations()).await;
    let newest = *versions(&stored).last().unwrap();
    let before = stored.rows(VERSION).await;
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let up = Intent::Up { wanted: newest };
    let started = online::start(&stored.context, &fence, up).await.unwrap();
    let Start::Follow(online) = started else {
        panic!("there is nothing to migrate");
    };
    online.copy(&stored.context, &fence).await.unwrap();
    let mut cut_over = stored.context.database.write().await.unwrap();
    let version = format!("{{\"CurrentVersion\":{newest},\"TargetVersion\":{newest}}}");
    for statement in [
        format!("UPDATE configurations SET value = '{version}' WHERE id = 'version'"),
        "UPDATE bbs_migration SET phase = 'renaming'".to_owned(),
    ] {
        cut_over.execute(sql(statement)).await.unwrap();
    }

    let commit = async {
        until(|| stored.context.progress.snapshot().waiting.is_some()).await;
        cut_over.commit().await.unwrap();
    };
    let down = run(&stored.context, &fence, Intent::Down { to: VERSION });
    let (decision, ()) = tokio::join!(down, commit);
    let begun = Decision::Begin {
        from: newest,
        to: VERSION,
    };
    assert_eq!(decision.unwrap(), begun);
    stored.assert_layout(VERSION).await;
    assert_eq!(stored.rows(VERSION).await, before);
}

on_each_mysql!(change_of_the_schema_without_a_lock_is_repeated_alone);
/// Goal: where each change of the schema commits by itself, those before one that gets no lock are
/// not made again, which the server would refuse. Method: another session reads an empty table in
/// the place of the last copy; the migration drops it after it has created other copies.
async fn change_of_the_schema_without_a_lock_is_repeated_alone(kind: Kind) {
    let stored = Stored::with_fixture(kind, fixture::migrations()).await;
    let newest = *versions(&stored).last().unwrap();
    stored.up(newest).await.unwrap();
    let changes = layout_sql(&stored.context, VERSION, None).await.unwrap();
    let copied: Vec<_> = changes
        .iter()
        .filter(|change| change.step == LayoutStep::Prepare)
        .filter_map(|change| change.table.as_deref())
        .collect();
    assert!(copied.len() > 1, "{copied:?}");
    let last = format!("{}__{VERSION}", copied[copied.len() - 1]);
    stored
        .execute(&format!("CREATE TABLE {last} (a INT PRIMARY KEY)"))
        .await;
    let client = stored.test_database().open_with_idle_limit(PATIENCE).await;
    let mut reading = client.read().await.unwrap();
    let read = sql(format!("SELECT a FROM {last}"));
    reading.fetch(read).await.unwrap();

    let release = async {
        until(|| stored.context.progress.snapshot().waiting.is_some()).await;
        let first = format!("{}__{VERSION}", copied[0]);
        assert!(stored.tables().await.contains(&first), "{first} is made");
        drop(reading);
    };
    let (migrated, ()) = tokio::join!(stored.down(VERSION), release);
    migrated.unwrap();
    stored.assert_layout(VERSION).await;
}

on_each_database!(status_and_plan_describe_diegos_database);
async fn status_and_plan_describe_diegos_database(kind: Kind) {
    let database = TestDatabase::new(kind);
    fixture::write_to(&database).await;
    let stored = Stored::open(&database, fixture::migrations()).await;
    let newest = *versions(&stored).last().unwrap();
    let status = status(&stored.context, Intent::Up { wanted: newest })
        .await
        .unwrap();
    assert_eq!(
        status.decision,
        Decision::Begin {
            from: VERSION,
            to: status.newest
        }
    );
    assert_eq!(status.encryption_key_label.as_deref(), Some("key-2024"));
    assert!(status.history.is_empty(), "Diego's BBS records no history");
    let rows: Vec<_> = status
        .rows
        .iter()
        .map(|table| (table.table.as_str(), table.rows))
        .collect();
    assert_eq!(
        rows,
        [
            ("actual_lrps", 665),
            ("desired_lrps", 300),
            ("domains", 3),
            ("tasks", 60)
        ]
    );

    let up = plan(&stored.context, status.newest).await.unwrap();
    let of = |name: &str| {
        up.tables
            .iter()
            .find(|table| table.table == name)
            .unwrap()
            .strategy
            .clone()
    };
    assert_eq!(of("desired_lrps"), Some(Strategy::Copy));
    assert_eq!(of("tasks"), Some(Strategy::InPlace));
    assert_eq!(of("domains"), Some(Strategy::Untouched));
    assert_eq!(of("bbs_health_check"), Some(Strategy::Create));
    assert!(up.reversible);

    let down = plan(&stored.context, OLDEST).await.unwrap();
    let desired = down
        .tables
        .iter()
        .find(|table| table.table == "desired_lrps")
        .unwrap();
    assert_eq!(desired.strategy, Some(Strategy::Copy));
    assert!(
        desired.computed.contains(&"routes".to_owned()),
        "{desired:?}"
    );
    assert!(
        !desired.opened.contains(&"volume_placement".to_owned()),
        "no module declares it: {desired:?}"
    );
}

on_each_database!(damaged_record_stops_a_migration_down_by_name_and_loses_nothing);
async fn damaged_record_stops_a_migration_down_by_name_and_loses_nothing(kind: Kind) {
    let database = TestDatabase::new(kind);
    fixture::write_to(&database).await;
    let stored = Stored::open(&database, fixture::migrations()).await;
    let before = stored.rows(VERSION).await;
    let victim = before["desired_lrps"][150]["process_guid"].clone();
    let set = async |statement: &str| {
        let mut tx = stored.context.database.write().await.unwrap();
        tx.execute(sql(statement.to_owned()).bind(&victim))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    };
    set("UPDATE desired_lrps SET run_info = concat(substr(run_info, 1, 40), 'A', substr(run_info, 42)) WHERE process_guid = ?")
        .await;
    let error = stored.down(OLDEST).await.unwrap_err();
    assert!(
        matches!(&error, MigrateError::Stopped { source, .. }
            if matches!(&**source, MigrateError::Record { unit, column, .. } if *unit == victim && column == "run_info")),
        "{error}"
    );
    assert_eq!(stored.version().await, VERSION);
    set("DELETE FROM desired_lrps WHERE process_guid = ?").await;
    let decision = stored.down(OLDEST).await.unwrap();
    assert_eq!(
        decision,
        Decision::Continue {
            from: VERSION,
            to: OLDEST
        }
    );
    stored.up(VERSION).await.unwrap();
    let after = stored.rows(VERSION).await;
    assert_eq!(after["desired_lrps"].len(), 299);
    assert_eq!(after["tasks"], before["tasks"]);
}

on_each_database!(rows_spelling_their_key_in_two_cases_migrate_down_and_up);
/// One unit on MySQL and MariaDB, whose collation ignores case; two units on the others.
async fn rows_spelling_their_key_in_two_cases_migrate_down_and_up(kind: Kind) {
    let database = TestDatabase::new(kind);
    fixture::write_to(&database).await;
    let stored = Stored::open(&database, fixture::migrations()).await;
    let row = fixture::rows("actual_lrps").swap_remove(0);
    let guid = row["process_guid"].as_str().expect("a guid is text");
    let columns: Vec<_> = row.keys().map(String::as_str).collect();
    let values = columns.iter().map(|column| match *column {
        "process_guid" => "upper(process_guid)".to_owned(),
        "instance_index" => "instance_index + 1000".to_owned(),
        column => column.to_owned(),
    });
    let columns = columns.join(", ");
    let values = values.collect::<Vec<_>>().join(", ");
    let again = format!(
        "INSERT INTO actual_lrps ({columns}) SELECT {values} FROM actual_lrps WHERE process_guid = '{guid}'"
    );
    stored.execute(&again).await;
    let before = stored.rows(VERSION).await;
    assert!(
        before["actual_lrps"]
            .iter()
            .any(|row| row["process_guid"] == guid.to_uppercase())
    );
    stored.down(OLDEST).await.unwrap();
    stored.up(VERSION).await.unwrap();
    assert!(stored.rows(VERSION).await["actual_lrps"] == before["actual_lrps"]);
}

on_one_server!(
    statements_of_a_copy_fit_into_a_packet_of_the_server,
    mariadb
);
/// Goal: a copy keeps to what the server takes at once. Method: the packets are smaller than the
/// statements that the host prefers.
async fn statements_of_a_copy_fit_into_a_packet_of_the_server() {
    let server = Kind::Mariadb.own_engine_with(&["--max-allowed-packet=1M"]);
    let database = TestDatabase::on(Kind::Mariadb, server.address());
    fixture::write_to(&database).await;
    let opened = database.open().await;
    execute(
        &opened,
        "UPDATE desired_lrps SET annotation = REPEAT('x', 20000)",
    )
    .await;
    opened.close().await;
    Installation::on(database.clone(), &modules()).succeed(&["migrate", "up"]);
}
