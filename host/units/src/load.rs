//! Reading the rows of units as columns, as they are stored. There are two loaders: a range of units
//! in the order of their keys, bounded in bytes, and units that are listed.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use bbs_database::{Row, Transaction};
use bbs_lens::layout::schema::{Column, Table};
use bbs_lens::layout::values::Value;
use bbs_lens::{TableBuilder, TableRows};
use futures_util::TryStreamExt;
use sea_query::{Alias, Order, Query, SelectStatement};

use super::batch::UnitBatch;
use super::index::{Membership, UnitIndex};
use super::key::{KeyColumn, UnitKey, among, unit_key, within};
use super::{Place, RowsError, failed};

/// The columns that are loaded of each table.
pub type WantedColumns = BTreeMap<String, BTreeSet<String>>;

/// Bounds on what is loaded, in bytes of text.
#[derive(Debug, Clone, Copy)]
pub struct ByteLimits {
    /// A range ends with the unit that reaches this; the first unit is always loaded. Several
    /// listed units above it are refused together.
    pub batch: u64,
    /// A unit above this is refused.
    pub unit: u64,
}

impl ByteLimits {
    pub const NONE: Self = Self {
        batch: u64::MAX,
        unit: u64::MAX,
    };
}

/// The bytes that are loaded of each unit so far, over all tables.
#[derive(Clone)]
struct Budget<'a> {
    limits: ByteLimits,
    units: &'a [UnitKey],
    bytes: Vec<u64>,
    all_bytes: u64,
    /// The places of units above their limit, of which no further row is loaded.
    oversized: BTreeSet<usize>,
}

impl<'a> Budget<'a> {
    fn new(limits: ByteLimits, units: &'a [UnitKey]) -> Self {
        Self {
            limits,
            units,
            bytes: vec![0; units.len()],
            all_bytes: 0,
            oversized: BTreeSet::new(),
        }
    }

    /// Returns whether the unit is within its limit.
    fn spend(&mut self, place: usize, bytes: u64) -> bool {
        self.bytes[place] += bytes;
        self.all_bytes += bytes;
        if self.bytes[place] > self.limits.unit {
            self.oversized.insert(place);
        }
        !self.oversized.contains(&place)
    }

    /// The error of a unit above its limit.
    fn refusal(&self, place: usize) -> RowsError {
        let unit = self.units[place].name();
        let bytes = self.bytes[place];
        let limit = self.limits.unit;
        RowsError::UnitTooLarge { unit, bytes, limit }
    }
}

/// The units between a key and the last of `units`, in the order of the database.
#[derive(Debug, Clone, Copy)]
pub struct KeyRange<'a> {
    pub after: Option<&'a UnitKey>,
    pub units: &'a [UnitKey],
}

/// The units of a range.
#[derive(Debug)]
pub struct LoadedRange {
    /// Up to the first unit that is above its limit; empty if that is the first of the range.
    pub batch: UnitBatch,
    /// The first unit of the range with [`RowsError::UnitTooLarge`], if it is above its limit: a
    /// unit of its own batch.
    pub oversized: Option<(UnitKey, RowsError)>,
    /// The last unit that was loaded, or the one above its limit.
    pub last: UnitKey,
    /// The bytes of the units that were loaded.
    pub bytes: u64,
}

/// Loads a range of units over the wanted tables, in the order of units and then of the primary
/// key: all of them, or as many as the limits allow, at least one.
///
/// # Errors
/// The range has a unit that is not listed ([`RowsError::WrittenMeanwhile`]), or the database
/// fails.
///
/// # Panics
/// If no unit is listed.
pub async fn load_range(
    tx: &mut Transaction,
    place: &Place,
    wanted: &WantedColumns,
    range: KeyRange<'_>,
    limits: ByteLimits,
) -> Result<LoadedRange, RowsError> {
    let mut index = UnitIndex::new(range.units, tx.dialect());
    let mut budget = Budget::new(limits, range.units);
    let mut batch = UnitBatch::default();
    let mut complete = range.units.len();
    for (name, columns) in wanted {
        let range = KeyRange {
            units: &range.units[..complete],
            ..range
        };
        let mut loading = Loading::new(place, name, columns);
        let mut spent = budget.clone();
        complete = loading.range(tx, range, &index, &mut spent).await?;
        while loading.learn(tx, &mut index).await? {
            (loading, spent) = (Loading::new(place, name, columns), budget.clone());
            complete = loading.range(tx, range, &index, &mut spent).await?;
        }
        budget = spent;
        batch.tables.insert(name.clone(), loading.finish(complete));
    }
    let first_oversized = budget
        .oversized
        .first()
        .copied()
        .filter(|first| *first < complete);
    let loaded = first_oversized.unwrap_or(complete);
    for (name, rows) in &mut batch.tables {
        rows.truncate(&place.layout.tables[name], loaded);
    }
    batch.units = range.units[..loaded].to_vec();
    let oversized = (loaded == 0).then(|| (range.units[0].clone(), budget.refusal(0)));
    let last = range.units[loaded.max(1) - 1].clone();
    Ok(LoadedRange {
        batch,
        oversized,
        last,
        bytes: budget.bytes[..loaded].iter().sum(),
    })
}

/// Whether rows are locked against other writers until the transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLock {
    None,
    Exclusive,
}

/// Loads listed units as [`load_within`] does, whatever their size.
///
/// # Errors
/// The database fails.
pub async fn load(
    tx: &mut Transaction,
    place: &Place,
    wanted: &WantedColumns,
    units: &[UnitKey],
    lock: RowLock,
) -> Result<UnitBatch, RowsError> {
    load_within(tx, place, wanted, units, lock, ByteLimits::NONE).await
}

/// Loads listed units over the wanted tables, in the order given and then of the primary key. The
/// units are distinct for the database. A unit is whatever the database finds under its key, which
/// its rows may spell in another case (MySQL's collations): it has the key of its rows.
///
/// # Errors
/// A unit is above its limit, or several are above that of a batch, or the database fails.
pub async fn load_within(
    tx: &mut Transaction,
    place: &Place,
    wanted: &WantedColumns,
    units: &[UnitKey],
    lock: RowLock,
    limits: ByteLimits,
) -> Result<UnitBatch, RowsError> {
    let mut index = UnitIndex::new(units, tx.dialect());
    let mut budget = Budget::new(limits, units);
    let mut batch = UnitBatch {
        units: units.to_vec(),
        ..UnitBatch::default()
    };
    let mut spellings = BTreeMap::new();
    for (name, columns) in wanted {
        let mut loading = Loading::new(place, name, columns);
        let mut spent = budget.clone();
        loading.listed(tx, units, lock, &index, &mut spent).await?;
        while loading.learn(tx, &mut index).await? {
            (loading, spent) = (Loading::new(place, name, columns), budget.clone());
            loading.listed(tx, units, lock, &index, &mut spent).await?;
        }
        budget = spent;
        // That of the first table counts.
        loading.spellings.append(&mut spellings);
        spellings = std::mem::take(&mut loading.spellings);
        batch
            .tables
            .insert(name.clone(), loading.finish(units.len()));
    }
    for (place, spelled) in spellings {
        batch.units[place] = spelled;
    }
    Ok(batch)
}

/// The rows of one table on their way into columns.
struct Loading<'a> {
    name: &'a str,
    table: &'a Table,
    key: Vec<KeyColumn>,
    wanted: Vec<&'a Column>,
    builder: TableBuilder<'a>,
    /// The unit of each row, in the order in which they came.
    places: Vec<u32>,
    /// The unit of the latest row of a range.
    latest: Option<usize>,
    bytes: u64,
    /// Keys of rows that were left out until the database has compared them with the units.
    unknown: HashSet<UnitKey>,
    /// By the place of a listed unit, the key of its first row.
    spellings: BTreeMap<usize, UnitKey>,
}

impl<'a> Loading<'a> {
    fn new(place: &'a Place, name: &'a str, columns: &BTreeSet<String>) -> Self {
        let table = &place.layout.tables[name];
        let wanted: Vec<_> = table
            .columns
            .iter()
            .filter(|column| columns.contains(&column.name))
            .collect();
        Self {
            name: place.name(name),
            table,
            key: unit_key(table),
            builder: TableBuilder::new(wanted.iter().copied()),
            wanted,
            places: Vec::new(),
            latest: None,
            bytes: 0,
            unknown: HashSet::new(),
            spellings: BTreeMap::new(),
        }
    }

    /// Completes the index by the keys that it did not know. Returns whether there were any; then
    /// the table has to be loaded again.
    async fn learn(
        &mut self,
        tx: &mut Transaction,
        index: &mut UnitIndex<'_>,
    ) -> Result<bool, RowsError> {
        if self.unknown.is_empty() {
            return Ok(false);
        }
        let unknown = std::mem::take(&mut self.unknown);
        index
            .learn(tx, self.name, &self.key, unknown)
            .await
            .map_err(failed(self.name))?;
        Ok(true)
    }

    fn select(&self) -> SelectStatement {
        let mut query = Query::select();
        query
            .columns(self.key.iter().map(KeyColumn::alias))
            .columns(self.wanted.iter().map(|column| Alias::new(&column.name)))
            .from(Alias::new(self.name));
        query
    }

    /// Returns how many of the units are complete.
    async fn range(
        &mut self,
        tx: &mut Transaction,
        range: KeyRange<'_>,
        index: &UnitIndex<'_>,
        budget: &mut Budget<'_>,
    ) -> Result<usize, RowsError> {
        let mut query = self.select();
        let rest = self
            .table
            .primary_key
            .iter()
            .filter(|name| self.key.iter().all(|column| column.name != **name))
            .map(Alias::new);
        for name in self.key.iter().map(KeyColumn::alias).chain(rest) {
            query.order_by(name, Order::Asc);
        }
        query.cond_where(within(
            &self.key,
            range.after,
            range.units.last(),
            tx.dialect(),
        ));
        let mut stream = tx.stream(&query);
        while let Some(row) = stream.try_next().await.map_err(failed(self.name))? {
            let unit = UnitKey::read(&row, &self.key).map_err(failed(self.name))?;
            let latest = self.latest;
            let is_next =
                |place| latest.is_none_or(|latest| latest <= place) && place < range.units.len();
            let place = match index.of(&unit) {
                Membership::Unit(place) if is_next(place) => place,
                Membership::Unknown => {
                    self.unknown.insert(unit);
                    continue;
                }
                Membership::Unit(_) | Membership::None => {
                    return Err(RowsError::WrittenMeanwhile {
                        table: self.table.name.clone(),
                    });
                }
            };
            if place > 0 && latest != Some(place) && self.bytes >= budget.limits.batch {
                return Ok(place);
            }
            self.latest = Some(place);
            self.push(&row, place, budget)?;
        }
        Ok(range.units.len())
    }

    async fn listed(
        &mut self,
        tx: &mut Transaction,
        units: &[UnitKey],
        lock: RowLock,
        index: &UnitIndex<'_>,
        budget: &mut Budget<'_>,
    ) -> Result<(), RowsError> {
        let mut query = self.select();
        query.and_where(among(&self.key, units, tx.dialect()));
        for name in &self.table.primary_key {
            query.order_by(Alias::new(name), Order::Asc);
        }
        if lock == RowLock::Exclusive {
            query.lock_exclusive();
        }
        let mut stream = tx.stream(&query);
        while let Some(row) = stream.try_next().await.map_err(failed(self.name))? {
            let unit = UnitKey::read(&row, &self.key).map_err(failed(self.name))?;
            let place = if units.len() == 1 {
                Membership::Unit(0)
            } else {
                index.of(&unit)
            };
            match place {
                Membership::Unit(place) => {
                    self.push(&row, place, budget)?;
                    if budget.oversized.contains(&place) {
                        return Err(budget.refusal(place));
                    }
                    let limit = budget.limits.batch;
                    if units.len() > 1 && budget.all_bytes > limit {
                        let units = units.len();
                        return Err(RowsError::UnitsTooLarge { units, limit });
                    }
                    self.spellings.entry(place).or_insert(unit);
                }
                Membership::Unknown => drop(self.unknown.insert(unit)),
                Membership::None => {}
            }
        }
        Ok(())
    }

    /// Adds a row, unless its unit is above its limit.
    fn push(&mut self, row: &Row, place: usize, budget: &mut Budget<'_>) -> Result<(), RowsError> {
        let first = self.key.len();
        let value = |at: usize, column: &Column| {
            row.value(first + at, column.kind.into())
                .map_err(failed(self.name))
        };
        let mut bytes = 0;
        for (at, column) in self.wanted.iter().enumerate() {
            bytes += bytes_of(value(at, column)?);
        }
        self.bytes += bytes;
        if budget.spend(place, bytes) {
            for (at, column) in self.wanted.iter().enumerate() {
                self.builder.push(at, value(at, column)?);
            }
            self.places
                .push(u32::try_from(place).expect("batches are bounded"));
        }
        Ok(())
    }

    fn finish(self, units: usize) -> TableRows {
        let mut counts = vec![0; units];
        self.places
            .iter()
            .for_each(|&place| counts[place as usize] += 1);
        let mut unit_offsets = vec![0];
        unit_offsets.extend(counts.iter().scan(0, |sum, count: &u32| {
            *sum += count;
            Some(*sum)
        }));
        if self.places.is_sorted() {
            return self.builder.finish(unit_offsets).checked(self.table);
        }
        let mut order: Vec<u32> = (0..).take(self.places.len()).collect();
        order.sort_by_key(|&row| self.places[row as usize]);
        let unordered = self.builder.finish(Vec::new());
        unordered.picked(self.table, unit_offsets, &order)
    }
}

fn bytes_of(value: Value<'_>) -> u64 {
    match value {
        Value::Text(text) => text.len() as u64,
        Value::Null | Value::Boolean(_) | Value::Integer(_) => 8,
    }
}
