//! `bbs module build`: compiles crates into a folder of modules.

use std::path::PathBuf;

use bbs_modules::build::{self, BuildRequest, BuiltFolder};
use bbs_work::progress::Progress;
use clap::Args;

use super::insertion_lines;
use super::sign::signature_line;
use crate::cli::output::OutputForm;
use crate::cli::progress;

/// Build crates into a folder of modules with its catalog.
///
/// Each crate is compiled for WebAssembly, made a component and named after its manifest, and the
/// catalog gets its sha256. With crates named, the rest of the folder stays: a migration of a later
/// version is appended, one below others is inserted, and the command names those above it.
/// Without, all modules of this repository are built and the folder contains nothing else. A module
/// that the folder has already is replaced or deleted with `--replace` alone, since it may have
/// run; so is, where no crate is named, a catalog that cannot be used, or modules without one. The
/// same source gives the same digests on every machine.
#[derive(Debug, Args)]
pub(super) struct BuildCommand {
    /// Folders of crates; all modules of this repository if none is named.
    #[arg(value_name = "CRATE")]
    crates: Vec<PathBuf>,
    /// The folder to write to; created if absent.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// A folder of modules that the built ones continue, such as the host's; may be repeated. For
    /// an add-on.
    #[arg(long, value_name = "DIR", requires = "crates")]
    base: Vec<PathBuf>,
    /// Replace or delete modules of the folder that have run on no database, such as a draft that
    /// has changed.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    form: OutputForm,
}

impl BuildCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let mut request = match self.crates.as_slice() {
            [] => BuildRequest::everything(&self.into)?,
            _ => BuildRequest::added(self.crates, &self.into, self.base),
        };
        request.replace = self.replace;
        let sandbox = super::sandbox()?;
        let progress = Progress::default();
        let working = progress.clone();
        let built = request.crates.len();
        let into = request.into.clone();
        let work = tokio::task::spawn_blocking(move || build::build(&request, &sandbox, &working));
        let BuiltFolder {
            entries,
            insertions,
            signature,
        } = progress::shown(&progress, work).await??;
        let result = serde_json::json!({
            "folder": into,
            "built": built,
            "inserted": insertions.migrations,
            "refused_at": insertions.refused_at,
            "modules": entries,
            "signature": signature,
        });
        self.form.print(&result, || {
            let count = format!(
                "{built} built; {} has {} modules\n",
                into.display(),
                entries.len()
            );
            let lines = entries
                .iter()
                .map(|entry| format!("{}  {}\n", &entry.sha256[..12], entry.file));
            std::iter::once(count)
                .chain(lines)
                .chain([
                    insertion_lines(&insertions),
                    signature_line(signature, &into),
                ])
                .collect::<String>()
        })
    }
}
