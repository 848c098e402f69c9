//! How many sealed texts there are under each label, told from how they begin: nothing is opened. Owns the counting;
//! what the counts mean is `status`'s and `rotation`'s.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use serde::Serialize;

use super::tables::SealedTable;
use super::{KeysError, Scope, replays, statement};
use crate::database::{Database, Transaction};
use crate::record::header::{Beginnings, label_of};

/// The sealed texts of one place. A row has one for each sealed column that is not empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// A table, or [`replays::PLACE`].
    pub place: String,
    pub labels: BTreeMap<String, u64>,
    /// Texts that name no key: no key opens them.
    pub nameless: u64,
}

impl Counted {
    pub(super) fn new(place: &str) -> Self {
        Self { place: place.to_owned(), ..Self::default() }
    }

    pub(super) fn add(&mut self, text: &[u8]) {
        match label_of(text) {
            Ok(label) => *self.labels.entry(label).or_default() += 1,
            Err(_) => self.nameless += 1,
        }
    }

    pub fn under(&self, label: &str) -> u64 {
        self.labels.get(label).copied().unwrap_or_default()
    }
}

/// Everything sealed, place by place. The labels that are expected are counted by the database itself.
pub(super) async fn by_label(
    database: &Database,
    scope: &Scope,
    expected: &[String],
) -> Result<Vec<Counted>, KeysError> {
    let beginnings: Vec<_> = expected.iter().map(|label| Beginnings::of(label)).collect();
    let mut counted = Vec::new();
    for table in &scope.tables {
        let mut tx = database.read().await?;
        counted.push(in_table(&mut tx, table, expected, &beginnings).await?);
    }
    counted.push(replays::count(scope.replays.clone()).await?);
    Ok(counted)
}

async fn in_table(
    tx: &mut Transaction,
    table: &SealedTable,
    expected: &[String],
    beginnings: &[Beginnings],
) -> Result<Counted, KeysError> {
    let failed = || KeysError::sql(&table.name);
    let mut counted = Counted::new(&table.name);
    let dialect = tx.dialect();
    let row = tx.fetch_one(statement::count_labels(dialect, table, beginnings)).await.map_err(failed())?;
    let number = |at: usize| row.integer(at).map(|count| count.unwrap_or_default().unsigned_abs()).map_err(failed());
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
            let mut texts = tx.stream(statement::fetch_others(dialect, table, column, beginnings));
            while let Some(row) = texts.try_next().await.map_err(failed())? {
                counted.add(row.bytes(0).map_err(failed())?.unwrap_or_default());
            }
        }
    }
    Ok(counted)
}

/// How many rows and files have something that is not under the active key. None: that is the proof.
pub(super) async fn stale(database: &Database, scope: &Scope, active: &str) -> Result<u64, KeysError> {
    let beginnings = Beginnings::of(active);
    let mut stale = replays::stale(scope.replays.clone(), active.to_owned()).await?;
    for table in &scope.tables {
        let mut tx = database.read().await?;
        let count = statement::count_stale(tx.dialect(), table, &beginnings);
        let row = tx.fetch_one(count).await.map_err(KeysError::sql(&table.name))?;
        stale += row.integer(0).map_err(KeysError::sql(&table.name))?.unwrap_or_default().unsigned_abs();
    }
    Ok(stale)
}
