//! From a configuration to a served API, on one screen: what runs, in which order, and what each failure
//! means. The only place where the parts meet; it does no work of its own.

mod drain;
mod keys;
mod online;
mod signals;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::Instrument;

use crate::admin::{self, AdminError};
use crate::api::{self, Api, NATIVE};
use crate::clients::Clients;
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, MigrationMode, OnUnreadable};
use crate::database::{Database, DatabaseError};
use crate::domain::{Policy, Service};
use crate::events::Events;
use crate::http::{self, Gate};
use crate::keys::KeysError;
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Layout;
use crate::lens::Lens;
use crate::lens::transform::Transform;
use crate::lock::fence::{Fence, FenceError};
use crate::lock::{Held, LockError, LockLost, MasterLock, Purpose};
use crate::metrics::Metrics;
use crate::migrate::online::{Online, Start};
use crate::migrate::{self, Context, Decision, Intent, MigrateError, Progressed, Reason, RefusedUnits, Tuning};
use crate::modules::catalog::{Catalog, CatalogError};
use crate::modules::sandbox::{Limits, Sandbox, SandboxError};
use crate::modules::translate::Translate;
use crate::pace::Pace;
use crate::progress::{Progress, SERVING, Snapshot, Wait};
use crate::record::{Keyring, KeyringError};
use crate::store::{Access, Lenses, Store};
use signals::Signals;

/// How long requests under way may take to end once the host is told to.
const DRAIN: Duration = Duration::from_secs(60);
/// How often a host that does not serve yet writes to its log how far it has come.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    #[error("the encryption keys cannot be used")]
    Keyring(#[from] KeyringError),
    #[error("the sandbox for modules cannot start")]
    Sandbox(#[from] SandboxError),
    #[error("the modules in {} cannot be used", .folder.display())]
    Catalog { folder: std::path::PathBuf, source: CatalogError },
    #[error("there is no migration in {}; build the modules with `bbs module build --into {}`", .folder.display(), .folder.display())]
    NoMigrations { folder: std::path::PathBuf },
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error("another host holds the lock of this database; stop it first, or let it do the work")]
    Locked,
    #[error("this host serves no more; its supervisor may start it again, as a standby")]
    LockLost(#[from] LockLost),
    #[error("cannot listen on {address}; is another process using it?")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("the API server ended")]
    Server(#[source] std::io::Error),
    #[error("cannot wait for signals")]
    Signals(#[source] std::io::Error),
    #[error("the migration failed")]
    Migrate(#[from] MigrateError),
    #[error("this host shuts down and has written nothing")]
    ShutDown(#[source] Reason),
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error("a migration of this database has not ended; finish it with `bbs migrate up` or `bbs serve`, then rotate")]
    MigrationUnderWay,
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(
        "a second signal ended this host before the database was back at {to}; nothing is lost. Finish with \
         `bbs migrate down --to {to}`, or with a host that is told the same"
    )]
    RollbackCutShort { to: DataVersion },
    #[error(transparent)]
    Api(#[from] api::ApiError),
}

/// What stands before the lock is taken: everything that can be wrong with files and configuration.
pub struct Prepared {
    pub config: Config,
    pub catalog: Catalog,
    pub keyring: Arc<Keyring>,
    pub database: Database,
    pub progress: Progress,
    pub pace: Pace,
    metrics: Metrics,
    gate: Gate,
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
        let refused = |source| StartupError::Catalog { folder: config.modules_dir.clone(), source };
        let catalog = Catalog::load(&config.modules_dir, &sandbox).map_err(refused)?;
        catalog.ends_in(NATIVE).map_err(refused)?;
        if catalog.migrations().is_empty() {
            return Err(StartupError::NoMigrations { folder: config.modules_dir.clone() });
        }
        let database = Database::open(&config.database).await?;
        let (progress, pace) = (Progress::default(), Pace::new(config.migration.units_per_second));
        let metrics = Metrics::new(progress.clone(), pace.clone());
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

    async fn lock(&self, purpose: Purpose) -> Result<MasterLock, LockError> {
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
        self.check_keys().await?;
        if let Decision::ShutDown(reason) = migrate::decide(&migrate::found(&self.database).await?, intent) {
            return Err(StartupError::ShutDown(reason));
        }
        self.begin_rotation(fence).await?;
        let span = tracing::info_span!("migrate", ?intent);
        let decision = match migrate::run_part(&self.context(), fence, intent, most).instrument(span).await? {
            Progressed::Done(Decision::ShutDown(reason)) => return Err(StartupError::ShutDown(reason)),
            Progressed::Done(decision) => decision,
            part @ Progressed::Part(_) => return Ok(part),
        };
        self.begin_rotation(fence).await?;
        Ok(Progressed::Done(decision))
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
    async fn access(&self, fence: &Fence, version: DataVersion) -> Result<Access, StartupError> {
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

    fn store(&self, fence: &Fence, access: Access) -> Store {
        let (keyring, clock) = (Arc::clone(&self.keyring), Arc::new(SystemClock));
        Store::new(self.database.clone(), fence.clone(), keyring, clock, access)
    }

    fn api(&self, store: Store) -> Result<Api, StartupError> {
        let translators = self.catalog.translators().iter().map(|module| Arc::clone(module) as Arc<dyn Translate>);
        let service = Service::new(store, Events::default(), Clients::default(), Policy::default());
        Ok(Api::new(service, translators.collect(), self.config.pin_api_version.as_deref())?)
    }
}

/// What a host that has begun to serve says of itself.
#[derive(Debug, Clone)]
pub struct Served {
    pub address: SocketAddr,
    pub data_version: DataVersion,
    pub migrations: usize,
    pub translators: usize,
}

/// Serves until a signal, a lost lock or a failure ends it; `announce` is called once the API answers.
pub async fn serve(config: Config, announce: impl FnOnce(&Served)) -> Result<(), StartupError> {
    let signals = Signals::listen().map_err(StartupError::Signals)?;
    let prepared = Prepared::new(config).await?;
    open_side_doors(&prepared).await?;
    let mut admin = match prepared.open_admin().await {
        // On a machine with several hosts the master has it until it ends.
        Err(AdminError::InUse { .. }) => None,
        opened => Some(opened?),
    };
    let lock = tokio::select! {
        taken = wait_for_lock(&prepared) => taken?,
        () = signals.reach(1) => return Ok(()),
    };
    tracing::info!("took the lock");
    prepared.metrics.lock_held(true);
    let served = async {
        if admin.is_none() {
            admin = Some(prepared.open_admin().await?);
        }
        serve_as_master(&prepared, &lock, &signals, announce).await
    }
    .await;
    prepared.metrics.lock_held(false);
    // Before the lock, so that the next master finds the place free.
    drop(admin);
    prepared.database.close().await;
    lock.release().await;
    served
}

/// Health and metrics, which a standby has too.
async fn open_side_doors(prepared: &Prepared) -> Result<(), StartupError> {
    if let Some(address) = prepared.config.health_address {
        tokio::spawn(http::serve_health(bind(address).await?));
    }
    if let Some(address) = prepared.config.metrics_address {
        let listener = bind(address).await?;
        let address = listener.local_addr().map_err(StartupError::Server)?;
        tracing::info!(metrics = %address, "metrics are at /metrics");
        tokio::spawn(http::serve_metrics(listener, prepared.metrics.clone(), prepared.gate.clone()));
    }
    Ok(())
}

async fn wait_for_lock(prepared: &Prepared) -> Result<Held, StartupError> {
    prepared.progress.enter("lock", "another host may have it", None);
    let _waiting = prepared.progress.wait(Wait::Lock);
    Ok(prepared.lock(Purpose::Serve).await?.take().await?)
}

async fn serve_as_master(
    prepared: &Prepared,
    lock: &Held,
    signals: &Signals,
    announce: impl FnOnce(&Served),
) -> Result<(), StartupError> {
    let listener = bind(prepared.config.listen_address).await?;
    let address = listener.local_addr().map_err(StartupError::Server)?;
    tracing::info!(%address, "listening; every request is answered 503 until the database is ready");
    let gate = &prepared.gate;
    let (end_server, server_stop) = watch::channel(false);
    let router = http::router(gate.clone(), prepared.metrics.clone());
    let server = tokio::spawn(http::serve(listener, router, stopped(server_stop)));

    prepared.progress.enter("fence", "taking over from the host before", None);
    let work = async {
        let fence = Fence::raise(&prepared.database).await?;
        tokio::select! {
            outcome = work_and_serve(prepared, &fence, address, announce) => outcome?,
            fault = fence.lost() => return Err(fault.into()),
            () = signals.reach(1) => {}
        }
        drain::roll_back(prepared, &fence, signals).await
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        lost = lock.lost() => Err(lost.into()),
        never = log_progress(&prepared.progress) => match never {},
    };
    if outcome.is_err() {
        gate.close();
    }
    // They would never end of themselves.
    gate.end_streams();
    // Nobody listens any more if the server ended first, and that is the reason to stop.
    let _ = end_server.send(true);
    let ended = tokio::select! {
        ended = tokio::time::timeout(DRAIN, server) => ended,
        () = signals.reach(2) => return outcome,
    };
    let ended = match ended {
        Ok(ended) => ended.map_err(|join| StartupError::Server(join.into()))?.map_err(StartupError::Server),
        Err(_) => Ok(()),
    };
    outcome.and(ended)
}

/// Ends only with a failure, or when the database was found on its way back and is there now.
async fn work_and_serve(
    prepared: &Prepared,
    fence: &Fence,
    address: SocketAddr,
    announce: impl FnOnce(&Served),
) -> Result<(), StartupError> {
    let started = match prepared.config.migration.mode {
        MigrationMode::Online => prepared.begin_to(fence).await,
        MigrationMode::Offline => {
            prepared.bring_to(fence, Intent::Up { wanted: prepared.wanted() }).await.map(Start::Done)
        }
    };
    let following = match started {
        // What this host, or one told the same, had begun when it was ended.
        Err(StartupError::ShutDown(Reason::GoingDown { to }))
            if prepared.config.migration.rollback_on_drain_to == Some(to) =>
        {
            tracing::info!(to, "the database was on its way back; this host finishes that and ends");
            return Ok(());
        }
        Ok(Start::Done(_)) => None,
        Ok(Start::Follow(online)) => Some(online),
        Err(fault) => return Err(fault),
    };
    let store = match &following {
        None => prepared.store(fence, prepared.access(fence, prepared.wanted()).await?),
        Some(online) => prepared.store_following(fence, online).await?,
    };
    prepared.gate.open(Arc::new(prepared.api(store.clone())?));
    if following.is_none() {
        prepared.progress.enter(SERVING, "", None);
    }
    let served = Served {
        address,
        data_version: following.as_ref().map_or(prepared.wanted(), Online::from),
        migrations: prepared.catalog.migrations().len(),
        translators: prepared.catalog.translators().len(),
    };
    tracing::info!(%address, data_version = served.data_version, "serving");
    announce(&served);
    if let Some(online) = &following {
        if !prepared.follow(fence, online, &store).await? {
            return std::future::pending().await;
        }
        prepared.progress.enter(SERVING, "", None);
    }
    prepared.rotate_beside(fence).await?;
    std::future::pending().await
}

/// A line now and then while there is work: as many as it takes time, however many records there are.
async fn log_progress(progress: &Progress) -> std::convert::Infallible {
    loop {
        tokio::time::sleep(LOG_INTERVAL).await;
        let now = progress.snapshot();
        if !now.is_over() {
            let Snapshot { phase, detail, done, total, units_per_second, eta_seconds, .. } = now;
            let waits_for = now.waiting.map(|waiting| waiting.reason.to_string());
            tracing::info!(phase, detail, done, total, units_per_second, eta_seconds, waits_for, "still at work");
        }
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartupError> {
    TcpListener::bind(address).await.map_err(|source| StartupError::Listen { address, source })
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // A sender that is gone can say nothing more, so there is nothing more to wait for.
    let _ = stop.wait_for(|stop| *stop).await;
}
