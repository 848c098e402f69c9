//! Counts of sealed texts by label. The label is read from the header, so only the entries of the
//! quarantine are decrypted, which have texts inside. Owns the counting; `status` and `rotation`
//! interpret the counts.

use std::collections::BTreeSet;

use bbs_database::{Database, StatementResult, Transaction};
use bbs_encryption::Keyring;
use bbs_encryption::header::LabelPrefixes;
use futures_util::TryStreamExt;

use super::tables::SealedTable;
use super::{INSIDE_QUARANTINE, KeysError, LabelCounts, SealedScope, statement};
use crate::migrate;

/// Counts everything sealed, place by place. Texts under configured labels and those of `others`
/// are counted by the database; only headers of the rest are read.
pub(super) async fn by_label(
    database: &Database,
    keyring: &Keyring,
    scope: &SealedScope,
    others: &[String],
) -> Result<Vec<LabelCounts>, KeysError> {
    let expected = expected_labels(keyring, others);
    let prefixes: Vec<_> = expected
        .iter()
        .map(|label| LabelPrefixes::of(label))
        .collect();
    let mut counted = Vec::new();
    for table in &scope.tables {
        let mut tx = database.read().await?;
        counted.push(in_table(&mut tx, table, &expected, &prefixes).await?);
    }
    Ok(counted)
}

/// Each label once, since a text is counted for each.
fn expected_labels(keyring: &Keyring, others: &[String]) -> Vec<String> {
    let others = others.iter().map(String::as_str);
    let labels: BTreeSet<_> = keyring.labels().chain(others).collect();
    labels.into_iter().map(str::to_owned).collect()
}

async fn in_table(
    tx: &mut Transaction,
    table: &SealedTable,
    expected: &[String],
    prefixes: &[LabelPrefixes],
) -> Result<LabelCounts, KeysError> {
    let mut counted = LabelCounts::new(&table.name);
    let dialect = tx.dialect();
    let row = tx
        .fetch_one(&statement::count_labels(dialect, table, prefixes))
        .await
        .about(&table.name)?;
    let number = |at: usize| row.unsigned(at).about(&table.name);
    for (at, column) in table.columns.iter().enumerate() {
        let first = at * (expected.len() + 1);
        let mut others = number(first + expected.len())?;
        for (offset, label) in expected.iter().enumerate() {
            let count = number(first + offset)?;
            others -= count;
            if count > 0 {
                *counted.labels.entry(label.clone()).or_default() += count;
            }
        }
        if others > 0 {
            let mut texts = tx.stream(&statement::fetch_others(dialect, table, column, prefixes));
            while let Some(row) = texts.try_next().await.about(&table.name)? {
                counted.add(row.bytes(0).about(&table.name)?.unwrap_or_default());
            }
        }
    }
    Ok(counted)
}

/// The texts inside the quarantine.
pub(super) struct InnerCounts {
    /// None without a text that has a label.
    pub place: Option<LabelCounts>,
    /// The number of entries of which the content does not open.
    pub unopened_entries: u64,
}

/// Counts the texts that are sealed inside entries of the quarantine. To be called after the tables
/// are counted, as rows move from there to here.
pub(super) async fn inside_quarantine(
    database: &Database,
    keyring: &Keyring,
) -> Result<InnerCounts, KeysError> {
    let mut counted = LabelCounts::new(INSIDE_QUARANTINE);
    let found = |text: &[u8]| counted.add(text);
    let unopened_entries = migrate::inner_texts(database, keyring, found).await?;
    // No key opens a damaged text, so none is kept for its sake. No key has an empty label.
    counted.nameless = 0;
    counted.labels.remove("");
    Ok(InnerCounts {
        place: (!counted.labels.is_empty()).then_some(counted),
        unopened_entries,
    })
}

/// Counts the rows with a text that is not under the active key. 0 proves that the
/// rotation is complete.
pub(super) async fn stale(
    database: &Database,
    scope: &SealedScope,
    active: &str,
) -> Result<u64, KeysError> {
    let prefixes = LabelPrefixes::of(active);
    let mut stale = 0;
    for table in &scope.tables {
        let mut tx = database.read().await?;
        let count = statement::count_stale(tx.dialect(), table, &prefixes);
        let rows = tx.fetch_number(&count).await.about(&table.name)?;
        stale += rows.unsigned_abs();
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_labels_are_expected_beside_others_each_once() {
        let keyring = Keyring::new([("new", "x"), ("old", "y")], "new").unwrap();
        let others = ["removed".to_owned(), "old".to_owned()];
        assert_eq!(
            expected_labels(&keyring, &others),
            ["new", "old", "removed"]
        );
    }
}
