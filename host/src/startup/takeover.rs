//! Becoming the master without writing: the database is examined before the first write, and the
//! fence, which is that write, is raised only once the host may continue. Owns this order for hosts
//! and for commands.
//!
//! With a lock file or Locket, taking the lock writes nothing to the database, so one examination
//! under the lock is enough. A lease is a row of the database: if no host holds it, the examination
//! comes before the lease is taken, and again after, since another host may have been the master in
//! between.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::transform::Transform;
use bbs_modules::catalog::Catalog;
use bbs_modules::releases;
use bbs_work::progress::{LOCK, Progress, Wait};

use super::error::OlderCatalog;
use super::{Prepared, StartupError};
use crate::config::Config;
use crate::import::{Due, ImportError};
use crate::lock::fence::Fence;
use crate::lock::{HeldLock, LockError, LockPurpose, MasterLock};
use crate::migrate::{self, Context, Decision, Intent, Reason};

/// Far above the time of an examination of a large database.
const LONGEST_FIRST_LOOK: Duration = Duration::from_secs(10);
/// A host that waits longer for the lock is a standby.
const BEFORE_FIRST_LINE: Duration = Duration::from_millis(500);
/// Time until the second line; doubles with each line, up to [`LONGEST_SILENCE`].
const BEFORE_NEXT_LINE: Duration = Duration::from_secs(5);
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

impl Prepared {
    /// The intent of a host with this configuration.
    pub fn intent(&self) -> Intent {
        let wanted = self.wanted();
        match self.config.migration.rollback_on_drain_to {
            Some(back_to) if back_to < wanted => Intent::UpUntilDrained { wanted, back_to },
            Some(_) | None => Intent::Up { wanted },
        }
    }

    /// Checks that database and keys allow this intent in a context. Reads only.
    ///
    /// # Errors
    /// [`StartupError::ShutDown`] with the reason, [`StartupError::Examination`] with an obstacle,
    /// [`StartupError::Import`] if an import comes first or `bbs_import` contradicts the database,
    /// or an error of [`check_keys`](Self::check_keys).
    pub async fn may_begin(&self, context: &Context, intent: Intent) -> Result<(), StartupError> {
        match self.examine(context, intent).await {
            Err(StartupError::Migrate(obstacle)) => Err(StartupError::Examination(obstacle)),
            examined => examined,
        }
    }

    async fn examine(&self, context: &Context, intent: Intent) -> Result<(), StartupError> {
        self.check_keys().await?;
        match self.import_status().await?.due {
            Due::Import => return Err(ImportError::Due.into()),
            Due::Interrupted => return Err(ImportError::Unfinished.into()),
            Due::Nothing | Due::NotIntoThis | Due::Unmarked { .. } => {}
        }
        match migrate::look(context, intent).await? {
            Decision::ShutDown(reason) => Err(StartupError::ShutDown(reason)),
            _ => Ok(()),
        }
    }

    /// The parts of a host. Keys that cannot open the database end the start before the lock is
    /// waited for.
    ///
    /// # Errors
    /// As [`Prepared::new`]; or a text is sealed under a key that is not configured, or is wrong.
    pub(super) async fn with_tried_keys(config: Config) -> Result<Self, StartupError> {
        let prepared = Self::new(config, &Progress::default()).await?;
        match examine_briefly(prepared.check_keys()).await {
            Err(StartupError::Keys(refused)) if refused.is_about_keys() => Err(refused.into()),
            // Another host may change the tables meanwhile. The examination under the lock reports
            // what is wrong with them.
            _ => Ok(prepared),
        }
    }

    /// The remembered serials; none are read for catalogs that are not verified.
    async fn remembered_serials(&self) -> Result<BTreeMap<String, u64>, StartupError> {
        if self.catalog.serials().is_empty() {
            Ok(BTreeMap::new())
        } else {
            Ok(migrate::catalog_serials(&self.database).await?)
        }
    }

    /// The catalogs that are older than one of their name that was used on this database.
    fn older_catalogs(
        &self,
        remembered: &BTreeMap<String, u64>,
    ) -> impl Iterator<Item = OlderCatalog> {
        self.catalog.serials().iter().filter_map(|(name, &serial)| {
            let remembered = *remembered
                .get(name)
                .filter(|remembered| serial < **remembered)?;
            Some(OlderCatalog {
                name: name.clone(),
                serial,
                remembered,
            })
        })
    }

    /// Checks that no catalog is older than one of its name that was used on this database, unless
    /// the configuration accepts it. Reads only.
    ///
    /// # Errors
    /// [`StartupError::OlderCatalog`], or the database cannot be read.
    pub async fn check_serials(&self) -> Result<(), StartupError> {
        let remembered = self.remembered_serials().await?;
        let is_refused =
            |older: &OlderCatalog| !self.config.accept_older_catalogs.contains(&older.name);
        let mut refused = self.older_catalogs(&remembered).filter(is_refused);
        refused
            .next()
            .map_or(Ok(()), |older| Err(StartupError::OlderCatalog(older)))
    }

    /// Raises the fence, which is the first write, and then remembers the serials of the catalogs.
    pub(super) async fn raise_fence(&self) -> Result<Fence, StartupError> {
        let fence = Fence::raise(&self.database).await?;
        self.remember_serials(&fence).await?;
        Ok(fence)
    }

    /// Remembers the serials of the catalogs, so that older ones are refused from then on.
    pub(super) async fn remember_serials(&self, fence: &Fence) -> Result<(), StartupError> {
        let remembered = self.remembered_serials().await?;
        for OlderCatalog {
            name,
            serial,
            remembered,
        } in self.older_catalogs(&remembered)
        {
            tracing::warn!(
                name: "modules.older-accepted",
                catalog = name, serial, remembered,
                "this catalog is older than one that was used on this database, as `accept_older_catalogs` permits; take it \
                 out of that key once a newer one is installed"
            );
        }
        let serials = self
            .catalog
            .serials()
            .iter()
            .map(|(name, serial)| (name.as_str(), *serial));
        let is_higher =
            |(name, serial): &(&str, u64)| remembered.get(*name).is_none_or(|known| known < serial);
        let higher: Vec<_> = serials.filter(is_higher).collect();
        Ok(migrate::remember_catalog_serials(self.lock_waits(), fence, &higher).await?)
    }

    /// Like [`may_begin`](Self::may_begin), for a host: also allows finishing the rollback that its
    /// configuration names, and an import.
    pub(super) async fn may_serve(&self) -> Result<(), StartupError> {
        let ours = self.config.migration.rollback_on_drain_to;
        self.check_serials().await?;
        match self.may_begin(&self.start_context(), self.intent()).await {
            Err(StartupError::ShutDown(Reason::GoingDown { to })) if ours == Some(to) => Ok(()),
            Err(StartupError::Import(ImportError::Due)) => self.may_import().await,
            seen => seen,
        }
    }

    /// Logs what keeps a drain from rolling back as the configuration says, while that can still be
    /// changed.
    pub(super) async fn warn_of_rollback(&self) -> Result<(), StartupError> {
        let Intent::UpUntilDrained { wanted, back_to } = self.intent() else {
            return Ok(());
        };
        for reason in migrate::reasons_against_rollback(&self.context(), wanted, back_to).await? {
            tracing::error!(
                name: "drain.cannot-roll-back",
                error = &reason as &dyn std::error::Error, to = back_to,
                "a drain could not roll back as `rollback_on_drain_to_version` says"
            );
        }
        Ok(())
    }

    /// Takes the lock and raises the fence, without waiting: for commands. `look` checks that the
    /// work may begin; so does this, for the catalogs.
    ///
    /// # Errors
    /// [`StartupError::Locked`] if another host holds the lock; otherwise the error of `look`, of
    /// the lock or of the fence.
    pub async fn lock_now(
        &self,
        look: impl AsyncFn() -> Result<(), StartupError>,
    ) -> Result<(HeldLock, Fence), StartupError> {
        let look = async || {
            self.check_serials().await?;
            look().await
        };
        let lock = self.lock(LockPurpose::Command).await?;
        if lock.is_free_lease().await? {
            examine_briefly(look()).await?;
        }
        let lock = match lock.try_take().await? {
            Some(taken) => taken,
            None => {
                return Err(StartupError::Locked {
                    holder: lock.holder().await,
                });
            }
        };
        let fenced = async {
            look().await?;
            self.raise_fence().await
        };
        match fenced.await {
            Ok(fence) => Ok((lock, fence)),
            Err(fault) => {
                lock.release().await;
                Err(fault)
            }
        }
    }

    /// Waits for the lock as a host does, and logs the holder.
    pub(super) async fn wait_for_lock(&self) -> Result<HeldLock, StartupError> {
        self.progress.enter(LOCK, "another host may have it", None);
        let _waiting = self.progress.wait(Wait::Lock);
        let lock = self.lock(LockPurpose::Serve).await?;
        let ttl_in_seconds = self.config.lock.ttl.as_secs();
        tracing::info!(name: "locket-lock.started", ttl_in_seconds, "taking the lock, or waiting for it");
        if lock.is_free_lease().await? {
            examine_briefly(self.may_serve()).await?;
        }
        tokio::select! {
            taken = lock.take() => Ok(taken?),
            never = log_the_wait(&lock) => match never {},
        }
    }

    /// The process that holds the lock, described for operators; `None` if none does, as far as
    /// that is known. Takes nothing.
    ///
    /// # Errors
    /// The lock cannot be read.
    pub async fn lock_holder(&self) -> Result<Option<String>, LockError> {
        Ok(self.lock(LockPurpose::Command).await?.holder().await)
    }

    async fn lock(&self, purpose: LockPurpose) -> Result<MasterLock, LockError> {
        MasterLock::new(
            &self.config.lock,
            &self.config.database,
            &self.database,
            purpose,
        )
        .await
    }

    /// Logs the migration that is about to run.
    pub(super) async fn announce(&self, intent: Intent) -> Result<(), StartupError> {
        if let Decision::Begin {
            from: current_version,
            to: migration_version,
        }
        | Decision::Continue {
            from: current_version,
            to: migration_version,
        } = migrate::decide(&migrate::found(&self.database).await?, intent)
        {
            if current_version > 0
                && current_version < migration_version
                && self.is_pinned(migration_version)
            {
                tracing::warn!(
                    name: "migration-manager.pin-above",
                    current_version, pin = migration_version, release = self.config.pin_release,
                    "the pin is above the version of the database, so this start migrates up to it; a host of the version found cannot \
                     be master again before `bbs migrate down`. To stay there, pin `current_version` instead"
                );
            }
            if current_version == 0 {
                self.warn_of_other_tables().await?;
            }
            tracing::info!(
                name: "migration-manager.running-migration",
                current_version, migration_version, "migrating"
            );
        }
        Ok(())
    }

    /// Logs that a database without a version is another program's, too: the configuration may name
    /// it by mistake.
    async fn warn_of_other_tables(&self) -> Result<(), StartupError> {
        let tables = migrate::other_tables(&self.context()).await?;
        if !tables.is_empty() {
            tracing::warn!(
                name: "migration-manager.other-tables",
                ?tables,
                "the database has tables of another program, which are left alone, and gets those of a BBS; correct \
                 `database_connection_string` if it was to name another database"
            );
        }
        Ok(())
    }
}

/// Checks that the catalog has a version. `what` names where it was configured.
///
/// # Errors
/// [`StartupError::UnknownVersion`] with the versions of the catalog.
pub(super) fn check_version(
    config: &Config,
    catalog: &Catalog,
    what: &'static str,
    version: DataVersion,
) -> Result<(), StartupError> {
    let versions = catalog
        .migrations()
        .iter()
        .map(|module| module.manifest().version);
    if versions.clone().any(|known| known == version) {
        return Ok(());
    }
    // Only a help to choose: a list that cannot be used is another error, of `pin_release`.
    let releases =
        releases::all(&config.module_folders()?, catalog.release_digests()).unwrap_or_default();
    Err(StartupError::UnknownVersion {
        what,
        version,
        known: versions.collect(),
        releases,
    })
}

/// Ends an examination that takes too long, because a table is locked; it is repeated once the lock
/// is held.
pub(super) async fn examine_briefly(
    look: impl Future<Output = Result<(), StartupError>>,
) -> Result<(), StartupError> {
    tokio::time::timeout(LONGEST_FIRST_LOOK, look)
        .await
        .unwrap_or(Ok(()))
}

/// Logs one line when the wait begins, and then at growing intervals.
async fn log_the_wait(lock: &MasterLock) -> Infallible {
    let began = Instant::now();
    tokio::time::sleep(BEFORE_FIRST_LINE).await;
    let name = |holder: Option<String>| holder.unwrap_or_else(|| "unknown".to_owned());
    tracing::info!(name: "lock.waiting", holder = name(lock.holder().await), "waiting for the lock");
    let mut pause = BEFORE_NEXT_LINE;
    loop {
        tokio::time::sleep(pause).await;
        let waited_s = began.elapsed().as_secs();
        tracing::info!(name: "lock.waiting", holder = name(lock.holder().await), waited_s, "still waiting for the lock");
        pause = (pause * 2).min(LONGEST_SILENCE);
    }
}
