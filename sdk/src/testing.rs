//! A test kit for migrations, without WebAssembly and without a database: rows as plain data, units
//! generated from a layout by seed, the laws that every migration has to satisfy, and golden cases
//! in folders. Steps run on the engine of the host, `bbs-lens`, which applies the rules of the host
//! to the manifest, calls the row functions, refuses results that a host refuses, and saves and
//! restores what a step would lose. Stores and encrypts nothing.

mod data;
mod generate;
mod golden;
mod input;
mod laws;
mod manifest;
mod step;
mod storable;
mod watch;

pub use bbs_lens::layout::history::{LayoutError, LayoutHistory};
pub use bbs_lens::layout::schema::Layout;
pub use data::{Datum, RowData, UnitData};
pub use generate::Generator;
pub use golden::{GoldenError, check_golden};
pub use laws::{Laws, Violation};
pub use step::{Stepped, run, step};
