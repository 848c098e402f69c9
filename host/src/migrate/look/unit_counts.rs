//! The number of units in the originals. Counting reads every key of a table, so it is done only
//! where the number is needed.

use bbs_database::{StatementResult, Transaction};
use bbs_units::{UnitKey, unit_key, within};
use sea_query::{Alias, Expr, Query, UnionType};

use crate::migrate::{MigrateError, Work};

/// Counts the units of a group that have rows, up to one of them.
pub(crate) async fn units(
    tx: &mut Transaction,
    work: &Work,
    group: usize,
    through: Option<&UnitKey>,
) -> Result<u64, MigrateError> {
    let keys = work.lens.groups[group].sources.iter().map(|name| {
        let table = &work.lens.source.tables[name];
        let key = unit_key(table);
        let mut query = Query::select();
        for (at, column) in key.iter().enumerate() {
            query.expr_as(
                Expr::col(Alias::new(&column.name)),
                Alias::new(format!("key{at}")),
            );
        }
        query.distinct().from(Alias::new(name));
        query.cond_where(within(&key, None, through, work.dialect));
        query
    });
    let united = keys.reduce(|mut one, other| {
        one.union(UnionType::Distinct, other);
        one
    });
    let Some(united) = united else { return Ok(0) };
    let mut query = Query::select();
    query
        .expr(Expr::cust("COUNT(*)"))
        .from_subquery(united, Alias::new("units"));
    let count = tx.fetch_number(&query).await.about("the number of units")?;
    Ok(count.unsigned_abs())
}
