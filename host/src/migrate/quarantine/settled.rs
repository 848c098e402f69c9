//! Transactions that change entries of the quarantine beside a serving host: under the current
//! fence, with the key of that host where they seal, and only while no migration is under way, whose units are in
//! their tables, too.

use bbs_database::{StatementResult, Transaction, sql};
use bbs_lens::layout::manifest::{DataVersion, Direction};

use super::QUARANTINE;
use crate::lock::fence::Fence;
use crate::migrate::state::{self, current_of, found};
use crate::migrate::{Context, MigrateError};

/// Whether a transaction that changes entries is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// It is.
    Real,
    /// It is rolled back: only the result matters.
    DryRun,
}

/// Requires that no migration is under way. One that only has tables to drop changes no unit.
///
/// # Errors
/// [`MigrateError::QuarantineUnderway`], or the database cannot be read.
pub(super) async fn require_settled(tx: &mut Transaction) -> Result<(), MigrateError> {
    match state::underway(tx).await? {
        Some(underway) if !underway.phase.is_clean_up() => Err(MigrateError::QuarantineUnderway {
            direction: Direction::between(underway.from, underway.to),
            to: underway.to,
            phase: underway.phase.name(),
            has_arrived: underway.phase.has_arrived(),
        }),
        _ => Ok(()),
    }
}

/// An open transaction on a database that no migration changes.
pub(super) struct SettledTransaction {
    pub(super) tx: Transaction,
    /// The version of the database.
    pub(super) current: DataVersion,
}

impl SettledTransaction {
    /// Begins one.
    ///
    /// # Errors
    /// A migration is under way, another host has raised the fence, or the database fails.
    pub(super) async fn begin(fence: &Fence) -> Result<Self, MigrateError> {
        let mut tx = fence.begin().await?;
        // A serving host begins one when it is reloaded: what is written here would not be copied.
        // Nor does a rotation begin or end meanwhile.
        state::lock_version(&mut tx, fence.is_in_cluster()).await?;
        require_settled(&mut tx).await?;
        let current = current_of(&found::read(&mut tx).await?);
        Ok(Self { tx, current })
    }

    /// Begins one that seals values with the active key. No rotation looks for a text under another
    /// key once its proof is made: with the key out of the configuration, a host would find the text
    /// unreadable.
    ///
    /// # Errors
    /// As of [`Self::begin`]; records are sealed under another key than the active one.
    pub(super) async fn begin_to_seal(
        context: &Context,
        fence: &Fence,
    ) -> Result<Self, MigrateError> {
        let mut settled = Self::begin(fence).await?;
        let active = context.keyring.active_label();
        if let Some(label) = sealing_label(&mut settled.tx).await?
            && label != active
        {
            let active = active.to_owned();
            return Err(MigrateError::OtherActiveKey { label, active });
        }
        Ok(settled)
    }

    /// Ends it as the mode says.
    pub(super) async fn end(self, mode: WriteMode) -> Result<(), MigrateError> {
        if mode == WriteMode::Real {
            self.tx.commit().await.about(QUARANTINE)?;
        }
        Ok(())
    }
}

/// The label of the key that records are sealed under: all of them, or those that a rotation has
/// reached. None before the first start of a host on a database that has no label: that start
/// begins a rotation.
async fn sealing_label(tx: &mut Transaction) -> Result<Option<String>, MigrateError> {
    const ROTATION: &str = "bbs_key_rotation";
    if let Some(label) = state::encryption_key_label(tx).await? {
        return Ok(Some(label));
    }
    if !state::exists(tx, ROTATION).await? {
        return Ok(None);
    }
    let select = sql("SELECT label FROM bbs_key_rotation WHERE id = 1");
    let Some(row) = tx.fetch_optional(select).await.about(ROTATION)? else {
        return Ok(None);
    };
    Ok(Some(row.owned_text(0).about(ROTATION)?))
}
