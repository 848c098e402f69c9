//! The master lock: one host at a time changes the database. Owns the kinds of lock, their renewal
//! and the fence; the master's work is elsewhere.
//!
//! A lock alone depends on time, and a process that was suspended can outlive its lock without
//! noticing. The fence makes it safe: a new master raises it, and every transaction checks inside
//! itself that the fence was not raised since.

pub mod fence;
pub mod file;
mod holder;
pub mod lease;
pub mod locket;
mod renewal;

use std::path::PathBuf;
use std::time::Duration;

use bbs_database::{Address, Database};
use uuid::Uuid;

use crate::config;
use file::{FileLock, FileLockError};
use holder::Holder;
use lease::{Lease, LeaseError};
use locket::{LocketError, LocketLock};
use renewal::Renewal;

/// How often a master checks that its lock file is still the one it locked.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a described holder of the lock is the host with this `uuid`.
pub fn is_of_host(holder: &str, uuid: &str) -> bool {
    // Locket has the name of a host alone.
    holder == uuid || Holder::is_described(holder, uuid)
}

/// The first token of a lease or a fence, above zero. Random, so that a holder whose row was
/// deleted does not find its own token in the next row.
fn first_token() -> i64 {
    i64::from(Uuid::new_v4().as_fields().0) + 1
}

/// The purpose of taking the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockPurpose {
    Serve,
    /// A command, which runs besides a host of the same name and must be a different owner.
    Command,
}

/// Why the lock cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(transparent)]
    File(#[from] FileLockError),
    #[error("the lease of this database cannot be taken")]
    Lease(#[from] LeaseError),
    #[error("the lock cannot be taken from Locket")]
    Locket(#[from] LocketError),
}

/// Why a lock was lost. The host stops serving, and its supervisor restarts it as a standby.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockLost {
    #[error("the lock file {} was removed or replaced, so another host may hold the lock; leave that file alone", .0.display())]
    File(PathBuf),
    #[error(
        "{what} could not be renewed for {ttl:?}, so another host may hold it; see the warnings above for what kept it"
    )]
    Expired { what: &'static str, ttl: Duration },
    #[error("{what} was taken over or removed: {by}")]
    Taken { what: &'static str, by: String },
    #[error(
        "{what} is not renewed any more, because of a fault of this host; report the error that the log has"
    )]
    NotRenewed { what: &'static str },
}

/// A lock to take: a file for SQLite, a lease in a server's database, or Locket.
#[derive(Debug)]
pub enum MasterLock {
    /// `holder` is written into the file, so that a waiting host can name it.
    File {
        path: PathBuf,
        retry_interval: Duration,
        holder: String,
    },
    Lease(Lease),
    Locket(LocketLock),
}

impl MasterLock {
    /// Locket if it is configured; otherwise the kind that fits the database. `database` is the one
    /// at this address, whose connections the holder of the lock works with.
    ///
    /// # Errors
    /// Locket or the database cannot be reached, or the configured name is not valid.
    pub async fn new(
        config: &config::Lock,
        address: &Address,
        database: &Database,
        purpose: LockPurpose,
    ) -> Result<Self, LockError> {
        Ok(match (&config.locket, address) {
            (Some(locket), _) => {
                Self::Locket(LocketLock::connect(config, locket, database, purpose).await?)
            }
            (None, Address::Sqlite(path)) => {
                let holder = Holder::this(config.uuid.as_deref().unwrap_or("a host")).to_string();
                Self::File {
                    path: FileLock::path_for(path),
                    retry_interval: config.retry_interval,
                    holder,
                }
            }
            (None, Address::Server(server)) => {
                Self::Lease(Lease::open(config, server, database).await?)
            }
        })
    }

    /// Whether the lock is a lease that no host holds. Then taking it would be this host's first
    /// write, so the database can be inspected before that.
    pub async fn is_free_lease(&self) -> Result<bool, LockError> {
        match self {
            Self::File { .. } | Self::Locket(_) => Ok(false),
            Self::Lease(lease) => Ok(lease.is_free().await?),
        }
    }

    /// The holder of the lock, described for operators; `None` if unknown.
    pub async fn holder(&self) -> Option<String> {
        match self {
            Self::File { path, .. } => FileLock::holder(path),
            Self::Lease(lease) => lease.holder().await,
            Self::Locket(locket) => locket.holder().await,
        }
    }

    /// Takes the lock unless another host holds it. For a lease, waits until a dead holder can be
    /// distinguished from a slow one.
    ///
    /// # Errors
    /// The lock cannot be read or written.
    pub async fn try_take(&self) -> Result<Option<HeldLock>, LockError> {
        Ok(match self {
            Self::File { path, holder, .. } => {
                FileLock::try_take(path)?.map(|lock| HeldLock(LockKind::File(lock.held_by(holder))))
            }
            Self::Lease(lease) => lease.try_take().await?.map(HeldLock::renewed),
            Self::Locket(locket) => locket.try_take().await?.map(HeldLock::renewed),
        })
    }

    /// Waits for the lock. A lock service that does not answer is retried.
    ///
    /// # Errors
    /// The lock file cannot be opened, or the lease's table cannot be created.
    pub async fn take(&self) -> Result<HeldLock, LockError> {
        Ok(match self {
            Self::File {
                path,
                retry_interval,
                holder,
            } => HeldLock(LockKind::File(
                FileLock::take(path, *retry_interval).await?.held_by(holder),
            )),
            Self::Lease(lease) => HeldLock::renewed(lease.take().await?),
            Self::Locket(locket) => HeldLock::renewed(locket.take().await),
        })
    }
}

/// The lock while it is held. Dropping it without [`HeldLock::release`] makes standbys wait until
/// it expires.
#[derive(Debug)]
pub struct HeldLock(LockKind);

#[derive(Debug)]
enum LockKind {
    File(FileLock),
    Renewed(Renewal),
}

impl HeldLock {
    fn renewed(renewal: Renewal) -> Self {
        Self(LockKind::Renewed(renewal))
    }

    /// Returns when the lock is lost.
    pub async fn lost(&self) -> LockLost {
        match &self.0 {
            LockKind::File(lock) => lock.lost(FILE_CHECK_INTERVAL).await,
            LockKind::Renewed(renewal) => renewal.lost().await,
        }
    }

    /// Releases the lock, so that a standby takes it at once. Call only when this host writes
    /// nothing any more. A serving host that has lost the fence drops the lock instead: with
    /// Locket, another host of its `uuid` may hold it.
    pub async fn release(self) {
        match self.0 {
            LockKind::File(lock) => drop(lock),
            LockKind::Renewed(renewal) => renewal.release().await,
        }
    }
}
