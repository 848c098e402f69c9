//! Writing rows: the difference of two states of the same units, and a range of units from table to
//! table inside the database.

use bbs_database::{Dialect, SqlError, Transaction, schema, signed};
use bbs_encryption::Keyring;
use bbs_lens::layout::schema::{Column, ColumnType, Table};
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::{BatchColumn, OwnedValue, Provenance, TableRows};
use sea_query::{Alias, Cond, Expr, ExprTrait, Order, Query};

use super::batch::{UnitBatch, stored};
use super::diff::{Matched, matched, same};
use super::key::{UnitKey, is_unit, operand, unit_key, within};
use super::{Capacity, Place, RECORD_VERSION, RowsError, failed};

/// Changes the rows from `before` to `after`, for the tables that both have. Both have every column
/// of the layout. Of a row that stays only the columns that changed are written.
///
/// # Errors
/// A text is longer than its column holds, or the database refuses a row or fails. Rows before it
/// are written.
pub async fn replace(
    tx: &mut Transaction,
    place: &Place,
    before: &UnitBatch,
    after: &UnitBatch,
    keyring: &Keyring,
) -> Result<(), RowsError> {
    for (name, old) in &before.tables {
        let Some(new) = after.tables.get(name) else {
            continue;
        };
        let table = &place.layout.tables[name];
        let stamp = place
            .record_versions
            .of(name)
            .filter(|_| table.find_column(RECORD_VERSION).is_some());
        let stamp = stamp.map(signed);
        let writer = TableWriter {
            name: place.name(name),
            table,
            keyring,
            stamp,
        };
        for unit in 0..before.units.len() {
            writer.unit(tx, (old, unit), (new, unit)).await?;
        }
    }
    Ok(())
}

struct TableWriter<'a> {
    name: &'a str,
    table: &'a Table,
    keyring: &'a Keyring,
    /// The record version of every row that is written.
    stamp: Option<i64>,
}

impl TableWriter<'_> {
    async fn unit(
        &self,
        tx: &mut Transaction,
        (old, at): (&TableRows, usize),
        (new, unit): (&TableRows, usize),
    ) -> Result<(), RowsError> {
        let Matched { rows, removed } = matched(self.table, (old, at), (new, unit));
        // Removals first: a row that is added may have the values of a removed one in a unique
        // index.
        for row in removed {
            self.delete(tx, old, row).await?;
        }
        for (before, row) in rows {
            match before {
                Some(before) => self.update(tx, (old, before), (new, row)).await?,
                None => self.insert(tx, new, row).await?,
            }
        }
        Ok(())
    }

    fn this_row(&self, rows: &TableRows, row: usize, dialect: Dialect) -> Cond {
        let equal = |name: &String| {
            let column = Expr::col(Alias::new(name));
            match rows.value(self.table, name, row).unwrap_or(Value::Null) {
                Value::Null => column.is_null(),
                Value::Boolean(value) => column.eq(value),
                Value::Integer(value) => column.eq(value),
                Value::Text(text) => operand(text, dialect)
                    .map_or_else(|| Expr::cust("1 = 0"), |text| column.eq(text)),
            }
        };
        self.table
            .primary_key
            .iter()
            .fold(Cond::all(), |all, name| all.add(equal(name)))
    }

    async fn delete(
        &self,
        tx: &mut Transaction,
        rows: &TableRows,
        row: usize,
    ) -> Result<(), RowsError> {
        let row = self.this_row(rows, row, tx.dialect());
        let delete = Query::delete()
            .from_table(Alias::new(self.name))
            .cond_where(row)
            .to_owned();
        tx.execute(&delete).await.map_err(failed(self.name))?;
        Ok(())
    }

    async fn insert(
        &self,
        tx: &mut Transaction,
        rows: &TableRows,
        row: usize,
    ) -> Result<(), RowsError> {
        let mut insert = Query::insert();
        insert.into_table(Alias::new(self.name));
        insert.columns(
            self.table
                .columns
                .iter()
                .map(|column| Alias::new(&column.name)),
        );
        let mut values = Vec::with_capacity(self.table.columns.len());
        for column in &self.table.columns {
            values.push(match self.stamp.filter(|_| column.name == RECORD_VERSION) {
                Some(stamp) => Expr::val(stamp),
                None => self.operand(&rows.columns[&column.name], row, column, tx.dialect())?,
            });
        }
        insert.values_panic(values);
        tx.execute(&insert).await.map_err(failed(self.name))?;
        Ok(())
    }

    async fn update(
        &self,
        tx: &mut Transaction,
        (old, before): (&TableRows, usize),
        (new, after): (&TableRows, usize),
    ) -> Result<(), RowsError> {
        let mut update = Query::update();
        let mut changed = false;
        for column in &self.table.columns {
            let was = &old.columns[&column.name];
            let is = &new.columns[&column.name];
            let stamped = self.stamp.is_some() && column.name == RECORD_VERSION;
            if !stamped
                && !same(
                    column,
                    (was, before),
                    (is, after),
                    self.keyring,
                    |old, new| old == new,
                )
            {
                changed = true;
                update.value(
                    Alias::new(&column.name),
                    self.operand(is, after, column, tx.dialect())?,
                );
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
        tx.execute(&update).await.map_err(failed(self.name))?;
        Ok(())
    }

    fn operand(
        &self,
        values: &BatchColumn,
        row: usize,
        column: &Column,
        dialect: Dialect,
    ) -> Result<Expr, RowsError> {
        let text = match stored(values, row, column, self.keyring) {
            OwnedValue::Null => return Ok(null(column.kind)),
            OwnedValue::Boolean(value) => return Ok(Expr::val(value)),
            OwnedValue::Integer(value) => return Ok(Expr::val(value)),
            OwnedValue::Text(text) => text,
        };
        let too_long = || RowsError::TooLong {
            table: self.table.name.clone(),
            column: column.name.clone(),
        };
        if Capacity::of(column.kind, dialect).is_some_and(|capacity| !capacity.holds(&text)) {
            return Err(too_long());
        }
        operand(&text, dialect).ok_or_else(too_long)
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

/// Copies the rows of a range of units into another table, but for some of them, inside the
/// database. Each column of the target is one of the source or the same in all rows. Returns the
/// number of rows.
///
/// # Errors
/// The database refuses a row or fails.
pub async fn copy_range<'a>(
    tx: &mut Transaction,
    (source, target): (&Table, &str),
    columns: &[(Column, Provenance)],
    (after, last): (Option<&UnitKey>, &UnitKey),
    but_for: impl Iterator<Item = &'a UnitKey>,
) -> Result<u64, SqlError> {
    let mut select = Query::select();
    for (column, provenance) in columns {
        select.expr(match provenance {
            Provenance::Raw { column, .. } => Expr::col(Alias::new(column)),
            Provenance::Fill(value) => schema::literal(tx.dialect(), column.kind, value.as_ref()),
            Provenance::Computed => {
                unreachable!("a table with computed columns is not copied by range")
            }
        });
    }
    select.from(Alias::new(&source.name));
    let key = unit_key(source);
    select.cond_where(within(&key, after, Some(last), tx.dialect()));
    for unit in but_for {
        select.and_where(is_unit(source, unit, tx.dialect()).not());
    }
    select.order_by_columns(key.iter().map(|column| (column.alias(), Order::Asc)));
    let names = columns.iter().map(|(column, _)| Alias::new(&column.name));
    let mut insert = Query::insert();
    insert
        .into_table(Alias::new(target))
        .columns(names)
        .select_from(select)
        .expect("as many columns");
    tx.execute(&insert).await
}
