//! The rest of a Diego, as far as convergence speaks to it: Locket with a presence for each cell, and an auctioneer
//! that takes whatever it is asked. Owns how the time of a run is taken: from what the host says of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::CELLS;
use crate::harness::deployment::free_address;
use crate::harness::diego::trust::{Listening, Trust};
use crate::harness::host::{Host, Installation};
use crate::harness::locket::Locket;

/// Between two runs. The next one comes soon, and what is changed meanwhile is changed before it.
const INTERVAL: &str = "500ms";
/// What the host says when it begins with the instances, and when it has done with them.
const BEGINS: &str = "converge-lrps-started";
const ENDS: &str = "converge-lrps-done";

pub struct Rest {
    locket: Locket,
    trust: Trust,
    auctioneer: Listening,
    auctioned: Arc<AtomicU64>,
}

impl Rest {
    pub async fn start() -> Self {
        let (locket, auctioned) = (Locket::start(), Arc::<AtomicU64>::default());
        for cell in 0..CELLS {
            let id = cell_id(cell);
            let presence = json!({ "cell_id": id, "rep_url": "https://127.0.0.1:1", "zone": "z1" });
            locket.show(&id, &presence.to_string());
        }
        let count = Arc::clone(&auctioned);
        let router = Router::new().fallback(move |body: String| {
            let wanted: Vec<Value> = serde_json::from_str(&body).expect("the host sends JSON");
            let indices = wanted.iter().map(|lrp| lrp["indices"].as_array().map_or(0, Vec::len) as u64).sum();
            count.fetch_add(indices, Ordering::Relaxed);
            async { StatusCode::ACCEPTED }
        });
        let trust = Trust::new();
        let auctioneer = trust.listen(router);
        Self { locket, trust, auctioneer, auctioned }
    }

    /// The same host as part of this, which names all of it.
    pub fn around(&self, installation: Installation) -> Installation {
        let [ca, cert, key] = self.trust.files();
        let mut keys = json!({
            "uuid": "the-host",
            // Its log then names what happens.
            "session_name": "bbs",
            "health_address": free_address().to_string(),
            "auctioneer_address": self.auctioneer.url(),
            "auctioneer_ca_cert": ca, "auctioneer_client_cert": cert, "auctioneer_client_key": key,
            "rep_ca_cert": ca, "rep_client_cert": cert, "rep_client_key": key,
            "ca_file": ca, "cert_file": cert, "key_file": key,
            "converge_repeat_interval": INTERVAL,
        });
        for (key, value) in self.locket.configuration().as_object().expect("an object of keys") {
            keys[key] = value.clone();
        }
        let Value::Object(keys) = keys else { unreachable!("it was written as an object") };
        keys.into_iter().fold(installation, |installation, (key, value)| installation.set(&key, value))
    }

    /// The authority, and the certificate and key of whoever is let in.
    pub fn files(&self) -> [PathBuf; 3] {
        self.trust.files()
    }

    pub fn lose(&self, cell: u64) {
        self.locket.hide(&cell_id(cell));
    }

    /// Instances that cells were asked for so far.
    pub fn auctioned(&self) -> u64 {
        self.auctioned.load(Ordering::Relaxed)
    }
}

fn cell_id(cell: u64) -> String {
    format!("cell-{cell}")
}

/// Starts it, and returns once it serves.
pub fn serve(installation: &Installation) -> Host {
    Host::start(installation.command(&["serve"]), "bbs.started")
}

/// How long the next run takes that begins from now on.
pub fn next_run(host: &mut Host) -> Duration {
    host.said();
    host.wait_for_line(|line| line.contains(BEGINS));
    let began = Instant::now();
    host.wait_for_line(|line| line.contains(ENDS));
    began.elapsed()
}
