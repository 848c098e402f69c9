//! Changes that a migration makes ahead of its cut-over on MySQL and MariaDB, where each commits by
//! itself, and that is given up then: nothing of them is in the way of another one.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bbs::testing::database::{schema, sql};
use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::{MigrateError, abort};
use bbs_lens::layout::manifest::Manifest;
use bbs_lens::layout::schema::Column;
use bbs_lens::transform::Transform;

use super::{newest, with_fixture};
use crate::harness::PATIENCE;
use crate::harness::database::{Kind, texts};
use crate::harness::declared::declared;
use crate::harness::fixture::VERSION;
use crate::harness::log_lines::LogLines;
use crate::harness::modules::{ADD_ON_VERSION, chain};
use crate::harness::on_each::on_each_mysql;
use crate::harness::stored::Stored;

/// An add-on that changes two tables ahead of its cut-over, and copies `tasks`.
fn acme(indexed: &str) -> Arc<dyn Transform> {
    let error = Column::varchar("placement_error", 2000).default("none");
    let cell = Column::varchar("cell_id", 300).default("");
    let manifest = Manifest::new(ADD_ON_VERSION, "acme")
        .add_column("desired_lrps", short_note())
        .create_index("desired_lrps", "acme_idx", [indexed])
        .alter_column("actual_lrps", error)
        .alter_column("tasks", cell);
    declared(manifest)
}

fn short_note() -> Column {
    Column::varchar("note", 40).nullable()
}

/// A database at the version below some add-ons, which its catalog has.
async fn below(kind: Kind, add_ons: Vec<Arc<dyn Transform>>) -> Stored {
    let mut stored = with_fixture(kind).await;
    stored.up(newest(&stored)).await.unwrap();
    stored.context.migrations.extend(add_ons);
    stored
}

/// Migrates to the add-on up to the cut-over, for which it does not get the lock of a table.
async fn stop_at_the_cut_over(stored: &mut Stored) {
    let short = Duration::from_secs(1);
    let usual = mem::replace(&mut stored.context.tuning.lock_timeout, short);
    let client = stored.test_database().open_with_idle_limit(PATIENCE).await;
    let mut reading = client.read().await.unwrap();
    let read = sql("SELECT COUNT(*) FROM tasks");
    reading.fetch(read).await.unwrap();
    let fault = stored.up(ADD_ON_VERSION).await.unwrap_err();
    assert!(
        matches!(fault, MigrateError::Locked { .. }),
        "{}",
        chain(&fault)
    );
    drop(reading);
    client.close().await;
    stored.context.tuning.lock_timeout = usual;
    assert!(column(stored, "desired_lrps", "note").await.is_some());
    let changed = column(stored, "actual_lrps", "placement_error").await;
    assert_eq!(changed.unwrap().default.as_deref(), Some("'none'"));
}

async fn column(stored: &Stored, table: &str, name: &str) -> Option<schema::PhysicalColumn> {
    let mut reader = stored.context.database.read().await.unwrap();
    let found = schema::read_back(&mut reader, table).await.unwrap();
    let mut columns = found.unwrap().columns.into_iter();
    columns.find(|column| column.name == name)
}

/// Asserts that of the changes only the wider type has stayed.
async fn assert_undone(stored: &Stored) {
    assert_eq!(column(stored, "desired_lrps", "note").await, None);
    let error = column(stored, "actual_lrps", "placement_error").await;
    let error = error.unwrap();
    assert_eq!(error.kind, "VARCHAR(2000)");
    assert_eq!(error.default.as_deref(), Some("''"));
}

on_each_mysql!(index_of_a_replaced_module_is_taken_back_by_the_corrected_one);
async fn index_of_a_replaced_module_is_taken_back_by_the_corrected_one(kind: Kind) {
    let mut stored = below(kind, vec![acme("log_guid")]).await;
    stop_at_the_cut_over(&mut stored).await;
    stored.context.migrations.pop();
    stored.context.migrations.push(acme("domain"));
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    abort(&stored.context, &fence).await.unwrap();
    assert_undone(&stored).await;
    stored.up(ADD_ON_VERSION).await.unwrap();
    stored.assert_layout(ADD_ON_VERSION).await;
}

on_each_mysql!(column_that_another_client_has_put_in_the_place_of_a_new_one_is_left);
async fn column_that_another_client_has_put_in_the_place_of_a_new_one_is_left(kind: Kind) {
    let mut stored = below(kind, vec![acme("log_guid")]).await;
    stop_at_the_cut_over(&mut stored).await;
    let put = "ALTER TABLE desired_lrps MODIFY note BIGINT";
    stored.execute(put).await;
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    abort(&stored.context, &fence).await.unwrap();
    let note = column(&stored, "desired_lrps", "note").await;
    assert_eq!(note.unwrap().kind, "BIGINT");
}

on_each_mysql!(abort_with_a_corrected_module_keeps_a_column_that_has_values);
/// Method: the module that is given up does not have the column, but the one that replaces it.
async fn abort_with_a_corrected_module_keeps_a_column_that_has_values(kind: Kind) {
    let mut stored = below(kind, vec![acme("log_guid")]).await;
    for statement in [
        "ALTER TABLE desired_lrps ADD owned VARCHAR(40)",
        "UPDATE desired_lrps SET owned = 'a value'",
    ] {
        stored.execute(statement).await;
    }
    stop_at_the_cut_over(&mut stored).await;
    let corrected = Manifest::new(ADD_ON_VERSION, "acme")
        .add_column("desired_lrps", short_note())
        .add_column("desired_lrps", Column::varchar("owned", 40).nullable());
    stored.context.migrations.pop();
    stored.context.migrations.push(declared(corrected));
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let log = LogLines::default();
    let capturing = log.capture();
    abort(&stored.context, &fence).await.unwrap();
    drop(capturing);
    let log = log.text();
    assert_eq!(log.matches("it counts as the owner's").count(), 1, "{log}");
    assert_eq!(column(&stored, "desired_lrps", "note").await, None);
    let values = "SELECT DISTINCT owned FROM desired_lrps";
    assert_eq!(texts(&stored.context.database, values).await, ["a value"]);
}

on_each_mysql!(type_that_a_given_up_migration_made_wider_hinders_no_other_one);
/// Method: the next migration changes the same table in place, and the one after it replaces it.
async fn type_that_a_given_up_migration_made_wider_hinders_no_other_one(kind: Kind) {
    let mut stored = below(kind, vec![acme("log_guid")]).await;
    stop_at_the_cut_over(&mut stored).await;
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    abort(&stored.context, &fence).await.unwrap();
    assert_undone(&stored).await;
    stored.context.migrations.pop();
    let other = Manifest::new(ADD_ON_VERSION, "other");
    let other = declared(other.add_column("actual_lrps", short_note()));
    stored.context.migrations.push(other);
    stored.up(ADD_ON_VERSION).await.unwrap();
    assert!(column(&stored, "actual_lrps", "note").await.is_some());
    stored.down(VERSION).await.unwrap();
    stored.assert_layout(VERSION).await;
}

on_each_mysql!(down_undoes_the_additions_of_an_unfinished_migration);
async fn down_undoes_the_additions_of_an_unfinished_migration(kind: Kind) {
    let mut stored = below(kind, vec![acme("log_guid")]).await;
    stop_at_the_cut_over(&mut stored).await;
    stored.down(VERSION).await.unwrap();
    assert_eq!(column(&stored, "desired_lrps", "note").await, None);
    let error = column(&stored, "actual_lrps", "placement_error").await;
    assert_eq!(error.unwrap().default.as_deref(), Some("''"));
}
