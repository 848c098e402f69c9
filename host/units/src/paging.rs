//! The next units after a key, in the order of the database, by their keys alone or with the size of
//! their text. All walks along units page through this: copies, checks, and lists.

use bbs_database::{Dialect, Transaction};
use bbs_lens::layout::schema::Table;
use futures_util::TryStreamExt;
use sea_query::{Alias, Cond, Expr, ExprTrait, Func, Order, Query, SelectStatement, UnionType};

use super::key::{KeyColumn, UnitKey, key_columns, unit_key, within};
use super::{RowsError, failed};

/// The unit keys of one batch, in order.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    pub units: Vec<UnitKey>,
    /// The bytes of the rows' text. Zero unless [`Measure::Bytes`] was asked for.
    pub bytes: u64,
}

/// The parts of the next units that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Their keys.
    Keys,
    /// Also the bytes of their text, for as many units as have at most so many together, at least
    /// one. The database has to read the rows for that.
    Bytes { most: u64 },
}

/// The next units over all tables, at most `most` of them. [`Measure::Keys`] reads keys alone: for
/// anything else the database would have to read the rows, which are not in the order of keys.
///
/// # Errors
/// The database fails, a key is NULL or, in SQLite, of another storage class than its column
/// ([`RowsError::Unordered`] or [`RowsError::Rows`]): no page of units begins where another began.
pub async fn next_units(
    tx: &mut Transaction,
    tables: &[&Table],
    after: Option<&UnitKey>,
    most: u64,
    measure: Measure,
) -> Result<Bounds, RowsError> {
    let [first, ..] = tables else {
        return Ok(Bounds::default());
    };
    let key = unit_key(first);
    let dialect = tx.dialect();
    let sources: Vec<_> = tables.iter().map(|table| UnitSource::of(table)).collect();
    let page = UnitPage {
        after,
        last: None,
        most,
        is_measured: measure != Measure::Keys,
    };
    let query = select_units(&sources, page, dialect);
    let mut bounds = Bounds::default();
    let mut rows = tx.stream(&query);
    while let Some(row) = rows.try_next().await.map_err(failed(&first.name))? {
        if let Measure::Bytes { most } = measure {
            let bytes = row.unsigned(key.len()).map_err(failed(&first.name))?;
            if !bounds.units.is_empty() && bounds.bytes.saturating_add(bytes) > most {
                break;
            }
            bounds.bytes += bytes;
        }
        let unit = UnitKey::read(&row, &key).map_err(failed(&first.name))?;
        if let Some(before) = bounds.units.last().or(after)
            && !unit.comes_after(before, dialect)
        {
            return Err(RowsError::Unordered {
                table: first.name.clone(),
                key: before.name(),
                next: unit.name(),
            });
        }
        bounds.units.push(unit);
    }
    debug_assert!(bounds.units.len() as u64 <= most, "a page is bounded");
    Ok(bounds)
}

/// A table of which units are selected.
#[derive(Debug)]
pub struct UnitSource<'a> {
    /// The name in the database.
    pub name: &'a str,
    /// The columns by which its rows are grouped into units.
    pub key: Vec<KeyColumn>,
    /// Whether a unit is one row.
    pub has_single_rows: bool,
    /// The columns whose text is measured.
    pub texts: Vec<&'a str>,
    /// The rows whose units are selected.
    pub condition: Cond,
}

impl<'a> UnitSource<'a> {
    /// All rows and all text of a table.
    pub fn of(table: &'a Table) -> Self {
        let texts = table.columns.iter().filter(|column| column.kind.is_text());
        Self {
            name: &table.name,
            key: unit_key(table),
            has_single_rows: key_columns(table) == table.primary_key,
            texts: texts.map(|column| column.name.as_str()).collect(),
            condition: Cond::all(),
        }
    }
}

/// Which units are selected, in the order of the database.
#[derive(Debug, Clone, Copy)]
pub struct UnitPage<'a> {
    /// Exclusive lower bound.
    pub after: Option<&'a UnitKey>,
    /// Inclusive upper bound.
    pub last: Option<&'a UnitKey>,
    /// The number of units at most.
    pub most: u64,
    /// Whether the bytes of each unit's text are selected too.
    pub is_measured: bool,
}

const BYTES: &str = "unit_bytes";

/// Selects the next units of some tables that have the same key, at least one table: the columns of
/// the key, then the bytes if they are measured.
pub fn select_units(
    sources: &[UnitSource<'_>],
    page: UnitPage<'_>,
    dialect: Dialect,
) -> SelectStatement {
    if let [source] = sources {
        return units_of(source, page, dialect);
    }
    let mut parts = sources.iter().enumerate().map(|(place, source)| {
        // A limit inside of a union has to be wrapped for SQLite.
        Query::select()
            .expr(Expr::cust("*"))
            .from_subquery(
                units_of(source, page, dialect),
                Alias::new(format!("units{place}")),
            )
            .take()
    });
    let mut union = parts.next().expect("one table at least");
    for part in parts {
        union.union(UnionType::All, part);
    }
    let mut query = Query::select();
    for name in (0..sources[0].key.len()).map(key_name) {
        query
            .column(name.clone())
            .group_by_col(name.clone())
            .order_by(name, Order::Asc);
    }
    if page.is_measured {
        query.expr(sum(Expr::col(Alias::new(BYTES)), dialect));
    }
    query
        .from_subquery(union, Alias::new("units"))
        .limit(page.most)
        .take()
}

fn key_name(at: usize) -> Alias {
    Alias::new(format!("key{at}"))
}

fn sum(bytes: Expr, dialect: Dialect) -> Expr {
    Expr::expr(Func::sum(bytes)).cast_as(Alias::new(dialect.integer_cast()))
}

fn units_of(source: &UnitSource<'_>, page: UnitPage<'_>, dialect: Dialect) -> SelectStatement {
    let mut query = Query::select();
    for (at, column) in source.key.iter().enumerate() {
        query
            .expr_as(Expr::col(column.alias()), key_name(at))
            .order_by(column.alias(), Order::Asc);
        // Without a GROUP BY the walk along the key can stop at the limit.
        if !source.has_single_rows {
            query.group_by_col(column.alias());
        }
    }
    if page.is_measured {
        let bytes = text_length(source.texts.iter().copied()).unwrap_or(Expr::val(0));
        let bytes = if source.has_single_rows {
            bytes.cast_as(Alias::new(dialect.integer_cast()))
        } else {
            sum(bytes, dialect)
        };
        query.expr_as(bytes, Alias::new(BYTES));
    }
    query
        .from(Alias::new(source.name))
        .cond_where(source.condition.clone())
        .cond_where(within(&source.key, page.after, page.last, dialect))
        .limit(page.most)
        .take()
}

/// The length of a row's text in these columns, in bytes. None without columns.
pub fn text_length<'a>(columns: impl Iterator<Item = &'a str>) -> Option<Expr> {
    let length = |column: &str| {
        let length = Func::cust(Alias::new("octet_length")).arg(Expr::col(Alias::new(column)));
        Expr::expr(Func::coalesce([Expr::expr(length), Expr::val(0)]))
    };
    columns.map(length).reduce(|sum, length| sum.add(length))
}
