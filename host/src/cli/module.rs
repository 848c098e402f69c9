//! `bbs module`: the commands of a migration author. Owns arguments and output; the work on modules is in `modules`.

mod add;
mod build;
mod check;
mod compile;
mod inspect;
mod new;
mod replay;

use clap::{Args, Subcommand};

/// Create, build and inspect WebAssembly modules.
///
/// A module is one .wasm file: a migration of the database or a translator between two versions of the API. It is
/// made in four steps:
///
///   bbs module new add-colour            a crate whose tests pass at once; --translator for a translator
///   cargo test                           in that crate, after every change
///   bbs module build add-colour --into modules
///   bbs module check modules
///
/// A host that is started with this folder as its `modules_dir` runs the new modules in it; it is not rebuilt. Where a
/// module arrives as a finished file, `bbs module add FILE.wasm --into modules` takes the place of the third step.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ModuleCommand {
    #[command(subcommand)]
    action: ModuleAction,
}

#[derive(Debug, Subcommand)]
enum ModuleAction {
    New(new::NewCommand),
    Build(build::BuildCommand),
    Add(add::AddCommand),
    Compile(compile::CompileCommand),
    Check(check::CheckCommand),
    Inspect(inspect::InspectCommand),
    Replay(replay::ReplayCommand),
}

impl ModuleCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// A module cannot be read, built or compiled, or a check finds a fault.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.action {
            ModuleAction::New(command) => command.run(),
            ModuleAction::Build(command) => command.run().await,
            ModuleAction::Add(command) => command.run().await,
            ModuleAction::Compile(command) => command.run().await,
            ModuleAction::Check(command) => command.run(),
            ModuleAction::Inspect(command) => command.run(),
            ModuleAction::Replay(command) => command.run(),
        }
    }
}
