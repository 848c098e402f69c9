//! From a configuration to a served API, on one screen: what runs, in which order, and what each failure
//! means. The only place where the parts meet; it does no work of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::{self, Api, NATIVE};
use crate::clock::{Clock, SystemClock};
use crate::config::{self, Config};
use crate::database::{Address, Database, DatabaseError};
use crate::http::{self, Gate};
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Layout;
use crate::layout::serves;
use crate::lens::transform::Transform;
use crate::lock::fence::{Fence, FenceError};
use crate::lock::file::{FileLock, FileLockError};
use crate::metrics::Metrics;
use crate::migrate::reencrypt::{self, ReencryptError};
use crate::migrate::{self, Context, Decision, Intent, MigrateError, Progressed, Reason, RefusedUnits, Tuning};
use crate::modules::catalog::{Catalog, CatalogError};
use crate::modules::sandbox::{Limits, Sandbox, SandboxError};
use crate::modules::translate::Translate;
use crate::pace::Pace;
use crate::progress::Progress;
use crate::record::{Keyring, KeyringError};
use crate::store::{NATIVE as NATIVE_DATA, Store};

/// How often a master looks whether its lock file is still the one it locked.
const LOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long requests under way may take to end once the host is told to.
const DRAIN: Duration = Duration::from_secs(60);

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
    #[error(
        "the handlers of this host cannot serve data version {wanted}: {}. Pin the data version to one that they can \
         serve, {NATIVE_DATA} or a later one without these changes, or use the host that belongs to it",
        .obstacles.join("; ")
    )]
    NotServable { wanted: DataVersion, obstacles: Vec<String> },
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Lock(#[from] FileLockError),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error("another host holds the lock of this database; stop it first, or let it do the work")]
    Locked,
    #[error("the lock of this database was lost: its file was removed or replaced. This host serves no more")]
    LockLost,
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
    #[error("the records cannot be brought under the active key")]
    Reencrypt(#[from] ReencryptError),
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
        let database = Database::open(&Address::Sqlite(config.database.clone())).await?;
        let (progress, pace) = (Progress::default(), Pace::default());
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
        let refused_units = match self.config.refused_units {
            config::RefusedUnits::Stop => RefusedUnits::Stop,
            config::RefusedUnits::Quarantine => RefusedUnits::Quarantine,
        };
        Context {
            database: self.database.clone(),
            migrations: migrations.collect(),
            keyring: Arc::clone(&self.keyring),
            progress: self.progress.clone(),
            now_ns: SystemClock.now_ns(),
            replays: Some(self.config.replay_dir.clone()),
            tuning: Tuning { refused_units, ..Tuning::default() },
        }
    }

    /// Takes the lock if nobody has it: for commands, which do not wait.
    pub async fn lock_now(&self) -> Result<(FileLock, Fence), StartupError> {
        let path = FileLock::path_for(&self.config.database);
        let lock = FileLock::try_take(&path)?.ok_or(StartupError::Locked)?;
        Ok((lock, Fence::raise(&self.database).await?))
    }

    /// Migrates as intended and brings every record under the active key.
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
        let context = self.context();
        reencrypt::check_label(&self.database, &self.keyring).await?;
        let decision = match migrate::run_part(&context, fence, intent, most).await? {
            Progressed::Done(Decision::ShutDown(reason)) => return Err(StartupError::ShutDown(reason)),
            Progressed::Done(decision) => decision,
            part @ Progressed::Part(_) => return Ok(part),
        };
        let at = match intent {
            Intent::Up { wanted } => wanted,
            Intent::Down { to } => to,
        };
        let tables = migrate::sealed_tables(self.layout(at)?);
        let done = reencrypt::reencrypt(fence, &self.keyring, &tables, &self.progress).await?;
        if done.unreadable > 0 {
            tracing::error!(
                unreadable = done.unreadable,
                examples = ?done.examples,
                "records that do not open were kept under their old key; repair or remove them and start again"
            );
        }
        Ok(Progressed::Done(decision))
    }

    fn layout(&self, version: DataVersion) -> Result<&Layout, StartupError> {
        Ok(self.catalog.line().at(version).ok_or(MigrateError::UnknownTarget { version })?)
    }

    /// Whether what the migration leads to can be served at all: asked before anything is locked or migrated.
    fn check_servable(&self) -> Result<(), StartupError> {
        let wanted = self.wanted();
        let obstacles = serves::obstacles(self.layout(wanted)?, self.layout(NATIVE_DATA)?);
        if obstacles.is_empty() { Ok(()) } else { Err(StartupError::NotServable { wanted, obstacles }) }
    }

    /// The newest migration up to the version served that transforms rows: what a new record has been through.
    fn record_version(&self) -> DataVersion {
        let manifests = self.catalog.migrations().iter().map(|module| module.manifest());
        let mut served = manifests.filter(|manifest| manifest.version <= self.wanted() && !manifest.up.is_empty());
        served.next_back().map_or(0, |manifest| manifest.version)
    }

    fn api(&self, fence: Fence) -> Result<Api, StartupError> {
        let translators = self.catalog.translators().iter().map(|module| Arc::clone(module) as Arc<dyn Translate>);
        let store = Store::new(self.database.clone(), fence, Arc::clone(&self.keyring), Arc::new(SystemClock))
            .with_layout(self.layout(self.wanted())?, self.record_version());
        Ok(Api::new(store, translators.collect(), self.config.pin_api_version.as_deref())?)
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
    let stop = stop_on_signals()?;
    let prepared = Prepared::new(config).await?;
    prepared.check_servable()?;
    if let Some(address) = prepared.config.health_address {
        tokio::spawn(http::serve_health(bind(address).await?));
    }
    let lock_path = FileLock::path_for(&prepared.config.database);
    prepared.progress.enter("lock", "waiting for the host that holds the lock", None);
    let lock = tokio::select! {
        taken = FileLock::take(&lock_path, prepared.config.lock_retry_interval) => taken?,
        () = stopped(stop.clone()) => return Ok(()),
    };
    tracing::info!("took the lock");
    let served = serve_as_master(&prepared, &lock, stop, announce).await;
    prepared.database.close().await;
    drop(lock);
    served
}

async fn serve_as_master(
    prepared: &Prepared,
    lock: &FileLock,
    stop: watch::Receiver<bool>,
    announce: impl FnOnce(&Served),
) -> Result<(), StartupError> {
    let listener = bind(prepared.config.listen_address).await?;
    let address = listener.local_addr().map_err(StartupError::Server)?;
    tracing::info!(%address, "listening; every request is answered 503 until the database is ready");
    let gate = prepared.gate.clone();
    let (end_server, server_stop) = watch::channel(false);
    let server =
        tokio::spawn(http::serve(listener, http::router(gate.clone(), prepared.metrics.clone()), stopped(server_stop)));

    let work = async {
        prepared.progress.enter("fence", "taking over from the host before", None);
        let fence = Fence::raise(&prepared.database).await?;
        prepared.bring_to(&fence, Intent::Up { wanted: prepared.wanted() }).await?;
        gate.open(Arc::new(prepared.api(fence)?));
        let served = Served {
            address,
            data_version: prepared.wanted(),
            migrations: prepared.catalog.migrations().len(),
            translators: prepared.catalog.translators().len(),
        };
        tracing::info!(%address, data_version = served.data_version, "serving");
        announce(&served);
        std::future::pending::<Result<(), StartupError>>().await
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = stopped(stop) => Ok(()),
        () = lock.lost(LOCK_CHECK_INTERVAL) => Err(StartupError::LockLost),
    };
    if outcome.is_err() {
        gate.close();
    }
    // Nobody listens any more if the server ended first, and that is the reason to stop.
    let _ = end_server.send(true);
    let ended = match tokio::time::timeout(DRAIN, server).await {
        Ok(ended) => ended.map_err(|join| StartupError::Server(join.into()))?.map_err(StartupError::Server),
        Err(_) => Ok(()),
    };
    outcome.and(ended)
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartupError> {
    TcpListener::bind(address).await.map_err(|source| StartupError::Listen { address, source })
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // A sender that is gone can say nothing more, so there is nothing more to wait for.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn stop_on_signals() -> Result<watch::Receiver<bool>, StartupError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartupError::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(StartupError::Signals)?;
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // A host that has already ended has no receiver left to tell.
        let _ = sender.send(true);
    });
    Ok(receiver)
}
