//! A simulated Diego around the host: small servers and clients that implement the real protocols and do the component's
//! work, with faults that a test switches on.

pub mod auctioneer;
pub mod bbs_client;
pub mod cell;
pub mod controller;
pub mod emitter;
pub mod fault_switch;
pub mod receiver;
pub mod task_runs;
pub mod trust;
