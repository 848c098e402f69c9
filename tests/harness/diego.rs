//! Who is around the host in a Diego: small servers and clients that speak the real protocols.

pub mod trust;
