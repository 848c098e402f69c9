//! Whether the keys of the configuration open what is under their labels, tried on a few texts of each table. Owns what
//! is tried and what it proves; writes nothing.
//!
//! A passphrase can be wrong under a label that is right, and the label does not show it: only a text that opens does. The texts are
//! those of the first and the last rows of each table by its primary key, which every database finds by the key's index.
//! A rotation walks in that order, so that between them they are under the key before it and under the one after it.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryStreamExt;
use serde::Serialize;

use super::tables::SealedTable;
use super::{KeysError, Scope, state, statement};
use crate::database::{Database, Transaction, schema};
use crate::layout::schema::Sealing;
use crate::record::header::{identity, label_of};
use crate::record::{Keyring, RecordError};

/// At each end of a table. Few enough to cost nothing, and enough that damaged records do not pass for a wrong key.
const ROWS: usize = 8;
/// What a rotation could not rewrite, because it is damaged, stays under the key before: so few texts that do not open
/// prove nothing about a key that nothing is written with.
const TOO_FEW: usize = 4;

/// A key that opens none of the texts under its label that were tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error(
    "the key {label:?} opens none of the {texts} sealed texts under its label that were tried ({}): its passphrase in \
     `encryption_keys` is not the one that they were sealed with. Correct it; if it is right, these records are damaged: \
     repair or remove them",
    .tables.join(", ")
)]
pub struct WrongKey {
    pub label: String,
    pub texts: usize,
    pub tables: Vec<String>,
}

#[derive(Default)]
struct Tried {
    opened: bool,
    /// By the key that identifies a text: near the middle of a small table a row is tried twice.
    failed: BTreeSet<String>,
    tables: BTreeSet<String>,
}

/// The keys that open nothing of what they should, by label.
///
/// # Errors
/// A table that cannot be read.
pub async fn wrong_keys(database: &Database, keyring: &Keyring, scope: &Scope) -> Result<Vec<WrongKey>, KeysError> {
    let mut tx = database.read().await?;
    let promised = state::label(&mut tx).await?;
    let mut tried: BTreeMap<String, Tried> = BTreeMap::new();
    for table in &scope.tables {
        let Some(table) = as_it_is(&mut tx, table).await? else { continue };
        for is_first in [true, false] {
            try_rows(&mut tx, keyring, &table, is_first, &mut tried).await?;
        }
    }
    let counts = |label: &String, tried: &Tried| {
        let is_written_with = keyring.active_label() == label || promised.as_ref() == Some(label);
        let enough = if is_written_with { 1 } else { TOO_FEW };
        !tried.opened && tried.failed.len() >= enough
    };
    let wrong = tried.into_iter().filter(|(label, tried)| counts(label, tried));
    let wrong = wrong.map(|(label, Tried { failed, tables, .. })| WrongKey {
        label,
        texts: failed.len(),
        tables: tables.into_iter().collect(),
    });
    Ok(wrong.collect())
}

/// The sealed columns that are there: between a cut-over and the change of names, a table may still be the one before.
async fn as_it_is(tx: &mut Transaction, table: &SealedTable) -> Result<Option<SealedTable>, KeysError> {
    let Some(found) = schema::read_back(tx, &table.name).await? else { return Ok(None) };
    let is_there = |name: &str| found.columns.iter().any(|column| column.name == name);
    let columns: Vec<_> = table.columns.iter().filter(|column| is_there(column)).cloned().collect();
    let is_known = !columns.is_empty() && table.key.iter().all(|column| is_there(&column.name));
    Ok(is_known.then(|| SealedTable { columns, ..table.clone() }))
}

async fn try_rows(
    tx: &mut Transaction,
    keyring: &Keyring,
    table: &SealedTable,
    is_first: bool,
    tried: &mut BTreeMap<String, Tried>,
) -> Result<(), KeysError> {
    let query = statement::fetch_end(tx.dialect(), table, is_first, ROWS);
    let mut rows = tx.stream(query);
    // One row at a time: a unit in quarantine may be large.
    while let Some(row) = rows.try_next().await.map_err(KeysError::sql(&table.name))? {
        for at in 0..table.columns.len() {
            let text = row.bytes(at).map_err(KeysError::sql(&table.name))?.unwrap_or_default();
            try_text(keyring, &table.name, text, tried);
        }
    }
    Ok(())
}

fn try_text(keyring: &Keyring, table: &str, text: &[u8], tried: &mut BTreeMap<String, Tried>) {
    // What names no key, or is cut short, says nothing about a key.
    let (Ok(label), Ok(identity)) = (label_of(text), identity(text)) else { return };
    let of_label = tried.entry(label).or_default();
    if of_label.opened {
        return;
    }
    match keyring.open(Sealing::Sealed, text) {
        Ok(_) => of_label.opened = true,
        Err(RecordError::Cipher { .. }) => {
            of_label.failed.insert(identity.to_owned());
            of_label.tables.insert(table.to_owned());
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(keyring: &Keyring, texts: &[Vec<u8>]) -> BTreeMap<String, Tried> {
        let mut tried = BTreeMap::new();
        texts.iter().for_each(|text| try_text(keyring, "things", text, &mut tried));
        tried
    }

    fn keys(passphrase: &str) -> Keyring {
        Keyring::new([("key", passphrase), ("other", "x")], "key").unwrap()
    }

    #[test]
    fn one_text_that_opens_proves_the_key_whatever_the_others_do() {
        let right = keys("right");
        let mut damaged = right.seal(Sealing::Sealed, b"plain");
        let last = damaged.len() - 8;
        damaged[last] = if damaged[last] == b'A' { b'B' } else { b'A' };
        let texts = [damaged, right.seal(Sealing::Sealed, b"plain")];
        assert!(tried(&right, &texts)["key"].opened);
        let wrong = keys("wrong");
        assert!(!tried(&wrong, &texts)["key"].opened);
        assert_eq!(tried(&wrong, &texts)["key"].failed.len(), 2);
    }

    #[test]
    fn a_text_that_is_met_twice_counts_once_and_one_without_a_label_not_at_all() {
        let text = keys("right").seal(Sealing::Sealed, b"plain");
        let texts = [text.clone(), text, Vec::new(), b"02/w==".to_vec(), b"plain".to_vec()];
        let tried = tried(&keys("wrong"), &texts);
        assert_eq!(tried.keys().collect::<Vec<_>>(), ["key"]);
        assert_eq!(tried["key"].failed.len(), 1);
    }

    #[test]
    fn a_key_that_is_not_configured_is_not_a_wrong_one() {
        let lost = Keyring::new([("lost", "x")], "lost").unwrap().seal(Sealing::Sealed, b"plain");
        assert!(tried(&keys("right"), &[lost])["lost"].failed.is_empty());
    }
}
