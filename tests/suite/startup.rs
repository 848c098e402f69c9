//! The start-up decision for the state of the database: emptied databases that are initialised
//! again, starts that are refused before any write, rollbacks by several hosts, and versions
//! outside of the catalog.

mod fresh;
mod log_in;
mod messages;
mod poolers;
mod refusals;
mod rollback;
mod servers;
mod sessions;
mod wrong_keys;

use std::process::Output;

use serde_json::Value;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{Connection, MySqlConnection};

use crate::harness::database::Kind;
use crate::harness::engine::Engine;
use crate::harness::fixture;
use crate::harness::host::Installation;
use crate::harness::modules;

/// The newest version of the default catalog.
const NEWEST: u64 = 1_795_000_010;
/// The version before it.
const BELOW_NEWEST: u64 = 1_772_581_987;
/// A version from which the migration up rewrites every row.
const OLDEST: u64 = 1_471_030_898;

fn output_text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs a command that must fail; returns its output.
#[track_caller]
fn fail(installation: &Installation, arguments: &[&str]) -> String {
    let output = installation.run(arguments);
    assert!(
        !output.status.success(),
        "bbs {arguments:?} should have failed: {}",
        output_text(&output)
    );
    output_text(&output)
}

fn status(installation: &Installation) -> Value {
    serde_json::from_str(&installation.succeed(&["migrate", "status", "--json"]))
        .expect("status prints JSON")
}

/// A connection to MySQL as its administrator.
async fn administrator(engine: &Engine) -> MySqlConnection {
    let options = MySqlConnectOptions::new()
        .socket(engine.folder().join("socket"))
        .username("root");
    MySqlConnection::connect_with(&options)
        .await
        .expect("the administrator has no password")
}

/// An installation on a database that Diego's BBS wrote and no host has opened.
async fn diegos(kind: Kind) -> Installation {
    let installation = Installation::new(&modules::modules(), kind);
    fixture::write_to(&installation.database).await;
    installation
}
