//! Diego's messages: those of the API, and those in encrypted columns. Owns names, numbers and
//! types; validation, defaults and JSON are not part of it.
//!
//! Strings are `bytes`, because Go's clients may send invalid UTF-8. Maps are lists of entries, so
//! that keys are bytes, too, and their order is preserved.

#![allow(
    missing_docs,
    clippy::all,
    unreachable_pub,
    reason = "the messages below are generated"
)]

/// Diego's current API.
pub mod models {
    include!(concat!(env!("OUT_DIR"), "/models.rs"));
}

/// The worked example's API before its split.
pub mod v0_9 {
    include!(concat!(env!("OUT_DIR"), "/v0_9.rs"));
}

/// The worked example's API after its split.
pub mod v0_10 {
    include!(concat!(env!("OUT_DIR"), "/v0_10.rs"));
}

/// The numbers of the fields of each message, for work on encoded messages:
/// `fields::desired_lrp::VOLUME_MOUNTS`.
pub mod fields {
    include!(concat!(env!("OUT_DIR"), "/fields.rs"));
}

mod action;
mod definition;
pub mod shapes;

pub use prost;

#[cfg(test)]
mod tests;
