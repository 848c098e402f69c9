//! The command line: one file per command. Owns arguments, what is printed and exit codes.

pub mod dev;
pub mod keys;
pub mod migrate;
pub mod module;
pub mod progress;
pub mod serve;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::ConfigError;
use crate::logs::ScrubError;
use crate::startup;

/// A drop-in server for Cloud Foundry Diego's BBS whose schema migrations and API translators are
/// sandboxed WebAssembly modules.
#[derive(Debug, Parser)]
#[command(name = "bbs", version, long_version = version::LONG.as_str(), max_term_width = 100)]
#[command(
    after_help = "Try it:  bbs dev\n\nRun it:  bbs migrate plan --config bbs.json, then bbs serve --config bbs.json"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dev(dev::DevCommand),
    Serve(serve::ServeCommand),
    Migrate(migrate::MigrateCommand),
    Keys(keys::KeysCommand),
    Module(module::ModuleCommand),
}

impl Cli {
    /// Reads the arguments, of which Diego's own command line is one form: `bbs -config=FILE` serves.
    pub fn of(arguments: impl Iterator<Item = OsString>) -> Self {
        Self::parse_from(with_subcommand(arguments.collect()))
    }

    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Dev(command) => command.run().await?,
            Command::Serve(command) => return command.run().await,
            Command::Migrate(command) => return command.run().await,
            Command::Keys(command) => command.run().await?,
            Command::Module(command) => command.run().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What a command that failed says, and the code that it ends with.
pub fn failed(error: &anyhow::Error) -> ExitCode {
    say(error);
    let could_not_begin = error.is::<ConfigError>() || error.is::<ScrubError>();
    if could_not_begin { ExitCode::from(startup::COULD_NOT_BEGIN) } else { ExitCode::FAILURE }
}

/// Errors never print their own sources, so the whole chain is printed here, once.
fn say(error: &anyhow::Error) {
    eprintln!("bbs: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  because: {cause}");
    }
}

/// Go takes an option with one dash or two.
fn with_subcommand(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let first = arguments.get(1).and_then(|first| first.to_str()).unwrap_or_default();
    let option = first.strip_prefix("--").or_else(|| first.strip_prefix('-')).unwrap_or_default();
    if option == "config" || option.starts_with("config=") {
        let option = format!("--{option}");
        arguments.splice(1..2, ["serve".into(), option.into()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(with_subcommand(line.split(' ').map(OsString::from).collect()))
    }

    #[test]
    fn diegos_command_line_serves() {
        for line in [
            "bbs -config=/a/bbs.json",
            "bbs --config=/a/bbs.json",
            "bbs -config /a/bbs.json",
            "bbs --config /a/bbs.json",
            "bbs serve --config /a/bbs.json",
            "bbs -config=/a/bbs.json --pin-api-version 0.10",
        ] {
            match read(line).map(|cli| cli.command) {
                Ok(Command::Serve(serve)) => assert_eq!(serve.config(), "/a/bbs.json", "{line}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_version_names_commit_api_and_data_version() {
        let text = <Cli as clap::CommandFactory>::command().render_long_version();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with(concat!("bbs ", env!("CARGO_PKG_VERSION"), " (commit ")), "{text}");
        assert!(lines[1].contains("1.1") && lines[2].contains("1772581987"), "{text}");
    }

    #[test]
    fn what_is_not_a_command_line_is_refused() {
        for line in ["bbs", "bbs -config", "bbs -configuration=x", "bbs -c x", "bbs config=x", "bbs -config=x -verbose"]
        {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
