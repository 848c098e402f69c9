//! The master lock: one host at a time changes the database. Owns the kinds of lock, their renewal and the fence; decides
//! nothing about what the master does.
//!
//! A lock alone is a promise about time, and a process that was stopped keeps no promises. What makes it safe is the
//! fence: whoever takes the lock raises it, and every transaction proves inside itself that it was not raised since.

pub mod fence;
pub mod file;
mod holder;
pub mod lease;
pub mod locket;
mod renewal;

use std::path::PathBuf;
use std::time::Duration;

use crate::config;
use crate::database::Address;
use file::{FileLock, FileLockError};
use holder::Holder;
use lease::{Lease, LeaseError};
use locket::{Locket, LocketError};
use renewal::Renewal;

/// How often a master looks whether its lock file is still the one it locked.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Who wants the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Serve,
    /// A command beside a host of the same name, which it must not be mistaken for.
    Command,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error(transparent)]
    File(#[from] FileLockError),
    #[error("the lease of this database cannot be taken")]
    Lease(#[from] LeaseError),
    #[error("the lock cannot be taken from Locket")]
    Locket(#[from] LocketError),
}

/// Why a lock is worth nothing any more. This host serves no more; its supervisor starts it as a standby.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockLost {
    #[error("the lock file {} was removed or replaced, so another host may hold the lock; leave that file alone", .0.display())]
    File(PathBuf),
    #[error(
        "{what} could not be renewed for {ttl:?}, so another host may hold it; see the warnings above for what kept it"
    )]
    Expired { what: &'static str, ttl: Duration },
    #[error("{what} was taken or removed by somebody else: {by}")]
    Taken { what: &'static str, by: String },
}

/// A lock that can be taken.
#[derive(Debug)]
pub enum MasterLock {
    /// `holder` is written into the file for those that wait.
    File {
        path: PathBuf,
        retry_interval: Duration,
        holder: String,
    },
    Lease(Lease),
    Locket(Locket),
}

impl MasterLock {
    /// Locket where it is configured; otherwise what belongs to the database.
    pub async fn new(config: &config::Lock, address: &Address, purpose: Purpose) -> Result<Self, LockError> {
        Ok(match (&config.locket, address) {
            (Some(locket), _) => Self::Locket(Locket::connect(config, locket, purpose).await?),
            (None, Address::Sqlite(path)) => {
                let holder = Holder::this(config.uuid.as_deref().unwrap_or("a host")).to_string();
                Self::File { path: FileLock::path_for(path), retry_interval: config.retry_interval, holder }
            }
            (None, Address::Server(server)) => Self::Lease(Lease::open(config, server).await?),
        })
    }

    /// Whether taking this lock would be the first thing that this host writes to the database, and no host holds it: then
    /// the database can be looked at as well before as after.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn is_free_lease(&self) -> Result<bool, LockError> {
        match self {
            Self::File { .. } | Self::Locket(_) => Ok(false),
            Self::Lease(lease) => Ok(lease.is_free().await?),
        }
    }

    /// Who holds the lock, in words for an operator, where that can be found out.
    pub async fn holder(&self) -> Option<String> {
        match self {
            Self::File { path, .. } => FileLock::holder(path),
            Self::Lease(lease) => lease.holder().await,
            Self::Locket(locket) => locket.holder().await,
        }
    }

    /// Takes the lock unless another host has it. Takes as long as it takes to tell a dead holder from a silent one.
    pub async fn try_take(&self) -> Result<Option<Held>, LockError> {
        Ok(match self {
            Self::File { path, holder, .. } => {
                FileLock::try_take(path)?.map(|lock| Held(Kind::File(lock.held_by(holder))))
            }
            Self::Lease(lease) => lease.try_take().await?.map(Held::renewed),
            Self::Locket(locket) => locket.try_take().await?.map(Held::renewed),
        })
    }

    /// Waits for the lock. A lock service that does not answer is waited for too.
    pub async fn take(&self) -> Result<Held, LockError> {
        Ok(match self {
            Self::File { path, retry_interval, holder } => {
                Held(Kind::File(FileLock::take(path, *retry_interval).await?.held_by(holder)))
            }
            Self::Lease(lease) => Held::renewed(lease.take().await?),
            Self::Locket(locket) => Held::renewed(locket.take().await),
        })
    }
}

/// The lock, as long as it is not lost. Whoever drops it without [`Held::release`] makes the others wait.
#[derive(Debug)]
pub struct Held(Kind);

#[derive(Debug)]
enum Kind {
    File(FileLock),
    Renewed(Renewal),
}

impl Held {
    fn renewed(renewal: Renewal) -> Self {
        Self(Kind::Renewed(renewal))
    }

    /// Returns once the lock is no longer worth anything.
    pub async fn lost(&self) -> LockLost {
        match &self.0 {
            Kind::File(lock) => lock.lost(FILE_CHECK_INTERVAL).await,
            Kind::Renewed(renewal) => renewal.lost().await,
        }
    }

    /// Lets the next host have it at once. Only when nothing of this host writes any more.
    pub async fn release(self) {
        match self.0 {
            Kind::File(lock) => drop(lock),
            Kind::Renewed(renewal) => renewal.release().await,
        }
    }
}
