//! The schema of the database at each data version: layouts, manifests, the layout history, and
//! rows as columns. No I/O.

pub mod columns;
pub mod history;
pub mod line;
pub mod manifest;
pub mod schema;
pub mod values;
