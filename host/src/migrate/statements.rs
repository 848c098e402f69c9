//! The statements of a migration's layout changes: creating and indexing copies, changing tables in
//! place, and giving the copies their names. Pure: what the database has is given. Both the steps
//! that run them and the plan that shows them call this.

use bbs_database::schema::{self, PhysicalTable, TableOptions};
use bbs_database::{Dialect, ServerKind};
use bbs_lens::Lens;
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::{Column, Index, Layout};

use super::plan::{TablePlan, side_table};

/// The statements that create an empty copy, with those of its indexes that are made before it is
/// filled.
pub(super) fn copy(
    dialect: Dialect,
    plan: &TablePlan,
    staged: &str,
    options: &TableOptions,
    indexes: &[Index],
) -> Vec<String> {
    let mut statements = schema::create_table_like(dialect, &plan.table, staged, options);
    statements.extend(schema::before_filling(dialect, &plan.table, staged));
    statements.extend(schema::index_ahead(dialect, &plan.table, staged, indexes));
    statements
}

/// The statements that create a table without rows.
pub(super) fn table_and_indexes(
    dialect: Dialect,
    plan: &TablePlan,
    options: &TableOptions,
) -> Vec<String> {
    let name = &plan.table.name;
    let mut statements = schema::create_table_like(dialect, &plan.table, name, options);
    statements.extend(schema::create_indexes(dialect, name, &plan.table.indexes));
    statements
}

/// The statements that create the indexes which a table without rows lacks: where each statement
/// commits by itself, a start may have ended between them.
pub(super) fn missing_indexes(
    dialect: Dialect,
    plan: &TablePlan,
    found: &PhysicalTable,
) -> Vec<String> {
    let indexes = plan.table.indexes.iter();
    let missing = indexes.filter(|index| !found.has_index(&index.name));
    schema::create_indexes(dialect, &plan.table.name, missing)
}

/// The changes in place that are not made yet: an interrupted start, or Diego's BBS, may have made
/// some. None of them takes time for each row in a cluster, where all commits would wait for it:
/// the server refuses to add a column otherwise, and the plan of a table has no new index there.
pub(super) fn in_place(
    server: ServerKind,
    lens: &Lens,
    plan: &TablePlan,
    found: &PhysicalTable,
) -> Vec<String> {
    let mut statements = index_drops(server.dialect, lens, plan, found);
    statements.extend(additions(server, lens, plan, found));
    statements
}

/// The drops of indexes among the statements of [`in_place`].
pub(super) fn index_drops(
    dialect: Dialect,
    lens: &Lens,
    plan: &TablePlan,
    found: &PhysicalTable,
) -> Vec<String> {
    let name = &plan.table.name;
    let (_, new, old) = plan.additions(lens.source.tables.get(name));
    // An index may keep its name and get other columns.
    let is_replaced = |name: &str| {
        new.iter()
            .any(|index| index.name == name && found.has_same_index(index))
    };
    old.iter()
        .filter(|index| found.has_index(&index.name) && !is_replaced(&index.name))
        .map(|index| schema::drop_index(dialect, name, &index.name))
        .collect()
}

/// The statements of [`in_place`] but for [`index_drops`].
pub(super) fn additions(
    server: ServerKind,
    lens: &Lens,
    plan: &TablePlan,
    found: &PhysicalTable,
) -> Vec<String> {
    let name = &plan.table.name;
    let dialect = server.dialect;
    let source = lens.source.tables.get(name);
    let (columns, new, _) = plan.additions(source);
    let new = new.iter().filter(|index| !found.has_same_index(index));
    let columns = columns
        .iter()
        .filter(|column| !found.has_column(&column.name));
    // A type that is wider than the target's already would become narrower.
    let target = found.widened(dialect, &plan.table);
    let altered = plan.widened(source, dialect).map(|column| {
        let column = target.find_column(&column.name).unwrap_or(column);
        schema::alter_column(dialect, name, column, &found.options_of(&column.name))
    });
    altered
        .chain(add_columns(server, name, columns))
        // Apart from the columns: MySQL would rewrite the table for a statement with both.
        .chain(schema::create_indexes(dialect, name, new))
        .collect()
}

fn add_columns<'a>(
    server: ServerKind,
    table: &str,
    columns: impl IntoIterator<Item = &'a Column>,
) -> Vec<String> {
    let statements = schema::add_columns(server.dialect, table, columns);
    if server.is_in_cluster {
        statements
            .iter()
            .map(|statement| schema::at_once(statement))
            .collect()
    } else {
        statements
    }
}

/// Where one statement changes all names: the old and the new name of each table that is there and
/// has to change.
pub(super) fn renames(
    source: &Layout,
    target: &Layout,
    from: DataVersion,
    to: DataVersion,
    is_there: impl Fn(&str) -> bool,
) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for table in target.tables.keys() {
        let staged = side_table(table, to);
        if is_there(&staged) {
            if is_there(table) {
                pairs.push((table.clone(), side_table(table, from)));
            }
            pairs.push((staged, table.clone()));
        }
    }
    let gone = source
        .tables
        .keys()
        .filter(|table| !target.tables.contains_key(*table));
    pairs.extend(
        gone.filter(|table| is_there(table))
            .map(|table| (table.clone(), side_table(table, from))),
    );
    pairs
}
