//! The state of a database, from which a start is decided: its version, and how it came there.
//! Reads only.

use bbs_database::{Database, Transaction};
use bbs_lens::layout::manifest::{DataVersion, Direction};

use super::{Phase, runs};
use crate::migrate::decide::Found;
use crate::migrate::{MigrateError, state};

/// The version of a database, and how it came there. Reads only.
///
/// # Errors
/// The database fails, or its version entry is damaged.
pub async fn found(database: &Database) -> Result<Found, MigrateError> {
    read(&mut database.read().await?).await
}

/// The input of [`decide`](crate::migrate::decide()). Reads only.
///
/// # Errors
/// As of [`found`].
pub async fn read(tx: &mut Transaction) -> Result<Found, MigrateError> {
    let row = state::version_row(tx).await?;
    // Diego writes version 0 before its first migration: no table exists yet.
    let Some(row) = row.filter(|row| row.current_version > 0) else {
        return found_without_version(tx).await;
    };
    let current = row.current_version;
    let underway = state::underway(tx).await?;
    let going_down = underway
        .filter(|found| found.going_down)
        .map(|found| found.to);
    let came_down = came_down(tx, current).await?;
    Ok(Found::Versioned {
        current,
        target: row.target_version.unwrap_or(current),
        going_down,
        came_down,
    })
}

/// The version of a database on which no migration is under way: a cut-over may be taken back, and
/// its version with it. Reads only.
///
/// # Errors
/// As of [`found`].
pub async fn settled_version(tx: &mut Transaction) -> Result<Option<DataVersion>, MigrateError> {
    let row = state::version_row(tx).await?;
    // After the version: if that is taken back in between, this is the phase before the cut-over.
    let phase = state::phase(tx).await?;
    let row = row.filter(|_| phase.is_none_or(Phase::is_clean_up));
    Ok(row.map(|row| row.current_version))
}

async fn found_without_version(tx: &mut Transaction) -> Result<Found, MigrateError> {
    let mut tables = Vec::new();
    for table in state::COUNTED_TABLES {
        if state::exists(tx, table).await? && state::count(tx, table).await? > 0 {
            tables.push(table.to_owned());
        }
    }
    Ok(if tables.is_empty() {
        Found::Fresh
    } else {
        Found::Unversioned { tables }
    })
}

/// Whether the last completed migration led down to the current version: it did so on record, or
/// its last step is reversed and above that version. If another BBS, which keeps no history, has
/// migrated up since, it is not.
async fn came_down(tx: &mut Transaction, current: DataVersion) -> Result<bool, MigrateError> {
    if runs::last_led_down_to(tx, current).await? {
        return Ok(true);
    }
    let history = state::history(tx).await?;
    let last = history.last();
    Ok(last.is_some_and(|ran| ran.direction == Direction::Down && ran.version > current))
}
