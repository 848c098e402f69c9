//! The command line: output into pipes that are closed, exit codes, colours, and the options of the
//! log.

mod exit_codes;
mod mistakes;
mod pipes;
mod terminal;

use std::process::Output;

use crate::harness::database::Kind;
use crate::harness::fixture;
use crate::harness::host::Installation;
use crate::harness::modules::modules;

/// Migrating up from this version rewrites every row.
const OLDEST: u64 = 1_471_030_898;

/// An installation on a database that Diego's BBS wrote and no host has opened.
async fn diegos_installation(kind: Kind) -> Installation {
    let installation = Installation::new(&modules(), kind);
    fixture::write_to(&installation.database).await;
    installation
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
