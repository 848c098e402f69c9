//! The host as everybody of a simulated Diego reaches it: calls that are made again until they are answered, wherever the
//! host is by then. Owns what counts as an answer; what to do with one is the caller's.

use std::net::SocketAddr;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use proto::error::Type;

/// Between a call that was not answered and the next.
const PAUSE: Duration = Duration::from_millis(50);
const DEADLINE: Duration = Duration::from_secs(30);
/// Far above any outage of a simulation: only a host that is gone for good reaches it.
const PATIENCE: Duration = Duration::from_secs(180);

/// Clones are the same place.
#[derive(Clone)]
pub struct Home {
    client: reqwest::Client,
    address: Arc<RwLock<SocketAddr>>,
}

/// The error in an answer of the host's.
pub type Refusal = proto::Error;

/// A response that may say that it is none.
pub trait Answer: Message + Default {
    fn refusal(&mut self) -> Option<Refusal>;
}

macro_rules! answers {
    ($($name:ident),* $(,)?) => {
        $(impl Answer for proto::$name {
            fn refusal(&mut self) -> Option<Refusal> {
                self.error.take()
            }
        })*
    };
}

answers!(
    ActualLrpLifecycleResponse,
    ActualLrPsResponse,
    DesiredLrpLifecycleResponse,
    DesiredLrpResponse,
    DesiredLrpSchedulingInfosResponse,
    EvacuationResponse,
    RemoveEvacuatingActualLrpResponse,
    StartTaskResponse,
    TaskLifecycleResponse,
    TaskResponse,
    TasksResponse,
    UpsertDomainResponse,
);

impl Home {
    pub fn new(client: reqwest::Client, address: SocketAddr) -> Self {
        Self { client, address: Arc::new(RwLock::new(address)) }
    }

    /// From now on the host is there.
    pub fn moved_to(&self, address: SocketAddr) {
        *self.address.write().expect("nobody panics meanwhile") = address;
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address.read().expect("nobody panics meanwhile"))
    }

    /// Calls until there is an answer: a host that is killed or that is not ready gives none. What is given is the
    /// answer, with the error that it may hold, and whether an earlier attempt may have been carried out unseen.
    pub async fn call<A: Answer>(&self, path: &str, request: &impl Message) -> (A, Option<Refusal>, bool) {
        let body = request.encode_to_vec();
        let (mut again, began) = (false, Instant::now());
        loop {
            if let Some(mut answer) = self.attempt::<A>(path, body.clone()).await {
                let refusal = answer.refusal();
                // What a master says that cannot write any more, or a database that is away, is no answer.
                if refusal.as_ref().is_none_or(|refusal| is_final(refusal.r#type())) {
                    return (answer, refusal, again);
                }
            }
            assert!(began.elapsed() < PATIENCE, "{path} is not answered");
            again = true;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The same where the answer is only whether it worked.
    pub async fn tell<A: Answer>(&self, path: &str, request: &impl Message) -> Result<(), Refusal> {
        self.call::<A>(path, request).await.1.map_or(Ok(()), Err)
    }

    async fn attempt<A: Message + Default>(&self, path: &str, body: Vec<u8>) -> Option<A> {
        let sent = self.client.post(self.url(path)).timeout(DEADLINE).body(body).send().await.ok()?;
        let sent = sent.error_for_status().ok()?;
        A::decode(sent.bytes().await.ok()?).ok()
    }

    /// Whether the host answers, and its database answers it.
    pub async fn answers(&self) -> bool {
        let answer = self.attempt::<proto::DomainsResponse>("/v1/domains/list", Vec::new()).await;
        answer.is_some_and(|answer| answer.error.is_none())
    }

    /// A stream of events that begins now, unless the host is away.
    pub async fn subscribe(&self, path: &str) -> Option<reqwest::Response> {
        let sent = self.client.post(self.url(path)).send().await.ok()?;
        sent.error_for_status().ok()
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
        | Type::LockCollision => true,
    }
}
