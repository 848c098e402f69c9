//! Key rotation as part of a start: what is sealed in this database, when the label's promise is taken back, and the
//! rotation beside the served API. Owns what a failure of it means to the host; the work is `keys`'s.

use std::sync::Arc;
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};

use super::report::Report;
use super::{Prepared, StartupError};
use crate::clock::SystemClock;
use crate::keys::{self, KeysError, Rotated, Scope, Unfinished, WrongKey};
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Layout;
use crate::lock::fence::{Fence, FenceError};
use crate::migrate::{self, Found};
use crate::progress::SERVING;

/// A rotation that fails is tried again after this long, then after twice as long, and so on.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// About half an hour: what has not gone by then is left to the next start.
const RETRIES: usize = 35;

impl Prepared {
    /// What is sealed in the database as it is now.
    pub async fn sealed_as_found(&self) -> Result<Scope, StartupError> {
        match migrate::found(&self.database).await? {
            Found::Versioned { current, .. } => self.sealed_at(current).await,
            Found::Fresh | Found::Unversioned { .. } => self.sealed_in(0, &Layout::default()).await,
        }
    }

    /// What is sealed once the database is at a version.
    async fn sealed_at(&self, version: DataVersion) -> Result<Scope, StartupError> {
        match self.catalog.line().at(version) {
            Some(layout) => self.sealed_in(version, layout).await,
            // The migration refuses such a database, and says why.
            None => self.sealed_in(version, &Layout::default()).await,
        }
    }

    async fn sealed_in(&self, version: DataVersion, layout: &Layout) -> Result<Scope, StartupError> {
        let replays = Some(self.config.replay_dir.clone());
        Ok(Scope::find(&self.database, version, layout, &migrate::own_tables(), replays).await?)
    }

    fn keys_context(&self, scope: Scope) -> keys::Context {
        keys::Context {
            database: self.database.clone(),
            keyring: Arc::clone(&self.keyring),
            scope,
            progress: self.progress.clone(),
            pace: self.pace.clone(),
            clock: Arc::new(SystemClock),
        }
    }

    /// The keys of the configuration that open nothing of what is under their labels, as far as was tried.
    pub async fn wrong_keys(&self) -> Result<Vec<WrongKey>, StartupError> {
        let scope = self.sealed_as_found().await?;
        Ok(keys::wrong_keys(&self.database, &self.keyring, &scope).await?)
    }

    /// Refuses a database of which something is under a key that this host does not have, or has wrong. Writes nothing.
    pub async fn check_keys(&self) -> Result<(), StartupError> {
        let scope = self.sealed_as_found().await?;
        Ok(keys::check(&self.database, &self.keyring, &scope).await?)
    }

    /// Refuses a rotation for which the database or the keys are not ready. Reads only.
    pub async fn may_rotate(&self) -> Result<(), StartupError> {
        if migrate::is_between(&self.database).await? {
            return Err(StartupError::MigrationUnderWay);
        }
        self.check_keys().await
    }

    /// Before anything is sealed under the active key: the database promises no other one any more.
    pub(super) async fn begin_rotation(&self, fence: &Fence) -> Result<(), StartupError> {
        let context = self.keys_context(self.sealed_as_found().await?);
        keys::begin(&context, fence).await?;
        Ok(())
    }

    /// Brings everything under the active key, in a database that is not between two versions.
    pub async fn rotate(&self, fence: &Fence) -> Result<Rotated, StartupError> {
        self.may_rotate().await?;
        let active = self.keyring.active_label();
        if let Some(Unfinished { labels, rewritten }) = self.unfinished_rotation().await? {
            tracing::info!(
                name: "encryptor.encryption-started",
                active, ?labels, rewritten, "bringing everything under the active key; keep the other keys until it is done"
            );
        }
        let context = self.keys_context(self.sealed_as_found().await?);
        let rotated = keys::rotate(&context, fence).await?;
        if rotated.unreadable > 0 {
            tracing::error!(
                active,
                rewritten = rotated.rewritten,
                unreadable = rotated.unreadable,
                examples = ?rotated.examples,
                "records that do not open were kept under their old key; repair or remove them and start again"
            );
        } else {
            tracing::info!(
                name: "encryptor.finished",
                active,
                rewritten = rotated.rewritten,
                "everything is under the active key"
            );
        }
        Ok(rotated)
    }

    pub(super) async fn unfinished_rotation(&self) -> Result<Option<Unfinished>, KeysError> {
        keys::unfinished(&self.database, &self.keyring).await
    }

    /// The same beside the served API. A host that is not the master any more has to end; whatever else goes wrong
    /// is told and tried again, and then left to the next start.
    pub(super) async fn rotate_beside(&self, fence: &Fence, report: &Report) -> Result<(), StartupError> {
        let began = Instant::now();
        let backoff = ExponentialBuilder::default()
            .with_min_delay(FIRST_RETRY)
            .with_max_delay(LONGEST_RETRY)
            .with_max_times(RETRIES);
        let rotated = (async || self.rotate(fence).await)
            .retry(backoff)
            .when(|error| !is_lost(error))
            .notify(|error, delay| {
                let source = std::error::Error::source(error).map(ToString::to_string);
                tracing::warn!(%error, source, ?delay, "the key rotation failed and will be tried again");
            })
            .await;
        self.progress.enter(SERVING, "", None);
        match rotated {
            Ok(rotated) => {
                if rotated.was_due {
                    report.encrypted(began.elapsed());
                }
                Ok(())
            }
            Err(error) if is_lost(&error) => Err(error),
            Err(error) => {
                tracing::error!(%error, "the key rotation is left to the next start; records open under every key");
                Ok(())
            }
        }
    }
}

pub(super) fn is_lost(error: &StartupError) -> bool {
    matches!(error, StartupError::Keys(KeysError::Fence(FenceError::Lost { .. })))
}
