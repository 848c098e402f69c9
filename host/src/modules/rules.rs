//! What a manifest must satisfy on its own, whatever the layout before it: names that are names, lists
//! without repetition, directions that make sense. Owns no layout: whether a change fits is the fold's to say.

use std::collections::BTreeSet;

use super::translate::TranslatorManifest;
use crate::layout::manifest::{Access, Change, Direction, Manifest};
use crate::layout::schema::Table;

/// The longest name that every database takes for a table or column, with room for the version that the copy
/// of a table carries behind its name.
const IDENTIFIER_BYTES: usize = 48;
const NAME_BYTES: usize = 64;
const SUMMARY_BYTES: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("its name is {name:?}; a name is lower-case words and digits joined by `-`, at most 64 bytes")]
    Name { name: String },
    #[error("its summary is {summary:?}; a summary is one line of at most 200 bytes, and not empty")]
    Summary { summary: String },
    #[error("its version is 0; a version is a timestamp in seconds, such as `date +%s` prints")]
    Version,
    #[error(
        "it calls a table, column or index {name:?}; such a name is lower-case letters, digits and `_`, \
         begins with a letter and has at most 48 bytes"
    )]
    Identifier { name: String },
    #[error("its {direction} names {what} {name:?} twice; name it once")]
    Repeated { direction: Direction, what: &'static str, name: String },
    #[error("its {direction} neither writes a column of {table:?} nor reshapes it; leave the table out, or write something")]
    Idle { direction: Direction, table: String },
    #[error("it says it cannot be reversed and declares a way down; correct one of the two")]
    Irreversible,
    #[error("it serves {serves} on top of {onto}; a translator is written in terms of a newer version")]
    Backwards { serves: String, onto: String },
    #[error("it names method {name:?} twice, or without a name or path; name each once")]
    Method { name: String },
}

pub(super) fn check_migration(manifest: &Manifest) -> Result<(), ManifestError> {
    if manifest.version == 0 {
        return Err(ManifestError::Version);
    }
    check_name(&manifest.name)?;
    check_summary(&manifest.summary)?;
    for change in &manifest.changes {
        identifiers(change).into_iter().try_for_each(check_identifier)?;
    }
    for direction in [Direction::Up, Direction::Down] {
        check_accesses(direction, manifest.accesses(direction))?;
    }
    if !manifest.reversible && !manifest.down.is_empty() {
        return Err(ManifestError::Irreversible);
    }
    Ok(())
}

pub(super) fn check_translator(manifest: &TranslatorManifest) -> Result<(), ManifestError> {
    check_name(&manifest.name)?;
    check_summary(&manifest.summary)?;
    if manifest.serves >= manifest.onto {
        return Err(ManifestError::Backwards {
            serves: manifest.serves.to_string(),
            onto: manifest.onto.to_string(),
        });
    }
    let mut seen = BTreeSet::new();
    for method in &manifest.methods {
        if method.name.is_empty() || method.path.is_empty() || !seen.insert(&method.name) {
            return Err(ManifestError::Method { name: method.name.clone() });
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), ManifestError> {
    let word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if name.len() > NAME_BYTES || !name.split('-').all(word) {
        return Err(ManifestError::Name { name: name.to_owned() });
    }
    Ok(())
}

fn check_summary(summary: &str) -> Result<(), ManifestError> {
    if summary.is_empty() || summary.len() > SUMMARY_BYTES || summary.chars().any(char::is_control) {
        return Err(ManifestError::Summary { summary: summary.chars().take(SUMMARY_BYTES).collect() });
    }
    Ok(())
}

fn check_identifier(name: &str) -> Result<(), ManifestError> {
    let begins = name.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
    let goes_on = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !begins || !goes_on || name.len() > IDENTIFIER_BYTES {
        return Err(ManifestError::Identifier { name: name.to_owned() });
    }
    Ok(())
}

fn check_accesses(direction: Direction, accesses: &[Access]) -> Result<(), ManifestError> {
    let repeated = |what, name: &str| ManifestError::Repeated { direction, what, name: name.to_owned() };
    if let Some(table) = first_repeated(accesses.iter().map(|access| access.table.as_str())) {
        return Err(repeated("table", table));
    }
    for access in accesses {
        check_identifier(&access.table)?;
        for columns in [&access.reads, &access.writes] {
            columns.iter().try_for_each(|name| check_identifier(name))?;
            if let Some(column) = first_repeated(columns.iter().map(String::as_str)) {
                return Err(repeated("column", column));
            }
        }
        if access.writes.is_empty() && !access.reshapes {
            return Err(ManifestError::Idle { direction, table: access.table.clone() });
        }
    }
    Ok(())
}

fn first_repeated<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = BTreeSet::new();
    names.find(|name| !seen.insert(*name))
}

/// Every name that a change brings or refers to.
fn identifiers(change: &Change) -> Vec<&str> {
    match change {
        Change::CreateTable(table) => table_identifiers(table),
        Change::DropTable { table } => vec![table],
        Change::RenameTable { from, to } => vec![from, to],
        Change::AddColumn { table, column } | Change::AlterColumn { table, column } => vec![table, &column.name],
        Change::DropColumn { table, column } => vec![table, column],
        Change::RenameColumn { table, from, to } => vec![table, from, to],
        Change::MoveColumn { column, from, to } => vec![column, from, to],
        Change::SetPrimaryKey { table, columns } => with(table, columns),
        Change::CreateIndex { table, index } => {
            let mut names = with(table, &index.columns);
            names.push(&index.name);
            names
        }
        Change::DropIndex { table, index } => vec![table, index],
    }
}

fn table_identifiers(table: &Table) -> Vec<&str> {
    let mut names = with(&table.name, &table.primary_key);
    names.extend(table.columns.iter().map(|column| column.name.as_str()));
    names.extend(&table.partition_key.as_deref());
    for index in &table.indexes {
        names.push(&index.name);
        names.extend(index.columns.iter().map(String::as_str));
    }
    names
}

fn with<'a>(first: &'a str, rest: &'a [String]) -> Vec<&'a str> {
    std::iter::once(first).chain(rest.iter().map(String::as_str)).collect()
}

#[cfg(test)]
mod tests;
