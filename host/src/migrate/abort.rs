//! Giving up a migration that has begun, in either direction: the database stays at its version,
//! and the copies are removed. Only before the cut-over, up to which tables that are copied are
//! untouched.

use bbs_database::StatementResult;
use bbs_lens::layout::manifest::{DataVersion, Direction};
use serde::Serialize;

use super::state::{self, Phase, Underway, own_tables, runs};
use super::{Context, MigrateError, cut_over, undo_abandoned};
use crate::lock::fence::Fence;

/// A migration that is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GivenUp {
    /// The version that the database stays at.
    pub from: DataVersion,
    /// The version that it was on its way to.
    pub to: DataVersion,
}

/// The migration that [`abort`] would give up; `None` if none has begun. Reads only.
///
/// # Errors
/// [`MigrateError::Complete`] after the cut-over, [`MigrateError::NothingToStayAt`] in an empty
/// database, or the database cannot be read.
pub async fn abortable(context: &Context) -> Result<Option<GivenUp>, MigrateError> {
    Ok(underway(context).await?.map(|(_, given_up)| given_up))
}

async fn underway(context: &Context) -> Result<Option<(Underway, GivenUp)>, MigrateError> {
    let mut reader = context.database.read().await?;
    let Some(found) = state::underway(&mut reader).await? else {
        return Ok(None);
    };
    let Underway {
        from, to, phase, ..
    } = found;
    if phase.has_arrived() {
        return Err(MigrateError::Complete {
            from,
            to,
            back: Direction::between(to, from),
        });
    }
    if from == 0 {
        return Err(MigrateError::NothingToStayAt);
    }
    // Another BBS may have migrated the database since, which left the record of this migration.
    let row = state::version_row(&mut reader).await?;
    let stays_at = row.map_or(from, |row| row.current_version);
    Ok(Some((found, GivenUp { from: stays_at, to })))
}

/// Gives up the migration that has begun. Safe to repeat: a start at the version of the database
/// completes it, too.
///
/// # Errors
/// As [`abortable`]; another host has raised the fence.
pub async fn abort(context: &Context, fence: &Fence) -> Result<Option<GivenUp>, MigrateError> {
    let Some((found, given_up)) = underway(context).await? else {
        return Ok(None);
    };
    // A host of a release without the history may have begun it.
    own_tables::create(context, fence).await?;
    // The copies must not be resumed, and no host may go on, once the first of them is dropped.
    let mut tx = fence.begin().await?;
    runs::give_up(&mut tx, context, &found).await?;
    let ended = Underway {
        phase: Phase::Begun,
        going_down: false,
        ..found
    };
    state::write_underway(&mut tx, &ended).await?;
    state::write_version(&mut tx, given_up.from, given_up.from).await?;
    tx.commit()
        .await
        .about("the row `version` of configurations")?;
    undo_abandoned(context, fence, &ended).await?;
    cut_over::remove_undone(context, fence, &ended).await?;
    Ok(Some(given_up))
}
