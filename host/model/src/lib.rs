//! The model: desired LRPs, actual LRPs, tasks and domains as plain values, their transitions, and
//! the stored JSON of their parts. Pure: no I/O, no messages of API calls.
//!
//! Parts that the service stores whole and never interprets (the definition of a run) stay protobuf
//! messages.

pub mod actual_lrp;
pub mod bounds;
pub mod cell;
pub mod change;
pub mod convergence;
pub mod desired_lrp;
mod excerpt;
pub mod lrp_update;
pub mod quarantine;
pub mod restart;
pub mod routes;
pub mod slot;
pub mod tags;
pub mod task;

pub use bbs_go_json as json;
pub use excerpt::excerpt;

/// Text as clients send it: mostly UTF-8, not guaranteed to be.
pub type Text = Vec<u8>;

/// The revision of a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModificationTag {
    pub epoch: Text,
    pub index: u32,
}

impl ModificationTag {
    /// The tag of a new record.
    pub fn begin() -> Self {
        Self {
            epoch: uuid::Uuid::new_v4().to_string().into(),
            index: 0,
        }
    }
}

/// The trace id of the client's request that caused a call; empty if there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceId(pub String);

impl TraceId {
    /// No trace id.
    pub const NONE: Self = Self(String::new());
}
