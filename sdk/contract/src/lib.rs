//! The records that a host and a migration exchange: the manifest, the tables and columns of a
//! layout, and rows as columns in Arrow's memory layout. The SDK shows them to authors, with
//! builders; `bbs-lens` composes and applies migrations by them.
//!
//! Owns the data types and their encodings. The rules for manifests are in `bbs-lens`; the
//! WebAssembly interface that carries the records is `wit` beside this crate. Compiled into every
//! guest, and therefore without dependencies.

#![warn(missing_docs)]

pub mod columns;
pub mod manifest;
pub mod schema;
pub mod values;
