//! Records of another store in quarantine, which no table has a row for. They are never put back:
//! the other store still has them.

use bbs_database::Transaction;
use bbs_lens::layout::manifest::DataVersion;
use bbs_units::UnitKey;

use super::{QuarantineEntry, put};
use crate::migrate::{Context, MigrateError};

/// What an entry has instead of a table if its record is of another store.
pub(super) const FOREIGN: &str = "etcd";

/// A record of another store that cannot be imported.
#[derive(Debug, Clone, Copy)]
pub struct ForeignRecord<'a> {
    /// Its key there.
    pub key: &'a str,
    /// The process guid of a desired LRP that it is of: the instances go on meanwhile, as those of
    /// one that a serving host could not read.
    pub process_guid: Option<&'a str>,
    pub reason: &'a str,
    pub content: &'a [u8],
}

/// Stores a record of another store with the bytes that it has there.
pub async fn keep_foreign(
    tx: &mut Transaction,
    context: &Context,
    to: DataVersion,
    foreign: &ForeignRecord<'_>,
) -> Result<(), MigrateError> {
    let [unit, reason] = [foreign.key, foreign.reason].map(without_nul);
    let entry = QuarantineEntry {
        from: 0,
        ..QuarantineEntry::without_a_module(&unit, FOREIGN, to, &reason, context.now_ns)
    };
    let key = UnitKey::text(foreign.process_guid.unwrap_or(foreign.key));
    put(tx, &context.keyring, &entry, &key, foreign.content).await
}

/// A text with its NUL characters escaped. PostgreSQL has none in texts, and a statement with one
/// ends its transaction.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\\u{0}")
}
