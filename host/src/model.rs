//! What the service is about: desired LRPs, actual LRPs, tasks, domains, as plain values, and how
//! parts of them look as JSON at rest. Pure: no I/O, no wire messages of any call.
//!
//! The parts that the service stores whole and never looks into (a run's definition) stay the
//! messages that they rest as.

pub mod actual_lrp;
pub mod cell;
pub mod change;
pub mod convergence;
pub mod desired_lrp;
pub mod json;
pub mod restart;
pub mod routes;
pub mod slot;
pub mod tags;
pub mod task;

/// Text as clients send it: mostly UTF-8, never promised to be.
pub type Text = Vec<u8>;

/// Which image of a record this is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModificationTag {
    pub epoch: Text,
    pub index: u32,
}

impl ModificationTag {
    /// Of a record that begins now.
    pub fn begin() -> Self {
        Self { epoch: uuid::Uuid::new_v4().to_string().into(), index: 0 }
    }
}

/// What a client calls the request that began something; empty where that is not passed on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceId(pub String);

impl TraceId {
    pub const NONE: Self = Self(String::new());
}
