//! The import from etcd within a start: before the migration if the database is empty, and its mark
//! in etcd before the API is served. Owns what a failure of each means for the start.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use backon::Retryable;
use bbs_database::StatementResult;
use bbs_work::pauses;

use super::{Prepared, StartupError};
use crate::etcd::client::EtcdClient;
use crate::import::{self, Due, ImportError, ImportPhase, ImportReport, ImportState, Reimport};
use crate::lock::fence::Fence;
use crate::migrate;
use crate::migrate::fault;
use crate::migrate::filling::{self, ExistingRows};

/// Pause before the first attempt to mark etcd while the API is served.
const MARK_DELAY: Duration = Duration::from_secs(1);

/// The import that is due at a start, and the one that has begun.
#[derive(Debug)]
pub(super) struct ImportStatus {
    pub(super) due: Due,
    state: Option<ImportState>,
}

impl ImportStatus {
    /// The rows that the tables to import into may have: those of an earlier attempt.
    fn existing_rows(&self) -> ExistingRows {
        match &self.state {
            Some(state) if state.phase == ImportPhase::Copying => ExistingRows::Dropped,
            _ => ExistingRows::Refused,
        }
    }
}

impl Prepared {
    /// Whether the import from etcd has not ended.
    pub(crate) async fn is_import_due(&self) -> Result<bool, StartupError> {
        Ok(self.import_status().await?.due == Due::Import)
    }

    /// Reads only the database.
    pub(super) async fn import_status(&self) -> Result<ImportStatus, StartupError> {
        let state = import::state(&self.database).await?;
        let phase = state.as_ref().map(|state| state.phase);
        let found = migrate::found(&self.database).await?;
        Ok(ImportStatus {
            due: import::due(&found, phase, self.config.etcd.is_some())?,
            state,
        })
    }

    fn etcd(&self) -> Result<Arc<EtcdClient>, ImportError> {
        let config = self
            .config
            .etcd
            .as_ref()
            .ok_or(ImportError::NotConfigured)?;
        Ok(Arc::new(EtcdClient::new(config)?))
    }

    /// Reports the effect of an import. Reads etcd and writes nothing.
    ///
    /// # Errors
    /// The store cannot be read as a whole, or may not be imported; with the report in the second
    /// case.
    pub async fn check_import(
        &self,
        reimport: Reimport,
    ) -> Result<(ImportReport, Result<(), ImportError>), ImportError> {
        let context = self.context();
        let survey = import::survey(&self.etcd()?, &context).await?;
        let verdict = survey.may_import(&context.tuning, reimport);
        Ok((survey.report, verdict))
    }

    /// Imports the store of etcd if that is due. Returns what is to be done then.
    ///
    /// # Errors
    /// The store cannot be imported: nothing is changed in etcd, and the database stays without a
    /// version.
    pub(super) async fn import_if_due(
        &self,
        fence: &Fence,
        reimport: Reimport,
    ) -> Result<ImportStatus, StartupError> {
        let status = self.import_status().await?;
        if status.due != Due::Import {
            return Ok(status);
        }
        let etcd = self.etcd()?;
        let context = self.context();
        tracing::info!(name: "import.began", "importing the records of etcd into this empty database");
        let survey = import::survey(&etcd, &context).await?;
        survey.may_import(&context.tuning, reimport)?;
        let existing = status.existing_rows();
        let state = import::copy(&etcd, &context, fence, &survey, existing).await?;
        let counts = state.report.total();
        tracing::info!(
            name: "import.copied",
            seen = counts.seen, imported = counts.imported, expired = counts.expired,
            quarantined = counts.quarantined, foreign = counts.foreign, "the records of etcd are in the database"
        );
        Ok(ImportStatus {
            due: Due::Unmarked { served: false },
            state: Some(state),
        })
    }

    /// Marks the store of etcd as imported, if that is still to be done. Returns the import that
    /// could not be marked because etcd cannot be reached; the API is served all the same, and the
    /// mark is tried again.
    ///
    /// # Errors
    /// The store has changed since it was imported, and no client was served from the database yet.
    pub(super) async fn mark_import(
        &self,
        fence: &Fence,
        status: ImportStatus,
    ) -> Result<Option<ImportState>, StartupError> {
        let served = match status.due {
            Due::Unmarked { served } => served,
            Due::NotIntoThis => {
                tracing::warn!(
                    name: "import.not-into-this",
                    "`etcd_cluster_urls` has no effect: this database is in use, and etcd is only imported into an empty one"
                );
                return Ok(None);
            }
            Due::Nothing | Due::Import | Due::Interrupted => return Ok(None),
        };
        let Some(state) = status.state else {
            return Ok(None);
        };
        self.progress.enter(
            "mark",
            "setting the version in etcd, so that an older BBS ends",
            None,
        );
        let fault = match self.try_to_mark(fence, &state, served).await {
            Ok(()) => return Ok(None),
            Err(StartupError::Import(fault)) => fault,
            Err(other) => return Err(other),
        };
        if !served && !fault.is_unreachable() && !matches!(fault, ImportError::NotConfigured) {
            return Err(fault.into());
        }
        tracing::error!(
            name: "import.not-marked",
            error = &fault as &dyn std::error::Error,
            "etcd is not marked as imported, so a BBS that uses it could start; keep such a BBS from starting"
        );
        if !served {
            self.record_import(fence, ImportPhase::Served).await?;
        }
        Ok(fault.is_unreachable().then_some(state))
    }

    async fn try_to_mark(
        &self,
        fence: &Fence,
        state: &ImportState,
        served: bool,
    ) -> Result<(), StartupError> {
        let was_there = import::mark(&self.etcd()?, state, served).await?;
        self.record_import(fence, ImportPhase::Marked).await?;
        fault::point(fault::AFTER_MARK_RECORDED);
        tracing::info!(name: "import.marked", was_there, "etcd is marked as imported; a BBS that uses it ends at its start");
        Ok(())
    }

    async fn record_import(&self, fence: &Fence, phase: ImportPhase) -> Result<(), StartupError> {
        let mut tx = fence.begin().await?;
        import::write_phase(&mut tx, phase).await?;
        let committed = tx.commit().await.about("bbs_import");
        Ok(committed.map_err(ImportError::from)?)
    }

    /// Marks etcd once it can be reached, while the API is served.
    pub(super) async fn keep_marking(
        &self,
        fence: &Fence,
        unmarked: Option<ImportState>,
    ) -> Infallible {
        let Some(state) = unmarked else {
            return std::future::pending().await;
        };
        // The start has just tried.
        tokio::time::sleep(MARK_DELAY).await;
        let marked = (async || self.try_to_mark(fence, &state, true).await)
            .retry(pauses::of_background_work())
            .when(|error| matches!(error, StartupError::Import(fault) if fault.is_unreachable()))
            .notify(|error, delay| {
                tracing::warn!(name: "import.not-marked", fault = %error, ?delay, "etcd is still not marked as imported");
            })
            .await;
        if let Err(fault) = marked {
            tracing::error!(name: "import.not-marked", error = &fault as &dyn std::error::Error, "etcd stays unmarked");
        }
        std::future::pending().await
    }

    /// Checks that an import may begin. Reads only the database.
    ///
    /// # Errors
    /// It was imported to, or is in use, something has a name that the import needs, or a version
    /// is pinned that is below the import's.
    pub async fn may_import(&self) -> Result<(), StartupError> {
        let status = self.import_status().await?;
        let existing = status.existing_rows();
        let ImportStatus { due, state } = status;
        match due {
            Due::Import => {
                self.check_pin()?;
                filling::check(&self.context(), import::VERSION, existing).await?;
                self.check_keys().await
            }
            Due::Unmarked { served: false } => self.check_keys().await,
            Due::NotIntoThis => Err(ImportError::InUse.into()),
            Due::Interrupted => Err(ImportError::NotConfigured.into()),
            Due::Nothing | Due::Unmarked { served: true } => {
                match state.filter(|state| state.phase != ImportPhase::Copying) {
                    Some(ImportState { report, .. }) => Err(ImportError::Done {
                        report: Box::new(report),
                    }
                    .into()),
                    None => Err(ImportError::NotConfigured.into()),
                }
            }
        }
    }

    /// Checks that the database may stay at the version that etcd is imported at, or be migrated up
    /// from there.
    fn check_pin(&self) -> Result<(), ImportError> {
        let Some(pin) = self.config.pin_data_version else {
            return Ok(());
        };
        if pin >= import::VERSION {
            return Ok(());
        }
        let key = if self.config.pin_release.is_some() {
            "`pin_release`"
        } else {
            "`pin_data_version`"
        };
        Err(ImportError::PinnedBelow {
            key,
            pin,
            version: import::VERSION,
        })
    }

    /// Imports, migrates and marks without serving.
    ///
    /// # Errors
    /// As [`import_if_due`](Self::import_if_due), of the migration, and of the mark.
    pub async fn import_from_etcd(
        &self,
        fence: &Fence,
        reimport: Reimport,
    ) -> Result<ImportReport, StartupError> {
        let ImportStatus { due, state } = self.import_if_due(fence, reimport).await?;
        self.bring_to(fence, self.intent()).await?;
        let state = state.ok_or(ImportError::NotConfigured)?;
        if let Due::Unmarked { served } = due {
            self.try_to_mark(fence, &state, served).await?;
        }
        Ok(state.report)
    }
}
