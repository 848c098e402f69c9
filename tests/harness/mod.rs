//! What every test of the suite starts from: temporary folders, databases on servers of the tests' own, the built
//! modules, the fixture, the host as a process. Waits for conditions, never for time.

use std::path::{Path, PathBuf};

pub mod certificates;
pub mod database;
pub mod deployment;
pub mod diego;
pub mod engine;
pub mod fixture;
pub mod galera;
pub mod host;
pub mod layouts;
pub mod listener;
pub mod load;
pub mod locket;
pub mod loggregator;
pub mod mariadb;
pub mod modules;
pub mod neighbours;
pub mod once;
pub mod postgres;
pub mod proxy;
pub mod server;
pub mod stored;

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the host is a folder of the workspace").to_owned()
}

/// The host's executable.
pub fn bbs() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_bbs"))
}

/// A client for plain HTTP.
pub fn http_client() -> reqwest::Client {
    bbs::tls::choose_cryptography();
    reqwest::Client::new()
}

/// Waits until something is so.
pub async fn until(mut is_so: impl FnMut() -> bool) {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("what was waited for comes");
}
