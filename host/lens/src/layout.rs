//! The schema of the database at each data version: layouts, manifests, the layout history, and
//! rows as columns. No I/O. The records of the contract with modules are those of `bbs-contract`.

pub mod history;
pub mod migration_set;
pub mod schema;

pub use bbs_contract::{columns, manifest, values};
