//! The lock in Locket, Diego's lock service, which this host and Diego's BBS share. Owns the calls;
//! the fence applies under this lock, too.

use std::sync::Arc;
use std::time::Duration;

use bbs_database::{ConnectionCheck, Database};
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use uuid::Uuid;

use super::LockPurpose;
use super::renewal::{Expiring, Failure, Renewal};
use crate::clock::SystemClock;
use crate::config;
use crate::locket::messages::{
    FetchRequest, FetchResponse, LockRequest, LockResponse, LocketAnswer, ReleaseRequest,
    ReleaseResponse, Resource, TypeCode,
};
use crate::locket::{self, ConnectError};

/// The key that Diego's BBS locks, so that the two never serve at the same time.
const KEY: &str = "bbs";
const TYPE: &str = "lock";
const LOCK: &str = "/models.Locket/Lock";
const FETCH: &str = "/models.Locket/Fetch";
const RELEASE: &str = "/models.Locket/Release";

/// Why the lock cannot be taken from Locket.
#[derive(Debug, thiserror::Error)]
pub enum LocketError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("`uuid` {0:?} cannot be sent to Locket; use letters, digits and dashes")]
    Name(String),
    #[error("Locket failed to lock; see its log")]
    Lock(#[source] Box<Status>),
}

/// A lock to take.
#[derive(Debug)]
pub struct LocketLock {
    connection: LocketConnection,
    /// The connections to the database.
    connections: Arc<ConnectionCheck>,
    ttl: Duration,
    retry_interval: Duration,
}

/// A connection to Locket, and the resource to lock.
#[derive(Debug, Clone)]
struct LocketConnection {
    config: Arc<config::LocketConfig>,
    channel: Arc<Mutex<Channel>>,
    resource: Resource,
    uuid: MetadataValue<Ascii>,
    ttl_s: i64,
}

impl LocketLock {
    /// Connects to Locket. A serving host waits for a Locket that is starting; a command does not.
    /// The lock is renewed only while the connections of `database` can be used.
    ///
    /// # Errors
    /// The connection fails, or the configured `uuid` cannot be sent.
    pub async fn connect(
        config: &config::Lock,
        locket: &config::LocketConfig,
        database: &Database,
        purpose: LockPurpose,
    ) -> Result<Self, LocketError> {
        let name = config.uuid.clone().unwrap_or_default();
        // Locket treats the same owner as the same holder, so that two commands of one owner would
        // hold the lock at once.
        let owner = match purpose {
            LockPurpose::Serve => name.clone(),
            LockPurpose::Command => format!("{name}-command-{}", Uuid::new_v4()),
        };
        let resource = Resource {
            key: KEY.to_owned(),
            owner: owner.clone(),
            value: String::new(),
            r#type: TYPE.to_owned(),
            type_code: TypeCode::Lock.into(),
        };
        let uuid = match owner.parse() {
            Ok(uuid) if owner.chars().all(|character| character.is_ascii_graphic()) => uuid,
            _ => return Err(LocketError::Name(name)),
        };
        // Locket's TTL has a resolution of one second.
        let ttl = Duration::from_secs(config.ttl.as_secs().max(1));
        let ttl_s = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let retries = match purpose {
            // Locket may be starting at the same time.
            LockPurpose::Serve => locket::CONNECT_RETRIES,
            LockPurpose::Command => 0,
        };
        let channel = locket::connect(locket, retries).await?;
        let connection = LocketConnection {
            config: Arc::new(locket.clone()),
            channel: Arc::new(Mutex::new(channel)),
            resource,
            uuid,
            ttl_s,
        };
        let connections = Arc::new(ConnectionCheck::new(database));
        Ok(Self {
            connection,
            connections,
            ttl,
            retry_interval: config.retry_interval,
        })
    }

    pub(super) async fn try_take(&self) -> Result<Option<Renewal>, LocketError> {
        let asked = Instant::now();
        let locked = tokio::time::timeout(self.ttl, self.connection.lock())
            .await
            .unwrap_or_else(|_| {
                self.connection.reconnect();
                Err(Status::deadline_exceeded("Locket does not answer"))
            });
        match locked {
            Ok(()) => {
                let holding = HeldLocketLock {
                    connection: self.connection.clone(),
                    ttl: self.ttl,
                };
                let connections = Some(Arc::clone(&self.connections));
                Ok(Some(Renewal::start(
                    Arc::new(holding),
                    connections,
                    asked,
                    Arc::new(SystemClock),
                )))
            }
            Err(status) if status.code() == Code::AlreadyExists => Ok(None),
            Err(status) => Err(LocketError::Lock(Box::new(status))),
        }
    }

    /// The holder, if Locket names it.
    pub(super) async fn holder(&self) -> Option<String> {
        let request = FetchRequest {
            key: KEY.to_owned(),
        };
        let answer = tokio::time::timeout(
            self.ttl,
            self.connection.call::<_, FetchResponse>(FETCH, request),
        )
        .await;
        let resource = answer.ok()?.ok()?.resource?;
        (!resource.owner.is_empty()).then_some(resource.owner)
    }

    pub(super) async fn take(&self) -> Renewal {
        loop {
            match self.try_take().await {
                Ok(Some(taken)) => return taken,
                Ok(None) => {
                    tracing::debug!(name: "locket-lock.failed-to-acquire-lock", "another host holds the lock; waiting for it")
                }
                Err(fault) => tracing::warn!(
                    name: "locket-lock.failed-to-acquire-lock",
                    fault = &fault as &dyn std::error::Error,
                    "Locket failed to lock; retrying"
                ),
            }
            tokio::time::sleep(self.retry_interval).await;
        }
    }
}

impl LocketConnection {
    /// Takes or renews the lock.
    async fn lock(&self) -> Result<(), Status> {
        let request = LockRequest {
            resource: Some(self.resource.clone()),
            ttl_in_seconds: self.ttl_s,
        };
        let _: LockResponse = self.call(LOCK, request).await?;
        Ok(())
    }

    async fn release(&self) -> Result<(), Status> {
        let _: ReleaseResponse = self
            .call(
                RELEASE,
                ReleaseRequest {
                    resource: Some(self.resource.clone()),
                },
            )
            .await?;
        Ok(())
    }

    async fn call<Q, A>(&self, method: &'static str, message: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: LocketAnswer + Send + Sync + 'static,
    {
        let mut request = Request::new(message);
        request.metadata_mut().insert("uuid", self.uuid.clone());
        let channel = self.channel.lock().clone();
        let answer = locket::call(&channel, method, request).await;
        if let Err(status) = &answer
            && std::error::Error::source(status).is_some()
        {
            self.reconnect();
        }
        answer
    }

    /// Lets the next call connect anew, with the certificates that the files have now. To be called
    /// after a failure of the connection, since Locket may have been restarted with new ones, and
    /// when a call has no answer: another machine of Locket may answer.
    fn reconnect(&self) {
        match locket::connect_later(&self.config) {
            Ok(channel) => *self.channel.lock() = channel,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(name: "locket-lock.certificates-not-read", error, "the previous ones stay in use");
            }
        }
    }
}

/// The lock while this host holds it.
struct HeldLocketLock {
    connection: LocketConnection,
    ttl: Duration,
}

impl Expiring for HeldLocketLock {
    const WHAT: &'static str = "the lock in Locket";

    fn ttl(&self) -> Duration {
        self.ttl
    }

    async fn renew(&self) -> Result<Option<String>, Failure> {
        match self.connection.lock().await {
            Ok(()) => Ok(None),
            Err(status) if status.code() == Code::AlreadyExists => {
                Ok(Some(status.message().to_owned()))
            }
            Err(status) => Err(status.into()),
        }
    }

    async fn release(&self) -> Result<(), Failure> {
        Ok(self.connection.release().await?)
    }

    fn reconnect(&self) {
        self.connection.reconnect();
    }
}
