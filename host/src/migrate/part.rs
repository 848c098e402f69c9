//! A bounded part of a migration, for an operator who migrates in slices. Owns the count of what is done and what is
//! left; the copy is the same as without a bound, and whoever comes next goes on where it stopped.

use std::sync::atomic::{AtomicU64, Ordering};

use sea_query::{Alias, Expr, Query, UnionType};
use serde::Serialize;

use super::read::{unit_key, within};
use super::{Context, Decision, MigrateError, Work, copy};
use crate::layout::manifest::DataVersion;

/// What a bounded run comes back with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progressed {
    /// Nothing is left to do.
    Done(Decision),
    Part(Part),
}

/// How far a migration is that stopped at its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Part {
    pub from: DataVersion,
    pub to: DataVersion,
    /// Units: all rows of one process guid, or of one task.
    pub total: u64,
    pub migrated: u64,
}

/// How many units may still be read.
#[derive(Debug)]
pub(super) struct Allowance(Option<AtomicU64>);

impl Allowance {
    pub(super) fn of(units: Option<u64>) -> Self {
        Self(units.map(AtomicU64::new))
    }

    /// At most so many in the next batch; none once all are spent.
    pub(super) fn most(&self, batch: u64) -> u64 {
        self.0.as_ref().map_or(batch, |left| batch.min(left.load(Ordering::Relaxed)))
    }

    pub(super) fn spend(&self, units: u64) {
        if let Some(left) = &self.0 {
            left.fetch_sub(units, Ordering::Relaxed);
        }
    }
}

/// Units that are copied and units that there are, over everything that is copied.
pub(super) async fn counted(context: &Context, work: &Work) -> Result<Part, MigrateError> {
    let mut part = Part { from: work.from, to: work.to, total: 0, migrated: 0 };
    for group in (0..work.lens.groups.len()).filter(|&group| work.has_copies(group) || work.visits_units(group)) {
        let cursor = copy::cursor(context, group).await?;
        part.total += units(context, work, group, None).await?;
        if cursor.is_some() {
            part.migrated += units(context, work, group, cursor.as_ref()).await?;
        }
    }
    Ok(part)
}

async fn units(
    context: &Context,
    work: &Work,
    group: usize,
    through: Option<&super::key::Key>,
) -> Result<u64, MigrateError> {
    let keys = work.lens.groups[group].sources.iter().map(|name| {
        let table = &work.lens.near.tables[name];
        let key = unit_key(table);
        let mut query = Query::select();
        for (at, column) in key.iter().enumerate() {
            query.expr_as(Expr::col(Alias::new(column)), Alias::new(format!("key{at}")));
        }
        query.distinct().from(Alias::new(name));
        within(&mut query, &key, None, through);
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
