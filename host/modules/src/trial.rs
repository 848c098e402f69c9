//! Runs a migration's row functions on generated rows: checks that they return the same result for
//! the same rows, in a fresh and in a reused instance. Owns the rows; the author's tests check that
//! results are right.

use bbs_lens::FailedStep;
use bbs_lens::layout::columns::{Batch, ColumnData, Outcome, Refusal, TableData};
use bbs_lens::layout::history::{LayoutHistory, directed_changes, name_before};
use bbs_lens::layout::manifest::{Access, Direction};
use bbs_lens::layout::schema::{Column, ColumnType, Layout, Sealing};
use bbs_lens::layout::values::{ColumnBuilder, Encoding, Value};
use bbs_lens::transform::{RunArguments, Transform};
use serde::Serialize;

use super::migration::MigrationModule;
use super::text::ModuleText;

const UNITS: u32 = 32;

/// The result for one direction.
#[derive(Debug, Serialize)]
pub struct Trial {
    /// The direction that was run.
    pub direction: Direction,
    /// The number of generated units.
    pub units: u32,
    /// How many of them were refused.
    pub refused: usize,
    /// The reason for the first of them, if any was.
    pub refusal: Option<String>,
    /// The problem and what to do about it, if there is one.
    pub problem: Option<String>,
}

/// Runs each direction that has a row function. `history` is the layout history of the module's
/// catalog.
pub fn run(module: &MigrationModule, history: &LayoutHistory) -> Vec<Trial> {
    [Direction::Up, Direction::Down]
        .into_iter()
        .filter(|direction| !module.manifest().accesses(*direction).is_empty())
        .map(|direction| {
            let batch = batch(module, direction, history);
            let trial = Trial { direction, units: UNITS, refused: 0, refusal: None, problem: None };
            match same_answers(module, direction, &batch) {
                Ok(Outcome { refused, .. }) => {
                    let problem = refuses_all(&batch, &refused).then(|| {
                        "it refuses every unit that has rows; correct it, or, if no generated unit can be valid, test it on \
                         units of your own"
                            .to_owned()
                    });
                    let refusal = refused.first().map(|refusal| ModuleText::reason(&refusal.reason).into());
                    Trial { refused: refused.len(), refusal, problem, ..trial }
                }
                Err(problem) => Trial { problem: Some(problem), ..trial },
            }
        })
        .collect()
}

/// Whether every unit that has rows is refused; without any such unit, whether every unit is.
fn refuses_all(batch: &Batch, refused: &[Refusal]) -> bool {
    let has_rows = |unit: u32| {
        let unit = unit as usize;
        batch
            .tables
            .iter()
            .any(|table| table.unit_offsets[unit] < table.unit_offsets[unit + 1])
    };
    let any_rows = (0..UNITS).any(has_rows);
    (0..UNITS)
        .filter(|&unit| has_rows(unit) || !any_rows)
        .all(|unit| refused.iter().any(|refusal| refusal.unit == unit))
}

fn same_answers(
    module: &MigrationModule,
    direction: Direction,
    batch: &Batch,
) -> Result<Outcome, String> {
    let run = RunArguments {
        started_at_ns: 1_700_000_000_000_000_000,
        namespace: uuid::Uuid::from_u128(1),
    };
    let apply = || {
        module
            .apply(direction, &run, batch)
            .map_err(|error| format!("{} failed: {error}", FailedStep::of(module, direction)))
    };
    module.refresh();
    let first = apply()?;
    let again = apply()?;
    module.refresh();
    let fresh = apply()?;
    if first != again || first != fresh {
        return Err(
            "it returns different results for the same rows; keep no state between calls, and no order that differs \
                    from run to run (such as a HashMap's)"
                .to_owned(),
        );
    }
    Ok(first)
}

/// Generates a few rows for most units and none for some; every column cycles through its sample
/// values.
fn batch(module: &MigrationModule, direction: Direction, history: &LayoutHistory) -> Batch {
    let manifest = module.manifest();
    let before = history.before(manifest.version);
    let source = match direction {
        Direction::Up => before,
        Direction::Down => history
            .at(manifest.version)
            .expect("the layout history was built from this manifest"),
    };
    let changes = directed_changes(before, manifest, direction);
    let tables = manifest.accesses(direction).iter().map(|access| {
        let name = name_before(&changes, &access.table);
        table(source, access, name.as_deref())
    });
    Batch {
        tables: tables.collect(),
        residue: Vec::new(),
    }
}

fn table(source: &Layout, access: &Access, name: Option<&str>) -> TableData {
    // A table that the step creates has no rows in the source layout.
    let Some(table) = name.and_then(|name| source.tables.get(name)) else {
        return TableData {
            unit_offsets: vec![0; UNITS as usize + 1],
            columns: Vec::new(),
        };
    };
    let alone = table
        .partition_key
        .as_ref()
        .is_some_and(|key| table.primary_key == [key.clone()]);
    let unit_offsets: Vec<u32> = std::iter::once(0)
        .chain((0..UNITS).scan(0, |rows, unit| {
            *rows += if alone { 1 } else { unit % 4 };
            Some(*rows)
        }))
        .collect();
    let units = unit_offsets
        .windows(2)
        .enumerate()
        .flat_map(|(unit, ends)| {
            let rows = ends[1] - ends[0];
            std::iter::repeat_n(unit, rows as usize)
        });
    let units: Vec<_> = units.collect();
    let columns = access.reads.iter().enumerate().map(|(index, name)| {
        let column = table
            .find_column(name)
            .expect("the layout history was checked for the read columns");
        if table.partition_key.as_ref() == Some(name) {
            // A unit is the rows with one partition key, in all tables.
            keys(column, units.iter().copied())
        } else if table.primary_key.contains(name) {
            keys(column, 0..units.len())
        } else {
            values(column, units.len(), index)
        }
    });
    TableData {
        columns: columns.collect(),
        unit_offsets,
    }
}

/// The values of a key column: equal for equal numbers, and ascending with them as the keys of a
/// batch that a host loads.
fn keys(column: &Column, numbers: impl Iterator<Item = usize>) -> ColumnData {
    let encoding = Encoding::from(column.kind);
    let mut data = ColumnBuilder::new(encoding);
    for number in numbers {
        let text = format!("key-{number:02}");
        data.push(match encoding {
            Encoding::Text => Value::Text(text.as_bytes()),
            Encoding::Integer => Value::Integer(number as i64),
            Encoding::Boolean => Value::Boolean(number % 2 == 1),
        });
    }
    data.finish()
}

fn values(column: &Column, rows: usize, shift: usize) -> ColumnData {
    let mut data = ColumnBuilder::new(Encoding::from(column.kind));
    let samples = samples(column);
    for row in 0..rows {
        // Columns cycle at different rates, so that their values occur in many combinations.
        data.push(samples[(row / (shift + 1) + shift) % samples.len()]);
    }
    data.finish()
}

fn samples(column: &Column) -> Vec<Value<'static>> {
    let text =
        |samples: &[&'static [u8]]| samples.iter().map(|sample| Value::Text(sample)).collect();
    let mut samples: Vec<Value<'static>> = match (column.kind, column.sealing) {
        (ColumnType::Boolean, _) => vec![Value::Boolean(true), Value::Boolean(false)],
        (ColumnType::Integer, _) => vec![0, 1, -1, i32::MAX.into(), i32::MIN.into()]
            .into_iter()
            .map(Value::Integer)
            .collect(),
        (ColumnType::BigInteger, _) => vec![0, 1, -1, i64::MAX, i64::MIN]
            .into_iter()
            .map(Value::Integer)
            .collect(),
        // A message without fields, with one field, with an unknown high field, and an invalid one.
        (_, Sealing::Enveloped) => text(&[b"", b"\x0a\x01a", b"\xfa\xff\x07\x02hi", b"\xff"]),
        (_, Sealing::Sealed) => {
            text(&[b"{}", b"null", b"[]", b"{\"a\":[1,\"\\u00e4\"]}", b"", b"{"])
        }
        (_, Sealing::Plain) => text(&[
            b"",
            b"text",
            "größer 東京".as_bytes(),
            b"{\"a\":1}",
            &[b'x'; 250],
        ]),
    };
    if column.nullable {
        samples.push(Value::Null);
    }
    samples
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bbs_lens::layout::schema::Table;

    use super::*;

    fn key_of(data: &TableData, encoding: Encoding, row: u32) -> Value<'_> {
        data.columns[0].get(encoding, row as usize)
    }

    /// The partition key of each unit that has rows, checked to be that of all its rows.
    fn partition_keys(data: &TableData, encoding: Encoding) -> Vec<Option<String>> {
        let units = data.unit_offsets.windows(2);
        let key = units.map(|ends| {
            let mut keys = (ends[0]..ends[1]).map(|row| key_of(data, encoding, row));
            let first = keys.next()?;
            assert!(keys.all(|key| key == first), "{data:?}");
            Some(format!("{first:?}"))
        });
        key.collect()
    }

    #[test]
    fn rows_of_a_unit_have_one_partition_key_in_all_tables() {
        let records = Table::new("records")
            .column(Column::varchar("guid", 255))
            .primary_key(["guid"])
            .partition_key("guid");
        let parts = Table::new("parts")
            .column(Column::varchar("guid", 255))
            .column(Column::integer("index"))
            .primary_key(["guid", "index"])
            .partition_key("guid");
        let numbered = Table::new("numbered")
            .column(Column::big_integer("record"))
            .column(Column::varchar("id", 255))
            .primary_key(["id"])
            .partition_key("record");
        let source = Layout::of([records, parts, numbered]);
        let rows = |name: &str, columns: &[&str], encoding| {
            let access = Access::to(name).reads(columns.iter().copied());
            let data = table(&source, &access, Some(name));
            (partition_keys(&data, encoding), data)
        };
        let (records, _) = rows("records", &["guid"], Encoding::Text);
        let (parts, data) = rows("parts", &["guid", "index"], Encoding::Text);
        let (numbered, _) = rows("numbered", &["record"], Encoding::Integer);
        assert_eq!(
            records.iter().collect::<BTreeSet<_>>().len(),
            UNITS as usize
        );
        for (unit, part) in parts.iter().enumerate() {
            assert!(part.is_none() || *part == records[unit], "{part:?}");
            assert_eq!(part.is_none(), numbered[unit].is_none());
        }
        let rows = *data.unit_offsets.last().expect("an end") as usize;
        let index = |row| data.columns[1].get(Encoding::Integer, row);
        for row in 0..rows {
            assert_eq!(index(row), Value::Integer(row as i64));
        }
    }
}
