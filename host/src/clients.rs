//! Clients of other components: auctioneer, reps, Locket's presences, task callbacks, Loggregator.
//! Owns connections, timeouts and protocols; decides nothing about what is sent.

pub mod auctioneer;
pub mod callbacks;
pub mod cells;
pub mod loggregator;
mod pool;
pub mod reps;
mod resolver;

pub use auctioneer::Auctioneer;
pub use callbacks::Callbacks;
pub use cells::CellDirectory;
pub use loggregator::Loggregator;
pub use pool::PoolError;
pub use reps::Reps;

use bbs_model::json;

use crate::config::{self, CertificateFiles};
use crate::locket::ConnectError;
use loggregator::LoggregatorError;

/// The clients of all other components. One that is not configured does nothing.
#[derive(Debug, Clone, Default)]
pub struct Clients {
    /// Places instances and tasks on cells.
    pub auctioneer: Auctioneer,
    /// Stop and update instances, and cancel tasks, on their cells.
    pub reps: Reps,
    /// Lists the cells that are present.
    pub cells: CellDirectory,
    /// Deliver the results of completed tasks.
    pub callbacks: Callbacks,
    /// Receives metrics, and lines for the logs of apps.
    pub loggregator: Loggregator,
}

/// Why a request to another component failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum ClientError {
    #[error(
        "the cell {cell_id:?} has no https address; give its rep one in `rep_url`, or set `rep_require_tls` to false"
    )]
    NoSecureAddress { cell_id: String },
    #[error(
        "the cell {cell_id:?} has an address that is not a URL: {address:?}; correct `rep_url` or `rep_address` of its rep"
    )]
    MalformedAddress { cell_id: String, address: String },
    #[error("the completion callback URL {url:?} is not a URL; desire the task with one that is")]
    NoCallback { url: String },
    #[error("cannot {what}; check that it runs, and that the certificates of both belong together")]
    Unreachable {
        what: &'static str,
        source: reqwest::Error,
    },
    #[error("cannot {what}: the answer of {address} was {status}; see the log of that component")]
    Status {
        what: &'static str,
        address: String,
        status: u16,
    },
}

impl ClientError {
    /// Whether the component did not answer within the time limit of the request. The time limit of
    /// a dial is another one, as in Go's client.
    pub fn is_request_timeout(&self) -> bool {
        let Self::Unreachable { source, .. } = self else {
            return false;
        };
        source.is_timeout() && !source.is_connect()
    }

    /// Whether the component did not answer in time, that of a dial included.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Unreachable { source, .. } if source.is_timeout())
    }

    /// Whether the same request may succeed at once: the component did not take it, and did not
    /// wait for its time limit.
    fn may_pass(&self) -> bool {
        match self {
            Self::NoSecureAddress { .. }
            | Self::MalformedAddress { .. }
            | Self::NoCallback { .. } => false,
            Self::Unreachable { source, .. } => !source.is_timeout(),
            Self::Status { status, .. } => *status >= 500,
        }
    }
}

/// Why the clients cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClientsError {
    #[error(
        "`{key}` {address:?} is not an address; write it as a URL, such as https://auctioneer.service.cf.internal:9016"
    )]
    Address { key: &'static str, address: String },
    #[error("the certificates named by `{keys}` cannot be used; correct them")]
    Pool {
        keys: &'static str,
        source: Box<PoolError>,
    },
    #[error(transparent)]
    Locket(ConnectError),
    #[error("metrics cannot be sent as `loggregator` says")]
    Loggregator(#[source] LoggregatorError),
}

impl Clients {
    /// Sets up the clients. `identity` is the host's own server certificate, which task callbacks
    /// present.
    ///
    /// # Errors
    /// The fault of each client that cannot be set up, in the order of the fields: an address is
    /// malformed, or certificates cannot be used.
    pub fn new(
        clients: &config::ClientsConfig,
        locket: Option<&config::LocketConfig>,
        identity: Option<&CertificateFiles>,
    ) -> Result<Self, Vec<ClientsError>> {
        let timeout = clients.communication_timeout;
        let auctioneer = clients.auctioneer.as_ref();
        let loggregator = clients.loggregator.as_ref().map(Loggregator::new);
        let mut faults = Vec::new();
        let set_up = Self {
            auctioneer: part(
                &mut faults,
                auctioneer.map(|auctioneer| Auctioneer::new(auctioneer, timeout)),
            ),
            reps: part(&mut faults, Some(Reps::new(&clients.rep, timeout))),
            cells: part(&mut faults, locket.map(CellDirectory::new)),
            callbacks: part(&mut faults, Some(Callbacks::new(identity, timeout))),
            loggregator: part(
                &mut faults,
                loggregator.map(|agent| agent.map_err(ClientsError::Loggregator)),
            ),
        };
        if faults.is_empty() {
            Ok(set_up)
        } else {
            Err(faults)
        }
    }
}

/// One of the clients; the one that does nothing if it is not configured, or if it has a fault,
/// which is added to the others.
fn part<T: Default>(
    faults: &mut Vec<ClientsError>,
    configured: Option<Result<T, ClientsError>>,
) -> T {
    match configured {
        Some(Ok(client)) => client,
        Some(Err(fault)) => {
            faults.push(fault);
            T::default()
        }
        None => T::default(),
    }
}

/// Replaces invalid UTF-8, as Go does.
fn text(text: &[u8]) -> String {
    json::replace_invalid(text).into_owned()
}
