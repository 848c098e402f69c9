//! The command line: one file per command. Owns arguments, what is printed and exit codes.

pub mod dev;
pub mod keys;
pub mod migrate;
pub mod module;
pub mod progress;
pub mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A drop-in server for Cloud Foundry Diego's BBS whose schema migrations and API translators are
/// sandboxed WebAssembly modules.
#[derive(Debug, Parser)]
#[command(name = "bbs", version, max_term_width = 100)]
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
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Dev(command) => command.run().await?,
            Command::Serve(command) => command.run().await?,
            Command::Migrate(command) => return command.run().await,
            Command::Keys(command) => command.run().await?,
            Command::Module(command) => command.run().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
