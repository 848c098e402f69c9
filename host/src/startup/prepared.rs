//! What stands before the lock is taken, and what a master makes of it: the catalog, the keys, the database and the
//! entities in it. Owns which part is built from which; runs nothing by itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use tracing::Instrument;

use super::{StartupError, catalog};
use crate::admin::{self, AdminError};
use crate::api::Api;
use crate::clients::Clients;
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, OnUnreadable};
use crate::database::Database;
use crate::domain::{Policy, Service};
use crate::events::Events;
use crate::http::Gate;
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Layout;
use crate::lens::Lens;
use crate::lens::transform::Transform;
use crate::lock::fence::Fence;
use crate::lock::{Held, LockError, MasterLock, Purpose};
use crate::metrics::{AdvancedRoutes, Measures, Metrics};
use crate::migrate::{self, Context, Decision, Intent, MigrateError, Progressed, RefusedUnits, Tuning};
use crate::modules::catalog::Catalog;
use crate::modules::sandbox::{Limits, Sandbox};
use crate::modules::translate::Translate;
use crate::pace::Pace;
use crate::progress::Progress;
use crate::record::Keyring;
use crate::store::{Access, Lenses, Store};

/// What stands before the lock is taken: everything that can be wrong with files and configuration.
pub struct Prepared {
    pub config: Config,
    pub catalog: Catalog,
    pub keyring: Arc<Keyring>,
    pub database: Database,
    pub progress: Progress,
    pub pace: Pace,
    pub(super) metrics: Metrics,
    pub(super) gate: Gate,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("database", &self.database).finish_non_exhaustive()
    }
}

impl Prepared {
    pub async fn new(config: Config) -> Result<Self, StartupError> {
        let keyring = Keyring::new(config.encryption_keys.clone(), &config.active_key_label)?;
        let sandbox = Arc::new(Sandbox::new(Limits::default(), Some(&config.module_cache_dir))?);
        let folder = config.modules_dir.clone();
        // Compiling takes a while when nothing is cached, and a signal or a question about health does not wait for it.
        let loaded = tokio::task::spawn_blocking(move || catalog::load(&folder, &sandbox)).await;
        let catalog = loaded.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        let database = Database::open(&config.database).await?;
        let (progress, pace) = (Progress::default(), Pace::new(config.migration.units_per_second));
        let advanced = &config.clients.advanced_metrics;
        let advanced =
            AdvancedRoutes { counted: advanced.request_count.clone(), timed: advanced.request_latency.clone() };
        let measures = Measures::new(database.clone(), &advanced);
        let metrics = Metrics::new(progress.clone(), pace.clone(), measures);
        let gate = Gate::new(progress.clone());
        Ok(Self { catalog, keyring: Arc::new(keyring), database, progress, pace, metrics, gate, config })
    }

    /// The version to be at: the operator's pin, or the newest of the catalog.
    pub fn wanted(&self) -> DataVersion {
        self.config.pin_data_version.unwrap_or_else(|| self.catalog.line().newest())
    }

    pub fn context(&self) -> Context {
        let migrations = self.catalog.migrations().iter().map(|module| Arc::clone(module) as Arc<dyn Transform>);
        Context {
            database: self.database.clone(),
            migrations: migrations.collect(),
            keyring: Arc::clone(&self.keyring),
            progress: self.progress.clone(),
            pace: self.pace.clone(),
            now_ns: SystemClock.now_ns(),
            replays: Some(self.config.replay_dir.clone()),
            tuning: self.tuning(),
        }
    }

    fn tuning(&self) -> Tuning {
        let default = Tuning::default();
        let refused_units = match self.config.migration.on_unreadable {
            OnUnreadable::Stop => RefusedUnits::Stop,
            OnUnreadable::Quarantine => RefusedUnits::Quarantine,
        };
        let batch_time = self.config.migration.batch_time.unwrap_or(default.batch_time);
        Tuning { batch_time, refused_units, ..default }
    }

    /// Takes the lock unless somebody has it: for commands, which do not wait.
    pub async fn lock_now(&self) -> Result<(Held, Fence), StartupError> {
        let lock = self.lock(Purpose::Command).await?.try_take().await?.ok_or(StartupError::Locked)?;
        match Fence::raise(&self.database).await {
            Ok(fence) => Ok((lock, fence)),
            Err(fault) => {
                lock.release().await;
                Err(fault.into())
            }
        }
    }

    pub(super) async fn lock(&self, purpose: Purpose) -> Result<MasterLock, LockError> {
        MasterLock::new(&self.config.lock, &self.config.database, purpose).await
    }

    /// Lets an operator look at this process and steer it.
    pub async fn open_admin(&self) -> Result<admin::Socket, AdminError> {
        let host = admin::Host { progress: self.progress.clone(), pace: self.pace.clone() };
        admin::Socket::open(&self.config.admin_socket, host).await
    }

    /// Migrates as intended. From then on nothing is sealed under another key than the active one.
    pub async fn bring_to(&self, fence: &Fence, intent: Intent) -> Result<Decision, StartupError> {
        match self.bring_part(fence, intent, None).await? {
            Progressed::Done(decision) => Ok(decision),
            Progressed::Part(_) => unreachable!("nothing bounds it"),
        }
    }

    /// The same for at most so many units.
    pub async fn bring_part(
        &self,
        fence: &Fence,
        intent: Intent,
        most: Option<u64>,
    ) -> Result<Progressed, StartupError> {
        self.may_begin(intent).await?;
        self.begin_rotation(fence).await?;
        let span = tracing::info_span!("migration-manager", ?intent);
        let decision = match migrate::run_part(&self.context(), fence, intent, most).instrument(span).await? {
            Progressed::Done(Decision::ShutDown(reason)) => return Err(StartupError::ShutDown(reason)),
            Progressed::Done(decision) => decision,
            part @ Progressed::Part(_) => return Ok(part),
        };
        self.begin_rotation(fence).await?;
        if let Decision::Begin { from, to } | Decision::Continue { from, to } = &decision {
            let (current_version, target_version) = (from, to);
            tracing::info!(name: "migration-manager.completed-migration", current_version, target_version, "migrated");
        }
        Ok(Progressed::Done(decision))
    }

    /// Refuses what must not begin, before anything is written.
    pub(super) async fn may_begin(&self, intent: Intent) -> Result<(), StartupError> {
        self.check_keys().await?;
        match migrate::decide(&migrate::found(&self.database).await?, intent) {
            Decision::ShutDown(reason) => return Err(StartupError::ShutDown(reason)),
            Decision::Begin { from: current_version, to: migration_version }
            | Decision::Continue { from: current_version, to: migration_version } => tracing::info!(
                name: "migration-manager.running-migration",
                current_version, migration_version, "migrating"
            ),
            Decision::Serve => {}
        }
        Ok(())
    }

    fn layout(&self, version: DataVersion) -> Result<&Layout, StartupError> {
        Ok(self.catalog.line().at(version).ok_or(MigrateError::UnknownTarget { version })?)
    }

    /// The newest migration up to the version served that transforms rows: what a new record has been through.
    fn record_version(&self, version: DataVersion) -> DataVersion {
        let manifests = self.catalog.migrations().iter().map(|module| module.manifest());
        let mut served = manifests.filter(|manifest| manifest.version <= version && !manifest.up.is_empty());
        served.next_back().map_or(0, |manifest| manifest.version)
    }

    /// How entities are got at in tables of a version: as they are, or through a lens.
    pub(super) async fn access(&self, fence: &Fence, version: DataVersion) -> Result<Access, StartupError> {
        let dialect = self.database.dialect();
        let context = self.context();
        let line = self.catalog.line();
        if Lenses::are_needed(line, &context.migrations, version) {
            let arguments = migrate::arguments(&context, fence, Lenses::versions(version)).await?;
            let lenses = Lenses::new(line, &context.migrations, version, self.record_version(version), arguments)
                .pinned(self.config.pin_data_version == Some(version));
            tracing::info!(data_version = version, "records are read and written through a lens");
            return Ok(Access::through(lenses, dialect));
        }
        let layout = self.layout(version)?;
        let kept = Lens::new(line, &context.migrations, version, 0, BTreeSet::new());
        let places = |table: &String| kept.groups.iter().find(|group| group.sources.contains(table));
        let access = Access::direct(layout, dialect, self.record_version(version));
        let with_places = layout.tables.keys().filter_map(|table| Some((table, places(table)?.keeps.clone())));
        Ok(with_places.fold(access, |access, (table, places)| access.forgetting(table, places)))
    }

    pub(super) fn store(&self, fence: &Fence, access: Access) -> Store {
        let (keyring, clock) = (Arc::clone(&self.keyring), Arc::new(SystemClock));
        Store::new(self.database.clone(), fence.clone(), keyring, clock, access)
    }

    fn policy(&self) -> Policy {
        let Config { tasks, convergence, .. } = &self.config;
        Policy {
            max_task_retries: tasks.max_retries,
            update_workers: convergence.update_workers,
            task_callback_workers: tasks.callback_workers,
            kick_task: tasks.kick,
            expire_pending_task: tasks.expire_pending,
            expire_completed_task: tasks.expire_completed,
            convergence_workers: convergence.workers,
        }
    }

    /// What calls and convergence work with, over these entities.
    pub(super) fn service(&self, store: Store, clients: Clients) -> Service {
        Service::new(store, Events::default(), clients, self.policy(), self.metrics.measures().clone())
    }

    pub(super) fn api(&self, service: Service) -> Result<Api, StartupError> {
        let translators = self.catalog.translators().iter().map(|module| Arc::clone(module) as Arc<dyn Translate>);
        Ok(Api::new(service, translators.collect(), self.config.pin_api_version.as_deref())?)
    }
}
