//! The parts that exist before the lock is taken, and those that a master builds from them:
//! catalog, keys, database, store, service, API. Owns how they are built from each other; runs
//! nothing by itself.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bbs_database::{Address, Database};
use bbs_encryption::Keyring;
use bbs_lens::Lens;
use bbs_lens::layout::history::{LayoutHistory, Way};
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::migration_set::MigrationSet;
use bbs_lens::transform::Transform;
use bbs_modules::catalog::Catalog;
use bbs_modules::releases::{self, Release};
use bbs_modules::sandbox::{CacheFolders, Limits, Sandbox};
use bbs_modules::signatures::TrustedKeys;
use bbs_modules::translate::Translate;
use bbs_units::RecordVersions;
use bbs_work::blocking;
use bbs_work::progress::Progress;
use bbs_work::throttle::Throttle;
use tracing::Instrument;

use super::StartupError;
use super::takeover::check_version;
use super::version_name::{VersionName, version_to_go_to};
use crate::admin;
use crate::api::{self, Api, CHAIN_END};
use crate::clients::Clients;
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, MigrationMode, shipped_module_cache};
use crate::domain::{Policy, Service};
use crate::events::Events;
use crate::http::Gate;
use crate::lock::fence::Fence;
use crate::metrics::{AdvancedRoutes, Measures, Metrics};
use crate::migrate::{
    self, Context, Decision, Intent, LockWaits, MigrateError, RunOutcome, Runner,
    ServingQuarantine, Tuning,
};
use crate::store::{Lenses, NATIVE, Store, TableAccess};

/// Modules from the cache take less, unless storage is slow. Compiling them takes several seconds.
const LONGEST_FROM_CACHE: Duration = Duration::from_secs(2);

/// The parts that exist before the lock is taken; building them detects every fault in files and
/// configuration. Clones share all but the configuration.
#[derive(Clone)]
pub struct Prepared {
    /// The validated configuration.
    pub config: Config,
    /// The loaded modules.
    pub catalog: Arc<Catalog>,
    /// The encryption keys.
    pub keyring: Arc<Keyring>,
    /// The open database.
    pub database: Database,
    /// The progress of this process's work.
    pub progress: Progress,
    /// The throttle of this process's work.
    pub throttle: Throttle,
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) metrics: Metrics,
    pub(super) gate: Gate,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared")
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

/// The sandbox of a host with this configuration, with the same folders of compiled modules.
///
/// # Errors
/// If the folders cannot be found, or wasmtime cannot start.
pub fn sandbox(config: &Config) -> Result<Arc<Sandbox>, StartupError> {
    let shipped = config
        .module_folders()?
        .iter()
        .map(|folder| shipped_module_cache(folder))
        .collect();
    let cache = CacheFolders {
        own: config.module_caches.clone(),
        shipped,
    };
    Ok(Arc::new(Sandbox::new(Limits::default(), Some(&cache))?))
}

/// Loads folders of modules with every check that a host makes before it starts; `bbs module check`
/// and `bbs module build` use it, too. With any trusted key, every catalog has to be signed.
/// Compiles modules that are not in the cache, which takes seconds.
///
/// # Errors
/// Any reason for which a host does not start with these folders.
pub fn load_catalog(
    folders: &[PathBuf],
    keys: &TrustedKeys,
    sandbox: &Arc<Sandbox>,
) -> Result<Catalog, StartupError> {
    reload_catalog(&Catalog::default(), folders, keys, sandbox)
}

fn reload_catalog(
    before: &Catalog,
    folders: &[PathBuf],
    keys: &TrustedKeys,
    sandbox: &Arc<Sandbox>,
) -> Result<Catalog, StartupError> {
    let refused = |source| StartupError::Catalog {
        folders: folders.to_owned(),
        source,
    };
    let catalog = before.reload(folders, keys, sandbox).map_err(refused)?;
    catalog.ends_in(CHAIN_END).map_err(refused)?;
    if catalog.migrations().is_empty() {
        return Err(StartupError::NoMigrations {
            folder: folders.first().cloned().unwrap_or_default(),
        });
    }
    api::served(translators(&catalog), None)?;
    Ok(catalog)
}

/// Loads the modules of a configuration. Keeps those of `before` that have not changed.
pub(super) async fn load(
    config: &Config,
    sandbox: &Arc<Sandbox>,
    before: &Arc<Catalog>,
    beside_clients: bool,
) -> Result<Catalog, StartupError> {
    let folders = config.module_folders()?;
    let before = Arc::clone(before);
    let keys = config.trusted_keys.clone();
    let loading = Arc::clone(sandbox);
    // On another thread: compiling takes seconds, during which signals and health checks are
    // handled.
    let reload = move || reload_catalog(&before, &folders, &keys, &loading);
    let loaded = blocking::spawn(beside_clients, reload).await;
    let catalog = loaded.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    warn_of_compiling_again(sandbox);
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

/// Logs that signatures are not verified: a warning where modules come from elsewhere.
fn note_unverified(config: &Config, catalog: &Catalog) {
    if !config.trusted_keys.is_empty() {
        return;
    }
    if config.is_bosh_job || catalog.folders() > 1 {
        tracing::warn!(
            name: "modules.not-verified",
            "signatures of the modules' catalogs are not verified, so a write to one of their folders can change which modules run; \
             list the public keys of their authors in `trusted_keys`"
        );
    } else {
        tracing::info!(name: "modules.not-verified", "signatures of the modules' catalog are not verified");
    }
}

/// Pins the versions of the release that the configuration names, with the modules of its catalog.
///
/// # Errors
/// If it names a release that the modules do not know, or pins a version as well; or the list of
/// releases was altered.
pub fn pin_release(config: &mut Config, catalog: &Catalog) -> Result<(), StartupError> {
    let Some(release) = config.pin_release.clone() else {
        return Ok(());
    };
    if config.pin_data_version.is_some() || config.pin_api_version.is_some() {
        return Err(StartupError::PinnedTwice { release });
    }
    let folders = config.module_folders()?;
    let Release { data, api, .. } =
        releases::release(&folders, catalog.release_digests(), &release)?;
    config.pin_data_version = Some(data);
    config.pin_api_version = Some(api.to_string());
    Ok(())
}

/// Checks that the catalog has the handlers' data version and every one of the configuration, and
/// the API every API version.
pub(super) fn check_versions(config: &Config, catalog: &Catalog) -> Result<(), StartupError> {
    if catalog.layout_history().at(NATIVE).is_none() {
        return Err(StartupError::NoNativeMigration { version: NATIVE });
    }
    let pin = config.pin_data_version;
    let back_to = config.migration.rollback_on_drain_to;
    for (what, version) in [
        ("`pin_data_version`", pin),
        ("`rollback_on_drain_to_version`", back_to),
    ] {
        version.map_or(Ok(()), |version| {
            check_version(config, catalog, what, version)
        })?;
    }
    let wanted = pin.unwrap_or_else(|| catalog.layout_history().newest());
    if let Some(to) = back_to {
        let manifests = catalog.migrations().iter().map(|module| module.manifest());
        migrate::check_way_back(manifests, wanted, to)
            .map_err(|source| StartupError::NoWayBack { to, source })?;
    }
    api::served(translators(catalog), config.pin_api_version.as_deref())?;
    Ok(())
}

/// Waits for modules that are loaded. If that takes longer than from the cache, because they are
/// compiled, the log and `progress` say so.
async fn await_modules<T>(loading: impl Future<Output = T>, progress: &Progress) -> T {
    let mut loading = pin!(loading);
    if let Ok(loaded) = tokio::time::timeout(LONGEST_FROM_CACHE, loading.as_mut()).await {
        return loaded;
    }
    tracing::info!(
        name: "modules.compiling",
        "compiling modules; they are kept for later starts, if there is a folder for them"
    );
    progress.enter("compile", "modules, once", None);
    let loaded = loading.await;
    progress.enter("", "", None);
    loaded
}

/// The modules of a host, and what they run in.
pub(super) struct LoadedModules {
    sandbox: Arc<Sandbox>,
    catalog: Arc<Catalog>,
}

/// Loads the modules of a configuration, and pins and checks its versions with them.
pub(super) async fn load_modules(
    config: &mut Config,
    progress: &Progress,
) -> Result<LoadedModules, StartupError> {
    let sandbox = sandbox(config)?;
    let before = Arc::default();
    let loading = load(config, &sandbox, &before, false);
    let catalog = Arc::new(await_modules(loading, progress).await?);
    pin_release(config, &catalog)?;
    check_versions(config, &catalog)?;
    Ok(LoadedModules { sandbox, catalog })
}

/// The translators of a catalog, as the API takes them.
pub fn translators(catalog: &Catalog) -> Vec<Arc<dyn Translate>> {
    catalog
        .translators()
        .iter()
        .map(|module| Arc::clone(module) as Arc<dyn Translate>)
        .collect()
}

impl Prepared {
    /// Loads the modules and opens the database. `loading` shows that modules are compiled.
    ///
    /// # Errors
    /// If keys, modules, versions or the database cannot be used.
    pub async fn new(config: Config, loading: &Progress) -> Result<Self, StartupError> {
        Self::going_to(config, None, loading)
            .await
            .map(|(prepared, _)| prepared)
    }

    /// Loads the modules, looks up the version that `--to` names, or else that of a host with this
    /// configuration, and opens the database. A database that is not there yet is made only if
    /// there is such a version.
    ///
    /// # Errors
    /// As [`Self::new`], or the modules do not have the version.
    pub async fn going_to(
        mut config: Config,
        to: Option<&VersionName>,
        loading: &Progress,
    ) -> Result<(Self, DataVersion), StartupError> {
        let keys = std::mem::take(&mut config.encryption_keys);
        let keyring = Keyring::new(keys, &config.active_key_label)?;
        let LoadedModules { sandbox, catalog } = load_modules(&mut config, loading).await?;
        note_unverified(&config, &catalog);
        let to = to
            .map(|to| version_to_go_to(&config, &catalog, to))
            .transpose()?;
        let database = Database::open(&config.database).await?;
        database.check_sessions().await?;
        let progress = Progress::default();
        let throttle = Throttle::new(config.migration.units_per_second);
        let advanced = &config.clients.advanced_metrics;
        let advanced = AdvancedRoutes {
            counted: advanced.request_count.clone(),
            timed: advanced.request_latency.clone(),
        };
        let measures = Measures::new(database.clone(), &advanced);
        let metrics = Metrics::new(progress.clone(), throttle.clone(), measures);
        let gate = Gate::new(progress.clone());
        let keyring = Arc::new(keyring);
        let prepared = Self {
            config,
            catalog,
            keyring,
            database,
            progress,
            throttle,
            sandbox,
            metrics,
            gate,
        };
        let to = to.unwrap_or_else(|| prepared.wanted());
        Ok((prepared, to))
    }

    /// Continues with the same parts and other modules. Folders that are new among them are noted
    /// as the first ones were.
    pub(super) fn adopt(&mut self, next: Self) {
        if next.catalog.folders() > self.catalog.folders() {
            note_unverified(&next.config, &next.catalog);
        }
        *self = next;
    }

    /// The data version that the argument `--to` names.
    ///
    /// # Errors
    /// The modules do not have it.
    pub fn version(&self, to: &VersionName) -> Result<DataVersion, StartupError> {
        version_to_go_to(&self.config, &self.catalog, to)
    }

    /// The data version to migrate to: the operator's pin, or the newest of the catalog.
    pub fn wanted(&self) -> DataVersion {
        self.config
            .pin_data_version
            .unwrap_or_else(|| self.catalog.layout_history().newest())
    }

    pub(super) fn is_pinned(&self, version: DataVersion) -> bool {
        self.config.pin_data_version == Some(version)
    }

    /// Whether the database remains at a version that it is served at.
    pub(super) fn stays_at(&self, version: DataVersion) -> bool {
        self.is_pinned(version) || version < self.wanted()
    }

    /// The parts that `migrate` works with at a start of a host with this configuration.
    pub fn start_context(&self) -> Context {
        Context {
            is_online: self.config.migration.mode == MigrationMode::Online,
            ..self.context()
        }
    }

    /// The parts that `migrate` works with while no client is served, with the present time.
    pub fn context(&self) -> Context {
        let migrations = self
            .catalog
            .migrations()
            .iter()
            .map(|module| Arc::clone(module) as Arc<dyn Transform>);
        Context {
            database: self.database.clone(),
            migrations: migrations.collect(),
            known_layouts: Some(Arc::clone(self.catalog.layout_history())),
            keyring: Arc::clone(&self.keyring),
            progress: self.progress.clone(),
            throttle: self.throttle.clone(),
            clock: Arc::new(SystemClock),
            runner: Runner {
                host: self.host_name(),
                release: env!("CARGO_PKG_VERSION").to_owned(),
            },
            now_ns: SystemClock.now_ns(),
            tuning: self.tuning(),
            is_online: false,
        }
    }

    /// How changes of the schema wait for locks.
    pub(super) fn lock_waits(&self) -> LockWaits<'_> {
        LockWaits {
            database: &self.database,
            progress: &self.progress,
            timeout: self.tuning().lock_timeout,
        }
    }

    /// The name of this host in the history of migrations: its configured one, or that of the
    /// machine.
    fn host_name(&self) -> String {
        let name = self
            .config
            .lock
            .uuid
            .clone()
            .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
            .unwrap_or_else(|| "unknown".to_owned());
        name.trim().to_owned()
    }

    fn tuning(&self) -> Tuning {
        let config = &self.config.migration;
        let default = Tuning::default();
        Tuning {
            batch_time: config.batch_time.unwrap_or(default.batch_time),
            on_unreadable: config.on_unreadable,
            quarantine_limit: config.quarantine_limit.unwrap_or(default.quarantine_limit),
            lock_timeout: config.lock_timeout.unwrap_or(default.lock_timeout),
            ..default
        }
    }

    /// Opens the admin socket of this process, as soon as that is possible. Without `control` the
    /// process is a command.
    pub async fn open_admin(&self, control: Option<&admin::Control>) -> admin::Endpoint {
        let progress = self.progress.clone();
        let throttle = self.throttle.clone();
        let host = admin::Host {
            progress,
            throttle,
            pin_data_version: self.config.pin_data_version,
            control: control.cloned(),
        };
        admin::Endpoint::open(&self.config.admin_socket, host).await
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
    /// [`StartupError::ShutDown`] if the state of the database does not allow it; otherwise the
    /// failure of a step.
    pub async fn bring_part(
        &self,
        fence: &Fence,
        intent: Intent,
        most: Option<u64>,
    ) -> Result<RunOutcome, StartupError> {
        self.announce(intent).await?;
        self.begin_rotation(fence).await?;
        let span = tracing::info_span!("migration-manager", to = intent.to());
        let decision = match migrate::run_partially(&self.context(), fence, intent, most)
            .instrument(span)
            .await?
        {
            RunOutcome::Done(Decision::ShutDown(reason)) => {
                return Err(StartupError::ShutDown(reason));
            }
            RunOutcome::Done(decision) => decision,
            part @ RunOutcome::Partial(_) => return Ok(part),
        };
        self.begin_rotation(fence).await?;
        if let Decision::Begin { from, to } | Decision::Continue { from, to } = &decision {
            let current_version = from;
            let target_version = to;
            tracing::info!(name: "migration-manager.completed-migration", current_version, target_version, "migrated");
        }
        Ok(RunOutcome::Done(decision))
    }

    /// The record versions that new records are stamped with at a data version, where these
    /// migrations ran.
    fn record_versions(&self, ran: &MigrationSet, version: DataVersion) -> RecordVersions {
        let manifests = self
            .catalog
            .migrations()
            .iter()
            .map(|module| module.manifest());
        RecordVersions::at(
            manifests.filter(|manifest| ran.has(manifest.version)),
            version,
        )
    }

    /// How the store accesses tables of a version: directly, or through a lens. With `stays`, the
    /// database remains at that version, and writes that its layout cannot hold are rejected.
    pub(super) async fn access(
        &self,
        fence: &Fence,
        version: DataVersion,
        stays: bool,
    ) -> Result<TableAccess, StartupError> {
        let layouts = migrate::layouts_that_ran(&self.context()).await?;
        self.access_in(&layouts, fence, version, stays).await
    }

    /// As [`access`](Self::access), for a database on which the migrations of `layouts` have run up
    /// to the version.
    pub(super) async fn access_in(
        &self,
        layouts: &LayoutHistory,
        fence: &Fence,
        version: DataVersion,
        stays: bool,
    ) -> Result<TableAccess, StartupError> {
        let dialect = self.database.dialect();
        let context = self.context();
        for version in [version, NATIVE] {
            layouts
                .at(version)
                .ok_or(MigrateError::UnknownTarget { version })?;
        }
        let record_versions = self.record_versions(&layouts.migrations(), version);
        if Lenses::are_needed(layouts, &context.migrations, version).map_err(MigrateError::from)? {
            let arguments = migrate::arguments(&context, fence, Lenses::versions(version)).await?;
            let lenses = Lenses::new(
                layouts,
                &context.migrations,
                version,
                record_versions,
                arguments,
            );
            let lenses = lenses.map_err(MigrateError::from)?.pinned(stays);
            tracing::info!(
                data_version = version,
                "records are read and written through a lens"
            );
            return Ok(TableAccess::through_lenses(lenses, dialect));
        }
        let layout = layouts
            .at(version)
            .ok_or(MigrateError::UnknownTarget { version })?;
        let all = Way::within(layouts, version, 0);
        let kept =
            Lens::new(all, &context.migrations, BTreeSet::new()).map_err(MigrateError::from)?;
        let places = |table: &String| {
            kept.groups
                .iter()
                .find(|group| group.sources.contains(table))
        };
        let quarantine = ServingQuarantine::new(context, version);
        let access = TableAccess::direct(layout, dialect, &record_versions);
        let access = access.with_quarantine(Arc::new(quarantine));
        let with_places = layout
            .tables
            .keys()
            .filter_map(|table| Some((table, places(table)?.keeps.clone())));
        Ok(with_places.fold(access, |access, (table, places)| {
            access.with_residue_places(table, places)
        }))
    }

    pub(super) fn store(&self, fence: &Fence, access: TableAccess) -> Store {
        let keyring = Arc::clone(&self.keyring);
        let clock = Arc::new(SystemClock);
        Store::new(self.database.clone(), fence.clone(), keyring, clock, access)
    }

    fn policy(&self) -> Policy {
        let Config {
            tasks, convergence, ..
        } = &self.config;
        let otherwise = Policy::default();
        Policy {
            max_task_retries: tasks.max_retries,
            update_workers: convergence.update_workers,
            task_callback_workers: tasks.callback_workers,
            kick_task: tasks.kick,
            expire_pending_task: tasks.expire_pending,
            expire_completed_task: tasks.expire_completed,
            convergence_workers: convergence.workers,
            update_pace: self.config.updates.pace,
            quarantine_limit: self
                .config
                .migration
                .quarantine_limit
                .unwrap_or(otherwise.quarantine_limit),
            definitions_kept: self.config.updates.definitions_kept,
            definitions_max_age: self.config.updates.definitions_max_age,
            ..otherwise
        }
    }

    /// The service over a store, for calls and convergence.
    pub(super) fn service(&self, store: Store, clients: Clients) -> Service {
        Service::new(
            store,
            Events::default(),
            clients,
            self.policy(),
            self.metrics.measures().clone(),
        )
    }

    pub(super) fn api(&self, service: Service) -> Result<Api, StartupError> {
        let api = Api::new(
            service,
            translators(&self.catalog),
            self.config.pin_api_version.as_deref(),
        )?;
        Ok(match &self.config.database {
            Address::Server(server) => {
                api.with_idle_limit(server.limits.idle_in_transaction_timeout)
            }
            Address::Sqlite(_) => api,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tracing::{Event, Subscriber};
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{self, SubscriberExt};

    use super::*;

    /// The names of the events that were logged.
    #[derive(Debug, Clone, Default)]
    struct LoggedNames(Arc<Mutex<Vec<&'static str>>>);

    impl<S: Subscriber> Layer<S> for LoggedNames {
        fn on_event(&self, event: &Event<'_>, _: layer::Context<'_, S>) {
            self.0.lock().unwrap().push(event.metadata().name());
        }
    }

    /// The phases that are shown, and the events that are logged, while modules are loaded for so
    /// long.
    async fn shown_during(load: Duration) -> (Vec<(String, String)>, Vec<&'static str>) {
        let names = LoggedNames::default();
        let subscriber = tracing_subscriber::registry().with(names.clone());
        let _logging = tracing::subscriber::set_default(subscriber);
        let progress = Progress::default();
        await_modules(tokio::time::sleep(load), &progress).await;
        let names = names.0.lock().unwrap().clone();
        (progress.entered_after(0), names)
    }

    #[tokio::test(start_paused = true)]
    async fn compilation_of_modules_is_shown_and_logged_after_two_seconds() {
        let from_cache = shown_during(Duration::from_millis(1999)).await;
        assert_eq!(from_cache, (Vec::new(), Vec::new()));
        let (phases, logged) = shown_during(Duration::from_millis(2001)).await;
        let phase = |name: &str, detail: &str| (name.to_owned(), detail.to_owned());
        assert_eq!(phases, [phase("compile", "modules, once"), phase("", "")]);
        assert_eq!(logged, ["modules.compiling"]);
    }
}
