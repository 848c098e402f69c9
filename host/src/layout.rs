//! What the database looks like: layouts, manifests, rows as columns.

pub mod columns;
pub mod fold;
pub mod manifest;
pub mod schema;
pub mod values;
