//! The storing of entries, with their content in sealed parts.

use bbs_database::{StatementResult, Transaction, refused_characters, signed, upsert};
use bbs_encryption::Keyring;
use bbs_files::digest::digest_of;
use bbs_lens::layout::schema::Sealing;
use bbs_units::UnitKey;
use sea_query::{Query, Value};

use super::reason::ascii;
use super::{FOREIGN, QUARANTINE, QUARANTINE_PART, QuarantineEntry, of};
use crate::migrate::MigrateError;

/// The longest part of a unit's content that is sealed and stored as one text: servers limit the
/// size of a statement (16 MiB by default on MariaDB), not that of a unit.
const PART_BYTES: usize = 1 << 20;

/// Stores an entry with its content, in the place of an earlier one. Where the database has no
/// characters of its texts, these are escaped: the reason of a module, and the key of a record of
/// another store.
pub(super) async fn put(
    tx: &mut Transaction,
    keyring: &Keyring,
    entry: &QuarantineEntry,
    key: &UnitKey,
    bytes: &[u8],
) -> Result<(), MigrateError> {
    match put_parts(tx, keyring, entry, key, bytes).await {
        Err(MigrateError::Sql { source, .. }) if refused_characters(&source).is_some() => {
            let mut entry = entry.clone();
            entry.reason = ascii(&entry.reason);
            if entry.table == FOREIGN {
                entry.unit = ascii(&entry.unit);
            }
            put_parts(tx, keyring, &entry, key, bytes).await
        }
        put => put,
    }
}

async fn put_parts(
    tx: &mut Transaction,
    keyring: &Keyring,
    entry: &QuarantineEntry,
    key: &UnitKey,
    bytes: &[u8],
) -> Result<(), MigrateError> {
    let (first, rest) = first_and_rest(bytes);
    let rows = serde_json::to_string(&entry.rows).expect("names and numbers");
    let values = [
        ("unit", entry.unit.as_str().into()),
        ("unit_key", key.to_text().into()),
        ("to_version", signed(entry.to).into()),
        ("version", signed(entry.version).into()),
        ("direction", entry.direction.to_string().into()),
        ("module", entry.module.as_str().into()),
        ("digest", entry.digest.as_str().into()),
        ("reason", entry.reason.as_str().into()),
        ("row_counts", rows.into()),
        ("at_ns", entry.at_ns.into()),
        ("pending", entry.pending.into()),
        ("sealed", sealed(keyring, first).into()),
    ];
    tx.execute(&upsert(QUARANTINE, place_of(entry), values))
        .await
        .about(QUARANTINE)?;
    replace_parts(tx, keyring, entry, rest).await
}

/// Puts another content in the place of that of an entry, whose row the transaction has locked.
pub(super) async fn put_content(
    tx: &mut Transaction,
    keyring: &Keyring,
    entry: &QuarantineEntry,
    bytes: &[u8],
) -> Result<(), MigrateError> {
    let (first, rest) = first_and_rest(bytes);
    let mut update = Query::update();
    update
        .table(QUARANTINE)
        .value("sealed", sealed(keyring, first))
        .cond_where(of(entry));
    tx.execute(&update).await.about(QUARANTINE)?;
    replace_parts(tx, keyring, entry, rest).await
}

/// The part of a content that its entry has, and that for the table of parts.
fn first_and_rest(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.len().min(PART_BYTES))
}

fn sealed(keyring: &Keyring, part: &[u8]) -> String {
    String::from_utf8(keyring.seal(Sealing::Sealed, part)).expect("sealed text is ASCII")
}

/// The key of an entry.
fn place_of(entry: &QuarantineEntry) -> [(&'static str, Value); 3] {
    [
        ("unit_digest", digest_of(entry.unit.as_bytes()).into()),
        ("table_name", entry.table.as_str().into()),
        ("from_version", signed(entry.from).into()),
    ]
}

async fn replace_parts(
    tx: &mut Transaction,
    keyring: &Keyring,
    entry: &QuarantineEntry,
    rest: &[u8],
) -> Result<(), MigrateError> {
    let mut delete = Query::delete();
    delete.from_table(QUARANTINE_PART).cond_where(of(entry));
    tx.execute(&delete).await.about(QUARANTINE)?;
    for (number, part) in (1_i64..).zip(rest.chunks(PART_BYTES)) {
        let [digest, table, from] = place_of(entry);
        let key = [digest, table, from, ("part", number.into())];
        tx.execute(&upsert(
            QUARANTINE_PART,
            key,
            [("sealed", sealed(keyring, part).into())],
        ))
        .await
        .about(QUARANTINE)?;
    }
    Ok(())
}
