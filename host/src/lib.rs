//! The host: a drop-in server for Diego's BBS whose schema migrations and API translators are
//! sandboxed WebAssembly components. `README.md` beside this crate's manifest is the code map,
//! `OPERATING.md` the operator's guide.
//!
//! # Model
//!
//! **Versions.** A *data version* is a timestamp that names a layout of the database
//! ([`bbs_lens::layout`]):
//! tables, typed columns, keys, indexes. An *API version* is `major.minor` ([`api`]). A *catalog*
//! is the ordered, digest-pinned list of modules of a folder (`bbs_modules`): migrations lead from
//! one data version to the next, translators answer one API version in terms of the next.
//!
//! **Units.** A *unit* is all rows, over the tables that a migration declares, that share one
//! partition key, such as everything of one process guid (`bbs_units`). It is what a migration
//! transforms, as a whole.
//!
//! **Lens.** A *lens* is the migrations between two data versions, composed and applied to units in
//! memory, up or down: the crate [`bbs_lens`]. Four uses share it:
//!
//! - migration: read at the source version, apply once, write at the target version ([`migrate`]);
//! - reads during an online migration: original tables, through the lens;
//! - writes during an online migration: original tables, through the lens; the units that they
//!   change are recorded, and copied again;
//! - reads and writes of a database that is pinned at, or ahead of, the version of the handlers
//!   ([`store`]).
//!
//! What a step would lose is saved as *residue*, sealed, so that the opposite step restores it.
//!
//! **Chain.** A *chain* is the translators between a client's API version and the native one. Each
//! implements the older version by calling the next; the last call reaches the native handlers
//! ([`domain`]).
//!
//! **Master.** One host at a time writes. A lock ([`lock`]) elects it, and a fencing token, which
//! every writing transaction checks, stops a former master.
//!
//! # Layers
//!
//! ```text
//! startup → http → api → domain → store → lock
//!         → keys → migrate → { store, lock }
//!         → import → { etcd, migrate }
//! below all, crates: host/units → { host/database, host/lens, host/encryption }
//!                    host/modules → { host/lens, host/work, host/files }, host/model
//! ```
//!
//! Dependencies never point up; `tests/suite/tidy/dependencies.rs` has the table. [`startup`] is
//! the only place where all parts meet, `bbs_database` the only user of sqlx, `bbs_modules` of
//! wasmtime, [`http`] of axum. `bbs_model`, [`config`] and [`clock`] are leaves. [`cli`] has one file
//! per command.
//!
//! This crate is the executable's library. It is public for that executable, [`Cli`], and for the
//! tests and benchmarks in `tests/`, which use what is in [`testing`].

// Inside the crate, `pub` means for other modules; which ones, the table of layers says.
#![allow(unreachable_pub)]
// These pages are made with `--document-private-items`.
#![allow(rustdoc::private_intra_doc_links)]
#![warn(missing_docs)]

mod admin;
mod api;
mod cli;
mod clients;
mod clock;
mod config;
mod domain;
mod etcd;
mod events;
mod http;
mod import;
mod keys;
mod lock;
mod locket;
mod logs;
mod metrics;
mod migrate;
mod protobuf;
mod reload;
mod shutdown;
mod startup;
mod store;
pub mod testing;
mod tls;

pub use cli::{Cli, failed};
pub use tls::choose_cryptography;
