//! WebAssembly modules: the catalog, the sandbox and the bindings. The only place that knows wasmtime.

mod answer;
mod bindings;
pub mod build;
mod call;
mod catalog;
mod contract;
mod instance;
mod limits;
mod log;
mod migration;
mod module;
mod rules;
mod sandbox;
pub mod translate;
mod translator;

pub use self::call::CallError;
pub use self::catalog::{CATALOG_FILE, Catalog, CatalogError, Entry, Place};
pub use self::contract::ContractError;
pub use self::limits::Limits;
pub use self::migration::MigrationModule;
pub use self::module::{AnyManifest, Inspection, Module, ModuleError};
pub use self::rules::ManifestError;
pub use self::sandbox::{CacheError, ComponentError, Sandbox, SandboxError};
pub use self::translator::TranslatorModule;
