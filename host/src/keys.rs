//! Key rotation: re-seals everything under the active key while the host serves, reports where each
//! key is used, and verifies that a key is unused. Owns the row `encryption_key_label`; encrypts
//! and decrypts through `encryption`, and never changes a plaintext.
//!
//! Invariant: while the label is present, everything is sealed under its key, but for rows that a
//! rotation by Diego's BBS has left out, and those of them in quarantine ([`rotate_all`]). So the
//! label is deleted before the first text is sealed under another key, and written again once a
//! scan has found nothing under other keys.

mod count;
mod rewrite;
mod rotation;
mod row;
mod sample;
mod state;
mod statement;
mod status;
mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bbs_database::schema::{self, ReadBackError};
use bbs_database::{
    Database, DatabaseError, SqlError, StatementError, StatementResult, is_transient,
};
use bbs_encryption::header::label_of;
use bbs_encryption::{Keyring, LONGEST_LABEL};
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::{Layout, Table};
use bbs_work::progress::Progress;
use bbs_work::throttle::Throttle;
use serde::Serialize;

use crate::clock::Clock;
use crate::lock::fence::FenceError;
use crate::migrate::MigrateError;

pub use rotation::{Rotated, begin, check, is_due, rotate, rotate_all, survey};
pub use sample::{WrongKey, wrong_keys};
#[cfg(test)]
pub use status::RotationStatus;
pub use status::{KeysStatus, Unfinished, status, unfinished, verify};
pub use tables::SealedTable;

/// The parts that a rotation works with.
#[derive(Debug, Clone)]
pub struct RotationContext {
    /// The database whose sealed columns are rewritten.
    pub database: Database,
    /// The active key, and every key that existing texts may be under.
    pub keyring: Arc<Keyring>,
    /// The tables to rewrite.
    pub scope: SealedScope,
    /// Receives phases, counts and batches.
    pub progress: Progress,
    /// How long a change of the schema is tried again while other clients hold locks.
    pub lock_timeout: Duration,
    /// Limits the rate; awaited before each batch.
    pub throttle: Throttle,
    /// The source of the times in the rotation's record.
    pub clock: Arc<dyn Clock>,
}

/// The place of texts that are sealed inside entries of the quarantine.
pub const INSIDE_QUARANTINE: &str = "values inside bbs_quarantine";

/// Counts of the sealed texts in one place. Each non-empty sealed column of a row counts as one
/// text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LabelCounts {
    /// The name of a table, or [`INSIDE_QUARANTINE`].
    pub place: String,
    /// Texts by the label of their key.
    pub labels: BTreeMap<String, u64>,
    /// Texts with a damaged header, which no key opens.
    pub nameless: u64,
}

impl LabelCounts {
    fn new(place: &str) -> Self {
        Self {
            place: place.to_owned(),
            ..Self::default()
        }
    }

    fn add(&mut self, text: &[u8]) {
        match label_of(text) {
            Ok(label) => *self.labels.entry(label).or_default() += 1,
            Err(_) => self.nameless += 1,
        }
    }

    /// The number of texts under a label.
    pub fn under(&self, label: &str) -> u64 {
        self.labels.get(label).copied().unwrap_or_default()
    }
}

/// Everything that is sealed in a database at one data version.
#[derive(Debug, Clone)]
pub struct SealedScope {
    /// Recorded with a rotation, which starts from the beginning at another version.
    pub data_version: DataVersion,
    /// The tables of the layout and of the host itself that have sealed columns.
    pub tables: Vec<SealedTable>,
}

impl SealedScope {
    /// The sealed tables of a layout and of the host (`own`) that exist in the database.
    pub async fn find(
        database: &Database,
        data_version: DataVersion,
        layout: &Layout,
        own: &[Table],
    ) -> Result<Self, KeysError> {
        let mut tx = database.read().await?;
        let all = SealedTable::all(layout, own);
        let names: Vec<_> = all.iter().map(|table| table.name.as_str()).collect();
        let existing = schema::existing(&mut tx, &names).await;
        let existing = existing.about("the list of tables")?;
        let tables = all
            .iter()
            .filter(|table| existing.contains(table.name.as_str()));
        Ok(Self {
            data_version,
            tables: tables.cloned().collect(),
        })
    }
}

/// Why a rotation or a report on keys failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum KeysError {
    #[error(
        "existing encryption key version ({}) is not among the known keys; \
         add the key with that label to `encryption_keys`; it need not be the active one",
        .label.escape_debug()
    )]
    UnknownLabel { label: String },
    #[error(
        "{texts} sealed texts are still under the key {label:?}, which is no longer in `encryption_keys` ({places}): the \
         rotation to the new key is incomplete. Put the key back into `encryption_keys`, and remove it once \
         `bbs keys verify --label {label}` succeeds"
    )]
    KeyRemoved {
        label: String,
        texts: u64,
        places: String,
    },
    #[error(transparent)]
    WrongKey(#[from] WrongKey),
    #[error(
        "cannot read or write {what} during key rotation; nothing is lost, start again to continue"
    )]
    Sql { what: String, source: SqlError },
    #[error("bbs_key_rotation is damaged; empty it, and the rotation starts from the beginning")]
    DamagedRotation { source: serde_json::Error },
    #[error(transparent)]
    ReadBack(#[from] ReadBackError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(
        "{rows} rows are not under the key {label:?}, and {passes} passes of the key rotation rewrote none of them: each \
         had changed since it was read, or the database changes no row. Look for triggers and rules of its tables, and \
         start again to continue"
    )]
    Idle {
        rows: u64,
        label: String,
        passes: u32,
    },
    #[error(transparent)]
    Migrate(Box<MigrateError>),
    #[error("no key has a label of {bytes} bytes: the longest has {LONGEST_LABEL}")]
    LongLabel { bytes: usize },
    #[error("the key rotation was interrupted; start again to continue")]
    Interrupted,
}

impl KeysError {
    /// Whether the configured keys are the reason, and not the database.
    pub fn is_about_keys(&self) -> bool {
        matches!(
            self,
            Self::UnknownLabel { .. } | Self::KeyRemoved { .. } | Self::WrongKey(_)
        )
    }

    /// Whether the same transaction may succeed if it is done again from its start.
    fn is_transient(&self) -> bool {
        match self {
            Self::Sql { source, .. } => is_transient(source),
            Self::ReadBack(fault) => is_transient(fault.database_error()),
            Self::Database(fault) => fault.is_transient(),
            Self::Fence(fault) => fault.is_transient(),
            Self::Migrate(fault) => fault.is_transient(),
            _ => false,
        }
    }
}

impl From<MigrateError> for KeysError {
    fn from(fault: MigrateError) -> Self {
        match fault {
            MigrateError::Fence(fault) => Self::Fence(fault),
            fault => Self::Migrate(Box::new(fault)),
        }
    }
}

impl From<StatementError> for KeysError {
    fn from(StatementError { what, source }: StatementError) -> Self {
        Self::Sql { what, source }
    }
}
