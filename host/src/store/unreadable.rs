//! Records that cannot be read: those that readers have met, and their way out of the tables into
//! quarantine, one row at a time. Decides neither when nor how many; the quarantine is that of the
//! migrations.

use std::collections::BTreeSet;

use bbs_database::Transaction;
use bbs_work::causes::with_causes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::access::TableAccess;
use super::filter::Filter;
use super::page::Key;
use super::record::{Projection, RecordReadError};
use super::{
    EntityTable, Reader, Session, Store, StoreError, Writer, actual_lrps, desired_lrps, tasks,
};

/// The most records that are noted at once. Those above are noted when they are met again.
const MOST_NOTED: usize = 100_000;

/// The records whose places are freed if they cannot be read. Ordered as they are freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are Diego's")]
pub enum EntityKind {
    DesiredLrp,
    ActualLrp,
    Task,
}

impl EntityKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::DesiredLrp, Self::ActualLrp, Self::Task];

    fn entities(self) -> EntityTable {
        match self {
            Self::DesiredLrp => desired_lrps::TABLE,
            Self::ActualLrp => actual_lrps::TABLE,
            Self::Task => tasks::TABLE,
        }
    }

    /// Its table.
    pub fn table(self) -> &'static str {
        self.entities().name
    }
}

/// The records that readers could not read: their kinds and keys.
#[derive(Debug, Default)]
pub(super) struct Noted(Mutex<BTreeSet<(EntityKind, Key)>>);

/// A row that cannot be read.
#[derive(Debug)]
pub struct UnreadableRow {
    /// The columns of its primary key besides the unit's, with their values.
    pub place: Vec<(&'static str, i64)>,
    /// The reason why it cannot be read.
    pub source: RecordReadError,
}

/// Keeps rows that cannot be read, so that their places in the tables are free.
pub trait Quarantine: Send + Sync + std::fmt::Debug {
    /// Keeps a copy of a row as it is. The caller deletes the row in the same transaction.
    ///
    /// # Errors
    /// The database fails, or the row is not there.
    fn keep<'a>(
        &'a self,
        tx: &'a mut Transaction,
        row: QuarantinedRow<'a>,
    ) -> BoxFuture<'a, Result<(), QuarantineError>>;

    /// The keys of the units of a table of which a row was kept since this time, or left out by the
    /// import from etcd, and whose hold has not ended.
    fn kept_since<'a>(
        &'a self,
        tx: &'a mut Transaction,
        table: &'static str,
        since_ns: i64,
    ) -> BoxFuture<'a, Result<BTreeSet<Key>, QuarantineError>>;

    /// Ends the hold of a unit of a table: [`Self::kept_since`] leaves out the rows that are kept
    /// of it by now.
    fn end_hold<'a>(
        &'a self,
        tx: &'a mut Transaction,
        table: &'static str,
        unit: &'a [u8],
    ) -> BoxFuture<'a, Result<(), QuarantineError>>;

    /// The keys of all units of which rows are in quarantine, for whatever reason.
    fn kept<'a>(
        &'a self,
        tx: &'a mut Transaction,
    ) -> BoxFuture<'a, Result<BTreeSet<Key>, QuarantineError>>;
}

/// A row for the quarantine.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are those of the row")]
pub struct QuarantinedRow<'a> {
    pub table: &'static str,
    pub unit: &'a [u8],
    pub place: &'a [(&'static str, i64)],
    pub reason: String,
    pub at_ns: i64,
}

/// A row that could not be put in quarantine.
#[derive(Debug, thiserror::Error)]
#[error("the quarantine failed")]
pub struct QuarantineError {
    /// The error of the quarantine.
    pub source: Box<dyn std::error::Error + Send + Sync>,
    /// Whether it may succeed when the transaction is repeated from its start.
    pub is_transient: bool,
}

impl Store {
    /// Notes a record that cannot be read.
    pub(super) fn note_unreadable(&self, table: &str, key: &[u8]) {
        let Some(kind) = EntityKind::ALL
            .into_iter()
            .find(|kind| kind.table() == table)
        else {
            return;
        };
        let mut noted = self.0.unreadable.0.lock();
        if noted.len() < MOST_NOTED {
            noted.insert((kind, key.to_vec()));
        }
    }

    /// Whether records that cannot be read have a quarantine. None has one through a lens: what
    /// cannot be read may be the fault of a module.
    ///
    /// # Errors
    /// The store is closed.
    pub async fn has_quarantine(&self) -> Result<bool, StoreError> {
        Ok(self.access().await?.quarantine.is_some())
    }

    /// Whether a record is noted as one that readers could not read.
    pub fn is_noted_unreadable(&self, kind: EntityKind, key: &[u8]) -> bool {
        let noted = self.0.unreadable.0.lock();
        noted.contains(&(kind, key.to_vec()))
    }

    /// The records noted since the last call.
    pub fn take_unreadable(&self) -> BTreeSet<(EntityKind, Key)> {
        std::mem::take(&mut *self.0.unreadable.0.lock())
    }
}

impl Reader {
    /// The keys of the records that were put in quarantine since this time because they could not
    /// be read, or not be imported, and whose hold has not ended.
    pub async fn quarantined_since(
        &mut self,
        kind: EntityKind,
        since_ns: i64,
    ) -> Result<BTreeSet<Key>, StoreError> {
        quarantined_since(&self.access, &mut self.session.tx, kind, since_ns).await
    }
}

async fn quarantined_since(
    access: &TableAccess,
    tx: &mut Transaction,
    kind: EntityKind,
    since_ns: i64,
) -> Result<BTreeSet<Key>, StoreError> {
    let Some(quarantine) = &access.quarantine else {
        return Ok(BTreeSet::new());
    };
    Ok(quarantine.kept_since(tx, kind.table(), since_ns).await?)
}

/// The classes of the keys that rows in quarantine have; none if there is no quarantine.
async fn kept_classes<'a>(
    access: &'a TableAccess,
    Session { store, tx }: &mut Session,
) -> Result<Option<&'a Mutex<BTreeSet<Key>>>, StoreError> {
    let Some(quarantine) = &access.quarantine else {
        return Ok(None);
    };
    let read = || async move {
        let keys = quarantine.kept(tx).await?;
        let classes = keys.iter().map(|key| store.lock_class(key).into_owned());
        let classes: BTreeSet<Key> = classes.collect();
        Ok::<_, StoreError>(Mutex::new(classes))
    };
    Ok(Some(access.quarantined.get_or_try_init(read).await?))
}

impl Writer {
    /// As [`Reader::quarantined_since`].
    pub async fn quarantined_since(
        &mut self,
        kind: EntityKind,
        since_ns: i64,
    ) -> Result<BTreeSet<Key>, StoreError> {
        quarantined_since(&self.access, &mut self.session.tx, kind, since_ns).await
    }

    /// Ends the hold of a record: [`Self::quarantined_since`] has it only if it is put in
    /// quarantine again.
    pub async fn end_hold(&mut self, kind: EntityKind, key: &[u8]) -> Result<(), StoreError> {
        let Some(quarantine) = self.access.quarantine.clone() else {
            return Ok(());
        };
        Ok(quarantine
            .end_hold(&mut self.session.tx, kind.table(), key)
            .await?)
    }

    /// Whether a row with a key may be in quarantine, and rows with that key in other tables may
    /// be those of its record. Only the first call reads the database.
    pub async fn may_be_in_quarantine(&mut self, key: &[u8]) -> Result<bool, StoreError> {
        let kept = kept_classes(&self.access, &mut self.session).await?;
        let class = self.session.store.lock_class(key);
        Ok(kept.is_some_and(|kept| kept.lock().contains(&*class)))
    }

    /// The row of a unit that has only one, if it cannot be read.
    async fn unreadable_row<T>(
        &mut self,
        whole: &Projection<T>,
        key: &[u8],
    ) -> Result<Vec<UnreadableRow>, StoreError> {
        let unreadable = |record: Result<T, StoreError>| match record {
            Err(StoreError::Unreadable { source, .. }) => Some(UnreadableRow {
                place: Vec::new(),
                source,
            }),
            Ok(_) | Err(_) => None,
        };
        let rows = self.rows(whole, key, Filter::everything()).await?;
        Ok(rows.into_iter().filter_map(unreadable).collect())
    }

    /// Moves those rows of a record that cannot be read into quarantine, if there is one, and
    /// returns them.
    pub async fn quarantine_unreadable(
        &mut self,
        kind: EntityKind,
        key: &[u8],
    ) -> Result<Vec<UnreadableRow>, StoreError> {
        let Some(quarantine) = self.access.quarantine.clone() else {
            return Ok(Vec::new());
        };
        let rows = match kind {
            EntityKind::DesiredLrp => self.unreadable_row(&desired_lrps::WHOLE, key).await?,
            EntityKind::ActualLrp => self.unreadable_instances(key).await?,
            EntityKind::Task => self.unreadable_row(&tasks::WHOLE, key).await?,
        };
        if !rows.is_empty()
            && let Some(kept) = kept_classes(&self.access, &mut self.session).await?
        {
            let class = self.session.store.lock_class(key).into_owned();
            kept.lock().insert(class);
        }
        for UnreadableRow { place, source } in &rows {
            let row = QuarantinedRow {
                table: kind.table(),
                unit: key,
                place,
                reason: with_causes(source).to_string(),
                at_ns: self.now_ns(),
            };
            quarantine.keep(&mut self.session.tx, row).await?;
            let row = place
                .iter()
                .fold(Filter::everything(), |filter, (column, value)| {
                    filter.is(column, *value)
                });
            // Its residue stays, until a record with its key is removed.
            self.delete(kind.entities(), key, row).await?;
        }
        Ok(rows)
    }
}
