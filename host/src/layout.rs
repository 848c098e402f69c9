//! What the database looks like: layouts, manifests, rows as columns, and the database itself.

pub mod columns;
pub mod database;
pub mod dialect;
pub mod fold;
pub mod manifest;
pub mod schema;
pub mod serves;
pub mod values;
