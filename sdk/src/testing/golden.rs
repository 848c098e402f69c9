//! Golden cases: a folder with `input.json` and `expected.json` is a case. Owns parsing and
//! comparing cases; steps run through the rest of the kit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bbs_lens::layout::schema::Layout;

use super::data::{Datum, RowData, UnitData};
use super::step::{Stepped, run, step};
use crate::json::{self, JsonValue};
use crate::manifest::Direction;
use crate::migration::Migration;
use crate::refused::Refused;

/// Why a golden case failed or could not be read.
#[allow(missing_docs, reason = "the messages describe the variants and fields")]
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    #[error("{} cannot be read: {error}; a case is a folder with input.json and expected.json", path.display())]
    Unreadable {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{}: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },
    #[error("{} holds no case; add a folder with input.json and expected.json", path.display())]
    Empty { path: PathBuf },
    #[error("{} has another result\nexpected: {expected}\ngiven:    {given}", path.display())]
    Differs {
        path: PathBuf,
        expected: String,
        given: String,
    },
}

/// Checks every case in the folder. `before` is the layout before the migration, reduced to the
/// tables and columns that it needs; a case need not have the columns that it does not read.
///
/// `input.json` is `{"direction": "up", "unit": {table: [row, …]}, "residue": …}`; `expected.json`
/// is either `{"unit": …, "residue": …}` or `{"refused": "the reason"}`. A row is an object; bytes
/// that are not text are `{"hex": "0a05…"}` and text that is JSON may be written as `{"json": …}`.
/// `residue` is optional.
///
/// # Errors
/// For the first case that cannot be read or has another result, and if there is no case.
pub fn check_golden<M: Migration>(
    before: &Layout,
    folder: impl AsRef<Path>,
) -> Result<(), GoldenError> {
    let folder = folder.as_ref();
    let unreadable = |error| GoldenError::Unreadable {
        path: folder.to_owned(),
        error,
    };
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        cases.push(entry.map_err(unreadable)?.path());
    }
    cases.sort();
    if cases.is_empty() {
        return Err(GoldenError::Empty {
            path: folder.to_owned(),
        });
    }
    cases
        .iter()
        .try_for_each(|case| check_case::<M>(before, case))
}

fn check_case<M: Migration>(before: &Layout, case: &Path) -> Result<(), GoldenError> {
    let input = read(&case.join("input.json"))?;
    let expected = read(&case.join("expected.json"))?;
    let malformed = |reason| GoldenError::Malformed {
        path: case.to_owned(),
        reason,
    };
    let direction = match input.get("direction").and_then(JsonValue::as_str) {
        Some("up") => Direction::Up,
        Some("down") => Direction::Down,
        _ => {
            return Err(malformed(
                "`direction` is neither \"up\" nor \"down\"".to_owned(),
            ));
        }
    };
    let (unit, residue) = stepped(&input).map_err(malformed)?;
    let left = Stepped::of(UnitData::default(), residue);
    let given = step::<M>(
        before,
        direction,
        &run(),
        std::slice::from_ref(&unit),
        &[left],
    )
    .remove(0);
    let wanted = match expected.get("refused").and_then(JsonValue::as_str) {
        Some(reason) => Err(Refused::new(reason)),
        None => Ok(stepped(&expected).map_err(malformed)?),
    };
    let given = given.map(|given| (given.unit.sorted(), given.residue));
    let wanted = wanted.map(|(unit, residue)| (unit.sorted(), residue));
    if given != wanted {
        let expected = format!("{wanted:?}");
        let given = format!("{given:?}");
        return Err(GoldenError::Differs {
            path: case.to_owned(),
            expected,
            given,
        });
    }
    Ok(())
}

fn read(path: &Path) -> Result<BTreeMap<String, JsonValue>, GoldenError> {
    let text = std::fs::read(path).map_err(|error| GoldenError::Unreadable {
        path: path.to_owned(),
        error,
    })?;
    let malformed = |reason| GoldenError::Malformed {
        path: path.to_owned(),
        reason,
    };
    match json::parse(&text).map_err(|error| malformed(error.to_string()))? {
        JsonValue::Object(members) => Ok(members),
        _ => Err(malformed("not a JSON object".to_owned())),
    }
}

fn stepped(case: &BTreeMap<String, JsonValue>) -> Result<(UnitData, Option<Vec<u8>>), String> {
    let tables = case
        .get("unit")
        .and_then(JsonValue::as_object)
        .ok_or("`unit` is not an object of tables")?;
    let mut unit = UnitData::default();
    for (table, rows) in tables {
        let rows = rows
            .as_array()
            .ok_or_else(|| format!("`{table}` is not a list of rows"))?;
        unit.tables.insert(
            table.clone(),
            rows.iter().map(row).collect::<Result<_, _>>()?,
        );
    }
    let residue = match case.get("residue").map(datum).transpose()? {
        None | Some(Datum::Null) => None,
        Some(Datum::Text(bytes)) => Some(bytes),
        Some(other) => return Err(format!("`residue` is {other:?}, not bytes")),
    };
    Ok((unit, residue))
}

fn row(row: &JsonValue) -> Result<RowData, String> {
    let columns = row
        .as_object()
        .ok_or_else(|| format!("a row is {}, not an object", json::to_go_string(row)))?;
    columns
        .iter()
        .map(|(column, value)| Ok((column.clone(), datum(value)?)))
        .collect()
}

fn datum(value: &JsonValue) -> Result<Datum, String> {
    Ok(match value {
        JsonValue::Null => Datum::Null,
        JsonValue::Bool(value) => Datum::Boolean(*value),
        JsonValue::Number(number) => Datum::Integer(
            number
                .parse()
                .map_err(|_| format!("{number} is not an integer of 64 bits"))?,
        ),
        JsonValue::String(text) => text.as_str().into(),
        JsonValue::Object(members) => match members.iter().next() {
            Some((kind, JsonValue::String(digits))) if kind == "hex" => hex(digits)?.into(),
            Some((kind, value)) if kind == "json" => json::to_go_string(value).as_str().into(),
            _ => {
                let value = json::to_go_string(value);
                return Err(format!(
                    "{value} is neither {{\"hex\": …}} nor {{\"json\": …}}"
                ));
            }
        },
        JsonValue::Array(_) => {
            return Err(format!(
                "{} has no place in a row",
                json::to_go_string(value)
            ));
        }
    })
}

fn hex(digits: &str) -> Result<Vec<u8>, String> {
    let bytes: Vec<_> = digits
        .bytes()
        .filter(|digit| !digit.is_ascii_whitespace())
        .collect();
    let malformed = || format!("{digits:?} is not hexadecimal");
    let nibble = |digit: u8| char::from(digit).to_digit(16).ok_or_else(malformed);
    let pairs = bytes.chunks(2).map(|pair| match pair {
        [high, low] => Ok((nibble(*high)? << 4 | nibble(*low)?) as u8),
        _ => Err(malformed()),
    });
    pairs.collect()
}

#[cfg(test)]
mod tests;
