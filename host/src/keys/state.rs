//! The rows of a rotation in the database: the label in `configurations`, and its state in
//! `bbs_key_rotation` and `bbs_key_rotation_table`. Owns these rows; every function runs in the
//! caller's transaction.

use std::collections::BTreeSet;

use bbs_database::{StatementResult, Transaction, schema, signed, sql, upsert};
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::{ColumnType, Table};
use bbs_units::UnitKey;
use serde::Serialize;

use super::KeysError;
use super::tables::SealedTable;
use crate::migrate::own_table;

const LABEL: &str = "encryption_key_label";
const ROTATION: &str = "bbs_key_rotation";
const CURSOR: &str = "bbs_key_rotation_table";

/// The stored state of a rotation that has begun and is not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RotationState {
    /// The label of the new key.
    pub label: String,
    /// The labels that texts may be under until the rotation is complete.
    pub labels: BTreeSet<String>,
    /// The data version of the tables that the cursors belong to.
    pub data_version: DataVersion,
    pub started_at_ns: i64,
    /// When the last batch was written.
    pub moved_at_ns: i64,
    /// Rows rewritten since it began, across restarts.
    pub rewritten: u64,
}

/// The position of a rotation in a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TableCursor {
    pub table: String,
    /// The primary key of the last row that was read, as JSON.
    pub last_key: String,
}

/// The host's own tables for a rotation.
pub fn tables() -> [Table; 2] {
    const NUMBER: ColumnType = ColumnType::BigInteger;
    const TEXT: ColumnType = ColumnType::LongText;
    let rotation = [
        ("id", NUMBER),
        ("label", TEXT),
        ("labels", TEXT),
        ("data_version", NUMBER),
        ("started_at_ns", NUMBER),
        ("moved_at_ns", NUMBER),
        ("rewritten", NUMBER),
    ];
    let cursor = [("table_name", ColumnType::Varchar(255)), ("last_key", TEXT)];
    [
        own_table(ROTATION, &["id"], &rotation),
        own_table(CURSOR, &["table_name"], &cursor),
    ]
}

pub(super) async fn exists(tx: &mut Transaction, table: &str) -> Result<bool, KeysError> {
    Ok(schema::exists(tx, table).await.about(table)?)
}

/// The label of the key that everything is sealed under, but for rows that a rotation by Diego's
/// BBS has left out; none during a rotation or without the table.
pub(super) async fn label(tx: &mut Transaction) -> Result<Option<String>, KeysError> {
    if !exists(tx, "configurations").await? {
        return Ok(None);
    }
    let row = tx
        .fetch_optional(sql("SELECT value FROM configurations WHERE id = ?").bind(LABEL))
        .await;
    let Some(row) = row.about(LABEL)? else {
        return Ok(None);
    };
    Ok(row.text(0).about(LABEL)?.map(str::to_owned))
}

pub(super) async fn delete_label(tx: &mut Transaction) -> Result<(), KeysError> {
    let delete = sql("DELETE FROM configurations WHERE id = ?").bind(LABEL);
    tx.execute(delete).await.about(LABEL)?;
    Ok(())
}

/// Writes the label and deletes the state of the rotation, which is then complete.
pub(super) async fn write_label(tx: &mut Transaction, label: &str) -> Result<(), KeysError> {
    let written = upsert(
        "configurations",
        [("id", LABEL.into())],
        [("value", label.into())],
    );
    tx.execute(&written).await.about(LABEL)?;
    delete_cursors(tx).await?;
    let delete = sql("DELETE FROM bbs_key_rotation");
    tx.execute(delete).await.about(ROTATION)?;
    Ok(())
}

pub(super) async fn underway(tx: &mut Transaction) -> Result<Option<RotationState>, KeysError> {
    if !exists(tx, ROTATION).await? {
        return Ok(None);
    }
    let select = sql(
        "SELECT label, labels, data_version, started_at_ns, moved_at_ns, rewritten FROM bbs_key_rotation WHERE id = 1",
    );
    let Some(row) = tx.fetch_optional(select).await.about(ROTATION)? else {
        return Ok(None);
    };
    let labels = row.text_or_empty(1).about(ROTATION)?;
    let labels =
        serde_json::from_str(labels).map_err(|source| KeysError::DamagedRotation { source })?;
    Ok(Some(RotationState {
        label: row.owned_text(0).about(ROTATION)?,
        labels,
        data_version: row.unsigned(2).about(ROTATION)?,
        started_at_ns: row.integer_or_zero(3).about(ROTATION)?,
        moved_at_ns: row.integer_or_zero(4).about(ROTATION)?,
        rewritten: row.unsigned(5).about(ROTATION)?,
    }))
}

pub(super) async fn write_underway(
    tx: &mut Transaction,
    underway: &RotationState,
) -> Result<(), KeysError> {
    let written = upsert(
        ROTATION,
        [("id", 1_i64.into())],
        [
            ("label", underway.label.as_str().into()),
            (
                "labels",
                serde_json::to_string(&underway.labels)
                    .expect("a set of text")
                    .into(),
            ),
            ("data_version", signed(underway.data_version).into()),
            ("started_at_ns", underway.started_at_ns.into()),
            ("moved_at_ns", underway.moved_at_ns.into()),
            ("rewritten", signed(underway.rewritten).into()),
        ],
    );
    tx.execute(&written).await.about(ROTATION)?;
    Ok(())
}

/// Moves a table's cursor past a batch and adds to the rows rewritten.
pub(super) async fn advance(
    tx: &mut Transaction,
    table: &SealedTable,
    last: &UnitKey,
    rewritten: u64,
    now_ns: i64,
) -> Result<(), KeysError> {
    let cursor = upsert(
        CURSOR,
        [("table_name", table.name.as_str().into())],
        [("last_key", last.to_json(&table.key).into())],
    );
    tx.execute(&cursor).await.about(CURSOR)?;
    let moved =
        sql("UPDATE bbs_key_rotation SET rewritten = rewritten + ?, moved_at_ns = ? WHERE id = 1")
            .bind(signed(rewritten))
            .bind(now_ns);
    tx.execute(moved).await.about(ROTATION)?;
    Ok(())
}

pub(super) async fn cursors(tx: &mut Transaction) -> Result<Vec<TableCursor>, KeysError> {
    if !exists(tx, CURSOR).await? {
        return Ok(Vec::new());
    }
    let select = sql("SELECT table_name, last_key FROM bbs_key_rotation_table ORDER BY table_name");
    let cursors = tx.fetch_as(select, |row| {
        Ok(TableCursor {
            table: row.owned_text(0)?,
            last_key: row.owned_text(1)?,
        })
    });
    Ok(cursors.await.about(CURSOR)?)
}

pub(super) async fn delete_cursors(tx: &mut Transaction) -> Result<(), KeysError> {
    let delete = sql("DELETE FROM bbs_key_rotation_table");
    tx.execute(delete).await.about(CURSOR)?;
    Ok(())
}
