//! Transactions that change entries of the quarantine beside a serving host: under the current
//! fence, and only while no migration is under way, whose units are in their tables, too.

use bbs_database::{StatementResult, Transaction};
use bbs_lens::layout::manifest::DataVersion;

use super::QUARANTINE;
use crate::lock::fence::Fence;
use crate::migrate::state::{self, Phase, current_of};
use crate::migrate::{MigrateError, found};

/// Whether a transaction that changes entries is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// It is.
    Real,
    /// It is rolled back: only the result matters.
    DryRun,
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
        state::lock_version(&mut tx, fence.is_in_cluster()).await?;
        let underway = state::underway(&mut tx).await?;
        if underway.is_some_and(|underway| underway.phase != Phase::CleaningUp) {
            return Err(MigrateError::QuarantineUnderway);
        }
        let current = current_of(&found::read(&mut tx).await?);
        Ok(Self { tx, current })
    }

    /// Ends it as the mode says.
    ///
    /// # Errors
    /// The database fails.
    pub(super) async fn end(self, mode: WriteMode) -> Result<(), MigrateError> {
        if mode == WriteMode::Real {
            self.tx.commit().await.about(QUARANTINE)?;
        }
        Ok(())
    }
}
