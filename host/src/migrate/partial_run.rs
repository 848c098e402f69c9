//! A bounded run, for an operator who migrates in slices. Owns the count of what is done and what is left; the copy is
//! the same as without a bound, and the next run continues where it stopped.

use sea_query::{Alias, Expr, Query, UnionType};
use serde::Serialize;

use super::{Context, Decision, MigrateError, Work, state};
use crate::layout::manifest::DataVersion;
use crate::rows::{UnitKey, key_columns, within};

/// The result of a bounded run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// Nothing is left to do.
    Done(Decision),
    Partial(PartialRun),
}

/// The progress of a migration that stopped at its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PartialRun {
    pub from: DataVersion,
    pub to: DataVersion,
    /// Units: all rows of one process guid, or of one task.
    pub total: u64,
    pub migrated: u64,
}

/// Counts the units of every table.
pub(super) async fn all_units(context: &Context, work: &Work) -> Result<u64, MigrateError> {
    let mut all = 0;
    for group in 0..work.lens.groups.len() {
        all += units(context, work, group, None).await?;
    }
    Ok(all)
}

/// Counts the units that are copied and all units, over everything that is copied.
pub(super) async fn counted(context: &Context, work: &Work) -> Result<PartialRun, MigrateError> {
    let mut part = PartialRun { from: work.from, to: work.to, total: 0, migrated: 0 };
    for group in (0..work.lens.groups.len()).filter(|&group| work.has_copies(group) || work.visits_units(group)) {
        let cursor = state::cursor(context, group).await?;
        part.total += units(context, work, group, None).await?;
        if cursor.is_some() {
            part.migrated += units(context, work, group, cursor.as_ref()).await?;
        }
    }
    Ok(part)
}

async fn units(context: &Context, work: &Work, group: usize, through: Option<&UnitKey>) -> Result<u64, MigrateError> {
    let keys = work.lens.groups[group].sources.iter().map(|name| {
        let table = &work.lens.source.tables[name];
        let key = key_columns(table);
        let mut query = Query::select();
        for (at, column) in key.iter().enumerate() {
            query.expr_as(Expr::col(Alias::new(column)), Alias::new(format!("key{at}")));
        }
        query.distinct().from(Alias::new(name));
        within(&mut query, &key, None, through, context.database.dialect());
        query
    });
    let united = keys.reduce(|mut one, other| {
        one.union(UnionType::Distinct, other);
        one
    });
    let Some(united) = united else { return Ok(0) };
    let mut query = Query::select();
    query.expr(Expr::cust("COUNT(*)")).from_subquery(united, Alias::new("units"));
    let failed = |source| MigrateError::Sql { what: "the number of units".to_owned(), source };
    let mut reader = context.database.read().await?;
    let row = reader.fetch_one(&query).await.map_err(failed)?;
    Ok(row.integer(0).map_err(failed)?.unwrap_or_default().unsigned_abs())
}
