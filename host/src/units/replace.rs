//! Writing units back: of two states of the same units, the difference. Rows are told by their primary keys, and of a
//! row that stays only the columns that changed are written.

use std::collections::BTreeMap;

use sea_query::{Alias, Cond, Expr, ExprTrait, Query};

use super::batch::{Batch, Content, Held, Rows};
use super::compare::{key, same};
use super::key::operand;
use super::{Capacity, Place, RECORD_VERSION, UnitsError};
use crate::database::{Dialect, Transaction};
use crate::layout::schema::{Column, ColumnType, Table};
use crate::layout::values::{Encoding, Value};
use crate::record::Keyring;

/// Makes `after` of `before`, for the tables that both have. Both have every column of the layout.
pub async fn replace(
    tx: &mut Transaction,
    place: &Place,
    before: &Batch,
    after: &Batch,
    keyring: &Keyring,
) -> Result<(), UnitsError> {
    for (name, old) in &before.tables {
        let Some(new) = after.tables.get(name) else { continue };
        let table = &place.layout.tables[name];
        let stamp = place.record_versions.of(name).filter(|_| table.column(RECORD_VERSION).is_some());
        let stamp = stamp.map(|version| i64::try_from(version).unwrap_or(i64::MAX));
        let write = Write { name: place.name(name), table, keyring, stamp };
        for unit in 0..before.units.len() {
            write.unit(tx, (old, unit), (new, unit)).await?;
        }
    }
    Ok(())
}

struct Write<'a> {
    name: &'a str,
    table: &'a Table,
    keyring: &'a Keyring,
    /// The record version of every row that is written.
    stamp: Option<i64>,
}

impl Write<'_> {
    async fn unit(
        &self,
        tx: &mut Transaction,
        (old, at): (&Rows, usize),
        (new, unit): (&Rows, usize),
    ) -> Result<(), UnitsError> {
        let mut gone: BTreeMap<Vec<u8>, usize> = old.of(at).map(|row| (key(self.table, old, row), row)).collect();
        let rows: Vec<_> = new.of(unit).map(|row| (row, gone.remove(&key(self.table, new, row)))).collect();
        // First what goes: a row that comes may have the values of one that goes, in an index.
        for &row in gone.values() {
            self.delete(tx, old, row).await?;
        }
        for (row, before) in rows {
            match before {
                Some(before) => self.update(tx, (old, before), (new, row)).await?,
                None => self.insert(tx, new, row).await?,
            }
        }
        Ok(())
    }

    fn this_row(&self, rows: &Rows, row: usize, dialect: Dialect) -> Cond {
        let equal = |name: &String| {
            let column = Expr::col(Alias::new(name));
            match rows.value(self.table, name, row).unwrap_or(Value::Null) {
                Value::Null => column.is_null(),
                Value::Boolean(value) => column.eq(value),
                Value::Integer(value) => column.eq(value),
                Value::Text(text) => operand(text, dialect).map_or_else(|| Expr::cust("1 = 0"), |text| column.eq(text)),
            }
        };
        self.table.primary_key.iter().fold(Cond::all(), |all, name| all.add(equal(name)))
    }

    async fn delete(&self, tx: &mut Transaction, rows: &Rows, row: usize) -> Result<(), UnitsError> {
        let row = self.this_row(rows, row, tx.dialect());
        let delete = Query::delete().from_table(Alias::new(self.name)).cond_where(row).to_owned();
        self.done(tx.execute(&delete).await)
    }

    async fn insert(&self, tx: &mut Transaction, rows: &Rows, row: usize) -> Result<(), UnitsError> {
        let mut insert = Query::insert();
        insert.into_table(Alias::new(self.name));
        insert.columns(self.table.columns.iter().map(|column| Alias::new(&column.name)));
        let mut values = Vec::with_capacity(self.table.columns.len());
        for column in &self.table.columns {
            values.push(match self.stamp.filter(|_| column.name == RECORD_VERSION) {
                Some(stamp) => Expr::val(stamp),
                None => self.at_rest(&rows.columns[&column.name], row, column, tx.dialect())?,
            });
        }
        insert.values_panic(values);
        self.done(tx.execute(&insert).await)
    }

    async fn update(
        &self,
        tx: &mut Transaction,
        (old, before): (&Rows, usize),
        (new, after): (&Rows, usize),
    ) -> Result<(), UnitsError> {
        let mut update = Query::update();
        let mut changed = false;
        for column in &self.table.columns {
            let (was, is) = (&old.columns[&column.name], &new.columns[&column.name]);
            let stamped = self.stamp.is_some() && column.name == RECORD_VERSION;
            if !stamped && !same(column, (was, before), (is, after), self.keyring, |old, new| old == new) {
                changed = true;
                update.value(Alias::new(&column.name), self.at_rest(is, after, column, tx.dialect())?);
            }
        }
        if !changed {
            return Ok(());
        }
        if let Some(stamp) = self.stamp {
            update.value(Alias::new(RECORD_VERSION), stamp);
        }
        let row = self.this_row(old, before, tx.dialect());
        update.table(Alias::new(self.name)).cond_where(row);
        self.done(tx.execute(&update).await)
    }

    fn at_rest(&self, content: &Content, row: usize, column: &Column, dialect: Dialect) -> Result<Expr, UnitsError> {
        let text = match content.at_rest(row, column, self.keyring) {
            Held::Null => return Ok(null(column.kind)),
            Held::Boolean(value) => return Ok(Expr::val(value)),
            Held::Integer(value) => return Ok(Expr::val(value)),
            Held::Text(text) => text,
        };
        let too_long = || UnitsError::TooLong { table: self.table.name.clone(), column: column.name.clone() };
        if Capacity::of(column.kind, dialect).is_some_and(|capacity| !capacity.holds(&text)) {
            return Err(too_long());
        }
        operand(&text, dialect).ok_or_else(too_long)
    }

    fn done(&self, done: Result<u64, crate::database::SqlError>) -> Result<(), UnitsError> {
        done.map(drop).map_err(|source| UnitsError::Rows { table: self.name.to_owned(), source })
    }
}

/// PostgreSQL insists on a NULL of the column's own type.
fn null(kind: ColumnType) -> Expr {
    match Encoding::from(kind) {
        Encoding::Boolean => Expr::val(None::<bool>),
        Encoding::Integer => Expr::val(None::<i64>),
        Encoding::Text => Expr::val(None::<String>),
    }
}
