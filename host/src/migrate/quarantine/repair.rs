//! Repair of units in quarantine: their content as JSON, a corrected content in its place, and
//! their removal for good. A corrected unit stays in quarantine until it is put back.

use bbs_database::Transaction;
use bbs_encryption::Keyring;
use bbs_lens::layout::schema::{Layout, Sealing};
use bbs_units::{RowLock, TableRows, UnitBatch, UnitKey, residue};
use sea_query::{Cond, Expr, ExprTrait};

use super::document::{QuarantineDocument, SealedValues};
use super::settled::{SettledTransaction, WriteMode};
use super::unit::UnitFlaw;
use super::{
    FOREIGN, QuarantineContent, QuarantineEntry, damaged, entries, is_there, kept, put, remove,
    unit,
};
use crate::lock::fence::Fence;
use crate::migrate::look::layout_read_in;
use crate::migrate::state::history_pair::HistoryPair;
use crate::migrate::{Context, MigrateError};

/// Begins the reason of an entry whose content was replaced since the failure.
const CORRECTED: &str = "content corrected; before: ";

impl QuarantineContent {
    /// The content of an entry, opened.
    ///
    /// # Errors
    /// A part of it does not open.
    pub(super) fn opened(
        &self,
        entry: &QuarantineEntry,
        keyring: &Keyring,
    ) -> Result<Vec<u8>, MigrateError> {
        let mut bytes = Vec::new();
        for part in &self.sealed {
            let part =
                keyring
                    .open(Sealing::Sealed, part)
                    .map_err(|source| MigrateError::Record {
                        unit: entry.unit.clone(),
                        table: super::QUARANTINE.to_owned(),
                        column: "sealed".to_owned(),
                        source,
                    })?;
            bytes.extend(part);
        }
        Ok(bytes)
    }

    /// The rows of an entry of a layout, as the database stores them.
    ///
    /// # Errors
    /// It does not open, or has not the form of such rows.
    pub(super) fn rows(
        &self,
        entry: &QuarantineEntry,
        layout: &Layout,
        keyring: &Keyring,
    ) -> Result<UnitBatch, MigrateError> {
        let bytes = self.opened(entry, keyring)?;
        unit::decode(&bytes, self.key.clone(), layout, keyring).map_err(|flaw| match flaw {
            UnitFlaw::Damaged => damaged(&entry.unit),
            UnitFlaw::NoValue { table, column } => MigrateError::NoValueInQuarantine {
                unit: entry.unit.clone(),
                table,
                column,
            },
        })
    }
}

/// The unit of an entry of a layout, as the database stores it.
///
/// # Errors
/// The entry is damaged or does not open, or the database fails.
pub(in crate::migrate) async fn unit_of(
    tx: &mut Transaction,
    context: &Context,
    entry: &QuarantineEntry,
    layout: &Layout,
) -> Result<UnitBatch, MigrateError> {
    let content = kept(tx, entry, RowLock::None).await?;
    content.rows(entry, layout, &context.keyring)
}

/// The entries of a unit with their content, oldest first. May run beside a serving host.
///
/// # Errors
/// The unit is not in quarantine, an entry does not open, is damaged or of an unknown version, or
/// the database fails.
pub async fn export(
    context: &Context,
    unit: &str,
    sealed: SealedValues,
) -> Result<Vec<QuarantineDocument>, MigrateError> {
    let mut tx = context.database.read().await?;
    let mut documents = Vec::new();
    for entry in entries(&mut tx)
        .await?
        .iter()
        .filter(|entry| entry.unit == unit)
    {
        let content = kept(&mut tx, entry, RowLock::None).await?;
        documents.push(if entry.table == FOREIGN {
            QuarantineDocument::of_foreign(entry, &content.opened(entry, &context.keyring)?, sealed)
        } else {
            let layout = layout_of(context, &mut tx, entry).await?;
            let rows = content.rows(entry, &layout, &context.keyring)?;
            QuarantineDocument::of(entry, &rows, &layout, &context.keyring, sealed)
        });
    }
    if documents.is_empty() {
        return Err(MigrateError::NotInQuarantine {
            unit: unit.to_owned(),
        });
    }
    Ok(documents)
}

/// Puts corrected contents in the place of those of their entries, sealed with the active key, in
/// one transaction.
///
/// # Errors
/// A document is of no entry, or cannot take the place of its content; then nothing is written. The
/// catalog lacks a module that ran, or has another in its place; a migration is under way, records
/// are sealed under another key than the active one, another host has raised the fence, or the
/// database fails.
pub async fn import(
    context: &Context,
    fence: &Fence,
    documents: &[QuarantineDocument],
    mode: WriteMode,
) -> Result<Vec<QuarantineEntry>, MigrateError> {
    let mut settled = SettledTransaction::begin_to_seal(context, fence).await?;
    let tx = &mut settled.tx;
    layout_read_in(context, tx, settled.current).await?;
    let keyring = &*context.keyring;
    let waiting = entries(tx).await?;
    let mut imported = Vec::new();
    for document in documents {
        let refused = |faults| MigrateError::NotCorrected {
            unit: document.unit.clone(),
            faults,
        };
        let known = || MigrateError::NotInQuarantine {
            unit: document.unit.clone(),
        };
        let entry = waiting
            .iter()
            .find(|entry| document.is_of(entry))
            .ok_or_else(known)?;
        if entry.table == FOREIGN {
            return Err(refused(vec![
                "it is a record of etcd, which has it still; correct it there".to_owned(),
            ]));
        }
        let content = kept(tx, entry, RowLock::Exclusive).await?;
        let key = content.key.clone();
        let layout = layout_of(context, tx, entry).await?;
        let before = content.rows(entry, &layout, keyring)?;
        let corrected = document
            .corrected(&before, &layout, keyring, tx.dialect())
            .map_err(refused)?;
        if entry.is_of_a_serving_host() && corrected.rows() != 1 {
            return Err(refused(vec!["it is of a single row".to_owned()]));
        }
        let count = |(name, rows): (&String, &TableRows)| (name.clone(), rows.count() as u64);
        let before = entry.reason.trim_start_matches(CORRECTED);
        let entry = QuarantineEntry {
            rows: corrected.tables.iter().map(count).collect(),
            reason: format!("{CORRECTED}{before}"),
            ..entry.clone()
        };
        let content = unit::encode(&corrected, &layout, keyring);
        put(tx, keyring, &entry, &key, &content).await?;
        imported.push(entry);
    }
    settled.end(mode).await?;
    Ok(imported)
}

/// Removes all entries of these units for good, and what steps have left of a unit that is in no
/// table.
///
/// # Errors
/// A unit is not in quarantine; then nothing is removed. The catalog lacks a module that ran, or has
/// another in its place; a migration is under way, another host has raised the fence, or the
/// database fails.
pub async fn delete(
    context: &Context,
    fence: &Fence,
    units: &[String],
    mode: WriteMode,
) -> Result<Vec<QuarantineEntry>, MigrateError> {
    let mut settled = SettledTransaction::begin(fence).await?;
    let tx = &mut settled.tx;
    let layout = layout_read_in(context, tx, settled.current).await?;
    let waiting = entries(tx).await?;
    if let Some(unit) = units
        .iter()
        .find(|unit| waiting.iter().all(|entry| entry.unit != **unit))
    {
        return Err(MigrateError::NotInQuarantine { unit: unit.clone() });
    }
    let removed = waiting.into_iter();
    let removed: Vec<_> = removed
        .filter(|entry| units.contains(&entry.unit))
        .collect();
    for entry in &removed {
        let key = kept(tx, entry, RowLock::Exclusive).await?.key;
        remove(tx, entry).await?;
        // By the key: the name of a row that a host could not read has more than that.
        let others = Cond::all().add(Expr::col("unit_key").eq(key.to_text()));
        // No step has seen a record of another store.
        let may_have_residue = entry.table != FOREIGN && !is_there(tx, others).await?;
        if may_have_residue && !is_in_a_table(tx, &layout, &key).await? {
            residue::remove(tx, &[key.name()], Cond::all()).await?;
        }
    }
    settled.end(mode).await?;
    Ok(removed)
}

/// Whether a table has rows of this unit, or of one of its name: residue is of a name, which a text
/// and a number may share.
async fn is_in_a_table(
    tx: &mut Transaction,
    layout: &Layout,
    key: &UnitKey,
) -> Result<bool, MigrateError> {
    for table in layout.tables.values() {
        let columns = bbs_units::unit_key(table);
        if let Some(key) = key.fitted(&columns)
            && !bbs_units::units_among(tx, table, &table.name, &[key])
                .await?
                .is_empty()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn layout_of(
    context: &Context,
    tx: &mut Transaction,
    entry: &QuarantineEntry,
) -> Result<Layout, MigrateError> {
    let unknown = MigrateError::UnknownVersion {
        version: entry.from,
    };
    let histories = HistoryPair::since(context, tx, entry.from, entry.at_ns).await?;
    Ok(histories.ran.at(entry.from).ok_or(unknown)?.clone())
}
