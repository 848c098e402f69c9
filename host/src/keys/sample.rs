//! Detects wrong passphrases: opens a sample of the sealed texts of each table. Owns the choice of
//! the sample and the conclusion; writes nothing.
//!
//! A label does not show whether its passphrase is right; only opening a text does. The sample is
//! the first and the last rows of each table by primary key, which every database finds by the
//! key's index. A rotation rewrites in that order, so that during one the sample has texts under
//! the old and under the new key.

use std::collections::{BTreeMap, BTreeSet};

use bbs_database::{Database, StatementResult, Transaction, schema};
use bbs_encryption::header::{identity, label_of};
use bbs_encryption::{EncryptionError, Keyring};
use bbs_lens::layout::schema::Sealing;
use futures_util::TryStreamExt;
use sea_query::Order;
use serde::Serialize;

use super::tables::SealedTable;
use super::{KeysError, SealedScope, state, statement};

/// Rows sampled at each end of a table. Cheap, and enough that single damaged records do not look
/// like a wrong key.
const ROWS: usize = 8;
/// Fewest texts that prove a wrong passphrase of a key that nothing is written with. A rotation
/// leaves damaged texts under the old key, so fewer may all be damaged.
const FEWEST_FAILED: usize = 4;

/// A key that opens none of the sampled texts under its label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error(
    "the key {label:?} opens none of the {texts} sealed texts under its label that were tried ({}): its passphrase in \
     `encryption_keys` is not the one that they were sealed with. Correct it; if it is right, these records are damaged: \
     repair or remove them",
    .tables.join(", ")
)]
pub struct WrongKey {
    pub label: String,
    /// The number of texts tried.
    pub texts: usize,
    /// The tables that they are in.
    pub tables: Vec<String>,
}

/// The sampled texts under one label.
#[derive(Default)]
struct LabelSample {
    opened: bool,
    /// By identity: the rows at both ends of a small table overlap.
    failed: BTreeSet<String>,
    tables: BTreeSet<String>,
}

/// The keys that open none of the sampled texts under their labels, in the order of labels.
///
/// # Errors
/// If a table cannot be read.
pub async fn wrong_keys(
    database: &Database,
    keyring: &Keyring,
    scope: &SealedScope,
) -> Result<Vec<WrongKey>, KeysError> {
    let mut tx = database.read().await?;
    let label_in_database = state::label(&mut tx).await?;
    let mut tried: BTreeMap<String, LabelSample> = BTreeMap::new();
    for table in &scope.tables {
        let Some(table) = with_existing_columns(&mut tx, table).await? else {
            continue;
        };
        // The first rows and the last by primary key.
        for order in [Order::Asc, Order::Desc] {
            try_rows(&mut tx, keyring, &table, &order, &mut tried).await?;
        }
    }
    let counts = |label: &String, tried: &LabelSample| {
        let is_written_with =
            keyring.active_label() == label || label_in_database.as_ref() == Some(label);
        let enough = if is_written_with { 1 } else { FEWEST_FAILED };
        !tried.opened && tried.failed.len() >= enough
    };
    let wrong = tried
        .into_iter()
        .filter(|(label, tried)| counts(label, tried));
    let wrong = wrong.map(|(label, LabelSample { failed, tables, .. })| WrongKey {
        label,
        texts: failed.len(),
        tables: tables.into_iter().collect(),
    });
    Ok(wrong.collect())
}

/// The table with those sealed columns that exist: between a cut-over and the renaming, a table may
/// still have the layout before. None if the table or its key does not exist.
async fn with_existing_columns(
    tx: &mut Transaction,
    table: &SealedTable,
) -> Result<Option<SealedTable>, KeysError> {
    let Some(found) = schema::read_back(tx, &table.name).await? else {
        return Ok(None);
    };
    let is_there = |name: &str| found.columns.iter().any(|column| column.name == name);
    let columns: Vec<_> = table
        .columns
        .iter()
        .filter(|column| is_there(column))
        .cloned()
        .collect();
    let is_known = !columns.is_empty() && table.key.iter().all(|column| is_there(&column.name));
    Ok(is_known.then(|| SealedTable {
        columns,
        ..table.clone()
    }))
}

async fn try_rows(
    tx: &mut Transaction,
    keyring: &Keyring,
    table: &SealedTable,
    order: &Order,
    tried: &mut BTreeMap<String, LabelSample>,
) -> Result<(), KeysError> {
    let mut rows = tx.stream(&statement::fetch_end(table, order, ROWS));
    // Streamed: a unit in quarantine may be large.
    while let Some(row) = rows.try_next().await.about(&table.name)? {
        for at in 0..table.columns.len() {
            let text = row.bytes(at).about(&table.name)?.unwrap_or_default();
            try_text(keyring, &table.name, text, tried);
        }
    }
    Ok(())
}

fn try_text(
    keyring: &Keyring,
    table: &str,
    text: &[u8],
    tried: &mut BTreeMap<String, LabelSample>,
) {
    // A text with a damaged header is no evidence about a key.
    let (Ok(label), Ok(identity)) = (label_of(text), identity(text)) else {
        return;
    };
    let of_label = tried.entry(label).or_default();
    if of_label.opened {
        return;
    }
    match keyring.open(Sealing::Sealed, text) {
        Ok(_) => of_label.opened = true,
        Err(EncryptionError::Cipher { .. }) => {
            of_label.failed.insert(identity.to_owned());
            of_label.tables.insert(table.to_owned());
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(keyring: &Keyring, texts: &[Vec<u8>]) -> BTreeMap<String, LabelSample> {
        let mut tried = BTreeMap::new();
        texts
            .iter()
            .for_each(|text| try_text(keyring, "things", text, &mut tried));
        tried
    }

    fn keys(passphrase: &str) -> Keyring {
        Keyring::new([("key", passphrase), ("other", "x")], "key").unwrap()
    }

    #[test]
    fn one_readable_text_proves_the_key() {
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
    fn repeated_text_counts_once_and_text_without_a_label_is_ignored() {
        let text = keys("right").seal(Sealing::Sealed, b"plain");
        let texts = [
            text.clone(),
            text,
            Vec::new(),
            b"02/w==".to_vec(),
            b"plain".to_vec(),
        ];
        let tried = tried(&keys("wrong"), &texts);
        assert_eq!(tried.keys().collect::<Vec<_>>(), ["key"]);
        assert_eq!(tried["key"].failed.len(), 1);
    }

    #[test]
    fn key_that_is_not_configured_is_not_wrong() {
        let lost = Keyring::new([("lost", "x")], "lost")
            .unwrap()
            .seal(Sealing::Sealed, b"plain");
        assert!(tried(&keys("right"), &[lost])["lost"].failed.is_empty());
    }
}
