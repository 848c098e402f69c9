//! Records of another store in quarantine, which no table has a row for. They are never put back:
//! the other store still has them.

use bbs_database::Transaction;
use bbs_lens::layout::manifest::DataVersion;
use bbs_units::UnitKey;

use super::{QuarantineEntry, put_content};
use crate::migrate::{Context, MigrateError};

/// What an entry has instead of a table if its record is of another store.
pub(super) const FOREIGN: &str = "etcd";

/// A record of another store that cannot be imported.
#[derive(Debug, Clone, Copy)]
pub struct ForeignRecord<'a> {
    /// Its key there.
    pub key: &'a str,
    pub reason: &'a str,
    pub content: &'a [u8],
}

/// Stores a record of another store with the bytes that it has there.
///
/// # Errors
/// The database fails.
pub async fn keep_foreign(
    tx: &mut Transaction,
    context: &Context,
    to: DataVersion,
    foreign: &ForeignRecord<'_>,
) -> Result<(), MigrateError> {
    let entry = QuarantineEntry {
        from: 0,
        ..QuarantineEntry::without_a_module(
            foreign.key,
            FOREIGN,
            to,
            foreign.reason,
            context.now_ns,
        )
    };
    put_content(
        tx,
        &context.keyring,
        &entry,
        &UnitKey::text(foreign.key),
        foreign.content,
    )
    .await
}
