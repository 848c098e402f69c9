//! What the service says to the rest of Diego: auctions, cells, callbacks, metrics. Owns connections, deadlines and how each
//! other component is spoken to; decides nothing about what is said.

pub mod auctioneer;
pub mod callbacks;
pub mod cells;
mod fresh;
pub mod loggregator;
mod pool;
pub mod reps;

pub use auctioneer::Auctioneer;
pub use callbacks::Callbacks;
pub use cells::Cells;
pub use loggregator::Loggregator;
pub use pool::PoolError;
pub use reps::Reps;

use crate::config::{self, ClientTls};
use crate::locket::ConnectError;
use crate::tls::client::Files;
use loggregator::LoggregatorError;

/// Everything outside. A part that is not configured does nothing.
#[derive(Debug, Clone, Default)]
pub struct Clients {
    pub auctioneer: Auctioneer,
    pub reps: Reps,
    pub cells: Cells,
    pub callbacks: Callbacks,
    pub loggregator: Loggregator,
}

/// Why what the host was asked to do with another component was not done.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the cell {cell_id:?} has no https address; give its rep one in `rep_url`")]
    NoSecureAddress { cell_id: String },
    #[error("nobody can be told at {url:?}, which is not a URL; desire the task with one")]
    NoCallback { url: String },
    #[error("cannot {what}; check that it runs, and that the certificates of both belong together")]
    Unreachable { what: &'static str, source: reqwest::Error },
    #[error("cannot {what}: the answer was {status}; see what the other end logged")]
    Status { what: &'static str, status: u16 },
}

/// Why there is nobody to speak to.
#[derive(Debug, thiserror::Error)]
pub enum ClientsError {
    #[error(
        "`{key}` {address:?} is not an address; write it as a URL, such as https://auctioneer.service.cf.internal:9016"
    )]
    Address { key: &'static str, address: String },
    #[error("the certificates named by `{keys}` cannot be used; correct them")]
    Pool { keys: &'static str, source: Box<PoolError> },
    #[error(transparent)]
    Locket(ConnectError),
    #[error("metrics cannot be sent as `loggregator` says")]
    Loggregator(#[source] LoggregatorError),
}

impl Clients {
    /// `identity` is who the host is to clients of its own, which is also who it is to receivers of callbacks.
    pub fn new(
        clients: &config::Clients,
        locket: Option<&config::Locket>,
        identity: Option<&ClientTls>,
    ) -> Result<Self, ClientsError> {
        let timeout = clients.communication_timeout;
        let auctioneer = clients.auctioneer.as_ref().map(|auctioneer| Auctioneer::new(auctioneer, timeout));
        let loggregator = clients.loggregator.as_ref().map(Loggregator::new);
        Ok(Self {
            auctioneer: auctioneer.transpose()?.unwrap_or_default(),
            reps: Reps::new(&clients.rep, timeout)?,
            cells: locket.map(Cells::new).transpose()?.unwrap_or_default(),
            callbacks: Callbacks::new(identity, timeout)?,
            loggregator: loggregator.transpose().map_err(ClientsError::Loggregator)?.unwrap_or_default(),
        })
    }
}

fn files(tls: &ClientTls) -> Files {
    Files { ca: tls.ca_file.clone(), cert: tls.cert_file.clone(), key: tls.key_file.clone() }
}

/// As Go writes it: what is not UTF-8 is replaced.
fn text(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
