//! The lock of Diego's own lock service, which a host of this project and Diego's BBS take from each other. Owns the
//! conversation with it; the fence in the database holds under this lock as under any other.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::Purpose;
use super::renewal::{Expiring, Failure, Renewal};
use crate::config;
use crate::locket::messages::{
    FetchRequest, FetchResponse, LockRequest, LockResponse, ReleaseRequest, ReleaseResponse, Resource, TypeCode,
};
use crate::locket::{self, ConnectError};

/// What Diego's BBS locks, and so what keeps one of each from serving beside the other.
const KEY: &str = "bbs";
const TYPE: &str = "lock";
const LOCK: &str = "/models.Locket/Lock";
const FETCH: &str = "/models.Locket/Fetch";
const RELEASE: &str = "/models.Locket/Release";

#[derive(Debug, thiserror::Error)]
pub enum LocketError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("`uuid` {0:?} cannot be sent to Locket; use letters, digits and dashes")]
    Name(String),
    #[error("Locket did not say who has the lock; see what it logged")]
    Lock(#[source] Box<Status>),
}

/// The lock as it may be taken.
#[derive(Debug)]
pub struct Locket {
    client: Client,
    ttl: Duration,
    retry_interval: Duration,
}

#[derive(Debug, Clone)]
struct Client {
    channel: Channel,
    resource: Resource,
    uuid: MetadataValue<Ascii>,
    ttl_s: i64,
}

impl Locket {
    pub async fn connect(
        config: &config::Lock,
        locket: &config::Locket,
        purpose: Purpose,
    ) -> Result<Self, LocketError> {
        let uuid = config.uuid.clone().unwrap_or_default();
        // To Locket, whoever has the same name is the same holder.
        let owner = match purpose {
            Purpose::Serve => uuid,
            Purpose::Command => format!("{uuid}-command"),
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
            _ => return Err(LocketError::Name(owner)),
        };
        // Locket counts in whole seconds.
        let ttl = Duration::from_secs(config.ttl.as_secs().max(1));
        let ttl_s = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let patience = match purpose {
            // A Locket that is being started too is waited for.
            Purpose::Serve => locket::CONNECT_TIMEOUT,
            Purpose::Command => Duration::ZERO,
        };
        let channel = locket::connect(locket, patience).await?;
        Ok(Self { client: Client { channel, resource, uuid, ttl_s }, ttl, retry_interval: config.retry_interval })
    }

    pub(super) async fn try_take(&self) -> Result<Option<Renewal>, LocketError> {
        let asked = Instant::now();
        match self.client.lock().await {
            Ok(()) => {
                let holding = Holding { client: self.client.clone(), ttl: self.ttl };
                Ok(Some(Renewal::start(Arc::new(holding), asked)))
            }
            Err(status) if status.code() == Code::AlreadyExists => Ok(None),
            Err(status) => Err(LocketError::Lock(Box::new(status))),
        }
    }

    /// Who has the lock, if Locket says so.
    pub(super) async fn holder(&self) -> Option<String> {
        let request = FetchRequest { key: KEY.to_owned() };
        let answer = tokio::time::timeout(self.ttl, self.client.call::<_, FetchResponse>(FETCH, request)).await;
        let resource = answer.ok()?.ok()?.resource?;
        (!resource.owner.is_empty()).then_some(resource.owner)
    }

    pub(super) async fn take(&self) -> Renewal {
        loop {
            match tokio::time::timeout(self.ttl, self.try_take()).await {
                Ok(Ok(Some(taken))) => return taken,
                Ok(Ok(None)) => {
                    tracing::debug!(name: "locket-lock.failed-to-acquire-lock", "another host holds the lock; waiting for it")
                }
                Ok(Err(fault)) => tracing::warn!(
                    name: "locket-lock.failed-to-acquire-lock",
                    fault = &fault as &dyn std::error::Error,
                    "cannot ask Locket for the lock; trying again"
                ),
                Err(_) => {
                    tracing::warn!(name: "locket-lock.failed-to-acquire-lock", "Locket does not answer; trying again")
                }
            }
            tokio::time::sleep(self.retry_interval).await;
        }
    }
}

impl Client {
    /// Takes the lock, or keeps it.
    async fn lock(&self) -> Result<(), Status> {
        let request = LockRequest { resource: Some(self.resource.clone()), ttl_in_seconds: self.ttl_s };
        let _: LockResponse = self.call(LOCK, request).await?;
        Ok(())
    }

    async fn release(&self) -> Result<(), Status> {
        let _: ReleaseResponse = self.call(RELEASE, ReleaseRequest { resource: Some(self.resource.clone()) }).await?;
        Ok(())
    }

    async fn call<Q, A>(&self, method: &'static str, message: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut request = Request::new(message);
        request.metadata_mut().insert("uuid", self.uuid.clone());
        locket::call(&self.channel, method, request).await
    }
}

/// The lock as this host holds it.
struct Holding {
    client: Client,
    ttl: Duration,
}

impl Expiring for Holding {
    const WHAT: &'static str = "the lock in Locket";

    fn ttl(&self) -> Duration {
        self.ttl
    }

    async fn renew(&self) -> Result<Option<String>, Failure> {
        match self.client.lock().await {
            Ok(()) => Ok(None),
            Err(status) if status.code() == Code::AlreadyExists => Ok(Some(status.message().to_owned())),
            Err(status) => Err(status.into()),
        }
    }

    async fn release(&self) -> Result<(), Failure> {
        Ok(self.client.release().await?)
    }
}
