//! `bbs serve`: runs the host until a signal, a lost lock or a failure ends it.

use std::path::PathBuf;

use bbs_lens::layout::manifest::DataVersion;
use clap::Args;

use super::whole_number;
use crate::config::{Config, Ignored, LogFormat, LogLevel, RaisedConnections};
use crate::logs::Logs;
use crate::startup;

/// Serve Diego's API from a database, migrating it first if it is older than the modules.
///
/// The order is: load and validate every module; reach the database and try the keys, after which
/// the health port answers 200 instead of 503; wait for the master lock; open the API port (503
/// with progress); migrate; serve; if the active key changed, re-seal everything under it in the
/// background. `bbs --help` has the exit codes.
#[derive(Debug, Args)]
#[command(after_help = "\
The smallest configuration:
  {
    \"database_connection_string\": \"/var/lib/bbs/bbs.db\",
    \"modules_dir\": \"/var/lib/bbs/modules\",
    \"encryption_keys\": {\"key-1\": \"a passphrase\"},
    \"active_key_label\": \"key-1\"
  }
Paths are relative to the file; those of certificates and keys are first looked for in the working
directory, as by Diego's BBS. `bbs module build --into DIR` makes the modules folder.
Diego's own bbs.json serves as it is, also as `bbs -config=FILE`; the modules are then looked for in `modules`
beside the executable or beside its folder.")]
pub struct ServeCommand {
    /// The JSON configuration file, with Diego's key names.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Before this host ends (`bbs drain`; outside a BOSH job SIGTERM and SIGINT, too), take the
    /// database back to this version, for an older host that takes over.
    /// Takes the place of the key `rollback_on_drain_to_version`. Give it to `bbs drain`, too, which
    /// takes the database back where this host has not.
    #[arg(long, value_name = "VERSION", value_parser = whole_number::<u64>)]
    rollback_on_drain_to_version: Option<DataVersion>,
    /// Keep the database at this version: records are converted in memory to the version that this
    /// host works with, and written back at this one. Takes the place of the key
    /// `pin_data_version`.
    #[arg(long, value_name = "VERSION", value_parser = whole_number::<u64>)]
    pin_data_version: Option<DataVersion>,
    /// Serve no newer version of the API than this one, such as 0.10. Takes the place of the
    /// key `pin_api_version`.
    #[arg(long, value_name = "VERSION")]
    pin_api_version: Option<String>,
    /// Pin the data and the API version of this release, which `releases.toml` of the modules
    /// folder names. Takes the place of the key `pin_release`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pin_data_version", "pin_api_version"])]
    pin_release: Option<String>,
    /// The least severe level that is logged [default: `log_level` of the configuration, or info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
    /// The form of the log [default: lager, if the configuration has a `session_name` and standard
    /// output is no terminal]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

impl ServeCommand {
    #[cfg(test)]
    pub(super) fn config(&self) -> &str {
        self.config.to_str().expect("the tests' paths are text")
    }

    /// Serves until a signal ends the process.
    ///
    /// # Errors
    /// The configuration is invalid, or the host cannot start or fails.
    pub async fn run(self) -> anyhow::Result<()> {
        let mut config = Config::read(&self.config)?;
        config.migration.rollback_on_drain_to = self
            .rollback_on_drain_to_version
            .or(config.migration.rollback_on_drain_to);
        config.pin_data_version = self.pin_data_version.or(config.pin_data_version);
        config.pin_api_version = self.pin_api_version.or(config.pin_api_version);
        config.pin_release = self.pin_release.or(config.pin_release);
        config.logging.format = self.log_format.or(config.logging.format);
        let logs = Logs::start(&config.logging)?;
        if let Some(level) = self.log_level {
            logs.level().set(level);
        }
        warn_of_ignored(&config.ignored);
        if !config.beside_the_file.is_empty() {
            tracing::warn!(
                name: "configuration.paths-beside-the-file",
                keys = ?config.beside_the_file,
                "the files that these keys name are not in the working directory, where Diego's BBS looks for them, and \
                 were found beside the configuration file; write absolute paths"
            );
        }
        if let Some(RaisedConnections { configured, used }) = config.raised_connections {
            tracing::warn!(
                name: "configuration.connections-raised",
                "`max_open_database_connections` is {configured}, and this host needs {used} connections to this database; \
                 it opens up to {used}. Set at least that"
            );
        }
        startup::serve(config, logs.level(), |_| {})
            .await
            .map_err(|failure| {
                // A log for people is on standard error, where the failure is printed.
                if logs.is_for_machines() {
                    failure.log();
                }
                failure.into()
            })
    }
}

/// Logs all ignored keys in one line. Some are in every file that BOSH renders, and no reason for a
/// warning.
fn warn_of_ignored(ignored: &Ignored) {
    let Ignored {
        known,
        unknown,
        resembled,
    } = ignored;
    if !resembled.is_empty() {
        tracing::warn!(
            name: "configuration.ignored-keys",
            ?unknown, ?resembled, ?known,
            "these configuration keys have no meaning here and are ignored; some resemble keys that have one"
        );
    } else if !unknown.is_empty() {
        tracing::warn!(
            name: "configuration.ignored-keys",
            ?unknown, ?known, "these configuration keys have no meaning here and are ignored"
        );
    } else if !known.is_empty() {
        tracing::info!(
            name: "configuration.ignored-keys",
            ?known, "these configuration keys have no meaning here and are ignored"
        );
    }
}
