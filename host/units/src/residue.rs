//! The residue of units, in `bbs_residue`: entries found by the name of their unit and sealed with
//! the active key. Owns their form in the table, and loading and replacing them for some units;
//! which entries a migration needs, and when they are removed, is decided in `migrate`.

use std::collections::{BTreeSet, HashMap};

use bbs_database::{Row, Transaction, bulk, of_few_lengths, signed};
use bbs_encryption::Keyring;
use bbs_files::digest::{digest_of, from_hex, to_hex};
use bbs_lens::layout::history::Leg;
use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_lens::layout::schema::{Column, Sealing, Table};
use bbs_lens::layout::values::Value;
use bbs_lens::{ResidueEntry, ResidueValue, TableBuilder};
use futures_util::TryStreamExt;
use sea_query::{Cond, Expr, ExprTrait, Query};

use super::RowsError;

pub const TABLE: &str = "bbs_residue";

/// Where steps leave residue: versions and tables; an empty table name for that of a row function.
pub type Places = BTreeSet<(DataVersion, String)>;

/// The units of one statement. A list is padded to this length, so that its statement is prepared
/// once; a unit alone, as in a client's write, is not padded: 255 more look-ups would cost more
/// than the statement.
const UNITS: usize = 256;

/// The bytes of residue that are loaded for several units at once. A unit alone is loaded whatever
/// its residue is: what one batch may make bounds it.
const BATCH_BYTES: usize = 16 << 20;

/// The table. Units and rows are found by digests of their keys, which may be of any length.
pub fn table() -> Table {
    let digest = |name| Column::varchar(name, 64);
    Table::new(TABLE)
        .column(digest("unit_digest"))
        .column(digest("table_name"))
        .column(digest("row_digest"))
        .column(Column::big_integer("version"))
        .column(Column::varchar("direction", 4))
        .column(Column::long_text("unit"))
        .column(Column::long_text("row_key"))
        .column(Column::varchar("digest", 255))
        .column(Column::long_text("sealed").sealed())
        .primary_key([
            "unit_digest",
            "table_name",
            "row_digest",
            "version",
            "direction",
        ])
}

/// Entries that any of these migrations left.
pub fn left_by(legs: &[Leg]) -> Cond {
    let of = |direction| {
        let versions = legs
            .iter()
            .filter(|leg| leg.direction == direction)
            .map(|leg| signed(leg.version));
        of_direction(direction).add(Expr::col("version").is_in(versions))
    };
    Cond::any().add(of(Direction::Up)).add(of(Direction::Down))
}

fn of_direction(direction: Direction) -> Cond {
    Cond::all().add(Expr::col("direction").eq(direction.to_string()))
}

/// Entries of either direction at any of these places.
pub fn at_any_of<'a>(places: impl IntoIterator<Item = &'a (DataVersion, String)>) -> Cond {
    let at = |(version, table): &(DataVersion, String)| {
        Cond::all()
            .add(Expr::col("version").eq(signed(*version)))
            .add(Expr::col("table_name").eq(table.as_str()))
    };
    places
        .into_iter()
        .fold(Cond::any(), |any, place| any.add(at(place)))
}

fn digests<'a>(units: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut digests: Vec<_> = units.map(|unit| digest_of(unit.as_bytes())).collect();
    if digests.len() > 1 {
        digests.resize(UNITS, String::new());
    }
    digests
}

/// Loads what these migrations left of units, opened. `unit` of an entry is its unit's place among
/// the names.
///
/// # Errors
/// An entry does not open or is damaged; the error names its unit. The entries of several units are
/// too large to be in memory at once ([`RowsError::is_of_several_units`]): the caller loads those
/// of fewer. The database fails.
pub async fn load(
    tx: &mut Transaction,
    keyring: &Keyring,
    legs: &[Leg],
    names: &[String],
) -> Result<Vec<ResidueEntry>, RowsError> {
    let places: HashMap<&str, usize> = names
        .iter()
        .enumerate()
        .map(|(place, name)| (name.as_str(), place))
        .collect();
    let mut entries = Vec::new();
    let mut bytes = 0;
    for chunk in names.chunks(UNITS) {
        let mut query = Query::select();
        query
            .columns([
                "unit",
                "table_name",
                "row_key",
                "version",
                "digest",
                "sealed",
                "direction",
            ])
            .from(TABLE)
            .and_where(
                Expr::col("unit_digest")
                    .is_in(of_few_lengths(digests(chunk.iter().map(String::as_str)))),
            )
            .cond_where(left_by(legs));
        let mut rows = tx.stream(&query);
        while let Some(row) = rows.try_next().await.map_err(RowsError::Residue)? {
            let entry = read(&row, keyring, &places)?;
            bytes += entry.value.bytes.len();
            if bytes > BATCH_BYTES && names.len() > 1 {
                return Err(RowsError::ResidueTooLarge {
                    units: names.len(),
                    limit: BATCH_BYTES,
                });
            }
            entries.push(entry);
        }
    }
    Ok(entries)
}

fn read(
    row: &Row,
    keyring: &Keyring,
    places: &HashMap<&str, usize>,
) -> Result<ResidueEntry, RowsError> {
    let text = |at: usize| row.text_or_empty(at).map_err(RowsError::Residue);
    let unit = text(0)?;
    let damaged = || RowsError::DamagedResidue {
        unit: unit.to_owned(),
    };
    let sealed = row
        .bytes(5)
        .map_err(RowsError::Residue)?
        .unwrap_or_default();
    let bytes =
        keyring
            .open(Sealing::Sealed, sealed)
            .map_err(|source| RowsError::SealedResidue {
                unit: unit.to_owned(),
                source,
            })?;
    let value = ResidueValue {
        row_key: from_hex(text(2)?).ok_or_else(damaged)?,
        digest: from_hex(text(4)?).ok_or_else(damaged)?,
        bytes,
    };
    let version = row
        .integer(3)
        .map_err(RowsError::Residue)?
        .ok_or_else(damaged)?
        .unsigned_abs();
    let direction = if text(6)? == Direction::Down.to_string() {
        Direction::Down
    } else {
        Direction::Up
    };
    let unit = *places.get(unit).ok_or_else(damaged)?;
    Ok(ResidueEntry {
        unit,
        table: text(1)?.to_owned(),
        left_by: Leg { version, direction },
        value,
    })
}

/// An entry as the table stores it.
#[derive(Debug)]
pub struct SealedEntry {
    unit: String,
    table: String,
    row_key: String,
    left_by: Leg,
    digest: String,
    sealed: String,
}

impl SealedEntry {
    /// The name of its unit.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// The migration that left it.
    pub fn left_by(&self) -> Leg {
        self.left_by
    }

    /// The bytes of its content as it is stored.
    pub fn sealed_bytes(&self) -> usize {
        self.sealed.len()
    }
}

/// Seals entries of units with these names.
pub fn seal(keyring: &Keyring, entries: Vec<ResidueEntry>, names: &[String]) -> Vec<SealedEntry> {
    let seal = |entry: ResidueEntry| SealedEntry {
        unit: names[entry.unit].clone(),
        table: entry.table,
        row_key: to_hex(&entry.value.row_key),
        left_by: entry.left_by,
        digest: to_hex(&entry.value.digest),
        sealed: String::from_utf8(keyring.seal(Sealing::Sealed, &entry.value.bytes))
            .expect("sealed text is ASCII"),
    };
    entries.into_iter().map(seal).collect()
}

/// Stores entries. They replace all earlier entries of the same unit, step and table.
///
/// # Errors
/// The database fails.
pub async fn store(tx: &mut Transaction, entries: &[SealedEntry]) -> Result<(), RowsError> {
    for chunk in entries.chunks(UNITS) {
        let mut units: Vec<_> = chunk.iter().map(|entry| entry.unit.as_str()).collect();
        units.dedup();
        let digests = of_few_lengths(digests(units.into_iter()));
        for (leg, table) in chunk
            .iter()
            .map(|entry| (entry.left_by, &entry.table))
            .collect::<BTreeSet<_>>()
        {
            let mut delete = Query::delete();
            delete
                .from_table(TABLE)
                .and_where(Expr::col("unit_digest").is_in(digests.clone()))
                .and_where(Expr::col("version").eq(signed(leg.version)))
                .and_where(Expr::col("table_name").eq(table.as_str()))
                .and_where(Expr::col("direction").eq(leg.direction.to_string()));
            tx.execute(&delete).await.map_err(RowsError::Residue)?;
        }
    }
    insert(tx, entries).await
}

async fn insert(tx: &mut Transaction, entries: &[SealedEntry]) -> Result<(), RowsError> {
    if entries.is_empty() {
        return Ok(());
    }
    let table = table();
    let mut rows = TableBuilder::new(&table.columns);
    for entry in entries {
        let unit = digest_of(entry.unit.as_bytes());
        let row = digest_of(entry.row_key.as_bytes());
        let texts = [&unit, &entry.table, &row].map(|text| Value::Text(text.as_bytes()));
        let direction = entry.left_by.direction.to_string();
        let rest = [
            &direction,
            &entry.unit,
            &entry.row_key,
            &entry.digest,
            &entry.sealed,
        ];
        let values = texts
            .into_iter()
            .chain([Value::Integer(signed(entry.left_by.version))]);
        let values = values.chain(rest.map(|text| Value::Text(text.as_bytes())));
        rows.push_row(values);
    }
    let count = u32::try_from(entries.len()).expect("batches are bounded");
    bulk::insert(tx, TABLE, &table, &rows.finish(vec![0, count]))
        .await
        .map_err(RowsError::Residue)
}

/// Makes these entries all that steps of a direction left of one unit at these places.
///
/// # Errors
/// The database fails.
pub async fn replace(
    tx: &mut Transaction,
    direction: Direction,
    places: &Places,
    name: &str,
    entries: &[SealedEntry],
) -> Result<(), RowsError> {
    if !places.is_empty() {
        let name = [name.to_owned()];
        remove(tx, &name, of_direction(direction).add(at_any_of(places))).await?;
    }
    insert(tx, entries).await
}

/// Removes what steps of either direction left of a removed unit at these places.
///
/// # Errors
/// The database fails.
pub async fn forget(tx: &mut Transaction, places: &Places, name: &str) -> Result<(), RowsError> {
    if places.is_empty() {
        Ok(())
    } else {
        remove(tx, &[name.to_owned()], at_any_of(places)).await
    }
}

/// Removes the entries of some units that meet a condition.
///
/// # Errors
/// The database fails.
pub async fn remove(
    tx: &mut Transaction,
    names: &[String],
    condition: Cond,
) -> Result<(), RowsError> {
    debug_assert!(
        names.len() <= UNITS,
        "a statement has so many units at most"
    );
    let digests = digests(names.iter().map(String::as_str));
    let delete = Query::delete()
        .from_table(TABLE)
        .and_where(Expr::col("unit_digest").is_in(digests))
        .cond_where(condition)
        .to_owned();
    tx.execute(&delete)
        .await
        .map(drop)
        .map_err(RowsError::Residue)
}
