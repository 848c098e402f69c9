//! Key rotation within a start: the scope of sealed data in this database, the withdrawal of the
//! label in `configurations`, and the rotation in the background of the served API. Owns the
//! consequences of a failure; the work is done by `keys`.

use std::sync::Arc;
use std::time::Instant;

use backon::Retryable;
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::Layout;
use bbs_work::causes::with_causes;
use bbs_work::pauses;

use super::report::MetricsReporter;
use super::{Prepared, StartupError};
use crate::clock::SystemClock;
use crate::keys::{self, KeysError, Rotated, SealedScope, Unfinished, WrongKey};
use crate::lock::fence::Fence;
use crate::migrate::{self, Found, MigrateError, Reason};

/// About half an hour; after that, the next start retries.
const RETRIES: usize = 35;

impl Prepared {
    /// The sealed data of the database at its present version.
    ///
    /// # Errors
    /// The database fails, or its version entry is damaged.
    pub async fn sealed_as_found(&self) -> Result<SealedScope, StartupError> {
        match migrate::found(&self.database).await? {
            Found::Versioned { current, .. } => {
                // What the catalog has inserted has not run yet. The migration refuses a database
                // of an unknown version, or of other modules, with a specific error.
                let layout = match migrate::layouts_that_ran(&self.context()).await {
                    Ok(layouts) => layouts.at(current).cloned().unwrap_or_default(),
                    Err(MigrateError::Layout(_)) => Layout::default(),
                    Err(fault) => return Err(fault.into()),
                };
                self.sealed_in(current, &layout).await
            }
            // The import removes the rows of an earlier attempt unread. The record of an import that
            // contradicts the database is refused by the examination, not here.
            Found::Fresh | Found::Unversioned { .. }
                if self.is_import_due().await.unwrap_or_default() =>
            {
                Ok(SealedScope {
                    data_version: 0,
                    tables: Vec::new(),
                })
            }
            Found::Fresh | Found::Unversioned { .. } => self.sealed_in(0, &Layout::default()).await,
        }
    }

    /// The sealed data of the database, for statements about all of it: that a key is unused, or
    /// that everything is under one. Columns of a module that is missing here would be left out.
    ///
    /// # Errors
    /// [`StartupError::UnknownLayout`] or [`StartupError::NoLayout`]; or the database fails.
    pub async fn known_sealed(&self) -> Result<SealedScope, StartupError> {
        match migrate::found(&self.database).await? {
            Found::Versioned { current, .. } => {
                let layout = migrate::layout_that_ran(&self.context(), current)
                    .await
                    .map_err(StartupError::UnknownLayout)?;
                self.sealed_in(current, &layout).await
            }
            Found::Unversioned { tables } => {
                Err(StartupError::NoLayout(Reason::Unversioned { tables }))
            }
            Found::Fresh => self.sealed_in(0, &Layout::default()).await,
        }
    }

    async fn sealed_in(
        &self,
        version: DataVersion,
        layout: &Layout,
    ) -> Result<SealedScope, StartupError> {
        Ok(SealedScope::find(&self.database, version, layout, &migrate::own_tables()).await?)
    }

    fn keys_context(&self, scope: SealedScope) -> keys::RotationContext {
        keys::RotationContext {
            database: self.database.clone(),
            keyring: Arc::clone(&self.keyring),
            scope,
            progress: self.progress.clone(),
            lock_timeout: self.lock_waits().timeout,
            throttle: self.throttle.clone(),
            clock: Arc::new(SystemClock),
        }
    }

    /// The configured keys that do not open a sample of the texts under their labels.
    pub async fn wrong_keys(&self) -> Result<Vec<WrongKey>, StartupError> {
        let scope = self.sealed_as_found().await?;
        Ok(keys::wrong_keys(&self.database, &self.keyring, &scope).await?)
    }

    /// Checks that the configured keys can open the database. Reads only.
    ///
    /// # Errors
    /// If a text is sealed under a key that is not configured, or is wrong; or the database cannot
    /// be read.
    pub async fn check_keys(&self) -> Result<(), StartupError> {
        let scope = self.sealed_as_found().await?;
        Ok(keys::check(&self.database, &self.keyring, &scope).await?)
    }

    /// Checks that database and keys are ready for a rotation, and returns the scope of the rotation.
    /// Reads only.
    ///
    /// # Errors
    /// [`StartupError::NothingToRotate`], [`StartupError::MigrationUnderWay`], or as
    /// [`known_sealed`](Self::known_sealed) and [`check_keys`](Self::check_keys).
    pub async fn may_rotate(&self) -> Result<SealedScope, StartupError> {
        if migrate::found(&self.database).await? == Found::Fresh {
            return Err(StartupError::NothingToRotate);
        }
        let scope = self.known_sealed().await?;
        if migrate::is_between(&self.database).await? {
            return Err(StartupError::MigrationUnderWay);
        }
        keys::check(&self.database, &self.keyring, &scope).await?;
        Ok(scope)
    }

    /// Withdraws the label in `configurations` before the first record is sealed under the active
    /// key.
    pub(super) async fn begin_rotation(&self, fence: &Fence) -> Result<(), StartupError> {
        if keys::is_due(&self.database, &self.keyring).await? {
            let context = self.keys_context(self.sealed_as_found().await?);
            keys::begin(&context, fence).await?;
        }
        Ok(())
    }

    /// Re-seals everything under the active key, unless the database has its label. The database
    /// must not be between two versions then.
    ///
    /// # Errors
    /// As [`may_rotate`](Self::may_rotate), if a rotation is due; or if the database fails, or the
    /// fence is lost.
    pub async fn rotate(&self, fence: &Fence) -> Result<Rotated, StartupError> {
        let rotated = if keys::is_due(&self.database, &self.keyring).await? {
            keys::rotate(&self.checked_rotation().await?, fence).await?
        } else {
            Rotated::default()
        };
        self.log_end_of_rotation(&rotated);
        Ok(rotated)
    }

    /// As [`rotate`](Self::rotate), also if the database has the label and rows are under other
    /// keys. Counts all rows. Its caller reports the end.
    ///
    /// # Errors
    /// As [`may_rotate`](Self::may_rotate); or the database fails, or the fence is lost.
    pub async fn rotate_all(&self, fence: &Fence) -> Result<Rotated, StartupError> {
        let context = self.checked_rotation().await?;
        Ok(keys::rotate_all(&context, fence).await?)
    }

    async fn checked_rotation(&self) -> Result<keys::RotationContext, StartupError> {
        let scope = self.may_rotate().await?;
        let active = self.keyring.active_label();
        if let Some(Unfinished { labels, rewritten }) = self.unfinished_rotation().await? {
            tracing::info!(
                name: "encryptor.encryption-started",
                active, ?labels, rewritten, "re-sealing everything under the active key; keep the other keys until it is complete"
            );
        }
        Ok(self.keys_context(scope))
    }

    fn log_end_of_rotation(&self, rotated: &Rotated) {
        let active = self.keyring.active_label();
        if rotated.unreadable > 0 {
            tracing::error!(
                active,
                rewritten = rotated.rewritten,
                unreadable = rotated.unreadable,
                examples = ?rotated.examples,
                "texts that do not open stay under other keys; `bbs keys status` names the keys. Configure the key that sealed them, \
                 or repair or delete their rows, and start again. Keep all keys until `bbs keys verify` succeeds"
            );
        } else if rotated.was_due {
            tracing::info!(
                name: "encryptor.finished",
                active,
                rewritten = rotated.rewritten,
                "everything is sealed under the active key"
            );
        } else {
            tracing::info!(
                name: "encryptor.finished",
                active,
                "the database has the label of the active key, so no rotation is due"
            );
        }
    }

    /// The result that [`rotate_all`](Self::rotate_all) would have now. Reads everything that is
    /// not under the active key, and writes nothing.
    pub async fn survey_rotation(&self, scope: SealedScope) -> Result<Rotated, StartupError> {
        Ok(keys::survey(&self.keys_context(scope)).await?)
    }

    pub(super) async fn unfinished_rotation(&self) -> Result<Option<Unfinished>, KeysError> {
        keys::unfinished(&self.database, &self.keyring).await
    }

    /// Rotates while the API is served, and then restores the phase that it found. Returns an error
    /// only if this host is no longer the master; other failures are logged, retried, and then left
    /// to the next start. Beside copies of an unfinished migration, all is left to the next start.
    pub(super) async fn rotate_in_background(
        &self,
        fence: &Fence,
        report: &MetricsReporter,
    ) -> Result<(), StartupError> {
        let began = Instant::now();
        let before = self.progress.snapshot();
        let rotated = (async || self.rotate(fence).await)
            .retry(pauses::of_background_work().with_max_times(RETRIES))
            .when(|error: &StartupError| {
                !error.is_fence_lost() && !matches!(error, StartupError::MigrationUnderWay)
            })
            .notify(|error, delay| {
                tracing::warn!(error = %with_causes(error), ?delay, "the key rotation failed and is retried");
            })
            .await;
        self.progress.enter(before.phase, before.detail, None);
        match rotated {
            Ok(rotated) => {
                if rotated.was_due {
                    report.encrypted(began.elapsed());
                }
                Ok(())
            }
            Err(StartupError::MigrationUnderWay) => Ok(()),
            Err(error) if error.is_fence_lost() => Err(error),
            Err(error) => {
                tracing::error!(
                    error = %with_causes(&error),
                    "the key rotation failed too often and continues at the next start; keep all keys, and restart the host"
                );
                Ok(())
            }
        }
    }
}
