//! Stubs of the components that convergence calls: Locket with a presence for each cell, and an
//! auctioneer that accepts every request. Owns the timing of a convergence run, which it takes from
//! the host's log.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::CELLS;
use crate::harness::diego::trust::{HttpServer, Trust};
use crate::harness::host::{Host, Installation};
use crate::harness::locket::Locket;
use crate::harness::ports::free_address;

/// Interval of convergence: short, but long enough to change cells between two runs.
const INTERVAL: &str = "500ms";
/// The host's log event once it serves.
pub const SERVES: &str = "bbs.started";
/// The host's log events at the beginning and the end of the LRPs' convergence.
const BEGINS: &str = "converge-lrps-started";
const ENDS: &str = "converge-lrps-done";

pub struct StubDiego {
    locket: Locket,
    trust: Trust,
    auctioneer: HttpServer,
    auctioned: Arc<AtomicU64>,
}

impl StubDiego {
    pub async fn start() -> Self {
        let locket = Locket::start();
        let auctioned = Arc::<AtomicU64>::default();
        for cell in 0..CELLS {
            let id = cell_id(cell);
            let presence = json!({ "cell_id": id, "rep_url": "https://127.0.0.1:1", "zone": "z1" });
            locket.add_presence(&id, &presence.to_string());
        }
        let count = Arc::clone(&auctioned);
        let router = Router::new().fallback(move |body: String| {
            let wanted: Vec<Value> = serde_json::from_str(&body).expect("the host sends JSON");
            let indices = wanted
                .iter()
                .map(|lrp| lrp["indices"].as_array().map_or(0, Vec::len) as u64)
                .sum();
            count.fetch_add(indices, Ordering::Relaxed);
            async { StatusCode::ACCEPTED }
        });
        let trust = Trust::new();
        let auctioneer = trust.listen(router);
        Self {
            locket,
            trust,
            auctioneer,
            auctioned,
        }
    }

    /// Adds the configuration of these stubs to an installation.
    pub fn around(&self, installation: Installation) -> Installation {
        let [ca, cert, key] = self.trust.files();
        let mut keys = json!({
            "uuid": "the-host",
            // With a session name the host logs lager's event names.
            "session_name": "bbs",
            "health_address": free_address().to_string(),
            "auctioneer_address": self.auctioneer.url(),
            "auctioneer_ca_cert": ca, "auctioneer_client_cert": cert, "auctioneer_client_key": key,
            "rep_ca_cert": ca, "rep_client_cert": cert, "rep_client_key": key,
            "ca_file": ca, "cert_file": cert, "key_file": key,
            "converge_repeat_interval": INTERVAL,
        });
        for (key, value) in self
            .locket
            .configuration()
            .as_object()
            .expect("an object of keys")
        {
            keys[key] = value.clone();
        }
        let Value::Object(keys) = keys else {
            unreachable!("it was written as an object")
        };
        keys.into_iter()
            .fold(installation, |installation, (key, value)| {
                installation.set(&key, value)
            })
    }

    /// The paths of the authority's certificate, and of a certificate and key that the host
    /// accepts.
    pub fn files(&self) -> [PathBuf; 3] {
        self.trust.files()
    }

    /// Removes the presence of a cell.
    pub fn lose(&self, cell: u64) {
        self.locket.remove_presence(&cell_id(cell));
    }

    /// Number of instances that the auctioneer was requested to place so far.
    pub fn auctioned(&self) -> u64 {
        self.auctioned.load(Ordering::Relaxed)
    }
}

fn cell_id(cell: u64) -> String {
    format!("cell-{cell}")
}

/// Starts the host and waits until it serves.
pub fn serve(installation: &Installation) -> Host {
    Host::start(installation.command(&["serve"]), SERVES)
}

/// The duration of the next convergence run that begins from now on.
pub fn next_run(host: &mut Host) -> Duration {
    run_begins(host);
    let began = Instant::now();
    run_ends(host);
    began.elapsed()
}

/// Waits for the beginning of the next convergence run.
pub fn run_begins(host: &mut Host) {
    host.output();
    host.wait_for_line(|line| line.contains(BEGINS));
}

/// Waits for the end of the convergence run that has begun.
pub fn run_ends(host: &mut Host) {
    host.wait_for_line(|line| line.contains(ENDS));
}
