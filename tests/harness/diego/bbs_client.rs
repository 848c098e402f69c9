//! The client that every component of a simulated Diego calls the host with: retries each call
//! until it has an answer, at whatever address the host has by then. Owns what counts as an answer;
//! interpreting it is the caller's.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use ::bbs_client::{Answer, Client, Retries};
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use proto::error::Type;

/// Delay before a retry.
const PAUSE: Duration = Duration::from_millis(50);
const DEADLINE: Duration = Duration::from_secs(30);
/// Far above any outage of a simulation: reached only if the host does not come back.
const PATIENCE: Duration = Duration::from_secs(180);

/// A shared handle.
#[derive(Clone)]
pub struct BbsClient {
    client: reqwest::Client,
    address: Arc<RwLock<SocketAddr>>,
    /// Number of requests so far.
    requests: Arc<AtomicU64>,
}

/// The error field of a response.
pub type Refusal = proto::Error;

impl BbsClient {
    pub fn new(client: reqwest::Client, address: SocketAddr) -> Self {
        Self {
            client,
            address: Arc::new(RwLock::new(address)),
            requests: Arc::default(),
        }
    }

    /// The number of requests of this client and its clones.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Sets the host's address for all later calls and retries.
    pub fn set_address(&self, address: SocketAddr) {
        *self.address.write().expect("no lock holder panics") = address;
    }

    /// A client of the host at its present address.
    fn now(&self) -> Client {
        let url = format!(
            "https://{}",
            self.address.read().expect("no lock holder panics")
        );
        Client::over(self.client.clone(), &url, Retries::NONE).expect("an address is a URL")
    }

    /// Calls until there is an answer; a host that is killed or not ready gives none. Returns the
    /// answer, its error, and whether an earlier attempt may have been carried out although its
    /// answer was lost.
    pub async fn call<A: Answer>(
        &self,
        path: &str,
        request: &impl Message,
    ) -> (A, Option<Refusal>, bool) {
        let body = request.encode_to_vec();
        let mut retried = false;
        let began = Instant::now();
        loop {
            if let Some(mut answer) = self.attempt::<A>(path, body.clone()).await {
                let refusal = answer.take_error();
                // Errors of a host that lost the lock or its database are transient.
                if refusal
                    .as_ref()
                    .is_none_or(|refusal| is_final(refusal.r#type()))
                {
                    return (answer, refusal, retried);
                }
            }
            assert!(began.elapsed() < PATIENCE, "{path} is not answered");
            retried = true;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// [`Self::call`] for a response without content.
    pub async fn submit<A: Answer>(
        &self,
        path: &str,
        request: &impl Message,
    ) -> Result<(), Refusal> {
        self.call::<A>(path, request).await.1.map_or(Ok(()), Err)
    }

    async fn attempt<A: Answer>(&self, path: &str, body: Vec<u8>) -> Option<A> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let answered = async { self.now().send(path, body).await.ok()?.bytes().await.ok() };
        A::decode(tokio::time::timeout(DEADLINE, answered).await.ok()??).ok()
    }

    /// Whether the host and its database answer.
    pub async fn answers(&self) -> bool {
        let answer = self
            .attempt::<proto::DomainsResponse>("/v1/domains/list", Vec::new())
            .await;
        answer.is_some_and(|answer| answer.error.is_none())
    }

    /// Subscribes to an event stream. `None` if the host does not answer.
    pub async fn subscribe(&self, path: &str) -> Option<reqwest::Response> {
        self.now().send(path, Vec::new()).await.ok()
    }
}

fn is_final(refusal: Type) -> bool {
    match refusal {
        Type::UnknownError | Type::Unrecoverable | Type::Deadlock | Type::Timeout => false,
        Type::InvalidRecord
        | Type::InvalidRequest
        | Type::InvalidResponse
        | Type::InvalidProtobufMessage
        | Type::InvalidJson
        | Type::FailedToOpenEnvelope
        | Type::InvalidStateTransition
        | Type::ResourceConflict
        | Type::ResourceExists
        | Type::ResourceNotFound
        | Type::RouterError
        | Type::ActualLrpCannotBeClaimed
        | Type::ActualLrpCannotBeStarted
        | Type::ActualLrpCannotBeCrashed
        | Type::ActualLrpCannotBeFailed
        | Type::ActualLrpCannotBeRemoved
        | Type::ActualLrpCannotBeUnclaimed
        | Type::RunningOnDifferentCell
        | Type::GuidGeneration
        | Type::Deserialize
        | Type::LockCollision
        | Type::UpdateInProgress
        | Type::NoUpdateInProgress
        | Type::DefinitionNotFound
        | Type::DefinitionExists => true,
    }
}
