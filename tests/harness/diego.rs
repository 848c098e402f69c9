//! Who is around the host in a Diego: small servers and clients that speak the real protocols, do their part of the work,
//! and fail when a test says so.

pub mod auctioneer;
pub mod cell;
pub mod controller;
pub mod emitter;
pub mod errands;
pub mod home;
pub mod mood;
pub mod receiver;
pub mod trust;
