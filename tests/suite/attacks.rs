//! Attacks by modules, clients, peers and files: none ends the host, takes its memory over the
//! limit or blocks native calls.

mod bodies;
pub mod compilation;
mod connections;
mod files;
mod migrations;
mod peers;
mod raw_sockets;
pub(crate) mod records;
mod registries;
mod soak;
mod subscribers;
mod translators;
