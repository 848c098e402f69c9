//! A test kit for migrations, without WebAssembly and without a host: data as it lies in tables, units
//! generated from a layout by seed, the laws that every migration keeps, and golden cases in folders.
//! It stands in for the host only as far as a step goes; it stores, encrypts and plans nothing.

mod data;
mod generate;
mod golden;
mod laws;
mod step;

pub use data::{Datum, Row, UnitData};
pub use generate::Generator;
pub use golden::{GoldenError, check_golden};
pub use laws::{Laws, Violation};
pub use step::{Stepped, run, step};
