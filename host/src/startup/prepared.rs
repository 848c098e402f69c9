//! The parts that exist before the lock is taken, and those that a master builds from them: catalog, keys, database, store,
//! service, API. Owns how they are built from each other; runs nothing by itself.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use tracing::Instrument;

use super::StartupError;
use super::takeover::check_version;
use crate::admin::{self, AdminError};
use crate::api::{self, Api, NATIVE};
use crate::clients::Clients;
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, OnUnreadable, shipped_module_cache};
use crate::database::Database;
use crate::domain::{Policy, Service};
use crate::encryption::Keyring;
use crate::events::Events;
use crate::http::Gate;
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Layout;
use crate::lens::Lens;
use crate::lens::transform::Transform;
use crate::lock::fence::Fence;
use crate::metrics::{AdvancedRoutes, Measures, Metrics};
use crate::migrate::{self, Context, Decision, Intent, MigrateError, RefusedUnits, RunOutcome, Tuning};
use crate::modules::catalog::Catalog;
use crate::modules::releases::{self, Release};
use crate::modules::sandbox::{CacheFolders, Limits, Sandbox};
use crate::modules::translate::Translate;
use crate::progress::Progress;
use crate::rows::RecordVersions;
use crate::store::{Lenses, Store, TableAccess};
use crate::throttle::Throttle;

/// The parts that exist before the lock is taken; building them detects every fault in files and configuration.
pub struct Prepared {
    /// The validated configuration.
    pub config: Config,
    /// The loaded modules.
    pub catalog: Catalog,
    /// The encryption keys.
    pub keyring: Arc<Keyring>,
    /// The open database.
    pub database: Database,
    /// The progress of this process's work.
    pub progress: Progress,
    /// The throttle of this process's work.
    pub throttle: Throttle,
    pub(super) metrics: Metrics,
    pub(super) gate: Gate,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("database", &self.database).finish_non_exhaustive()
    }
}

/// The sandbox of a host with this configuration, with the same folders of compiled modules.
///
/// # Errors
/// If wasmtime cannot start.
pub fn sandbox(config: &Config) -> Result<Arc<Sandbox>, StartupError> {
    let shipped = vec![shipped_module_cache(&config.modules_dir)];
    let cache = CacheFolders { own: config.module_caches.clone(), shipped };
    Ok(Arc::new(Sandbox::new(Limits::default(), Some(&cache))?))
}

/// Loads a folder of modules with every check that a host makes before it starts; `bbs module check` and `bbs module build`
/// use it, too. Compiles modules that are not in the cache, which takes seconds.
///
/// # Errors
/// Any reason for which a host does not start with this folder.
pub fn load_catalog(folder: &Path, sandbox: &Arc<Sandbox>) -> Result<Catalog, StartupError> {
    let refused = |source| StartupError::Catalog { folder: folder.to_owned(), source };
    let catalog = Catalog::load(folder, sandbox).map_err(refused)?;
    catalog.ends_in(NATIVE).map_err(refused)?;
    if catalog.migrations().is_empty() {
        return Err(StartupError::NoMigrations { folder: folder.to_owned() });
    }
    api::served(translators(&catalog), None)?;
    Ok(catalog)
}

/// Logs one warning, independent of the number of modules.
fn warn_of_compiling_again(sandbox: &Sandbox) {
    let compiled = sandbox.compiled();
    if let (1.., Some(error)) = (compiled, sandbox.cache_failure()) {
        tracing::warn!(
            name: "modules.not-kept",
            compiled, %error,
            "compiled modules are not kept, so each start takes seconds longer; name a folder with `module_cache_dir`"
        );
    }
}

/// Pins the versions of the release that the configuration names.
///
/// # Errors
/// If it names a release that the modules do not know, or pins a version as well.
pub fn pin_release(config: &mut Config) -> Result<(), StartupError> {
    let Some(release) = config.pin_release.clone() else { return Ok(()) };
    if config.pin_data_version.is_some() || config.pin_api_version.is_some() {
        return Err(StartupError::PinnedTwice { release });
    }
    let Release { data, api, .. } = releases::release(&config.modules_dir, &release)?;
    config.pin_data_version = Some(data);
    config.pin_api_version = Some(api.to_string());
    Ok(())
}

/// Checks that the catalog has every data version of the configuration, and the API every API version.
fn check_versions(config: &Config, catalog: &Catalog) -> Result<(), StartupError> {
    let (pin, back_to) = (config.pin_data_version, config.migration.rollback_on_drain_to);
    for (what, version) in [("`pin_data_version`", pin), ("`rollback_on_drain_to_version`", back_to)] {
        version.map_or(Ok(()), |version| check_version(catalog, what, version))?;
    }
    let wanted = pin.unwrap_or_else(|| catalog.layout_history().newest());
    if let Some(to) = back_to {
        let manifests = catalog.migrations().iter().map(|module| module.manifest());
        migrate::check_way_back(manifests, wanted, to).map_err(|source| StartupError::NoWayBack { to, source })?;
    }
    api::served(translators(catalog), config.pin_api_version.as_deref())?;
    Ok(())
}

/// The translators of a catalog, as the API takes them.
pub fn translators(catalog: &Catalog) -> Vec<Arc<dyn Translate>> {
    catalog.translators().iter().map(|module| Arc::clone(module) as Arc<dyn Translate>).collect()
}

impl Prepared {
    /// Loads the modules and opens the database.
    ///
    /// # Errors
    /// If keys, modules, versions or the database cannot be used.
    pub async fn new(mut config: Config) -> Result<Self, StartupError> {
        pin_release(&mut config)?;
        let keys = std::mem::take(&mut config.encryption_keys);
        let keyring = Keyring::new(keys, &config.active_key_label)?;
        let sandbox = sandbox(&config)?;
        let folder = config.modules_dir.clone();
        // On another thread: compiling takes seconds, during which signals and health checks are handled.
        let loading = Arc::clone(&sandbox);
        let loaded = tokio::task::spawn_blocking(move || load_catalog(&folder, &loading)).await;
        let catalog = loaded.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        warn_of_compiling_again(&sandbox);
        check_versions(&config, &catalog)?;
        let database = Database::open(&config.database).await?;
        let (progress, throttle) = (Progress::default(), Throttle::new(config.migration.units_per_second));
        let advanced = &config.clients.advanced_metrics;
        let advanced =
            AdvancedRoutes { counted: advanced.request_count.clone(), timed: advanced.request_latency.clone() };
        let measures = Measures::new(database.clone(), &advanced);
        let metrics = Metrics::new(progress.clone(), throttle.clone(), measures);
        let gate = Gate::new(progress.clone());
        Ok(Self { catalog, keyring: Arc::new(keyring), database, progress, throttle, metrics, gate, config })
    }

    /// The data version to migrate to: the operator's pin, or the newest of the catalog.
    pub fn wanted(&self) -> DataVersion {
        self.config.pin_data_version.unwrap_or_else(|| self.catalog.layout_history().newest())
    }

    pub(super) fn is_pinned(&self, version: DataVersion) -> bool {
        self.config.pin_data_version == Some(version)
    }

    /// The parts that `migrate` works with, with the present time.
    pub fn context(&self) -> Context {
        let migrations = self.catalog.migrations().iter().map(|module| Arc::clone(module) as Arc<dyn Transform>);
        Context {
            database: self.database.clone(),
            migrations: migrations.collect(),
            keyring: Arc::clone(&self.keyring),
            progress: self.progress.clone(),
            throttle: self.throttle.clone(),
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

    /// Opens the admin socket of this process.
    ///
    /// # Errors
    /// As [`admin::Socket::open`].
    pub async fn open_admin(&self) -> Result<admin::Socket, AdminError> {
        let host = admin::Host { progress: self.progress.clone(), throttle: self.throttle.clone() };
        admin::Socket::open(&self.config.admin_socket, host).await
    }

    /// Migrates to the end. From then on, records are sealed under the active key only.
    ///
    /// # Errors
    /// As [`bring_part`](Self::bring_part).
    pub async fn bring_to(&self, fence: &Fence, intent: Intent) -> Result<Decision, StartupError> {
        match self.bring_part(fence, intent, None).await? {
            RunOutcome::Done(decision) => Ok(decision),
            RunOutcome::Partial(_) => unreachable!("nothing bounds it"),
        }
    }

    /// Migrates at most `most` units, or all if absent.
    ///
    /// # Errors
    /// [`StartupError::ShutDown`] if the state of the database does not allow it; otherwise the failure of a step.
    pub async fn bring_part(
        &self,
        fence: &Fence,
        intent: Intent,
        most: Option<u64>,
    ) -> Result<RunOutcome, StartupError> {
        self.announce(intent).await?;
        self.begin_rotation(fence).await?;
        let span = tracing::info_span!("migration-manager", ?intent);
        let decision = match migrate::run_partially(&self.context(), fence, intent, most).instrument(span).await? {
            RunOutcome::Done(Decision::ShutDown(reason)) => return Err(StartupError::ShutDown(reason)),
            RunOutcome::Done(decision) => decision,
            part @ RunOutcome::Partial(_) => return Ok(part),
        };
        self.begin_rotation(fence).await?;
        if let Decision::Begin { from, to } | Decision::Continue { from, to } = &decision {
            let (current_version, target_version) = (from, to);
            tracing::info!(name: "migration-manager.completed-migration", current_version, target_version, "migrated");
        }
        Ok(RunOutcome::Done(decision))
    }

    fn layout(&self, version: DataVersion) -> Result<&Layout, StartupError> {
        Ok(self.catalog.layout_history().at(version).ok_or(MigrateError::UnknownTarget { version })?)
    }

    /// The record versions that new records are stamped with at a data version.
    fn record_versions(&self, version: DataVersion) -> RecordVersions {
        RecordVersions::at(self.catalog.migrations().iter().map(|module| module.manifest()), version)
    }

    /// How the store accesses tables of a version: directly, or through a lens. With `stays`, the database remains at that
    /// version, and writes that its layout cannot hold are rejected.
    pub(super) async fn access(
        &self,
        fence: &Fence,
        version: DataVersion,
        stays: bool,
    ) -> Result<TableAccess, StartupError> {
        let dialect = self.database.dialect();
        let context = self.context();
        let line = self.catalog.layout_history();
        if Lenses::are_needed(line, &context.migrations, version).map_err(MigrateError::from)? {
            let arguments = migrate::arguments(&context, fence, Lenses::versions(version)).await?;
            let lenses = Lenses::new(line, &context.migrations, version, self.record_versions(version), arguments);
            let lenses = lenses.map_err(MigrateError::from)?.pinned(stays);
            tracing::info!(data_version = version, "records are read and written through a lens");
            return Ok(TableAccess::through_lenses(lenses, dialect));
        }
        let layout = self.layout(version)?;
        let kept = Lens::new(line, &context.migrations, version, 0, BTreeSet::new()).map_err(MigrateError::from)?;
        let places = |table: &String| kept.groups.iter().find(|group| group.sources.contains(table));
        let access = TableAccess::direct(layout, dialect, &self.record_versions(version));
        let with_places = layout.tables.keys().filter_map(|table| Some((table, places(table)?.keeps.clone())));
        Ok(with_places.fold(access, |access, (table, places)| access.with_residue_places(table, places)))
    }

    pub(super) fn store(&self, fence: &Fence, access: TableAccess) -> Store {
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
            update_max_in_flight: self.config.updates.max_in_flight,
            definitions_kept: self.config.updates.definitions_kept,
            definitions_max_age: self.config.updates.definitions_max_age,
        }
    }

    /// The service over a store, for calls and convergence.
    pub(super) fn service(&self, store: Store, clients: Clients) -> Service {
        Service::new(store, Events::default(), clients, self.policy(), self.metrics.measures().clone())
    }

    pub(super) fn api(&self, service: Service) -> Result<Api, StartupError> {
        Ok(Api::new(service, translators(&self.catalog), self.config.pin_api_version.as_deref())?)
    }
}
