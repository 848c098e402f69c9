//! Reading the rows of known units, as they rest.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sea_query::{Alias, Order, Query, SelectStatement};

use super::batch::{Batch, Content, Rows};
use super::key::{Key, among, unit_column};
use super::{Place, UnitsError};
use crate::database::{Row, SqlError, Transaction};
use crate::layout::schema::Table;
use crate::layout::values::ColumnBuilder;

/// The columns of each table that are read; the columns of its keys always are.
pub type Wanted = BTreeMap<String, BTreeSet<String>>;

/// The rows of these units over the wanted tables, in the order of units and then of the primary key.
pub async fn load(tx: &mut Transaction, place: &Place, wanted: &Wanted, units: &[Key]) -> Result<Batch, UnitsError> {
    read(tx, place, wanted, units, false).await
}

/// The same, none of which anybody else changes before this transaction ends.
pub async fn load_locked(
    tx: &mut Transaction,
    place: &Place,
    wanted: &Wanted,
    units: &[Key],
) -> Result<Batch, UnitsError> {
    read(tx, place, wanted, units, true).await
}

async fn read(
    tx: &mut Transaction,
    place: &Place,
    wanted: &Wanted,
    units: &[Key],
    lock: bool,
) -> Result<Batch, UnitsError> {
    let mut batch = Batch { units: units.to_vec(), tables: BTreeMap::new() };
    for (name, columns) in wanted {
        let table = &place.layout.tables[name];
        let columns: Vec<_> = table
            .columns
            .iter()
            .filter(|column| columns.contains(&column.name) || table.primary_key.contains(&column.name))
            .collect();
        let failed = |source| UnitsError::Rows { table: name.clone(), source };
        let mut select = select(table, place.name(name), columns.iter().map(|column| column.name.as_str()), units, tx);
        if lock {
            select.lock_exclusive();
        }
        let found = tx.fetch(&select).await.map_err(failed)?;
        let (order, unit_offsets) = grouped(&found, units).map_err(failed)?;
        let mut read = BTreeMap::new();
        for (at, column) in columns.iter().enumerate() {
            let mut data = ColumnBuilder::new(column.kind.into());
            for &row in &order {
                // The unit's key comes first.
                data.push(found[row].value(1 + at, column.kind.into()).map_err(failed)?);
            }
            read.insert(column.name.clone(), Content { data: data.finish(), sealing: column.sealing });
        }
        batch.tables.insert(name.clone(), Rows { unit_offsets, columns: read });
    }
    Ok(batch)
}

fn select<'a>(
    table: &Table,
    name: &str,
    columns: impl Iterator<Item = &'a str>,
    units: &[Key],
    tx: &Transaction,
) -> SelectStatement {
    let key = unit_column(table).expect("only tables whose units have one key are read by it");
    let mut select = Query::select();
    select.column(Alias::new(key)).columns(columns.map(Alias::new)).from(Alias::new(name)).and_where(among(
        key,
        units,
        tx.dialect(),
    ));
    for column in &table.primary_key {
        select.order_by(Alias::new(column), Order::Asc);
    }
    select
}

/// The rows in the order of their units, and where each unit begins. A row whose key is only alike to the database
/// (MySQL's collations may ignore case) is of no unit that was asked for.
fn grouped(rows: &[Row], units: &[Key]) -> Result<(Vec<usize>, Vec<u32>), SqlError> {
    let places: HashMap<&[u8], usize> = units.iter().enumerate().map(|(at, key)| (key.as_slice(), at)).collect();
    let mut by_unit = vec![Vec::new(); units.len()];
    for (at, row) in rows.iter().enumerate() {
        if let Some(&unit) = row.bytes(0)?.and_then(|key| places.get(key)) {
            by_unit[unit].push(at);
        }
    }
    let mut offsets = vec![0];
    let mut order = Vec::with_capacity(rows.len());
    for rows in by_unit {
        order.extend(rows);
        offsets.push(u32::try_from(order.len()).expect("a batch is bounded"));
    }
    Ok((order, offsets))
}
