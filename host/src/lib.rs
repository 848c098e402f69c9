//! The host: a drop-in server for Diego's BBS whose schema migrations and API translators are sandboxed WebAssembly
//! components. `README.md` beside this crate's manifest is the code map and the operator's guide.
//!
//! # Model
//!
//! **Versions.** A *data version* is a timestamp that names a layout of the database ([`layout`]): tables, typed columns,
//! keys, indexes. An *API version* is `major.minor` ([`api`]). A *catalog* is the ordered, digest-pinned list of modules
//! of a folder ([`modules`]): migrations lead from one data version to the next, translators answer one API version in
//! terms of the next.
//!
//! **Units.** A *unit* is all rows, over the tables that a migration declares, that share one partition key, such as
//! everything of one process guid ([`rows`]). It is what a migration transforms, as a whole.
//!
//! **Lens.** A *lens* is the migrations between two data versions, composed and applied to units in memory, up or down
//! ([`lens`]). Four uses share it:
//!
//! - migration: read at the source version, apply once, write at the target version ([`migrate`]);
//! - reads during an online migration: original tables, through the lens;
//! - writes during an online migration: dual writes to original tables and copies;
//! - reads and writes of a database that is pinned at, or ahead of, the version of the handlers ([`store`]).
//!
//! What a step would lose is saved as *residue*, sealed, so that the opposite step restores it.
//!
//! **Chain.** A *chain* is the translators between a client's API version and the native one. Each implements the older
//! version by calling the next; the last call reaches the native handlers ([`domain`]).
//!
//! **Master.** One host at a time writes. A lock ([`lock`]) elects it, and a fencing token, which every writing
//! transaction checks, stops a former master.
//!
//! # Layers
//!
//! ```text
//! startup → http → api → domain → store → rows → { encryption, lens, database, layout }
//!         → keys → migrate → { store, rows, modules, lock }
//! ```
//!
//! Dependencies never point up; `tests/suite/tidy.rs` has the table. [`startup`] is the only place where all parts meet,
//! [`database`] the only user of sqlx, [`modules`] of wasmtime, [`http`] of axum. [`model`], [`config`] and [`clock`] are
//! leaves. [`cli`] has one file per command.
//!
//! This crate is the executable's library; its items are public for the tests and benchmarks in `tests/`.

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
pub mod log_sampling;
pub mod logs;
pub mod metrics;
pub mod migrate;
pub mod model;
pub mod modules;
pub mod progress;
pub mod rows;
pub mod startup;
pub mod store;
pub mod throttle;
pub mod tls;

pub use bbs_encryption as encryption;
