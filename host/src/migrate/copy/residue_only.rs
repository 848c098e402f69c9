//! Units that have no row in the tables of their group and of which only residue is left: the next
//! of them, and their batch. Copies and checks page through them alike.

use bbs_database::Transaction;
use bbs_lens::Residue;
use bbs_units::{TableRows, UnitBatch, UnitKey, WantedColumns};

use crate::migrate::state::residue;
use crate::migrate::{MigrateError, Work};

/// Which units of a group are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Units that have rows in the tables of the group, in the order of their keys.
    Stored,
    /// Units that have no rows there and of which the other direction saved rows of dropped tables,
    /// in the order of the digests of their names.
    ResidueOnly,
}

/// Units without rows in the tables of their group; at least one.
#[derive(Debug)]
pub(crate) struct UnitsWithoutRows {
    pub units: Vec<UnitKey>,
    /// The last key of their range, behind which the next ones begin. It may have been left out of
    /// the units.
    pub last: UnitKey,
}

/// The next units of which only residue of dropped tables is left, for a group that restores
/// tables.
pub(crate) async fn next_units(
    work: &Work,
    tx: &mut Transaction,
    group: usize,
    after: Option<&UnitKey>,
    most: u64,
) -> Result<Option<UnitsWithoutRows>, MigrateError> {
    let restored = &work.lens.groups[group].restored;
    let tables = work.sources(group);
    // A text would equal no key of another type, and PostgreSQL refuses to compare them.
    let key = tables.first().map(|table| bbs_units::unit_key(table));
    let key = key.unwrap_or_default();
    let mut after = after.map(UnitKey::name);
    loop {
        let names = residue::units_of(tx, restored, after.as_deref(), most).await?;
        let mut units: Vec<_> = names
            .into_iter()
            .map(|name| UnitKey::from_name(name, &key))
            .collect();
        let Some(last) = units.last().cloned() else {
            return Ok(None);
        };
        leave_out_stored(work, tx, group, &mut units).await?;
        if !units.is_empty() {
            return Ok(Some(UnitsWithoutRows { units, last }));
        }
        after = Some(last.name());
    }
}

/// Removes units that have rows in a table of the group.
async fn leave_out_stored(
    work: &Work,
    tx: &mut Transaction,
    group: usize,
    units: &mut Vec<UnitKey>,
) -> Result<(), MigrateError> {
    for table in work.sources(group) {
        if units.is_empty() {
            break;
        }
        let stored = bbs_units::places_among(tx, table, &table.name, units).await?;
        let mut places = 0..;
        units.retain(|_| places.next().is_some_and(|place| !stored.contains(&place)));
    }
    Ok(())
}

/// A batch of these units without rows, and their residue. Where that is too large to be in memory
/// at once, only the first units are in the batch.
pub(crate) async fn load(
    work: &Work,
    tx: &mut Transaction,
    wanted: &WantedColumns,
    units: &[UnitKey],
) -> Result<(UnitBatch, Residue), MigrateError> {
    let tables = wanted.iter().map(|(name, columns)| {
        let table = &work.lens.source.tables[name];
        let rows = TableRows::empty(table, columns, units.len());
        (name.clone(), rows)
    });
    let mut batch = UnitBatch {
        units: units.to_vec(),
        tables: tables.collect(),
    };
    let left = work.residue_of(tx, &mut batch).await?;
    Ok((batch, left))
}
