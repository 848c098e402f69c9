//! What an author needs to write a migration or a translator: one trait and one export macro each,
//! rows over the contract's columns, editors for protobuf and JSON that lose nothing, and a test
//! kit that runs without WebAssembly. It performs no input or output: a module sees what it
//! declared, and what it returns is a function of that.

pub mod columns;
mod glue;
pub mod json;
pub mod layout;
pub mod log;
pub mod manifest;
pub mod migration;
pub mod schema;
#[cfg(not(target_family = "wasm"))]
pub mod testing;
mod transform;
pub mod translator;
mod unit;
pub mod wire;

#[doc(hidden)]
#[cfg(target_family = "wasm")]
pub use glue::{migration as migration_glue, translator as translator_glue};
pub use manifest::{Access, Direction, Manifest, Write};
pub use migration::{Migration, Refused, Run};
pub use schema::{Column, Index, Table};
pub use transform::transform;
pub use translator::{ApiVersion, Fault, Next, Translator, TranslatorManifest};
pub use unit::{Row, Rows, Unit};
