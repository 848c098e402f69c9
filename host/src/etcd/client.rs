//! A client of etcd's second API: reads the whole store as one consistent view, and sets one key by
//! compare-and-swap. Owns the choice of the member, what each answer means, and the bounds of what
//! is read. Never writes without a comparison.

mod answer;
mod error;
mod request;

use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Method, StatusCode};
use tokio::sync::mpsc;

use super::Leaf;
use crate::config::EtcdConfig;
use answer::{ErrorAnswer, LeafAnswer, parse_leaves};
pub use error::EtcdError;
use request::{MemberAnswer, Members};

/// Chunks of an answer that wait to be parsed.
const WAITING_CHUNKS: usize = 4;
/// Bytes of an answer that is not the store.
const MOST_SMALL_BYTES: usize = 1 << 20;
/// A member without a majority gives up reading or writing one leaf after 5 s and two elections, 7 s
/// by default.
const LEAF_TIMEOUT: Duration = Duration::from_secs(30);
/// Codes of etcd's error answers.
const KEY_NOT_FOUND: u64 = 100;
const COMPARE_FAILED: u64 = 101;
const EXISTS: u64 = 105;
const UNAUTHORIZED: u64 = 110;
/// No majority, or an election.
const NO_QUORUM: [u64; 2] = [300, 301];

/// A client of one cluster.
#[derive(Debug)]
pub struct EtcdClient {
    members: Members,
    most_bytes: u64,
    /// The cluster that all answers have to be of: the first one's, unless it was known before.
    cluster: Mutex<Option<String>>,
}

/// The store as one answer showed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The store's index.
    pub index: u64,
    /// The cluster that the member belongs to.
    pub cluster_id: String,
    /// Length of the answer.
    pub bytes: u64,
}

impl EtcdClient {
    /// Sets up the client; connects to no member.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub fn new(config: &EtcdConfig) -> Result<Self, EtcdError> {
        Ok(Self {
            members: Members::new(config)?,
            most_bytes: config.most_bytes,
            cluster: Mutex::default(),
        })
    }

    /// Refuses the answers of any other cluster than this one from now on. An empty id is of no
    /// cluster, and changes nothing.
    pub fn expect_cluster(&self, cluster_id: &str) {
        if !cluster_id.is_empty() {
            *self.cluster.lock() = Some(cluster_id.to_owned());
        }
    }

    /// Reads the whole store by one quorum read, and sends its leaves in batches, sorted by their
    /// paths. Memory is bounded by the receiver: reading waits for it.
    ///
    /// # Errors
    /// No member gives a whole answer. Leaves that were sent before are no view of the store then;
    /// the caller reads again.
    pub async fn read(&self, leaves: mpsc::Sender<Vec<Leaf>>) -> Result<View, EtcdError> {
        const WHOLE: &str = "v2/keys/?recursive=true&sorted=true&quorum=true";
        // etcd builds the whole answer before it begins, so only the configuration bounds the wait.
        let sent = self.members.send(Method::GET, WHOLE, None, Duration::MAX);
        let mut answer = sent.await?;
        if answer.status() != StatusCode::OK {
            return match failed(&mut answer).await {
                EtcdError::Answer {
                    code: KEY_NOT_FOUND,
                    index,
                    ..
                } => Ok(View {
                    index,
                    cluster_id: String::new(),
                    bytes: 0,
                }),
                fault => Err(fault),
            };
        }
        let index = answer.index()?;
        let cluster_id = self.same_cluster(&answer)?;
        let member = answer.member();
        let (into, chunks) = mpsc::channel(WAITING_CHUNKS);
        let parsing = tokio::task::spawn_blocking(move || parse_leaves(chunks, &leaves));
        let received = receive(answer, into, self.most_bytes).await;
        let parsed = parsing.await.map_err(|_| EtcdError::Interrupted)?;
        // A body that was cut off is also one that cannot be parsed; the connection is the cause.
        let bytes = received?;
        parsed.map_err(|source| EtcdError::Damaged { member, source })?;
        Ok(View {
            index,
            cluster_id,
            bytes,
        })
    }

    /// Reads one leaf, if it is there, by a quorum read. Returns the store's index, too.
    ///
    /// # Errors
    /// No member answers as etcd does, or one of another cluster answers.
    pub async fn get(&self, key: &str) -> Result<(Option<Leaf>, u64), EtcdError> {
        let path = format!("v2/keys{key}?quorum=true");
        let sent = self.members.send(Method::GET, &path, None, LEAF_TIMEOUT);
        let mut answer = sent.await?;
        if answer.status() != StatusCode::OK {
            return match failed(&mut answer).await {
                EtcdError::Answer {
                    code: KEY_NOT_FOUND,
                    index,
                    ..
                } => {
                    self.same_cluster(&answer)?;
                    Ok((None, index))
                }
                fault => Err(fault),
            };
        }
        self.same_cluster(&answer)?;
        let index = answer.index()?;
        Ok((Some(leaf(&mut answer).await?), index))
    }

    /// Sets a leaf that was last changed at an index, or that is absent. An equal value that is
    /// there already is a success: the answer to an earlier request may have been lost.
    ///
    /// # Errors
    /// [`EtcdError::Compare`] if the leaf is another, or no member answers as etcd does.
    pub async fn swap(
        &self,
        key: &str,
        previous: Option<u64>,
        value: &str,
    ) -> Result<(), EtcdError> {
        let condition = match previous {
            Some(index) => format!("prevIndex={index}"),
            None => "prevExist=false".to_owned(),
        };
        let path = format!("v2/keys{key}?{condition}");
        let form = Some(("value", value));
        let sent = self.members.send(Method::PUT, &path, form, LEAF_TIMEOUT);
        let mut answer = sent.await?;
        if answer.status().is_success() {
            self.same_cluster(&answer)?;
            leaf(&mut answer).await?;
            return Ok(());
        }
        match failed(&mut answer).await {
            EtcdError::Answer {
                code: COMPARE_FAILED | EXISTS | KEY_NOT_FOUND,
                ..
            } => match self.get(key).await? {
                (Some(leaf), _) if leaf.value == value => Ok(()),
                _ => Err(EtcdError::Compare {
                    key: key.to_owned(),
                }),
            },
            fault => Err(fault),
        }
    }

    /// Checks that all answers are of one cluster.
    fn same_cluster(&self, answer: &MemberAnswer) -> Result<String, EtcdError> {
        let found = answer.header("X-Etcd-Cluster-Id")?;
        let mut known = self.cluster.lock();
        match &*known {
            Some(known) if *known != found => Err(EtcdError::OtherCluster {
                member: answer.member(),
                found,
                known: known.clone(),
            }),
            _ => Ok(known.insert(found).clone()),
        }
    }
}

/// Passes an answer on, chunk by chunk. Ends early, without an error, if the receiver has.
async fn receive(
    mut answer: MemberAnswer,
    into: mpsc::Sender<Vec<u8>>,
    most_bytes: u64,
) -> Result<u64, EtcdError> {
    let mut bytes = 0;
    while let Some(chunk) = answer.chunk().await? {
        bytes += chunk.len() as u64;
        if bytes > most_bytes {
            return Err(EtcdError::TooLarge {
                member: answer.member(),
                most_bytes,
            });
        }
        if into.send(chunk).await.is_err() {
            return Ok(bytes);
        }
    }
    Ok(bytes)
}

async fn leaf(answer: &mut MemberAnswer) -> Result<Leaf, EtcdError> {
    let body = small_body(answer).await?;
    let LeafAnswer(leaf) = serde_json::from_slice(&body).map_err(|source| EtcdError::Damaged {
        member: answer.member(),
        source,
    })?;
    Ok(leaf)
}

/// The error of an answer.
async fn failed(answer: &mut MemberAnswer) -> EtcdError {
    let member = answer.member();
    let status = answer.status().as_u16();
    let body = match small_body(answer).await {
        Ok(body) => body,
        Err(fault) => return fault,
    };
    let Ok(ErrorAnswer {
        error_code: code,
        message,
        index,
    }) = serde_json::from_slice(&body)
    else {
        return match status {
            300..400 => EtcdError::Redirect { member, status },
            404 => EtcdError::NotEtcd { member },
            _ => EtcdError::Status { member, status },
        };
    };
    match code {
        UNAUTHORIZED => EtcdError::Unauthorized { member },
        code if NO_QUORUM.contains(&code) => EtcdError::NoQuorum { member, message },
        code => EtcdError::Answer {
            member,
            code,
            message,
            index,
        },
    }
}

async fn small_body(answer: &mut MemberAnswer) -> Result<Vec<u8>, EtcdError> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > MOST_SMALL_BYTES {
            return Err(EtcdError::TooLarge {
                member: answer.member(),
                most_bytes: MOST_SMALL_BYTES as u64,
            });
        }
    }
    Ok(body)
}
