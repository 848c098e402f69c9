//! Why a host did not start, or serves no more, and what that means to its supervisor.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::admin::AdminError;
use crate::api;
use crate::database::DatabaseError;
use crate::keys::KeysError;
use crate::layout::manifest::DataVersion;
use crate::lock::fence::FenceError;
use crate::lock::{LockError, LockLost};
use crate::migrate::{MigrateError, Reason};
use crate::modules::catalog::CatalogError;
use crate::modules::sandbox::SandboxError;
use crate::record::KeyringError;

#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    #[error("the encryption keys cannot be used")]
    Keyring(#[from] KeyringError),
    #[error("the sandbox for modules cannot start")]
    Sandbox(#[from] SandboxError),
    #[error("the modules in {} cannot be used", .folder.display())]
    Catalog { folder: PathBuf, source: CatalogError },
    #[error("there is no migration in {}; build the modules with `bbs module build --into {}`", .folder.display(), .folder.display())]
    NoMigrations { folder: PathBuf },
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
