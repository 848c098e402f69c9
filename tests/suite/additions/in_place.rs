//! Tables that are changed in place: a column whose type becomes wider keeps what its owner gave
//! it, and an object that keeps the server from changing the type refuses the migration.

use bbs::testing::migrate::plan;
use bbs_lens::layout::manifest::Manifest;
use bbs_lens::layout::schema::Column;

use super::{Object, newest, object, removal, with_fixture};
use crate::harness::database::{Kind, on_each_server, texts};
use crate::harness::declared::declared;
use crate::harness::modules::ADD_ON_VERSION;
use crate::harness::on_each::on_one_server;
use crate::harness::stored::Stored;

/// The version before the one in which `rootfs` becomes wider: in place on PostgreSQL, and in a
/// copy on MariaDB and MySQL, where the rows have to be rewritten.
const BEFORE: u64 = 1_481_761_088;
const WIDER: u64 = 1_502_289_152;

async fn before_widening(kind: Kind) -> Stored {
    let stored = with_fixture(kind).await;
    stored.down(BEFORE).await.unwrap();
    // Otherwise the table is copied, to give the values back.
    stored.execute("DELETE FROM bbs_residue").await;
    stored
}

on_each_server!(column_that_becomes_wider_keeps_what_its_owner_gave_it);
async fn column_that_becomes_wider_keeps_what_its_owner_gave_it(kind: Kind) {
    let stored = before_widening(kind).await;
    let given: &[&str] = match kind {
        Kind::Sqlite => unreachable!("its types have no widths"),
        Kind::Postgres => &[
            "ALTER TABLE desired_lrps ALTER rootfs TYPE VARCHAR(255) COLLATE \"C\"",
            "ALTER TABLE desired_lrps ALTER rootfs SET STORAGE EXTERNAL",
            "COMMENT ON COLUMN desired_lrps.rootfs IS 'of what?'",
        ],
        Kind::Mariadb | Kind::Mysql => &[
            "ALTER TABLE desired_lrps MODIFY rootfs VARCHAR(255) COLLATE latin1_bin NOT NULL \
             COMMENT 'of what?'",
        ],
    };
    for statement in given {
        stored.execute(statement).await;
    }
    let of_column = if kind == Kind::Postgres {
        "SELECT concat_ws(' ', attrelid, collname, attstorage, description) \
         FROM pg_attribute JOIN pg_collation l ON l.oid = attcollation \
         JOIN pg_description ON objoid = attrelid AND objsubid = attnum \
         WHERE attrelid = 'desired_lrps'::regclass AND attname = 'rootfs'"
    } else {
        "SELECT CONCAT_WS(' ', collation_name, column_comment) \
         FROM information_schema.columns WHERE table_schema = DATABASE() \
         AND table_name = 'desired_lrps' AND column_name = 'rootfs'"
    };
    let before = texts(&stored.context.database, of_column).await;
    assert!(before[0].ends_with("of what?"), "{before:?}");
    stored.up(WIDER).await.unwrap();
    stored.assert_layout(WIDER).await;
    assert_eq!(texts(&stored.context.database, of_column).await, before);
}

/// Objects that keep PostgreSQL from changing the type of a column.
const OBJECTS: &[Object] = &[
    object(
        &["CREATE VIEW op_view AS SELECT rootfs FROM desired_lrps"],
        "view op_view",
    ),
    object(
        &["CREATE POLICY op_policy ON desired_lrps USING (rootfs <> '')"],
        "policy op_policy on table desired_lrps",
    ),
    object(
        &["CREATE PUBLICATION op_publication FOR TABLE desired_lrps (process_guid, rootfs)"],
        "publication of table desired_lrps in publication op_publication",
    ),
    object(
        &["CREATE TABLE op_copies (copied desired_lrps)"],
        "column copied of table op_copies",
    ),
    object(
        &[
            "ALTER TABLE desired_lrps ADD COLUMN op_long TEXT GENERATED ALWAYS AS (rootfs || domain) STORED",
        ],
        "column op_long",
    ),
    object(
        &["CREATE FUNCTION op_longest() RETURNS TEXT LANGUAGE sql \
             BEGIN ATOMIC SELECT max(rootfs) FROM desired_lrps; END"],
        "function op_longest()",
    ),
];

on_one_server!(
    object_that_keeps_a_type_from_being_changed_refuses_a_migration,
    postgres
);
async fn object_that_keeps_a_type_from_being_changed_refuses_a_migration() {
    let stored = before_widening(Kind::Postgres).await;
    for Object { made, description } in OBJECTS {
        for statement in *made {
            stored.execute(statement).await;
        }
        let refusal = stored.up(WIDER).await.expect_err(description).to_string();
        assert!(refusal.contains(description), "{description}: {refusal}");
        assert_eq!(stored.version().await, BEFORE, "{description}");
        stored.execute(removal(&refusal, description)).await;
        stored.execute("DROP TABLE IF EXISTS op_copies").await;
        let refused = plan(&stored.context, WIDER).await.unwrap().refused;
        assert_eq!(refused, None, "{description}");
    }
    stored.up(WIDER).await.unwrap();
    stored.assert_layout(WIDER).await;
}

on_one_server!(
    object_of_other_columns_is_no_reason_against_a_wider_type,
    postgres
);
async fn object_of_other_columns_is_no_reason_against_a_wider_type() {
    let stored = before_widening(Kind::Postgres).await;
    let made = [
        "CREATE VIEW op_view AS SELECT domain FROM desired_lrps",
        "CREATE POLICY op_policy ON desired_lrps USING (domain <> '')",
        "CREATE PUBLICATION op_publication FOR TABLE desired_lrps (process_guid, domain)",
        "ALTER TABLE desired_lrps ADD COLUMN op_long TEXT \
         GENERATED ALWAYS AS (domain || log_guid) STORED",
        "CREATE FUNCTION op_longest() RETURNS TEXT LANGUAGE sql \
         BEGIN ATOMIC SELECT max(domain) FROM desired_lrps; END",
        "CREATE FUNCTION op_noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER op_trigger BEFORE UPDATE OF domain ON desired_lrps \
         FOR EACH ROW EXECUTE FUNCTION op_noted()",
    ];
    for statement in made {
        stored.execute(statement).await;
    }
    stored.up(WIDER).await.unwrap();
    stored.assert_layout(WIDER).await;
}

on_one_server!(histogram_keeps_the_type_of_its_column_alone, mysql);
async fn histogram_keeps_the_type_of_its_column_alone() {
    let mut stored = with_fixture(Kind::Mysql).await;
    stored.up(newest(&stored)).await.unwrap();
    let error = Column::varchar("placement_error", 2000).default("");
    let manifest = Manifest::new(ADD_ON_VERSION, "acme").alter_column("actual_lrps", error);
    stored.context.migrations.push(declared(manifest));
    let made = "ANALYZE TABLE actual_lrps UPDATE HISTOGRAM ON state, placement_error";
    stored.execute(made).await;
    let planned = plan(&stored.context, ADD_ON_VERSION).await.unwrap();
    let refusal = planned.refused.unwrap();
    let description = "histogram of column placement_error";
    assert!(
        refusal.contains(description) && !refusal.contains("column state"),
        "{refusal}"
    );
    stored.execute(removal(&refusal, description)).await;
    stored.up(ADD_ON_VERSION).await.unwrap();
    stored.assert_layout(ADD_ON_VERSION).await;
}
