//! Diego's messages: the wire and what rests in encrypted columns. Owns names, numbers and types;
//! refuses to know what is valid, which empty parts are always sent, or how anything looks as JSON.
//!
//! Every string is bytes, because Go's clients may send what is not UTF-8. Every map is a list of
//! entries, so that keys are bytes too and order is kept.

#![allow(missing_docs, clippy::all, unreachable_pub, reason = "the messages below are generated")]

/// The API of today.
pub mod models {
    include!(concat!(env!("OUT_DIR"), "/models.rs"));
}

/// The worked example before its split.
pub mod v0_9 {
    include!(concat!(env!("OUT_DIR"), "/v0_9.rs"));
}

/// The worked example after its split.
pub mod v0_10 {
    include!(concat!(env!("OUT_DIR"), "/v0_10.rs"));
}

pub use prost;

#[cfg(test)]
mod tests;
