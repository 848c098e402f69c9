//! Reading: one short transaction, and scans by ranges of partition keys.

use sea_query::{Cond, Expr, ExprTrait, Order, Query, SelectStatement};

use super::{Store, StoreError};
use crate::database::{Dialect, Row, Transaction, sql};

/// A partition key, as the database orders them.
pub type Key = Vec<u8>;

/// The keys after one and up to another; without either, all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Range {
    pub after: Option<Key>,
    pub through: Option<Key>,
}

/// A table that is scanned by partition key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    /// The columns that may be large.
    pub(super) heavy: &'static [&'static str],
}

/// What a page's large columns may come to. A page ends with the unit that reaches it, so that the memory
/// of a list, and of a translator on its way, does not depend on how large records are.
const PAGE_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub struct Reader {
    pub(super) store: Store,
    tx: Transaction,
}

impl Reader {
    /// Fixes the state that is seen, and makes the connection look at the tables as they now are. SQLite
    /// takes the quoted name of a column that it does not know for text, so a connection that has not
    /// noticed a migration would otherwise give the name of a new column instead of its value.
    pub(super) async fn begin(store: Store, mut tx: Transaction) -> Result<Self, StoreError> {
        if tx.dialect() == Dialect::Sqlite {
            let looked = tx.execute(sql("SELECT 1 FROM sqlite_schema LIMIT 1")).await;
            looked.map_err(|source| StoreError::Statement { what: "begin to read", source })?;
        }
        Ok(Self { store, tx })
    }

    pub fn now_ns(&self) -> i64 {
        self.store.now_ns()
    }

    /// The last key of a page that begins after a key and has at most this many. `None` where the page
    /// takes all that is left.
    pub(super) async fn page_end(
        &mut self,
        table: Table,
        condition: Cond,
        after: Option<&Key>,
        units: u32,
    ) -> Result<Option<Key>, StoreError> {
        let beyond = Range { after: after.cloned(), through: None };
        let sizes: Vec<_> =
            table.heavy.iter().map(|column| format!("COALESCE(octet_length(\"{column}\"), 0)")).collect();
        let select = Query::select()
            .column(table.key)
            .expr(Expr::cust(format!("SUM({})", sizes.join(" + "))))
            .from(table.name)
            .cond_where(condition)
            .cond_where(within(table, &beyond))
            .group_by_col(table.key)
            .order_by(table.key, Order::Asc)
            .limit(units.into())
            .to_owned();
        let failed = |source| StoreError::Statement { what: "read the end of a page", source };
        let mut bytes = 0;
        for (at, row) in self.fetch(select, "find the end of a page").await?.iter().enumerate() {
            bytes += row.integer(1).map_err(failed)?.unwrap_or_default().unsigned_abs();
            if bytes >= PAGE_BYTES || at + 1 == units as usize {
                return Ok(row.bytes(0).map_err(failed)?.map(<[u8]>::to_vec));
            }
        }
        Ok(None)
    }

    pub(super) async fn fetch(&mut self, select: SelectStatement, what: &'static str) -> Result<Vec<Row>, StoreError> {
        fetch(&mut self.tx, select, what).await
    }
}

pub(super) async fn fetch(
    tx: &mut Transaction,
    select: SelectStatement,
    what: &'static str,
) -> Result<Vec<Row>, StoreError> {
    tx.fetch(&select).await.map_err(|source| StoreError::Statement { what, source })
}

/// The rows of a table whose keys are in the range, in the order of keys.
pub(super) fn scan(table: Table, columns: &[&'static str], condition: Cond, range: &Range) -> SelectStatement {
    Query::select()
        .columns(columns.iter().copied())
        .from(table.name)
        .cond_where(condition)
        .cond_where(within(table, range))
        .order_by(table.key, Order::Asc)
        .to_owned()
}

fn within(table: Table, range: &Range) -> Cond {
    let after = range.after.as_ref().map(|key| Expr::col(table.key).gt(text(key)));
    let through = range.through.as_ref().map(|key| Expr::col(table.key).lte(text(key)));
    Cond::all().add_option(after).add_option(through)
}

/// A text operand that need not be UTF-8: the database compares the bytes.
pub(super) fn text(bytes: &[u8]) -> Expr {
    Expr::cust_with_values("CAST(? AS TEXT)", [bytes.to_vec()])
}

/// Column equals text, unless the text is empty: then any row will do.
pub(super) fn equals(column: &'static str, wanted: &[u8]) -> Option<Expr> {
    (!wanted.is_empty()).then(|| Expr::col(column).eq(text(wanted)))
}

/// Column is one of the texts, unless there are none: then any row will do. One parameter, however
/// many texts. Those that are not UTF-8 equal no key.
pub(super) fn one_of(column: &'static str, wanted: &[Vec<u8>]) -> Option<Expr> {
    let list = json_list(wanted)?;
    Some(Expr::cust_with_values(format!("\"{column}\" IN (SELECT value FROM json_each(?))"), [list]))
}

/// Column begins with one of the patterns, each of SQL's `LIKE` in its case-sensitive reading; any
/// row if there are none. SQLite's own `LIKE` ignores case, its `GLOB` does not.
pub(super) fn begins_with_one_of(column: &'static str, patterns: &[Vec<u8>]) -> Option<Expr> {
    let globs: Vec<_> = patterns.iter().map(|pattern| glob(pattern)).collect();
    let list = json_list(&globs)?;
    Some(Expr::cust_with_values(
        format!("EXISTS (SELECT 1 FROM json_each(?) AS pattern WHERE \"{column}\" GLOB pattern.value)"),
        [list],
    ))
}

fn glob(like: &[u8]) -> Vec<u8> {
    let mut glob = Vec::with_capacity(like.len() + 1);
    for &byte in like {
        match byte {
            b'%' => glob.push(b'*'),
            b'_' => glob.push(b'?'),
            b'*' | b'?' | b'[' => glob.extend_from_slice(&[b'[', byte, b']']),
            _ => glob.push(byte),
        }
    }
    glob.push(b'*');
    glob
}

fn json_list(texts: &[Vec<u8>]) -> Option<String> {
    if texts.is_empty() {
        return None;
    }
    let texts: Vec<_> = texts.iter().filter_map(|text| std::str::from_utf8(text).ok()).collect();
    Some(serde_json::to_string(&texts).expect("a list of strings is JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_becomes_glob_and_what_glob_would_mind_is_quoted() {
        assert_eq!(glob(b"a%b_c"), b"a*b?c*");
        assert_eq!(glob(b"*?[x]"), b"[*][?][[]x]*");
    }
}
