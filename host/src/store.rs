//! Storage of the entities: get, list, insert, update, delete. Owns the mapping between entities
//! and columns, including encryption; decides nothing about the meaning of a call.
//!
//! A record that cannot be read is left out of lists, counted, logged and noted (`unreadable.rs`).

mod access;
mod actual_lrps;
mod column_values;
mod desired_lrps;
mod direct;
mod domains;
mod filter;
mod lensed;
mod lrp_definitions;
mod page;
mod record;
mod tasks;
mod transactions;
mod unreadable;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use access::{ChangeRecorder, TableAccess};
pub use actual_lrps::{ReadableSlot, ReadableSlots};
pub use lensed::Lenses;
pub use lrp_definitions::DefinitionAge;
pub use page::{Key, Listed, Range};
pub use record::RecordReadError;
pub use transactions::{Reader, Writer};
pub use unreadable::{EntityKind, Quarantine, QuarantineError, QuarantinedRow, UnreadableRow};

use bbs_database::{Database, DatabaseError, Dialect, SqlError, Transaction};
use bbs_encryption::Keyring;
use bbs_lens::layout::manifest::DataVersion;
use bbs_units::RowsError;
use bbs_work::causes::with_causes;
use bbs_work::log_sampling::LineLimit;
use bbs_work::lossy;
use tokio::sync::{
    OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock, Semaphore,
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::clock::Clock;
use crate::lock::fence::{Fence, FenceError};

/// Why a read or write failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the record already exists")]
    Exists,
    #[error("the record {:?} in {table} cannot be read", String::from_utf8_lossy(.key))]
    Unreadable {
        table: &'static str,
        key: Key,
        source: RecordReadError,
    },
    #[error("the unreadable record cannot be put in quarantine")]
    Quarantine(#[from] QuarantineError),
    #[error(
        "the value for {table}.{column} is not UTF-8 or contains a NUL, which this column cannot hold"
    )]
    NotText {
        table: &'static str,
        column: &'static str,
    },
    #[error("the value for {table}.{column} exceeds the column's capacity")]
    TooLong {
        table: &'static str,
        column: &'static str,
    },
    #[error(
        "the values for {table} have {bytes} bytes, above the limit of {limit}; make them smaller"
    )]
    TooLarge {
        table: &'static str,
        bytes: usize,
        limit: usize,
    },
    #[error(
        "a list of more than {most} app guids may have none with the wildcards % and _; list fewer at once"
    )]
    TooManyPatterns { most: usize },
    #[error("index {index} is not below {limit}, the most instances of one LRP")]
    IndexTooHigh { index: i32, limit: i32 },
    #[error(
        "the value for {} has a character that the column's character set cannot hold, such as one of four bytes in \
         MySQL's `utf8`; leave it out, or convert the table to utf8mb4",
        .column.as_ref().map_or_else(|| "a column".to_owned(), |column| format!("column {column}"))
    )]
    Characters { column: Option<String> },
    #[error("a value exceeds its column's capacity")]
    DoesNotFit { source: SqlError },
    #[error("the value for {table}.{column} is not JSON, or is nested too deep")]
    NotJson {
        table: &'static str,
        column: &'static str,
        source: bbs_model::json::Malformed,
    },
    #[error(
        "a migration replaces the tables, or its outcome is not known yet, so nothing was read or written; repeat the call"
    )]
    Closed,
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("cannot {what}; see the database's own log")]
    Statement {
        what: &'static str,
        source: SqlError,
    },
    #[error("cannot {what}")]
    Units {
        what: &'static str,
        source: Box<RowsError>,
    },
    #[error(
        "the database is at data version {version}, which cannot hold {fields}; leave it out, or repeat the call once \
         the pin is raised or the migration is complete"
    )]
    NotHeld {
        fields: String,
        version: DataVersion,
    },
    #[error("another transaction wrote the same record first; repeat the call")]
    Raced,
    #[error(
        "it is unknown whether the change was committed: the database did not confirm it; read the record to find out"
    )]
    Commit { source: SqlError },
}

impl StoreError {
    /// Whether the transaction may succeed when retried from its start: it conflicted with another
    /// one, or its session was lost, and it was rolled back, or it did not begin.
    pub fn is_transient(&self) -> bool {
        match self {
            // Without its session, the outcome of a commit is unknown.
            Self::Commit { source } => bbs_database::is_transient(source),
            Self::Statement { source, .. } | Self::Fence(FenceError::Read(source)) => {
                bbs_database::is_repeatable(source)
            }
            Self::Database(fault) | Self::Fence(FenceError::Database(fault)) => {
                fault.is_transient()
            }
            Self::Units { source, .. } => source.is_transient(),
            Self::Quarantine(fault) => fault.is_transient,
            Self::Raced => true,
            Self::Exists
            | Self::Unreadable { .. }
            | Self::NotText { .. }
            | Self::TooLong { .. }
            | Self::TooLarge { .. }
            | Self::Characters { .. }
            | Self::TooManyPatterns { .. }
            | Self::IndexTooHigh { .. }
            | Self::DoesNotFit { .. }
            | Self::NotJson { .. }
            | Self::NotHeld { .. }
            | Self::Closed
            | Self::Fence(_) => false,
        }
    }

    /// The database's error, if a table is missing. Then this host cannot serve any more.
    pub fn missing_table(&self) -> Option<&SqlError> {
        let source = match self {
            Self::Statement { source, .. }
            | Self::Commit { source }
            | Self::Fence(FenceError::Read(source)) => source,
            Self::Units { source, .. } => match &**source {
                RowsError::Rows { source, .. } | RowsError::Residue(source) => source,
                _ => return None,
            },
            _ => return None,
        };
        bbs_database::is_missing_table(source).then_some(source)
    }

    /// Whether the store refused the transaction although the database answers: a migration replaces
    /// the tables, or another host is the master.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Closed | Self::Fence(FenceError::Lost { .. }))
    }

    /// Whether the database ended the transaction because of a deadlock, in Diego's sense: that of
    /// MySQL and MariaDB.
    pub fn is_deadlock(&self) -> bool {
        bbs_database::is_deadlock(self)
    }
}

/// For `map_err`: the error of a failed statement. `what` completes "cannot …".
fn failed(what: &'static str) -> impl Fn(SqlError) -> StoreError {
    move |source| {
        if bbs_database::is_unique_violation(&source) {
            return StoreError::Exists;
        }
        if let Some(column) = bbs_database::refused_characters(&source) {
            return StoreError::Characters { column };
        }
        // SQLSTATE 22001, "string data, right truncation", of PostgreSQL and MySQL.
        let code = source.as_database_error().and_then(|error| error.code());
        if code.is_some_and(|code| code == "22001") {
            return StoreError::DoesNotFit { source };
        }
        StoreError::Statement { what, source }
    }
}

/// The data version of the native layout, which the entities are written for.
pub const NATIVE: DataVersion = 1_795_000_010;

/// Wait of a switch for lists that clients receive. Further lists wait as long, and are refused
/// after 8 s.
const LIST_WAIT: Duration = Duration::from_secs(5);
/// Pause before the next such wait, in which the lists that waited begin.
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// Such waits before one without a limit: together longer than a list may take.
const LIST_WAITS: u32 = 12;

/// A table of the native layout, as the entities use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntityTable {
    name: &'static str,
    /// The partition key.
    key: &'static str,
    primary_key: &'static [&'static str],
    /// The columns that may be large; their sizes count towards the size of a page.
    heavy: &'static [&'static str],
    /// The columns of which each value has few rows, and an index finds them.
    selective: &'static [&'static str],
}

/// The names of the tables of the entities.
const TABLES: [&str; 6] = [
    "actual_lrps",
    "bbs_lrp_definitions",
    "bbs_lrp_updates",
    "desired_lrps",
    "domains",
    "tasks",
];

/// The entities of one database. Only the host that holds the lock can write.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    database: Database,
    fence: Fence,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
    current: Arc<RwLock<CurrentAccess>>,
    /// Shared by lasting readers, which a switch waits for while others go on.
    lasting: Arc<RwLock<()>>,
    /// Shared by writers, which a switch waits for while readers go on.
    writing: Arc<RwLock<()>>,
    /// For readers that are kept while a client receives a list.
    kept_readers: Arc<Semaphore>,
    /// For readers that translated calls keep while a translator computes.
    translated_readers: Arc<Semaphore>,
    /// Times that a record was left out of a list.
    left_out: AtomicU64,
    /// Limits of the lines about such records, by the reason.
    unreadable_lines: LineLimit,
    too_large_lines: LineLimit,
    unreadable: unreadable::Noted,
}

/// The way in which calls access the tables.
#[derive(Debug)]
struct CurrentAccess {
    tables: TableAccess,
    /// Whether calls are accepted: not while the tables may be others than these.
    is_open: bool,
}

/// The access of a reader or writer. Excludes a switch of the store.
type SharedAccess = OwnedRwLockReadGuard<CurrentAccess, TableAccess>;

/// The right to keep a reader for more than one page.
pub type KeptReader = OwnedSemaphorePermit;

/// A switch that has waited for what takes long. Short readers and writers go on.
#[derive(Debug)]
pub struct PendingSwitch {
    store: Store,
    lasting: OwnedRwLockWriteGuard<()>,
    permits: OwnedSemaphorePermit,
}

/// Exclusive access to the tables, and to how they are accessed.
#[derive(Debug)]
pub struct Switch {
    current: OwnedRwLockWriteGuard<CurrentAccess>,
    _writing: OwnedRwLockWriteGuard<()>,
    _lasting: OwnedRwLockWriteGuard<()>,
    _permits: OwnedSemaphorePermit,
}

impl Switch {
    /// Lets calls go on with another access.
    pub fn open(mut self, tables: TableAccess) {
        *self.current = CurrentAccess {
            tables,
            is_open: true,
        };
    }

    /// Refuses calls once the switch is dropped, up to [`open`](Self::open) or
    /// [`reopen`](Self::reopen): the tables may be others.
    pub fn close(&mut self) {
        self.current.is_open = false;
    }

    /// Whether calls go on with their access once the switch is dropped.
    pub fn is_open(&self) -> bool {
        self.current.is_open
    }

    /// Lets calls go on with the access that they had before the store was closed.
    pub fn reopen(mut self) {
        self.current.is_open = true;
    }
}

impl PendingSwitch {
    /// Waits for writers first, which may wait for locks of other clients of the database, while
    /// readers go on.
    pub async fn exclude_others(self) -> Switch {
        let writing = Arc::clone(&self.store.0.writing).write_owned().await;
        Switch {
            current: Arc::clone(&self.store.0.current).write_owned().await,
            _writing: writing,
            _lasting: self.lasting,
            _permits: self.permits,
        }
    }
}

/// The most readers that may be kept, and the most that translated calls may have. Short reads have
/// the last third.
fn third_of_readers(database: &Database) -> usize {
    (database.readers() / 3).max(1)
}

/// A transaction of the store.
#[derive(Debug)]
struct Session {
    store: Store,
    tx: Transaction,
}

impl Store {
    /// A store over a database, whose tables it accesses as `access` describes.
    pub fn new(
        database: Database,
        fence: Fence,
        keyring: Arc<Keyring>,
        clock: Arc<dyn Clock>,
        access: TableAccess,
    ) -> Self {
        let third = || Arc::new(Semaphore::new(third_of_readers(&database)));
        let kept_readers = third();
        let translated_readers = third();
        let current = CurrentAccess {
            tables: access,
            is_open: true,
        };
        Self(Arc::new(Inner {
            database,
            fence,
            keyring,
            clock,
            current: Arc::new(RwLock::new(current)),
            lasting: Arc::default(),
            writing: Arc::default(),
            kept_readers,
            translated_readers,
            left_out: AtomicU64::new(0),
            unreadable_lines: LineLimit::default(),
            too_large_lines: LineLimit::default(),
            unreadable: unreadable::Noted::default(),
        }))
    }

    /// Locks the store exclusively: waits for all readers and writers to end, and blocks new ones
    /// until the switch is dropped. For a host that serves no lists meanwhile.
    pub async fn switch(&self) -> Switch {
        self.pending_switch().await.exclude_others().await
    }

    /// The first part of [`Self::switch`], with the waits that may be long, while others go on: for
    /// readers that are kept or lasting. New ones wait.
    pub async fn pending_switch(&self) -> PendingSwitch {
        let most_kept = u32::try_from(third_of_readers(&self.0.database)).unwrap_or(u32::MAX);
        let permits = Arc::clone(&self.0.kept_readers)
            .acquire_many_owned(most_kept)
            .await;
        PendingSwitch {
            store: self.clone(),
            lasting: Arc::clone(&self.0.lasting).write_owned().await,
            permits: permits.expect("the semaphore is never closed"),
        }
    }

    /// [`Self::pending_switch`]. `None`, after a pause in which further lists begin, if lists that
    /// clients receive delay it. `list_waits` counts these attempts; after the last, the next waits
    /// without a limit.
    pub async fn try_pending_switch(&self, list_waits: &mut u32) -> Option<PendingSwitch> {
        if *list_waits == LIST_WAITS {
            return Some(self.pending_switch().await);
        }
        let pending = timeout(LIST_WAIT, self.pending_switch()).await.ok();
        if pending.is_none() {
            *list_waits += 1;
            sleep(LIST_PAUSE).await;
        }
        pending
    }

    /// [`Self::switch`] while the API is served: further lists begin between its attempts.
    pub async fn switch_between_lists(&self) -> Switch {
        let mut list_waits = 0;
        loop {
            if let Some(pending) = self.try_pending_switch(&mut list_waits).await {
                return pending.exclude_others().await;
            }
        }
    }

    /// The right to keep a reader, if it is free.
    pub fn try_keep_reader(&self) -> Option<KeptReader> {
        Arc::clone(&self.0.kept_readers).try_acquire_owned().ok()
    }

    /// Waits for the right to keep a reader. To be called without a reader, which others may need,
    /// or a switch.
    pub async fn keep_reader(&self) -> KeptReader {
        let permit = Arc::clone(&self.0.kept_readers).acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }

    async fn access(&self) -> Result<SharedAccess, StoreError> {
        let current = Arc::clone(&self.0.current).read_owned().await;
        let tables = OwnedRwLockReadGuard::try_map(current, |current| {
            current.is_open.then_some(&current.tables)
        });
        tables.map_err(|_| StoreError::Closed)
    }

    /// The present time in nanoseconds since 1970.
    pub fn now_ns(&self) -> i64 {
        self.0.clock.now_ns()
    }

    /// The clock of all records.
    pub fn clock(&self) -> &dyn Clock {
        &*self.0.clock
    }

    /// The number of times that an unreadable record was left out of a list.
    pub fn left_out(&self) -> u64 {
        self.0.left_out.load(Ordering::Relaxed)
    }

    /// A form of a key that is equal for any two keys of ASCII text that the database may treat as
    /// equal.
    pub fn lock_class<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        match self.0.database.dialect() {
            Dialect::Sqlite | Dialect::Postgres => Cow::Borrowed(key),
            Dialect::Mysql => Cow::Owned(bbs_units::collation_class(key)),
        }
    }

    /// The most readers that translated calls may have, which keep one while a translator computes.
    pub fn most_translated_readers(&self) -> usize {
        third_of_readers(&self.0.database)
    }

    /// A permit for each of these readers, whichever set of translators the call is of.
    pub fn translated_readers(&self) -> &Arc<Semaphore> {
        &self.0.translated_readers
    }

    /// A reader with one snapshot of the database. Holds a transaction open, so keep it short, or
    /// with [`Self::keep_reader`].
    ///
    /// # Errors
    /// If the database has no connection, or the transaction cannot begin.
    pub async fn reader(&self) -> Result<Reader, StoreError> {
        let access = self.access().await?;
        Reader::begin(self.clone(), access, self.0.database.read().await?).await
    }

    /// A reader that may be open while translators run. Waits up to `until` for a switch, which
    /// may wait for other such readers.
    ///
    /// # Errors
    /// As [`reader`](Self::reader), and [`StoreError::Closed`] if the switch takes longer.
    pub async fn lasting_reader(&self, until: Instant) -> Result<Reader, StoreError> {
        let lasting = timeout_at(until, Arc::clone(&self.0.lasting).read_owned()).await;
        let lasting = lasting.map_err(|_| StoreError::Closed)?;
        Ok(self.reader().await?.lasting(lasting))
    }

    /// A reader for a single query; without a transaction, if access is direct and the database
    /// permits it.
    ///
    /// # Errors
    /// As [`reader`](Self::reader).
    pub async fn look(&self) -> Result<Reader, StoreError> {
        let access = self.access().await?;
        let tx = access.look(&self.0.database).await?;
        Reader::begin(self.clone(), access, tx).await
    }

    /// A fenced transaction.
    ///
    /// # Errors
    /// If this host is no longer the master, or the database fails.
    pub async fn writer(&self) -> Result<Writer, StoreError> {
        let writing = Arc::clone(&self.0.writing).read_owned().await;
        let access = self.access().await?;
        let tx = self.0.fence.begin().await?;
        Ok(Writer::new(self.clone(), access, writing, tx))
    }

    fn keyring(&self) -> &Arc<Keyring> {
        &self.0.keyring
    }

    /// Counts and logs a record that is left out of a list because a translator cannot carry it.
    /// Its key is not given if it is the last one.
    pub fn leave_out(&self, key: Option<&[u8]>, reason: &dyn std::error::Error) {
        self.0.left_out.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.0.too_large_lines.admit() {
            let key = key.map_or("the last one".into(), String::from_utf8_lossy);
            tracing::warn!(
                %key,
                %reason,
                left_out,
                "a record is too large for clients of an older version and is left out of a list; only a sample of these \
                 is logged; make it smaller"
            );
        }
    }

    /// Returns the readable records; counts and logs the others.
    fn readable<T>(
        &self,
        records: impl Iterator<Item = Result<T, StoreError>>,
    ) -> Result<Vec<T>, StoreError> {
        let mut readable = Vec::new();
        for record in records {
            match record {
                Ok(record) => readable.push(record),
                Err(StoreError::Unreadable { table, key, source }) => {
                    self.0.left_out.fetch_add(1, Ordering::Relaxed);
                    if let Some(left_out) = self.0.unreadable_lines.admit() {
                        let reason = with_causes(&source);
                        tracing::warn!(
                            table,
                            key = %lossy(&key),
                            %reason,
                            left_out,
                            "a record cannot be read and is left out of a list; only a sample of these is logged"
                        );
                    }
                }
                Err(other) => return Err(other),
            }
        }
        Ok(readable)
    }
}
