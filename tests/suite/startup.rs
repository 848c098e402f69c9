//! What a start finds and what it makes of it: databases begun anew, starts that end before anything is written,
//! rollbacks by several hosts, and versions that nothing can be at.

mod fresh;
mod refusals;
mod rollback;
mod sealed;
mod words;

use std::process::Output;

use serde_json::Value;

use crate::harness::database::Kind;
use crate::harness::fixture;
use crate::harness::host::Installation;
use crate::harness::modules;

/// The newest version of the default catalog.
const NEWEST: u64 = 1_795_000_000;
/// The one before.
const BELOW_NEWEST: u64 = 1_772_581_987;
/// Going up from here rewrites every row.
const OLDEST: u64 = 1_471_030_898;

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What an operator reads when a command fails.
#[track_caller]
fn fail(installation: &Installation, arguments: &[&str]) -> String {
    let output = installation.run(arguments);
    assert!(!output.status.success(), "bbs {arguments:?} should have failed: {}", said(&output));
    said(&output)
}

fn status(installation: &Installation) -> Value {
    serde_json::from_str(&installation.succeed(&["migrate", "status", "--json"])).expect("status prints JSON")
}

fn version(installation: &Installation) -> u64 {
    status(installation)["found"]["versioned"]["current"].as_u64().expect("a version")
}

/// Diego's database, which no host of this project has seen.
async fn diegos(kind: Kind) -> Installation {
    let installation = Installation::new(&modules::modules(), kind);
    fixture::write_to(&installation.database).await;
    installation
}
