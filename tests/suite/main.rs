//! The integration tests, one executable for all areas: it is linked once.

#![allow(
    unreachable_pub,
    reason = "the harness is a module of several executables and is written as a library"
)]
#![allow(
    dead_code,
    reason = "some parts of the harness are used by the benchmarks only"
)]

#[path = "../harness/mod.rs"]
mod harness;

/// That of the host, which many of these tests run in this process.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod additions;
mod api;
mod api_versions;
mod attacks;
mod bosh;
mod build;
mod carrying;
mod catalog;
mod changed_units;
mod client;
mod clients;
mod command_line;
mod commands;
mod consistency;
mod control;
mod convergence;
mod crash;
mod databases;
mod deployment;
mod dev;
mod diego_changes;
mod documented_schema;
mod end_to_end;
mod equal_guids;
mod events;
mod faults;
mod fence;
mod fingerprints;
mod galera;
mod go_client;
mod identity;
mod import;
mod keys;
mod lens;
mod load;
mod lock;
mod lrp_updates;
mod migrate;
mod modules;
mod mutations;
mod next_diego;
mod online;
mod plans;
mod quarantine;
mod random;
mod ready;
mod recording;
mod release;
mod reload;
mod removal;
mod revisions;
mod routes;
mod sandbox;
mod schema;
mod sessions;
mod simulation;
mod split;
mod startup;
mod takeover;
mod tasks;
mod tidy;
mod translators;
mod upgrade;
mod validation;
