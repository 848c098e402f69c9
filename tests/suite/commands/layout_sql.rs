//! The SQL of a migration's layout changes, run by hand, makes the tables that a host makes.

use std::collections::BTreeMap;

use bbs::testing::database::schema::{self, PhysicalTable};
use bbs::testing::database::{Database, Dialect};
use serde_json::Value;

use crate::harness::database::{Kind, dump, execute, on_each_database, tables};
use crate::harness::host::Installation;
use crate::harness::modules;

/// Modules that change tables in place, copy, create, rename and drop them.
async fn split_installation(kind: Kind) -> Installation {
    Installation::of_small_diego(&modules::modules_with_split(), kind).await
}

/// The definitions of all tables but the host's own.
async fn definitions(database: &Database) -> BTreeMap<String, PhysicalTable> {
    let mut definitions = BTreeMap::new();
    for table in tables(database)
        .await
        .into_iter()
        .filter(|table| !table.starts_with("bbs_"))
    {
        let mut reader = database.read().await.unwrap();
        let definition = schema::read_back(&mut reader, &table)
            .await
            .unwrap()
            .expect("the table is there");
        definitions.insert(table, definition);
    }
    definitions
}

fn name(kind: Kind) -> &'static str {
    match kind.dialect() {
        Dialect::Sqlite => "sqlite",
        Dialect::Postgres => "postgres",
        Dialect::Mysql => "mysql",
    }
}

fn changes(installation: &Installation, arguments: &[&str]) -> Vec<Value> {
    let plan = [&["migrate", "plan", "--json", "--sql"], arguments].concat();
    serde_json::from_str(&installation.succeed(&plan)).unwrap()
}

fn statements(changes: &[Value]) -> Vec<String> {
    changes
        .iter()
        .flat_map(|change| change["statements"].as_array().unwrap().clone())
        .map(|statement| statement.as_str().unwrap().to_owned())
        .collect()
}

on_each_database!(sql_of_a_plan_makes_the_tables_of_the_migration);
/// Goal: an operator reviews what the host runs. Method: the statements are run by hand on a second
/// database of the same version, and the definitions of its tables compared with those after the
/// migration of the first one. They come from this database, and from one of another kind.
async fn sql_of_a_plan_makes_the_tables_of_the_migration(kind: Kind) {
    let migrated = split_installation(kind).await;
    let before = dump(&migrated.database).await;
    let own = changes(&migrated, &[]);
    let text = migrated.succeed(&["migrate", "plan", "--sql"]);
    for statement in statements(&own) {
        assert!(
            text.contains(&format!("\n{statement};\n")),
            "{statement} is not in {text}"
        );
    }
    assert_eq!(changes(&migrated, &[name(kind)]), own);
    assert_eq!(
        dump(&migrated.database).await,
        before,
        "a plan writes nothing"
    );
    let elsewhere = if kind.dialect() == Dialect::Sqlite {
        Kind::Postgres
    } else {
        Kind::Sqlite
    };
    let foreign = changes(&split_installation(elsewhere).await, &[name(kind)]);
    migrated.succeed(&["migrate", "up"]);
    let opened = migrated.database.open().await;
    let expected = definitions(&opened).await;
    opened.close().await;
    assert!(
        expected.contains_key("immutable_desired_lrps"),
        "{:?}",
        expected.keys()
    );

    for changes in [own, foreign] {
        let by_hand = split_installation(kind).await;
        let opened = by_hand.database.open().await;
        for statement in statements(&changes) {
            execute(&opened, &statement).await;
        }
        let found = definitions(&opened).await;
        opened.close().await;
        assert_eq!(found, expected);
        let steps: Vec<_> = changes
            .iter()
            .map(|change| change["step"].as_str().unwrap())
            .collect();
        assert_eq!(
            (steps.first(), steps.last()),
            (Some(&"prepare"), Some(&"clean-up"))
        );
    }
}

#[tokio::test]
async fn sql_of_a_plan_without_a_change_of_the_layout_is_empty() {
    let installation = split_installation(Kind::Sqlite).await;
    installation.succeed(&["migrate", "up"]);
    assert_eq!(changes(&installation, &[]), Vec::<Value>::new());
    assert_eq!(
        installation.succeed(&["migrate", "plan", "--sql"]),
        "-- The layout does not change.\n"
    );
}
