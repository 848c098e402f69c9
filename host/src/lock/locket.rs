//! The lock of Diego's own lock service, which a host of this project and Diego's BBS take from each other. Owns the
//! conversation with it; the fence in the database holds under this lock as under any other.

pub mod messages;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::Purpose;
use super::renewal::{Expiring, Failure, Renewal};
use crate::config;
use messages::{LockRequest, LockResponse, ReleaseRequest, ReleaseResponse, Resource, TypeCode};

/// What Diego's BBS locks, and so what keeps one of each from serving beside the other.
const KEY: &str = "bbs";
const TYPE: &str = "lock";
const LOCK: &str = "/models.Locket/Lock";
const RELEASE: &str = "/models.Locket/Release";
/// How long to wait for a Locket that is being started too.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, thiserror::Error)]
pub enum LocketError {
    #[error("cannot read {}; check the `locket_*` files of the configuration", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("`locket_address` {address:?} is not an address; write it as host:port")]
    Address { address: String, source: tonic::transport::Error },
    #[error(
        "cannot connect to Locket at {address}; check that it runs, and that the `locket_*` certificates belong together"
    )]
    Connect { address: String, source: tonic::transport::Error },
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

fn read(path: &Path) -> Result<Vec<u8>, LocketError> {
    std::fs::read(path).map_err(|source| LocketError::File { path: path.to_owned(), source })
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
        let channel = channel(locket, purpose).await?;
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

async fn channel(locket: &config::Locket, purpose: Purpose) -> Result<Channel, LocketError> {
    let address = &locket.address;
    let (certificate, key) = (read(&locket.client_cert_file)?, read(&locket.client_key_file)?);
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(&locket.ca_cert_file)?))
        .identity(Identity::from_pem(certificate, key));
    let refused = |source| LocketError::Address { address: address.clone(), source };
    let mut endpoint = Endpoint::from_shared(format!("https://{address}")).map_err(refused)?;
    if let Some(time) = locket.keepalive_time {
        endpoint = endpoint.http2_keep_alive_interval(time).keep_alive_while_idle(true);
    }
    if let Some(timeout) = locket.keepalive_timeout {
        endpoint = endpoint.keep_alive_timeout(timeout);
    }
    let failed = |source| LocketError::Connect { address: address.clone(), source };
    let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT).tls_config(tls).map_err(failed)?;
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    loop {
        match endpoint.connect().await {
            Err(error) if purpose == Purpose::Serve && is_refused(&error) && Instant::now() < deadline => {
                tokio::time::sleep(CONNECT_INTERVAL).await;
            }
            connected => return connected.map_err(failed),
        }
    }
}

/// Nobody listens there, or not yet.
fn is_refused(error: &tonic::transport::Error) -> bool {
    let sources = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let mut kinds = sources.filter_map(|error| error.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
    kinds.any(|kind| kind == std::io::ErrorKind::ConnectionRefused)
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
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|fault| Status::from_error(fault.into()))?;
        let answer = grpc.unary(request, PathAndQuery::from_static(method), ProstCodec::default()).await?;
        Ok(answer.into_inner())
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
