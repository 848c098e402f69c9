//! A test kit for migrations, without WebAssembly and without a host: rows as plain data, units
//! generated from a layout by seed, the laws that every migration has to satisfy, and golden cases
//! in folders. It replaces the host for single steps only: it does not store, encrypt or plan.

mod data;
mod generate;
mod golden;
mod laws;
mod step;

pub use data::{Datum, RowData, UnitData};
pub use generate::Generator;
pub use golden::{GoldenError, check_golden};
pub use laws::{Laws, Violation};
pub use step::{Stepped, run, step};
