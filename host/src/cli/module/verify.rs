//! `bbs module verify`: compares a folder of modules with builds of their sources.

use std::path::PathBuf;

use anyhow::bail;
use bbs_modules::rebuild::{self, RebuildOutcome, RebuiltModule};
use bbs_work::progress::Progress;
use clap::Args;

use crate::cli::output::OutputForm;
use crate::cli::progress;

/// Verify that the modules of a folder were built from their sources
///
/// A digest in the catalog shows that a module is the one that was listed, not where it comes from.
/// This command builds the sources again, as `bbs module build` does, and compares the sha256 of
/// each module. Builds are reproducible: a module that differs comes from another source, or from
/// another version of Rust or of a dependency. The folder is only read.
///
///   bbs module verify modules --rebuild bbs
///   bbs module verify modules --rebuild bbs --rebuild add-owner
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct VerifyCommand {
    /// A folder that `bbs module build` has written.
    #[arg(value_name = "DIR")]
    modules: PathBuf,
    /// A checkout of the repository, for all modules that it lists, or the folder of one crate. May
    /// be repeated.
    #[arg(long, value_name = "SOURCE", required = true)]
    rebuild: Vec<PathBuf>,
    #[command(flatten)]
    form: OutputForm,
}

impl VerifyCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let sandbox = super::sandbox()?;
        let progress = Progress::default();
        let working = progress.clone();
        let Self {
            modules,
            rebuild,
            form,
        } = self;
        let work = tokio::task::spawn_blocking(move || {
            rebuild::rebuild(&modules, &rebuild, &sandbox, &working)
        });
        let found = progress::shown(&progress, work).await??;
        form.print(&found, || {
            found
                .iter()
                .map(|module| line(module) + "\n")
                .collect::<String>()
        })?;
        match found
            .iter()
            .filter(|module| module.outcome != RebuildOutcome::Equal)
            .count()
        {
            0 => Ok(()),
            bad => bail!(
                "{bad} of {} modules are not those of the sources; check that these are of the same commit and have the same \
                 rust-toolchain.toml and Cargo.lock, and that every module has a source",
                found.len()
            ),
        }
    }
}

fn line(
    RebuiltModule {
        file,
        sha256,
        outcome,
    }: &RebuiltModule,
) -> String {
    let listed = &sha256[..12];
    match outcome {
        RebuildOutcome::Equal => format!("equal      {listed}  {file}"),
        RebuildOutcome::Differs { built } => format!(
            "DIFFERS    {listed}  {file}: the build has {}",
            &built[..12]
        ),
        RebuildOutcome::NoSource => format!("NO SOURCE  {listed}  {file}"),
    }
}
