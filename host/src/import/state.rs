//! The import in the database: `bbs_import` has one row, from the first write of an import on.

use bbs_database::{Database, StatementResult, Transaction, schema, signed, sql, upsert};
use serde::Serialize;

use super::ImportError;
use super::fingerprint::StoreFingerprint;
use super::report::ImportReport;
use crate::migrate::IMPORT;

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImportPhase {
    /// The tables are being filled. The next start drops them and begins anew.
    Copying,
    /// Everything is in the database, which has its version. No client was served.
    Copied,
    /// The same, and clients may have written since. The mark in etcd is still missing.
    Served,
    /// The mark is in etcd.
    Marked,
}

impl ImportPhase {
    const ALL: [Self; 4] = [Self::Copying, Self::Copied, Self::Served, Self::Marked];

    fn name(self) -> &'static str {
        match self {
            Self::Copying => "copying",
            Self::Copied => "copied",
            Self::Served => "served",
            Self::Marked => "marked",
        }
    }
}

/// The row of `bbs_import`.
#[derive(Debug, Clone)]
pub struct ImportState {
    pub phase: ImportPhase,
    /// The store as it was read.
    pub fingerprint: StoreFingerprint,
    pub report: ImportReport,
}

/// The import of this database, if one has begun.
///
/// # Errors
/// The database cannot be read, or the row is damaged.
pub async fn read(database: &Database) -> Result<Option<ImportState>, ImportError> {
    let mut tx = database.read().await?;
    if !schema::exists(&mut tx, IMPORT).await.about(IMPORT)? {
        return Ok(None);
    }
    let select = sql(
        "SELECT phase, cluster_id, etcd_index, version_index, fingerprint, report FROM bbs_import WHERE id = 1",
    );
    let Some(row) = tx.fetch_optional(select).await.about(IMPORT)? else {
        return Ok(None);
    };
    let text = |at: usize| row.owned_text(at).about(IMPORT);
    let number = |at: usize| row.unsigned(at).about(IMPORT);
    let phase = text(0)?;
    let phase = ImportPhase::ALL
        .into_iter()
        .find(|known| known.name() == phase)
        .ok_or(ImportError::Damaged)?;
    let fingerprint = StoreFingerprint {
        cluster_id: text(1)?,
        index: number(2)?,
        version_index: Some(number(3)?).filter(|index| *index > 0),
        digest: text(4)?,
    };
    let report = serde_json::from_str(&text(5)?).map_err(|_| ImportError::Damaged)?;
    Ok(Some(ImportState {
        phase,
        fingerprint,
        report,
    }))
}

pub(super) async fn write(tx: &mut Transaction, state: &ImportState) -> Result<(), ImportError> {
    let StoreFingerprint {
        cluster_id,
        index,
        version_index,
        digest,
    } = &state.fingerprint;
    let values = [
        ("phase", state.phase.name().into()),
        ("cluster_id", cluster_id.as_str().into()),
        ("etcd_index", signed(*index).into()),
        (
            "version_index",
            signed(version_index.unwrap_or_default()).into(),
        ),
        ("fingerprint", digest.as_str().into()),
        (
            "report",
            serde_json::to_string(&state.report)
                .expect("counts and names")
                .into(),
        ),
    ];
    let written = upsert(IMPORT, [("id", 1_i64.into())], values);
    tx.execute(&written).await.about(IMPORT)?;
    Ok(())
}

/// Records how far the import is.
pub async fn write_phase(tx: &mut Transaction, phase: ImportPhase) -> Result<(), ImportError> {
    let update = sql("UPDATE bbs_import SET phase = ? WHERE id = 1").bind(phase.name());
    tx.execute(update).await.about(IMPORT)?;
    Ok(())
}
