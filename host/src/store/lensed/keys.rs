//! The keys of the units of a list, in key order. Owns the part of a filter that the database
//! evaluates on stored tables: conditions on columns that no row function computes, in tables whose
//! rows correspond one to one to native rows. They select units; the whole filter is evaluated on
//! the native rows.

use bbs_database::{Dialect, Transaction};
use bbs_lens::Provenance;
use bbs_units::{UnitSource, unit_column};
use sea_query::{Alias, Cond, Expr};

use super::Lenses;
use crate::store::direct::next_keys;
use crate::store::filter::{Condition, Filter};
use crate::store::page::{Key, Range};
use crate::store::{EntityTable, StoreError};

/// The keys of the next units of a range, at most `most`, each with the size of its texts in bytes.
pub(super) async fn next(
    lenses: &Lenses,
    tx: &mut Transaction,
    table: EntityTable,
    filter: &Filter,
    range: &Range,
    most: u32,
) -> Result<Vec<(Key, u64)>, StoreError> {
    let source = |(name, condition): (String, Cond)| {
        let table = &lenses.place.layout.tables[&name];
        UnitSource {
            name: lenses.place.name(&table.name),
            condition,
            ..UnitSource::of(table)
        }
    };
    let parts = parts(lenses, table, filter, tx.dialect());
    let sources: Vec<_> = parts.into_iter().map(source).collect();
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    next_keys(tx, &sources, range, most, "find the units of a page").await
}

/// The stored tables to select units from, with the conditions on their rows.
fn parts(
    lenses: &Lenses,
    table: EntityTable,
    filter: &Filter,
    dialect: Dialect,
) -> Vec<(String, Cond)> {
    let composed = &lenses.to_native.tables[table.name];
    // All rows of a unit have its key, in every table.
    let on_key = |source: &String, condition: &Condition| {
        let stored = unit_column(&lenses.place.layout.tables[source]);
        let column =
            stored.expect("native tables have a single key column, and so have their sources");
        condition.to_sql(Alias::new(column), dialect)
    };
    let all = |conditions: Vec<Expr>| conditions.into_iter().fold(Cond::all(), Cond::add);
    if composed.reshaped || composed.sources.is_empty() {
        let of_key = |name: &String| {
            let conditions = filter
                .conditions()
                .filter(|(column, _)| *column == table.key);
            all(conditions
                .filter_map(|(_, condition)| on_key(name, condition))
                .collect())
        };
        let group = &lenses.table_groups[lenses.group(table.name)];
        return group
            .stored
            .iter()
            .map(|name| (name.clone(), of_key(name)))
            .collect();
    }
    // Each native row continues one row of every source table, so every source has all units. The
    // one with the most conditions is selected from.
    let conditions_on = |source: &String| {
        let conditions = filter.conditions().filter_map(|(column, condition)| {
            if *column == table.key {
                return on_key(source, condition);
            }
            let (_, provenance) = composed
                .columns
                .iter()
                .find(|(known, _)| known.name == *column)?;
            match provenance {
                Provenance::Raw { table, column } if table == source => {
                    condition.to_sql(Alias::new(column), dialect)
                }
                Provenance::Raw { .. } | Provenance::Fill(_) | Provenance::Computed => None,
            }
        });
        conditions.collect::<Vec<_>>()
    };
    let parts = composed
        .sources
        .iter()
        .map(|source| (source.clone(), conditions_on(source)));
    let leading = parts.max_by_key(|(_, conditions)| conditions.len());
    leading
        .into_iter()
        .map(|(source, conditions)| (source, all(conditions)))
        .collect()
}
