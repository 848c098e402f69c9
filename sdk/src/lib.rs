//! The SDK for authors of migrations and translators: one trait and one export macro for each, rows
//! over the contract's columns, lossless editors for protobuf and JSON, and a test kit that runs
//! without WebAssembly.
//!
//! A module performs no input or output: it sees the columns that it declares, and its result
//! depends on nothing else. Start with [`Migration`] and [`export_migration!`], or [`Translator`]
//! and [`export_translator!`]; the README is the guide.

#![warn(missing_docs)]

pub mod columns;
mod glue;
pub mod json;
pub mod log;
pub mod migration;
mod refused;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
mod transform;
pub mod translator;
mod unit;
pub mod wire;

pub use bbs_contract::{manifest, schema};
#[doc(hidden)]
#[cfg(target_family = "wasm")]
pub use glue::{migration as migration_glue, translator as translator_glue};
/// The crate that derives the messages of [residue](Unit::decode_residue).
pub use prost;

pub use manifest::{Access, Direction, Manifest, Write};
pub use migration::{Migration, Run};
pub use refused::Refused;
pub use schema::{Column, Index, Table};
pub use transform::transform;
pub use translator::{
    ApiVersion, Event, Fault, Next, Operation, RecordChange, Translator, TranslatorManifest,
};
pub use unit::{Row, Rows, Unit};
