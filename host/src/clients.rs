//! What the service says to the rest of Diego: auctions, cells, callbacks. Owns connections, deadlines and how each
//! other component is spoken to; decides nothing about what is said.

pub mod auctioneer;
pub mod callbacks;
pub mod cells;
pub mod reps;

pub use auctioneer::Auctioneer;
pub use callbacks::Callbacks;
pub use cells::Cells;
pub use reps::Reps;

/// Everything outside. A part that is not configured does nothing and says so once.
#[derive(Debug, Clone, Default)]
pub struct Clients {
    pub auctioneer: Auctioneer,
    pub reps: Reps,
    pub cells: Cells,
    pub callbacks: Callbacks,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the cell {cell_id:?} has no https address")]
    NoSecureAddress { cell_id: String },
    #[error("cannot {what}")]
    Unreachable { what: &'static str, source: reqwest::Error },
    #[error("cannot {what}: the answer was {status}")]
    Status { what: &'static str, status: u16 },
}
