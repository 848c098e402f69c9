//! Migrations: what to do about the versions found, and doing it.

pub mod reencrypt;
