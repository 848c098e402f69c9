//! Made-up rows for a migration's row functions: whether they give the same answer to the same rows, in a fresh
//! instance and in one that has run before. Owns the rows; whether the answers are right is for the author's tests.

use serde::Serialize;

use super::migration::MigrationModule;
use crate::layout::columns::{Batch, ColumnData, Outcome, RunArguments, TableData};
use crate::layout::fold::{Line, access, travel};
use crate::layout::manifest::{Access, Direction};
use crate::layout::schema::{Column, ColumnType, Layout, Sealing};
use crate::layout::values::{ColumnBuilder, Encoding, Value};
use crate::lens::transform::{Transform, TransformError};

const UNITS: u32 = 32;

/// How one direction did.
#[derive(Debug, Serialize)]
pub struct Trial {
    pub direction: Direction,
    pub units: u32,
    pub refused: usize,
    /// What is wrong and what to do, if anything is.
    pub problem: Option<String>,
}

/// Tries each direction that has a row function. The line is that of the catalog the module is in.
pub fn run(module: &MigrationModule, line: &Line) -> Vec<Trial> {
    [Direction::Up, Direction::Down]
        .into_iter()
        .filter(|direction| !module.manifest().accesses(*direction).is_empty())
        .map(|direction| {
            let (refused, problem) = match same_answers(module, direction, &batch(module, direction, line)) {
                Ok(outcome) => (outcome.refused.len(), None),
                Err(problem) => (0, Some(problem)),
            };
            Trial { direction, units: UNITS, refused, problem }
        })
        .collect()
}

fn same_answers(module: &MigrationModule, direction: Direction, batch: &Batch) -> Result<Outcome, String> {
    let run = RunArguments { started_at_ns: 1_700_000_000_000_000_000, namespace: uuid::Uuid::from_u128(1) };
    let apply = || module.apply(direction, &run, batch).map_err(|error: TransformError| error.to_string());
    module.refresh();
    let first = apply()?;
    let again = apply()?;
    module.refresh();
    let fresh = apply()?;
    if first != again || first != fresh {
        return Err("it gives two answers to the same rows; keep nothing between calls, and no order that differs \
                    from run to run (such as a HashMap's)"
            .to_owned());
    }
    Ok(first)
}

/// A few rows for each unit and none for some; every column takes its values in turn.
fn batch(module: &MigrationModule, direction: Direction, line: &Line) -> Batch {
    let manifest = module.manifest();
    let before = line.before(manifest.version);
    let near = match direction {
        Direction::Up => before,
        Direction::Down => line.at(manifest.version).expect("the line was folded from this manifest"),
    };
    let changes = travel(before, manifest, direction);
    let tables = manifest.accesses(direction).iter().map(|access| {
        let name = access::name_before(&changes, &access.table);
        table(near, access, name.as_deref())
    });
    Batch { tables: tables.collect(), residue: Vec::new() }
}

fn table(near: &Layout, access: &Access, name: Option<&str>) -> TableData {
    // A table that the step creates has no rows yet.
    let Some(table) = name.and_then(|name| near.tables.get(name)) else {
        return TableData { unit_offsets: vec![0; UNITS as usize + 1], columns: Vec::new() };
    };
    let alone = table.partition_key.as_ref().is_some_and(|key| table.primary_key == [key.clone()]);
    let rows_of = |unit: u32| if alone { 1 } else { unit % 4 };
    let unit_offsets: Vec<u32> = std::iter::once(0)
        .chain((0..UNITS).scan(0, |rows, unit| {
            *rows += rows_of(unit);
            Some(*rows)
        }))
        .collect();
    let column = |name: &String| table.column(name).expect("the fold checked what is read");
    let columns = access.reads.iter().enumerate().map(|(index, name)| {
        values(column(name), *unit_offsets.last().expect("it has a first"), index, table.primary_key.contains(name))
    });
    TableData { columns: columns.collect(), unit_offsets }
}

fn values(column: &Column, rows: u32, shift: usize, key: bool) -> ColumnData {
    let encoding = Encoding::from(column.kind);
    let mut data = ColumnBuilder::new(encoding);
    let samples = samples(column);
    for row in 0..rows as usize {
        let key_text = format!("key-{row}");
        // Neighbouring columns step at different rates, so that their values meet in many ways.
        let sample = samples[(row / (shift + 1) + shift) % samples.len()];
        data.push(match (encoding, key) {
            (Encoding::Text, true) => Value::Text(key_text.as_bytes()),
            (Encoding::Integer, true) => Value::Integer(row as i64),
            _ => sample,
        });
    }
    data.finish()
}

fn samples(column: &Column) -> Vec<Value<'static>> {
    let text = |samples: &[&'static [u8]]| samples.iter().map(|sample| Value::Text(sample)).collect();
    let mut samples: Vec<Value<'static>> = match (column.kind, column.sealing) {
        (ColumnType::Boolean, _) => vec![Value::Boolean(true), Value::Boolean(false)],
        (ColumnType::Integer, _) => {
            vec![0, 1, -1, i32::MAX.into(), i32::MIN.into()].into_iter().map(Value::Integer).collect()
        }
        (ColumnType::BigInteger, _) => vec![0, 1, -1, i64::MAX, i64::MIN].into_iter().map(Value::Integer).collect(),
        // A message with nothing set, one field, an unknown field of a high number, and none at all.
        (_, Sealing::Enveloped) => text(&[b"", b"\x0a\x01a", b"\xfa\xff\x07\x02hi", b"\xff"]),
        (_, Sealing::Sealed) => text(&[b"{}", b"null", b"[]", b"{\"a\":[1,\"\\u00e4\"]}", b"", b"{"]),
        (_, Sealing::Plain) => text(&[b"", b"text", "größer 東京".as_bytes(), b"{\"a\":1}", &[b'x'; 250]]),
    };
    if column.nullable {
        samples.push(Value::Null);
    }
    samples
}
