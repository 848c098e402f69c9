//! WebAssembly modules: the catalog and its signatures, the sandbox and the bindings, and how they
//! are built and carried. The only user of wasmtime and of minisign.

pub mod add;
mod bindings;
pub mod build;
pub mod bundle;
mod call;
pub mod catalog;
mod contract;
mod exchange;
mod instance;
mod limits;
mod log;
mod memory;
mod migration;
mod module;
mod new_folder;
pub mod oci;
mod placement;
pub mod rebuild;
pub mod registry;
pub mod releases;
pub mod remove;
mod rules;
mod running;
pub mod sandbox;
pub mod sign;
pub mod signatures;
mod text;
pub mod translate;
mod translator;
pub mod trial;

pub use self::migration::MigrationModule;
pub use self::module::{AnyManifest, Inspection, Module};
pub use self::placement::Insertions;
pub use self::translator::TranslatorModule;
pub use self::trial::Trial;
