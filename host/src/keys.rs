//! Encryption keys over their life: bringing everything sealed under a new one while the host serves, saying where each
//! is used, proving that one is not. Owns the promise `encryption_key_label`; seals and opens through `record`, and
//! changes nothing but under which key a text is.
//!
//! The label is a promise: while it is there, everything is under that key. So it goes away before the first text is
//! sealed under another, and comes back once a scan proves that nothing else is left.

mod count;
mod replays;
mod rewrite;
mod rotation;
mod row;
mod sample;
mod state;
mod statement;
mod status;
mod tables;

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Clock;
use crate::database::schema::ReadBackError;
use crate::database::{Database, DatabaseError, SqlError, schema};
use crate::layout::manifest::DataVersion;
use crate::layout::schema::{Layout, Table};
use crate::lock::fence::FenceError;
use crate::pace::Pace;
use crate::progress::Progress;
use crate::record::Keyring;

pub use count::Counted;
pub use rotation::{Rotated, begin, check, rotate};
pub use sample::{WrongKey, wrong_keys};
pub use state::tables as own_tables;
pub use status::{KeysStatus, TableCursor, UnderWay, Unfinished, Verified, status, unfinished, verify};
pub use tables::{KeyColumn, SealedTable};

/// What a rotation works with.
#[derive(Debug, Clone)]
pub struct Context {
    pub database: Database,
    pub keyring: Arc<Keyring>,
    pub scope: Scope,
    pub progress: Progress,
    pub pace: Pace,
    pub clock: Arc<dyn Clock>,
}

/// Everything that is sealed at one data version.
#[derive(Debug, Clone)]
pub struct Scope {
    pub data_version: DataVersion,
    /// Of the layout, and of the host's own tables.
    pub tables: Vec<SealedTable>,
    /// The folder of replay files.
    pub replays: Option<PathBuf>,
}

impl Scope {
    /// Of a layout and the host's own tables, those that are there.
    pub async fn find(
        database: &Database,
        data_version: DataVersion,
        layout: &Layout,
        own: &[Table],
        replays: Option<PathBuf>,
    ) -> Result<Self, KeysError> {
        let mut tables = Vec::new();
        let mut tx = database.read().await?;
        for table in SealedTable::all(layout, own) {
            if schema::exists(&mut tx, &table.name).await.map_err(KeysError::sql(&table.name))? {
                tables.push(table);
            }
        }
        Ok(Self { data_version, tables, replays })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error(
        "existing encryption key version ({label}) is not among the known keys; \
         add the key with that label to `encryption_keys`, it may be any but the active one"
    )]
    UnknownLabel { label: String },
    #[error(
        "{texts} sealed texts are still under the key {label:?}, which is no longer among the known keys ({places}): the \
         rotation away from it has not ended. Put the key back into `encryption_keys`, and remove it once \
         `bbs keys verify --label {label}` succeeds"
    )]
    KeyRemoved { label: String, texts: u64, places: String },
    #[error(transparent)]
    WrongKey(#[from] WrongKey),
    #[error("cannot read or write {what} while looking after keys; nothing is lost, start again to continue")]
    Sql { what: String, source: SqlError },
    #[error("cannot read or write the replay file {}; check its permissions, or remove it, then start again", .path.display())]
    Replay { path: PathBuf, source: std::io::Error },
    #[error("bbs_key_rotation is damaged; empty it, and the rotation begins anew")]
    DamagedRotation { source: serde_json::Error },
    #[error(transparent)]
    ReadBack(#[from] ReadBackError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error("the work was interrupted; start again to continue")]
    Interrupted,
}

impl KeysError {
    fn sql(what: &str) -> impl FnOnce(SqlError) -> Self + use<> {
        let what = what.to_owned();
        move |source| Self::Sql { what, source }
    }
}
