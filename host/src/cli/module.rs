//! `bbs module`: what a migration author needs besides an editor. Owns arguments and what is printed; the
//! modules themselves are `modules`' affair.

mod add;
mod build;
mod check;
mod compile;
mod inspect;
mod new;
mod replay;

use clap::{Args, Subcommand};

/// Start, build and look at WebAssembly modules.
///
/// A module is one .wasm file: a migration of the database or a translator between two versions of the API. It is
/// made in four steps:
///
///   bbs module new add-colour            a crate whose tests pass at once
///   cargo test                           in that crate, after every change
///   bbs module build add-colour --into modules
///   bbs module check modules
///
/// A host that is started with this folder as its `modules_dir` runs what is new in it; it is not rebuilt. Where a
/// module arrives as a finished file, `bbs module add FILE.wasm --into modules` takes the place of the third step.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ModuleCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    New(new::NewCommand),
    Build(build::BuildCommand),
    Add(add::AddCommand),
    Compile(compile::CompileCommand),
    Check(check::CheckCommand),
    Inspect(inspect::InspectCommand),
    Replay(replay::ReplayCommand),
}

impl ModuleCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        match self.action {
            Action::New(command) => command.run(),
            Action::Build(command) => command.run().await,
            Action::Add(command) => command.run().await,
            Action::Compile(command) => command.run().await,
            Action::Check(command) => command.run(),
            Action::Inspect(command) => command.run(),
            Action::Replay(command) => command.run(),
        }
    }
}
