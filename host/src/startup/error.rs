//! Why a host did not start or stopped serving.

use std::net::SocketAddr;
use std::path::PathBuf;

use bbs_database::DatabaseError;
use bbs_encryption::KeyringError;
use bbs_lens::layout::manifest::DataVersion;
use bbs_modules::catalog::CatalogError;
use bbs_modules::releases::{Release, ReleaseError};
use bbs_modules::sandbox::SandboxError;
use bbs_work::joined;

use crate::api;
use crate::clients::ClientsError;
use crate::clock::date_and_time;
use crate::config::ModuleFoldersError;
use crate::domain::DomainError;
use crate::http::AccessLogError;
use crate::import::ImportError;
use crate::keys::KeysError;
use crate::lock::fence::FenceError;
use crate::lock::{LockError, LockLost};
use crate::logs::FATAL;
use crate::migrate::{MigrateError, Reason};
use crate::tls::TlsError;

/// A catalog that is older than one of its name that was used on this database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the catalog {name} has the serial {serial} ({}Z), and this database was used with a newer one, {remembered} ({}Z); \
     install the newer catalog, or list \"{name}\" in `accept_older_catalogs` if the older one is wanted",
    date_and_time(.serial.cast_signed()), date_and_time(.remembered.cast_signed())
)]
pub struct OlderCatalog {
    pub name: String,
    pub serial: u64,
    pub remembered: u64,
}

/// Why a host did not start, or stopped serving.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    #[error("the encryption keys cannot be used")]
    Keyring(#[from] KeyringError),
    #[error("the sandbox for modules cannot start")]
    Sandbox(#[from] SandboxError),
    #[error("the folders of modules that the configuration names cannot be used")]
    Folders(#[from] ModuleFoldersError),
    #[error(
        "the modules in {} cannot be used",
        joined(.folders.iter().map(|folder| folder.display()))
    )]
    Catalog {
        folders: Vec<PathBuf>,
        source: CatalogError,
    },
    #[error("a catalog of modules is too old; nothing was written")]
    OlderCatalog(#[source] OlderCatalog),
    #[error("there is no migration in {}; build the modules with `bbs module build --into {}`", .folder.display(), .folder.display())]
    NoMigrations { folder: PathBuf },
    #[error(
        "the modules have no migration to {version}, the data version of this program's API; use the modules that were built with \
         this program"
    )]
    NoNativeMigration { version: DataVersion },
    #[error("{what} is {version}, and the catalog has no migration to {version}: {}", choices(*.version, .known, .releases))]
    UnknownVersion {
        what: &'static str,
        version: DataVersion,
        known: Vec<DataVersion>,
        releases: Vec<Release>,
    },
    #[error(
        "`--to` is {name:?}, which is no number, and the modules have no release of that name: they have {}; name one of these, \
         or a data version",
        .known.join(", ")
    )]
    UnknownRelease { name: String, known: Vec<String> },
    #[error(
        "`--to` names a release, and the releases of the modules are not known; name a data version"
    )]
    NoReleases(#[source] ReleaseError),
    #[error("`pin_release` cannot be used")]
    Release(#[from] ReleaseError),
    #[error(
        "`pin_release` is {release:?}, and a version is pinned too; leave out either `pin_release`, or `pin_data_version` \
         and `pin_api_version`"
    )]
    PinnedTwice { release: String },
    #[error(
        "`rollback_on_drain_to_version` is {to}, and the database could not be taken back there"
    )]
    NoWayBack {
        to: DataVersion,
        source: MigrateError,
    },
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(
        "another host holds the lock of this database{}; stop it first, or let it do the work",
        .holder.as_ref().map_or_else(String::new, |holder| format!(": {holder}"))
    )]
    Locked { holder: Option<String> },
    #[error("this host serves no more; its supervisor may start it again, as a standby")]
    LockLost(#[from] LockLost),
    #[error(
        "cannot listen on {address}, the `{key}`; stop the process that listens there, if `ss -ltnp` lists one, or change `{key}`"
    )]
    Listen {
        key: &'static str,
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error(
        "{name} ended, without which this host cannot serve; its supervisor may start it again, as a standby"
    )]
    TaskEnded {
        name: &'static str,
        source: std::io::Error,
    },
    #[error("cannot wait for signals")]
    Signals(#[source] std::io::Error),
    #[error("the migration failed")]
    Migrate(#[from] MigrateError),
    /// No migration has begun.
    #[error("the database did not pass its examination; nothing was written")]
    Examination(#[source] MigrateError),
    #[error("the records of etcd are not imported")]
    Import(#[from] ImportError),
    #[error("this host shuts down and has written nothing")]
    ShutDown(#[source] Reason),
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error(
        "this database is empty, so nothing in it is under a key; `bbs migrate up` or `bbs serve` makes its tables"
    )]
    NothingToRotate,
    #[error(
        "the modules are not those of this database, so its sealed columns are not known; nothing was written"
    )]
    UnknownLayout(#[source] MigrateError),
    #[error(
        "this database has no version, so its sealed columns are not known; nothing was written"
    )]
    NoLayout(#[source] Reason),
    #[error(
        "a migration of this database is not finished, so records are in two places; finish it with the command that \
         `bbs migrate status` names, or give it up with `bbs migrate abort`, then rotate"
    )]
    MigrationUnderWay,
    #[error(
        "a migration, its clean-up or a key rotation is in progress, and the folders of modules have other migrations than before; \
         try again once `bbs migrate watch` shows that it has ended. A clean-up may wait for the sessions that the log names at \
         `clean-up-waits`"
    )]
    WorkUnderWay,
    #[error(
        "a second signal ended this host before the database was back at {to}; nothing is lost. Finish with \
         `bbs migrate down --to {to}`, or with a host that has the same setting"
    )]
    RollbackCutShort { to: DataVersion },
    #[error(
        "the certificates of the API cannot be used; correct `cert_file`, `key_file` or `ca_file`"
    )]
    Tls(#[from] TlsError),
    #[error(
        "the certificates for the database cannot be used; correct `sql_ca_cert_file`, or the files that \
         `database_connection_string` names"
    )]
    DatabaseTls(#[source] TlsError),
    #[error("a client of another Diego component cannot be set up as configured")]
    Clients(#[from] ClientsError),
    #[error(transparent)]
    AccessLog(#[from] AccessLogError),
    #[error(
        "the database failed the health check, and this host serves no more; its supervisor may start it \
         again. Its errors: {attempts}"
    )]
    Unhealthy { attempts: String },
    #[error(transparent)]
    TooManyUnreadable(DomainError),
    #[error(transparent)]
    Api(#[from] api::ApiError),
}

/// The versions that may be meant instead of one that there is not: those of releases, and the
/// nearest ones.
fn choices(version: DataVersion, known: &[DataVersion], releases: &[Release]) -> String {
    let below = known.iter().rfind(|other| **other < version);
    let above = known.iter().find(|other| **other > version);
    let nearest: Vec<_> = below
        .into_iter()
        .chain(above)
        .map(ToString::to_string)
        .collect();
    let named = releases
        .iter()
        .map(|release| format!("{} of the release {:?}, ", release.data, release.name));
    format!(
        "name {}or one of the others, of which the nearest {} {}; `bbs module check` of the folder of modules lists all {}",
        named.collect::<String>(),
        if nearest.len() == 1 { "is" } else { "are" },
        nearest.join(" and "),
        known.len()
    )
}

impl StartupError {
    /// Whether another host has raised the fence, so that it holds the lock.
    pub(super) fn is_fence_lost(&self) -> bool {
        match self {
            Self::Fence(fault)
            | Self::Keys(KeysError::Fence(fault))
            | Self::Import(ImportError::Fence(fault)) => {
                matches!(fault, FenceError::Lost { .. })
            }
            Self::Migrate(fault) | Self::Import(ImportError::Migrate(fault)) => fault.is_lost(),
            _ => false,
        }
    }

    /// Whether the server is away, or has ended a session.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Migrate(fault) | Self::Examination(fault) => fault.is_outage(),
            Self::Fence(fault) => fault.is_outage(),
            Self::Database(fault) => fault.is_outage(),
            _ => false,
        }
    }
}

/// The failure that ended a host.
#[derive(Debug, thiserror::Error)]
pub enum HostFailure {
    /// It has not served, and was not requested to end.
    #[error(transparent)]
    Start(StartupError),
    /// It had served, or failed at an end that was requested.
    #[error(transparent)]
    Service(StartupError),
}

impl HostFailure {
    /// Logs the failure, under the name that Diego's BBS gives it.
    pub fn log(&self) {
        let failure = match self {
            Self::Start(failure) => failure,
            Self::Service(error) => {
                let error: &dyn std::error::Error = error;
                tracing::error!(name: "exited-with-failure", error, "ended");
                return;
            }
        };
        let error: &dyn std::error::Error = failure;
        match failure {
            StartupError::Keyring(_) => {
                tracing::error!(name: "cannot-setup-encryption", target: FATAL, error, "this host has not started")
            }
            StartupError::Database(_) => {
                tracing::error!(name: "sql-failed-to-connect", target: FATAL, error, "this host has not started")
            }
            StartupError::Lock(LockError::Locket(_)) => {
                tracing::error!(name: "failed-to-connect-to-locket", target: FATAL, error, "this host has not started")
            }
            StartupError::Tls(_) => {
                tracing::error!(name: "tls-configuration-failed", target: FATAL, error, "this host has not started")
            }
            StartupError::Clients(ClientsError::Loggregator(_)) => {
                tracing::error!(name: "failed-to-initialize-metron-client", error, "this host has not started");
            }
            _ => {
                tracing::error!(name: "failed-to-start", target: FATAL, error, "this host has not started")
            }
        }
    }
}
