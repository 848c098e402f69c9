//! `bbs check-config`: validates a configuration as a start does, without a connection. Owns arguments and output.

use std::path::PathBuf;

use clap::Args;

use super::exit::Exit;
use super::{output, print_error};
use crate::config::Config;
use crate::startup;

/// Check a configuration file, its keys, certificates and modules, and report all faults at once.
///
/// Opens no port and no connection, writes nothing but compiled modules to their cache, and may run beside a serving host.
/// `bbs migrate status` and `bbs keys status` check the database and the keys in it.
#[derive(Debug, Args)]
pub struct CheckConfigCommand {
    /// The JSON configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl CheckConfigCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// With all faults of the file's keys; or standard output cannot be written to.
    pub async fn run(self) -> anyhow::Result<Exit> {
        let config = Config::read(&self.config)?;
        for warning in config.warnings() {
            output::note(format_args!("warning: {warning}"));
        }
        let faults = startup::faults(config).await;
        if faults.is_empty() {
            output::line(format_args!("{} can be used.", self.config.display()))?;
            return Ok(Exit::Success);
        }
        faults.iter().for_each(print_error);
        Ok(Exit::NotStarted)
    }
}
