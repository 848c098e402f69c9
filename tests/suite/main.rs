//! The whole suite is one program: one link, and each test runs in a process of its own.

#![allow(unreachable_pub, reason = "the harness is one module tree here and reads as a library")]
#![allow(dead_code, reason = "not every area uses all of the harness")]

#[path = "../harness/mod.rs"]
mod harness;

mod api;
mod build;
mod catalog;
mod clients;
mod consistency;
mod control;
mod convergence;
mod crash;
mod databases;
mod deployment;
mod dev;
mod events;
mod faults;
mod fence;
mod first_light;
mod galera;
mod keys;
mod lens;
mod load;
mod lock;
mod migrate;
mod mirror;
mod modules;
mod online;
mod quarantine;
mod random;
mod routes;
mod sandbox;
mod schema;
mod simulation;
mod split;
mod startup;
mod takeover;
mod tasks;
mod tidy;
mod translators;
mod upgrade;
mod validation;
