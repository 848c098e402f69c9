//! Describes for an operator how a table of the database differs from a layout's table.

use bbs_lens::layout::schema::Column;

use super::{PhysicalColumn, PhysicalTable, physical};
use crate::Dialect;

/// Lists the differences; empty if the table can serve. Ignores columns and indexes that the layout
/// does not have, the order of columns, since every statement names them, and a missing default of
/// a required column: Diego's PostgreSQL tables lack one that its MySQL tables have, and every
/// statement of this host provides every value.
pub fn differences(found: &PhysicalTable, wanted: &PhysicalTable) -> Vec<String> {
    let mut differences = Vec::new();
    for column in &wanted.columns {
        match found.columns.iter().find(|known| known.name == column.name) {
            None => differences.push(format!("column {} is missing", column.name)),
            Some(known) if !serves_as(known, column) => differences.push(format!(
                "column {} is {} {}, not {} {}",
                column.name,
                known.kind,
                describe(known),
                column.kind,
                describe(column)
            )),
            Some(_) => {}
        }
    }
    if found.primary_key != wanted.primary_key {
        differences.push(format!(
            "the primary key is ({}), not ({})",
            found.primary_key.join(", "),
            wanted.primary_key.join(", ")
        ));
    }
    for index in wanted
        .indexes
        .iter()
        .filter(|index| !found.indexes.contains(index))
    {
        differences.push(format!(
            "index {} on ({}) is missing or different",
            index.name,
            index.columns.join(", ")
        ));
    }
    differences
}

/// Whether a column of the database can serve as that of a layout.
pub fn serves(dialect: Dialect, found: &PhysicalColumn, wanted: &Column) -> bool {
    found.name == wanted.name && serves_as(found, &physical(dialect, wanted))
}

fn serves_as(found: &PhysicalColumn, wanted: &PhysicalColumn) -> bool {
    let without_default = !found.nullable && found.default.is_none();
    found.kind == wanted.kind
        && found.nullable == wanted.nullable
        && (found.default == wanted.default || without_default)
}

fn describe(column: &PhysicalColumn) -> String {
    let nullable = if column.nullable { "NULL" } else { "NOT NULL" };
    column.default.as_ref().map_or_else(
        || nullable.to_owned(),
        |default| format!("{nullable} DEFAULT {default}"),
    )
}
