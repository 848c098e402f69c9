//! A simulated Diego around the host: small servers and clients that implement the real protocols
//! and do the component's work, with faults that a test switches on.

pub mod auctioneer;
pub mod bbs_client;
pub mod cell;
pub mod controller;
pub mod emitter;
pub mod fault_switch;
pub mod outages;
pub mod receiver;
pub mod task_runs;
pub mod trace;
pub mod trust;

use self::auctioneer::Auctioneer;
use self::trust::Trust;
use super::database::TestDatabase;
use super::host::Installation;
use super::locket::Locket;
use super::modules;

/// A host that trusts the simulated components and is trusted by them, with short intervals and
/// timeouts.
pub fn installation(
    database: &TestDatabase,
    trust: &Trust,
    auctioneer: &Auctioneer,
    locket: &Locket,
) -> Installation {
    let mut installation = Installation::on(database.clone(), &modules::modules());
    let [ca_file, cert_file, key_file] = trust.files().map(|path| path.display().to_string());
    for (ca, cert, key) in [
        ("ca_file", "cert_file", "key_file"),
        (
            "auctioneer_ca_cert",
            "auctioneer_client_cert",
            "auctioneer_client_key",
        ),
        ("rep_ca_cert", "rep_client_cert", "rep_client_key"),
    ] {
        installation = installation
            .set(ca, &*ca_file)
            .set(cert, &*cert_file)
            .set(key, &*key_file);
    }
    for (key, value) in locket
        .configuration()
        .as_object()
        .expect("an object of keys")
    {
        installation = installation.set(key, value.clone());
    }
    installation
        .set("auctioneer_address", auctioneer.url())
        .set("auctioneer_require_tls", true)
        .set("health_address", "127.0.0.1:0")
        .set("communication_timeout", "1s")
        .set("converge_repeat_interval", "1s")
        .set("kick_task_duration", "2s")
        .set("expire_completed_task_duration", "1h")
}
