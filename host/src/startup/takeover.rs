//! Becoming the master without a trace: the database is looked at before anything is written to it, and the fence, the
//! first thing that is, is raised once the host knows that it may go on. Owns this order for hosts and for commands.
//!
//! Under a lock file or Locket, taking the lock writes nothing to the database, so one look under the lock is enough. A
//! lease is a row of the database: where no host holds it, the look comes before it is taken, and again after, since
//! another host may have had it in between.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use super::{Prepared, StartupError};
use crate::layout::manifest::DataVersion;
use crate::lens::transform::Transform;
use crate::lock::fence::Fence;
use crate::lock::{Held, LockError, MasterLock, Purpose};
use crate::migrate::{self, Decision, Intent, Reason};
use crate::modules::catalog::Catalog;
use crate::progress::Wait;

/// Far above what it takes on a large database.
const LONGEST_FIRST_LOOK: Duration = Duration::from_secs(10);
/// A host that has not got the lock by then is waiting for another one.
const BEFORE_FIRST_LINE: Duration = Duration::from_millis(500);
/// Until the next line; doubled with each, up to the longest.
const BEFORE_NEXT_LINE: Duration = Duration::from_secs(5);
const LONGEST_SILENCE: Duration = Duration::from_secs(300);

impl Prepared {
    /// What a host with this configuration is to do.
    pub fn intent(&self) -> Intent {
        let wanted = self.wanted();
        match self.config.migration.rollback_on_drain_to {
            Some(back_to) if back_to < wanted => Intent::UpUntilDrained { wanted, back_to },
            Some(_) | None => Intent::Up { wanted },
        }
    }

    /// Refuses a database that this intent, or these keys, are not for. Reads only.
    pub async fn may_begin(&self, intent: Intent) -> Result<(), StartupError> {
        self.check_keys().await?;
        match migrate::look(&self.context(), intent).await? {
            Decision::ShutDown(reason) => Err(StartupError::ShutDown(reason)),
            _ => Ok(()),
        }
    }

    /// The same for a host, which also finishes the way back that its configuration names.
    pub(super) async fn may_serve(&self) -> Result<(), StartupError> {
        let ours = self.config.migration.rollback_on_drain_to;
        match self.may_begin(self.intent()).await {
            Err(StartupError::ShutDown(Reason::GoingDown { to })) if ours == Some(to) => Ok(()),
            seen => seen,
        }
    }

    /// Takes the lock and the fence unless another host has them: for commands, which do not wait. `look` refuses what
    /// is not to be begun.
    pub async fn lock_now(
        &self,
        look: impl AsyncFn() -> Result<(), StartupError>,
    ) -> Result<(Held, Fence), StartupError> {
        let lock = self.lock(Purpose::Command).await?;
        if lock.is_free_lease().await? {
            for_a_while(look()).await?;
        }
        let lock = lock.try_take().await?.ok_or(StartupError::Locked)?;
        let fenced = async {
            look().await?;
            Ok(Fence::raise(&self.database).await?)
        };
        match fenced.await {
            Ok(fence) => Ok((lock, fence)),
            Err(fault) => {
                lock.release().await;
                Err(fault)
            }
        }
    }

    /// Waits for the lock as a host does, and says so.
    pub(super) async fn wait_for_lock(&self) -> Result<Held, StartupError> {
        self.progress.enter("lock", "another host may have it", None);
        let _waiting = self.progress.wait(Wait::Lock);
        let lock = self.lock(Purpose::Serve).await?;
        let ttl_in_seconds = self.config.lock.ttl.as_secs();
        tracing::info!(name: "locket-lock.started", ttl_in_seconds, "taking the lock, or waiting for it");
        if lock.is_free_lease().await? {
            for_a_while(self.may_serve()).await?;
        }
        tokio::select! {
            taken = lock.take() => Ok(taken?),
            never = say_what_it_waits_for(&lock) => match never {},
        }
    }

    async fn lock(&self, purpose: Purpose) -> Result<MasterLock, LockError> {
        MasterLock::new(&self.config.lock, &self.config.database, purpose).await
    }

    /// Says what is about to be migrated.
    pub(super) async fn announce(&self, intent: Intent) -> Result<(), StartupError> {
        if let Decision::Begin { from: current_version, to: migration_version }
        | Decision::Continue { from: current_version, to: migration_version } =
            migrate::decide(&migrate::found(&self.database).await?, intent)
        {
            tracing::info!(
                name: "migration-manager.running-migration",
                current_version, migration_version, "migrating"
            );
        }
        Ok(())
    }

    /// Refuses a version that the catalog does not have. `what` names where it was given.
    pub fn check_version(&self, what: &'static str, version: DataVersion) -> Result<(), StartupError> {
        check_version(&self.catalog, what, version)
    }
}

pub(super) fn check_version(catalog: &Catalog, what: &'static str, version: DataVersion) -> Result<(), StartupError> {
    let versions = catalog.migrations().iter().map(|module| module.manifest().version);
    if versions.clone().any(|known| known == version) {
        return Ok(());
    }
    Err(StartupError::UnknownVersion { what, version, known: versions.collect() })
}

/// A look that takes longer, because a table is locked, comes once the lock is held: until then clients learn nothing.
async fn for_a_while(look: impl Future<Output = Result<(), StartupError>>) -> Result<(), StartupError> {
    tokio::time::timeout(LONGEST_FIRST_LOOK, look).await.unwrap_or(Ok(()))
}

/// A line when it begins to wait, and then ever more seldom.
async fn say_what_it_waits_for(lock: &MasterLock) -> Infallible {
    let began = Instant::now();
    tokio::time::sleep(BEFORE_FIRST_LINE).await;
    let name = |holder: Option<String>| holder.unwrap_or_else(|| "a host that is not known".to_owned());
    tracing::info!(name: "lock.waiting", holder = name(lock.holder().await), "waiting for the lock");
    let mut pause = BEFORE_NEXT_LINE;
    loop {
        tokio::time::sleep(pause).await;
        let waited_s = began.elapsed().as_secs();
        tracing::info!(name: "lock.waiting", holder = name(lock.holder().await), waited_s, "still waiting for the lock");
        pause = (pause * 2).min(LONGEST_SILENCE);
    }
}
