//! The key of a unit: the text by which its rows are told from others'. Keys are compared for equality alone: databases
//! differ in how they order them.

use sea_query::{Alias, Expr, ExprTrait};

use crate::database::Dialect;
use crate::layout::schema::Table;

/// As the database has it.
pub type Key = Vec<u8>;

/// The column by which the rows of a table are told into units. None if that takes several columns: such a table has
/// no partition key, so no row function sees it and no unit has rows of another table.
pub fn unit_column(table: &Table) -> Option<&str> {
    match (&table.partition_key, table.primary_key.as_slice()) {
        (Some(key), _) => Some(key),
        (None, [key]) => Some(key),
        (None, _) => None,
    }
}

/// A text as a value of a statement, not promised to be UTF-8. None where the database can hold no such text.
pub fn operand(text: &[u8], dialect: Dialect) -> Option<Expr> {
    match (std::str::from_utf8(text), dialect) {
        (Ok(text), Dialect::Postgres) if text.contains('\0') => None,
        (Ok(text), _) => Some(Expr::val(text)),
        (Err(_), Dialect::Sqlite) => Some(Expr::val(text).cast_as(Alias::new("TEXT"))),
        (Err(_), Dialect::Postgres | Dialect::Mysql) => None,
    }
}

/// The rows of these units. A page of keys at most: each is a value of the statement.
pub(super) fn among(column: &str, keys: &[Key], dialect: Dialect) -> Expr {
    let column = Expr::col(Alias::new(column));
    let mut values = keys.iter().filter_map(|key| operand(key, dialect)).collect::<Vec<_>>();
    match values.len() {
        0 => Expr::cust("1 = 0"),
        1 => column.eq(values.remove(0)),
        _ => column.is_in(values),
    }
}

/// What people and the residue table call a unit. No two units of a table have one name.
pub fn name(key: &Key) -> String {
    match std::str::from_utf8(key) {
        Ok(text) => text.to_owned(),
        Err(_) => format!("x'{}'", super::digest::to_hex(key)),
    }
}
