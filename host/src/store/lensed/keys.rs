//! The keys of the units of a list, in key order. Owns the part of a filter that the database
//! evaluates on stored tables: conditions on columns that no row function computes, in tables whose
//! rows correspond one to one to native rows. They select units; the whole filter is evaluated on
//! the native rows.

use bbs_lens::Provenance;
use sea_query::{Alias, Cond, Expr, ExprTrait, Func, Order, Query, SelectStatement, UnionType};

use super::Lenses;
use crate::database::{Dialect, Transaction};
use crate::rows::{text_length, unit_column};
use crate::store::direct::within;
use crate::store::filter::{Condition, Filter};
use crate::store::page::{Key, Range};
use crate::store::{EntityTable, StoreError, failed};

const KEY: &str = "unit_key";
const BYTES: &str = "unit_bytes";

/// The keys of the next units of a range, at most `most`, each with the size of its texts in bytes.
pub(super) async fn next(
    lenses: &Lenses,
    tx: &mut Transaction,
    table: EntityTable,
    filter: &Filter,
    range: &Range,
    most: u32,
) -> Result<Vec<(Key, u64)>, StoreError> {
    const WHAT: &str = "find the units of a page";
    let dialect = tx.dialect();
    let mut parts = parts(lenses, table, filter, dialect).into_iter();
    let mut part = |(name, conditions): (String, Cond)| {
        units_in(lenses, &name, conditions, range, most, dialect)
    };
    let Some(mut all) = parts.next().map(&mut part) else {
        return Ok(Vec::new());
    };
    for other in parts.map(&mut part) {
        all.union(UnionType::All, other);
    }
    let bytes = Expr::from(Func::sum(Expr::col(Alias::new(BYTES))))
        .cast_as(Alias::new(dialect.integer_cast()));
    let select = Query::select()
        .column(Alias::new(KEY))
        .expr(bytes)
        .from_subquery(all, Alias::new("units"))
        .group_by_col(Alias::new(KEY))
        .order_by(Alias::new(KEY), Order::Asc)
        .limit(most.into())
        .to_owned();
    let rows = tx.fetch(&select).await.map_err(failed(WHAT))?;
    rows.iter()
        .map(|row| {
            let key = row.bytes(0).map_err(failed(WHAT))?.unwrap_or_default();
            Ok((
                key.to_vec(),
                row.integer(1)
                    .map_err(failed(WHAT))?
                    .unwrap_or(0)
                    .unsigned_abs(),
            ))
        })
        .collect()
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
        condition.to_sql(
            stored.expect("native tables have a single key column, and so have their sources"),
            dialect,
        )
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
                    condition.to_sql(column, dialect)
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

/// Selects the first units of one table.
fn units_in(
    lenses: &Lenses,
    name: &str,
    conditions: Cond,
    range: &Range,
    most: u32,
    dialect: Dialect,
) -> SelectStatement {
    let table = &lenses.place.layout.tables[name];
    let key = unit_column(table)
        .expect("native tables have a single key column, and so have their sources");
    let texts = table.columns.iter().filter(|column| column.kind.is_text());
    let size = text_length(texts.map(|column| column.name.as_str()));
    let first = Query::select()
        .expr_as(Expr::col(Alias::new(key)), Alias::new(KEY))
        .expr_as(Func::sum(size.unwrap_or(Expr::val(0))), Alias::new(BYTES))
        .from(Alias::new(lenses.place.name(name)))
        .cond_where(conditions)
        .cond_where(within(key, range, dialect))
        .group_by_col(Alias::new(key))
        .order_by(Alias::new(key), Order::Asc)
        .limit(most.into())
        .to_owned();
    // SQLite permits a limit within a union only in a subquery.
    Query::select()
        .columns([KEY, BYTES].map(Alias::new))
        .from_subquery(first, Alias::new("first"))
        .to_owned()
}
