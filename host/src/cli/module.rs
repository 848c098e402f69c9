//! `bbs module`: the commands of a migration author, and of an operator who carries modules from
//! one machine to another. Owns arguments and output; the work on modules is in `modules`.

mod add;
mod build;
mod bundle;
mod check;
mod compile;
mod inspect;
mod layout;
mod new;
mod pull;
mod push;
mod registry;
mod reload;
mod remove;
mod replay;
mod sign;
mod verify;

use std::fmt::Display;
use std::sync::Arc;

use bbs_modules::Insertions;
use bbs_modules::oci::OciArtifact;
use bbs_modules::sandbox::{CacheFolders, Limits, Sandbox, SandboxError};
use bbs_work::joined;
use clap::{Args, Subcommand};

use super::output::OutputForm;
use crate::config::shared_module_cache;

/// Create, build and inspect WebAssembly modules
///
/// A module is one .wasm file: a migration of the database or a translator between two versions of
/// the API. It is made in four steps:
///
///   bbs module new add-colour                    a crate whose tests pass at once
///   cargo test                                   in that crate, after every change
///   bbs module build add-colour --into modules
///   bbs module check modules
///
/// `bbs module new --translator` creates a translator.
///
/// A host that is started with this folder as its `modules_dir` runs the new modules in it; it is
/// not rebuilt. A host that runs already takes them up with `bbs module reload`. Where a module
/// arrives as a finished file, `bbs module add FILE.wasm --into modules` takes the place of the
/// third step. A whole folder is carried to another machine as one file by `bbs module bundle`, or
/// through an OCI registry by `bbs module push` and `bbs module pull`. `bbs module sign` signs it,
/// so that hosts can verify who made it. A BOSH release with the module, for a host that is
/// deployed with BOSH, is written by `bbs module new add-colour --bosh`.
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
    Remove(remove::RemoveCommand),
    Compile(compile::CompileCommand),
    Check(check::CheckCommand),
    Inspect(inspect::InspectCommand),
    Layout(layout::LayoutCommand),
    Verify(verify::VerifyCommand),
    Bundle(bundle::BundleCommand),
    Push(push::PushCommand),
    Pull(pull::PullCommand),
    Reload(reload::ReloadCommand),
    Replay(replay::ReplayCommand),
    Sign(sign::SignCommand),
}

impl ModuleCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// A module cannot be read, built, compiled or carried, or a check finds a fault.
    pub async fn run(self) -> anyhow::Result<()> {
        match self.action {
            ModuleAction::New(command) => command.run(),
            ModuleAction::Build(command) => command.run().await,
            ModuleAction::Add(command) => command.run().await,
            ModuleAction::Remove(command) => command.run().await,
            ModuleAction::Compile(command) => command.run().await,
            ModuleAction::Check(command) => command.run(),
            ModuleAction::Inspect(command) => command.run(),
            ModuleAction::Layout(command) => command.run(),
            ModuleAction::Verify(command) => command.run().await,
            ModuleAction::Bundle(command) => command.run(),
            ModuleAction::Push(command) => command.run().await,
            ModuleAction::Pull(command) => command.run().await,
            ModuleAction::Reload(command) => command.run().await,
            ModuleAction::Replay(command) => command.run().await,
            ModuleAction::Sign(command) => command.run(),
        }
    }
}

/// Lines about migrations that were added below others.
fn insertion_lines(insertions: &Insertions) -> String {
    let inserted = insertions.migrations.iter();
    let lines = inserted.map(|inserted| {
        format!(
            "migration {} is inserted below {}\n",
            inserted.version,
            joined(&inserted.below)
        )
    });
    let refused = insertions.refused_at.map(|newest| {
        format!(
            "databases that are at {newest}, the newest version, refuse these modules until there is a migration above {newest}; an \
             empty one suffices\n"
        )
    });
    lines.chain(refused).collect()
}

/// Prints the place that a folder of modules was carried to, and its digest.
fn print_carried(
    form: OutputForm,
    place: impl Display,
    artifact: &OciArtifact,
) -> anyhow::Result<()> {
    let modules = artifact.modules();
    let digest = artifact.digest();
    let result = serde_json::json!({ "place": place.to_string(), "modules": modules, "digest": digest.to_string() });
    form.print(&result, || {
        format!("{place} has {modules} modules; {digest}\n")
    })
}

/// A sandbox that reads what hosts of this user have compiled, and stores nothing: an author's
/// modules change with each build.
pub(super) fn sandbox() -> Result<Arc<Sandbox>, SandboxError> {
    let shared = shared_module_cache().filter(|folder| folder.is_dir());
    let cache = CacheFolders {
        own: Vec::new(),
        shipped: shared.into_iter().collect(),
    };
    Sandbox::new(Limits::default(), Some(&cache)).map(Arc::new)
}
