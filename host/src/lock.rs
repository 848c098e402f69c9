//! The master lock: one host at a time changes the database. Owns the lease, its renewal and the
//! fence; decides nothing about what the master does.

pub mod fence;
pub mod file;
