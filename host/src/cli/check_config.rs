//! `bbs check-config`: validates a configuration as a start does, without a connection. Owns
//! arguments and output.

use std::path::PathBuf;

use bbs_work::progress::Progress;
use clap::Args;

use super::exit::Exit;
use super::output::OutputForm;
use super::{error_text, output, print_error, progress};
use crate::config::{ConfigError, ExaminedConfig};
use crate::startup;

/// Check a configuration file, its keys, certificates and modules, and report all faults at once.
///
/// Opens no port and no connection, writes nothing but compiled modules to their cache, and may run
/// beside a serving host. `bbs migrate status` and `bbs keys status` check the database and the
/// keys in it.
#[derive(Debug, Args)]
pub struct CheckConfigCommand {
    /// The JSON configuration file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    form: OutputForm,
}

impl CheckConfigCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// Standard output cannot be written to.
    pub async fn run(self) -> anyhow::Result<Exit> {
        let examined = match ExaminedConfig::read(&self.config) {
            Ok(examined) => examined,
            Err(fault) => return self.print(&[], &[fault.into()]),
        };
        let mut warnings = examined.config.warnings();
        warnings.extend(startup::warnings(&examined.config));
        for warning in &warnings {
            output::note(format_args!("warning: {warning}"));
        }
        let loading = Progress::default();
        let faults = progress::shown(&loading, startup::faults(examined, &loading)).await;
        self.print(&warnings, &faults)
    }

    fn print(&self, warnings: &[String], faults: &[anyhow::Error]) -> anyhow::Result<Exit> {
        let result = serde_json::json!({
            "usable": faults.is_empty(),
            "warnings": warnings,
            "faults": faults.iter().flat_map(texts).collect::<Vec<_>>(),
        });
        self.form.print(&result, || match faults {
            [] => format!("{} can be used.\n", self.config.display()),
            _ => String::new(),
        })?;
        faults.iter().for_each(print_error);
        Ok(if faults.is_empty() {
            Exit::Success
        } else {
            Exit::NotStarted
        })
    }
}

/// A fault, or each of the faults of several keys.
fn texts(fault: &anyhow::Error) -> Vec<String> {
    match fault.downcast_ref::<ConfigError>() {
        Some(ConfigError::Faults { faults, .. }) => {
            faults.iter().map(ToString::to_string).collect()
        }
        _ => vec![error_text(fault)],
    }
}
