//! The host: a drop-in server for Diego's BBS whose migrations and API translators are
//! WebAssembly components. `README.md` beside this crate's manifest is the code map.

pub mod admin;
pub mod api;
pub mod cli;
pub mod clients;
pub mod clock;
pub mod config;
pub mod database;
pub mod domain;
pub mod events;
pub mod http;
pub mod keys;
pub mod layout;
pub mod lens;
pub mod lock;
pub mod locket;
pub mod logs;
pub mod metrics;
pub mod migrate;
pub mod model;
pub mod modules;
pub mod pace;
pub mod progress;
pub mod quiet;
pub mod record;
pub mod rows;
pub mod startup;
pub mod store;
pub mod tls;
