//! Plans for a Galera cluster, where all commits wait until each node has run a statement that
//! changes the schema: none may take time for each row.

use std::collections::BTreeSet;
use std::sync::Arc;

use bbs_database::schema::expected;
use bbs_database::{Dialect, ServerKind};
use bbs_lens::Lens;
use bbs_lens::layout::history::Way;
use bbs_lens::layout::schema::Column;
use bbs_lens::transform::Transform;

use super::migrations::{all, manifest, native, none};
use crate::migrate::layout_history;
use crate::migrate::plan::{self, Strategy, TablePlan};
use crate::migrate::statements;

const MARIADB: ServerKind = ServerKind {
    dialect: Dialect::Mysql,
    is_mariadb: true,
    is_in_cluster: false,
};
const MYSQL: ServerKind = ServerKind {
    is_mariadb: false,
    ..MARIADB
};

fn in_cluster(server: ServerKind) -> ServerKind {
    ServerKind {
        is_in_cluster: true,
        ..server
    }
}

/// The plan for a table of the migration to version 5, and the statements that change it in place.
fn planned(
    migrations: &[Arc<dyn Transform>],
    table: &str,
    server: ServerKind,
) -> (Strategy, Vec<String>) {
    let layouts = layout_history(migrations).unwrap();
    let way = Way::within(&layouts, 4, 5);
    let lens = Lens::new(way, migrations, BTreeSet::new()).unwrap();
    let mut plans = plan::tables(&lens, way, migrations, server).into_iter();
    let plan: TablePlan = plans.find(|plan| plan.table.name == table).unwrap();
    let found = expected(server.dialect, &lens.source.tables[table]);
    let statements = statements::in_place(server, &lens, &plan, &found);
    (plan.strategy, statements)
}

#[test]
fn column_is_added_at_once_in_a_cluster() {
    let add = "ALTER TABLE `desired_lrps` ADD COLUMN `strategy` INT NOT NULL DEFAULT 0";
    for server in [MARIADB, MYSQL] {
        let alone = planned(&all(), "desired_lrps", server);
        assert_eq!(alone, (Strategy::InPlace, vec![add.to_owned()]));
        let clustered = planned(&all(), "desired_lrps", in_cluster(server));
        assert_eq!(
            clustered,
            (Strategy::InPlace, vec![format!("{add}, ALGORITHM=INSTANT")])
        );
    }
}

#[test]
fn columns_are_added_by_one_statement_and_indexes_by_another() {
    let zone = Column::varchar("zone", 255).nullable();
    let added = manifest(5, "zone")
        .add_column("desired_lrps", Column::integer("strategy").default(0))
        .add_column("desired_lrps", zone);
    let indexed = added
        .clone()
        .create_index("desired_lrps", "zone_idx", ["zone"])
        .create_index("desired_lrps", "strategy_idx", ["strategy", "zone"]);
    let planned_with = |manifest, server| {
        let mut migrations = all();
        migrations.truncate(4);
        migrations.push(native(manifest, none));
        planned(&migrations, "desired_lrps", server)
    };
    let add = "ALTER TABLE `desired_lrps` ADD COLUMN `strategy` INT NOT NULL DEFAULT 0, \
               ADD COLUMN `zone` VARCHAR(255)";
    let build = "ALTER TABLE `desired_lrps` ADD INDEX `zone_idx` (`zone`), \
                 ADD INDEX `strategy_idx` (`strategy`, `zone`)";
    for server in [MARIADB, MYSQL] {
        assert_eq!(
            planned_with(indexed.clone(), server),
            (Strategy::InPlace, vec![add.to_owned(), build.to_owned()])
        );
        assert_eq!(
            planned_with(added.clone(), in_cluster(server)),
            (Strategy::InPlace, vec![format!("{add}, ALGORITHM=INSTANT")])
        );
    }
}

#[test]
fn table_is_copied_in_a_cluster_for_a_new_index() {
    for server in [MARIADB, MYSQL] {
        assert_eq!(planned(&all(), "actual_lrps", server).0, Strategy::InPlace);
        assert_eq!(
            planned(&all(), "actual_lrps", in_cluster(server)).0,
            Strategy::Copy
        );
    }
}

#[test]
fn table_is_copied_in_a_cluster_that_rewrites_it_for_a_new_column() {
    let text = Column::long_text("text").default("");
    let added = manifest(5, "text").add_column("desired_lrps", text);
    let mut migrations = all();
    migrations.truncate(4);
    migrations.push(native(added, none));
    let strategy = |server| planned(&migrations, "desired_lrps", server).0;
    assert_eq!(
        [MARIADB, MYSQL].map(strategy),
        [Strategy::InPlace, Strategy::InPlace]
    );
    assert_eq!(
        [MARIADB, MYSQL].map(in_cluster).map(strategy),
        [Strategy::InPlace, Strategy::Copy]
    );
}
