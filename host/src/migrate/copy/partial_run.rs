//! A bounded run, for an operator who migrates in slices. Owns the count of what is done and what
//! is left; the copy is the same as without a bound, and the next run continues where it stopped.

use bbs_lens::layout::manifest::DataVersion;
use serde::Serialize;

use crate::migrate::look::unit_counts;
use crate::migrate::{Context, Decision, MigrateError, Work, state};

/// The result of a bounded run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Nothing is left to do.
    Done(Decision),
    Partial(PartialRun),
}

/// The progress of a migration that stopped at its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PartialRun {
    pub from: DataVersion,
    pub to: DataVersion,
    /// Units: all rows of one process guid, or of one task.
    pub total: u64,
    pub migrated: u64,
}

/// Counts the units of every table.
pub(crate) async fn all_units(context: &Context, work: &Work) -> Result<u64, MigrateError> {
    let mut all = 0;
    let mut reader = context.database.read().await?;
    for group in 0..work.lens.groups.len() {
        all += unit_counts::units(&mut reader, work, group, None).await?;
    }
    Ok(all)
}

/// Counts the units that are copied and all units, over everything that is copied.
pub(crate) async fn counted(context: &Context, work: &Work) -> Result<PartialRun, MigrateError> {
    let mut part = PartialRun {
        from: work.from,
        to: work.to,
        total: 0,
        migrated: 0,
    };
    for group in (0..work.lens.groups.len()).filter(|&group| work.walks(group)) {
        let cursor = state::cursor(context, group).await?;
        let mut reader = context.database.read().await?;
        part.total += unit_counts::units(&mut reader, work, group, None).await?;
        if cursor.is_some() {
            part.migrated += unit_counts::units(&mut reader, work, group, cursor.as_ref()).await?;
        }
    }
    Ok(part)
}
