//! Columns and indexes of the owner with the names of those that a migration makes, where the server
//! takes both for the same.

use bbs::testing::database::schema;
use bbs::testing::migrate::{MigrateError, plan};
use bbs_lens::layout::manifest::Manifest;
use bbs_lens::layout::schema::{Column, Table};

use super::{newest, with_fixture};
use crate::harness::database::{Kind, on_each_database, on_each_server, texts};
use crate::harness::declared::declared;
use crate::harness::layouts::NEWEST;
use crate::harness::modules::ADD_ON_VERSION;
use crate::harness::on_each::on_each_mysql;
use crate::harness::stored::Stored;

/// A database at the version below an add-on, in which its owner has made something.
async fn below_add_on(kind: Kind, made: &str) -> Stored {
    let mut stored = with_fixture(kind).await;
    stored.up(newest(&stored)).await.unwrap();
    let manifest = Manifest::new(ADD_ON_VERSION, "acme")
        .add_column("desired_lrps", Column::varchar("note", 40).nullable())
        .create_index("desired_lrps", "acme_idx", ["log_guid"])
        .alter_column("tasks", Column::varchar("cell_id", 300).default(""));
    stored.context.migrations.push(declared(manifest));
    stored.execute(made).await;
    stored
}

async fn assert_refused(stored: &Stored, in_the_way: [&str; 2]) {
    let planned = plan(&stored.context, ADD_ON_VERSION).await.unwrap();
    let error = stored.up(ADD_ON_VERSION).await.unwrap_err();
    assert_eq!(planned.refused, Some(error.to_string()));
    let MigrateError::NameInTheWay { name, object } = error else {
        panic!("{error}")
    };
    assert_eq!([name.as_str(), object.as_str()], in_the_way);
    stored.assert_layout(NEWEST).await;
}

on_each_server!(index_of_another_table_keeps_the_name_of_a_new_one_where_both_can_have_it);
/// The table of the owner's index is copied on MariaDB and MySQL.
async fn index_of_another_table_keeps_the_name_of_a_new_one_where_both_can_have_it(kind: Kind) {
    let made = "CREATE INDEX acme_idx ON tasks (domain)";
    let stored = below_add_on(kind, made).await;
    if kind == Kind::Postgres {
        assert_refused(&stored, ["acme_idx", "an index of table tasks"]).await;
        return;
    }
    stored.up(ADD_ON_VERSION).await.unwrap();
    stored.assert_layout(ADD_ON_VERSION).await;
    let mut reader = stored.context.database.read().await.unwrap();
    let tasks = schema::read_back(&mut reader, "tasks").await.unwrap();
    let indexes = tasks.unwrap().indexes;
    let kept = indexes.iter().find(|index| index.name == "acme_idx");
    assert_eq!(kept.unwrap().columns, ["domain"]);
}

on_each_database!(index_names_move_between_tables_that_are_changed_in_place);
/// Method: two tables exchange the names of their indexes, so that one gets a name before the other
/// has let it go, whichever is first.
async fn index_names_move_between_tables_that_are_changed_in_place(kind: Kind) {
    let mut stored = with_fixture(kind).await;
    stored.up(newest(&stored)).await.unwrap();
    let manifest = Manifest::new(ADD_ON_VERSION, "acme")
        .drop_index("desired_lrps", "desired_lrps_domain_idx")
        .drop_index("tasks", "tasks_state_idx")
        .create_index("desired_lrps", "tasks_state_idx", ["log_guid"])
        .create_index("tasks", "desired_lrps_domain_idx", ["domain"]);
    stored.context.migrations.push(declared(manifest));
    let planned = plan(&stored.context, ADD_ON_VERSION).await.unwrap();
    assert_eq!(planned.refused, None);
    stored.up(ADD_ON_VERSION).await.unwrap();
    stored.assert_layout(ADD_ON_VERSION).await;
    stored.down(NEWEST).await.unwrap();
    stored.assert_layout(NEWEST).await;
}

on_each_database!(new_table_gets_the_name_of_one_that_goes_in_the_same_migration);
async fn new_table_gets_the_name_of_one_that_goes_in_the_same_migration(kind: Kind) {
    let words = || {
        Table::new("words")
            .column(Column::varchar("guid", 255))
            .column(Column::varchar("word", 40).nullable())
            .primary_key(["guid"])
            .partition_key("guid")
            .index("words_idx", ["word"])
    };
    let [created, replaced] = [ADD_ON_VERSION, ADD_ON_VERSION + 1];
    let mut stored = with_fixture(kind).await;
    stored.context.migrations.extend([
        declared(Manifest::new(created, "words").create_table(words())),
        declared(
            Manifest::new(replaced, "new-words")
                .drop_table("words")
                .create_table(words().column(Column::integer("size").default(0))),
        ),
    ]);
    stored.up(created).await.unwrap();
    stored
        .execute("INSERT INTO words (guid, word) VALUES ('some', 'word')")
        .await;
    stored.up(replaced).await.unwrap();
    stored.assert_layout(replaced).await;
    let database = &stored.context.database;
    let none: [&str; 0] = [];
    assert_eq!(texts(database, "SELECT word FROM words").await, none);
    stored.down(created).await.unwrap();
    stored.assert_layout(created).await;
    assert_eq!(texts(database, "SELECT word FROM words").await, ["word"]);
}

on_each_mysql!(names_that_differ_in_case_are_the_same);
async fn names_that_differ_in_case_are_the_same(kind: Kind) {
    for (made, in_the_way) in [
        (
            "ALTER TABLE desired_lrps ADD Note BIGINT",
            ["note", "column Note of table desired_lrps"],
        ),
        (
            "CREATE INDEX Acme_Idx ON desired_lrps (domain)",
            ["acme_idx", "index Acme_Idx of table desired_lrps"],
        ),
    ] {
        let stored = below_add_on(kind, made).await;
        assert_refused(&stored, in_the_way).await;
    }
}
