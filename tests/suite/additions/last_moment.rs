//! Objects that the owner of a database adds to a table after the last look at it ahead of the
//! cut-over that replaces it.

use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::Intent;
use bbs::testing::migrate::online::{self, Online, Start};

use super::{newest, removal, with_fixture};
use crate::harness::database::{Kind, on_each_database, texts};
use crate::harness::fixture::VERSION;
use crate::harness::stored::Stored;

/// Statements that make objects, with the descriptions of these in the refusal.
fn objects(kind: Kind) -> &'static [(&'static str, &'static str)] {
    match kind {
        Kind::Sqlite | Kind::Postgres => &[
            (
                "CREATE VIEW op_view AS SELECT domain FROM desired_lrps",
                "view op_view",
            ),
            (
                "CREATE INDEX op_idx ON desired_lrps (domain, process_guid)",
                "index op_idx",
            ),
        ],
        Kind::Mariadb | Kind::Mysql => &[
            (
                "CREATE TRIGGER op_trigger BEFORE UPDATE ON desired_lrps FOR EACH ROW SET NEW.domain = NEW.domain",
                "trigger op_trigger",
            ),
            (
                "ALTER TABLE actual_lrps ADD CONSTRAINT op_fkey FOREIGN KEY (process_guid) \
                 REFERENCES desired_lrps (process_guid)",
                "foreign key constraint op_fkey",
            ),
            (
                "CREATE INDEX op_idx ON desired_lrps (domain, process_guid)",
                "index op_idx",
            ),
        ],
    }
}

/// The refusal of a cut-over, which leaves the database as it is.
async fn refused_cut_over(stored: &Stored, fence: &Fence, online: &Online) -> String {
    let before = stored.rows(VERSION).await;
    let cut_over = online.cut_over(&stored.context, fence, || {}).await;
    let refusal = cut_over.unwrap_err().to_string();
    assert_eq!(stored.version().await, VERSION, "{refusal}");
    assert!(stored.rows(VERSION).await == before, "{refusal}");
    assert!(!online.has_arrived(&stored.context, fence).await.unwrap());
    let history = "SELECT name FROM bbs_history";
    assert_eq!(texts(&stored.context.database, history).await, [""; 0]);
    refusal
}

on_each_database!(addition_after_the_last_look_refuses_the_cut_over_and_is_kept);
/// Goal: nothing is lost that is added between the last look ahead of the cut-over, at the end of
/// the copy, and the cut-over. Method: objects that the new tables cannot be given, each of which the
/// statement in the refusal removes; then a column, which the next migration carries over.
async fn addition_after_the_last_look_refuses_the_cut_over_and_is_kept(kind: Kind) {
    let stored = with_fixture(kind).await;
    let newest = newest(&stored);
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let intent = Intent::Up { wanted: newest };
    let started = online::start(&stored.context, &fence, intent).await;
    let Start::Follow(online) = started.unwrap() else {
        panic!("there is nothing to migrate");
    };
    online.copy(&stored.context, &fence).await.unwrap();
    for (made, description) in objects(kind) {
        stored.execute(made).await;
        let refusal = refused_cut_over(&stored, &fence, &online).await;
        assert!(refusal.contains(description), "{description}: {refusal}");
        stored.execute(removal(&refusal, description)).await;
    }
    for statement in [
        "ALTER TABLE desired_lrps ADD COLUMN op_note VARCHAR(255)",
        "UPDATE desired_lrps SET op_note = domain",
    ] {
        stored.execute(statement).await;
    }
    let refusal = refused_cut_over(&stored, &fence, &online).await;
    assert!(refusal.contains("column op_note"), "{refusal}");
    online.give_up(&stored.context, &fence).await.unwrap();
    stored.up(newest).await.unwrap();
    let lost = "SELECT process_guid FROM desired_lrps WHERE op_note IS NULL OR op_note <> domain";
    assert_eq!(texts(&stored.context.database, lost).await, [""; 0]);
}
