//! `bbs module add`: adds finished modules to a folder and its catalog.

use std::path::PathBuf;

use anyhow::Error;
use bbs_modules::add::{self, AddError, Added};
use bbs_modules::catalog::{CATALOG_FILE, Catalog};
use bbs_work::progress::Progress;
use clap::Args;

use super::insertion_lines;
use super::sign::signature_line;
use crate::api::{self, CHAIN_END};
use crate::cli::output::OutputForm;
use crate::cli::progress;
use crate::startup;

/// Add finished modules to a folder and its catalog.
///
/// For modules that came as .wasm files; `bbs module build` compiles crates. The manifest in each
/// file decides its place in the catalog: a migration is at that of its version, a translator
/// extends its chain. The whole folder is then loaded as a host would load it. If a host would
/// refuse it, nothing is changed. A module that the folder already has is skipped, or put back if
/// its file is gone or was altered; another one of the same version is refused. A migration below
/// others is inserted, and the command names those above it.
#[derive(Debug, Args)]
pub(super) struct AddCommand {
    /// The .wasm files of modules.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The folder to add to; created if absent.
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
    /// A folder of modules that these continue, such as the host's; may be repeated. For an add-on.
    #[arg(long, value_name = "DIR")]
    base: Vec<PathBuf>,
    #[command(flatten)]
    form: OutputForm,
}

/// Checks the translators of a folder as a host does.
pub(super) fn check_api(catalog: &Catalog) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    catalog.ends_in(CHAIN_END)?;
    api::served(startup::translators(catalog), None)?;
    Ok(())
}

impl AddCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let sandbox = super::sandbox()?;
        let progress = Progress::default();
        progress.enter(
            "check",
            format!("the modules of {}, with what is added", self.into.display()),
            None,
        );
        let files = self.files;
        let folder = self.into.clone();
        let base = self.base.clone();
        let continues_none = base.is_empty() && !folder.join(CATALOG_FILE).exists();
        let work = tokio::task::spawn_blocking(move || {
            add::add(&files, &folder, &base, &check_api, &sandbox)
        });
        let Added {
            added,
            present,
            entries,
            insertions,
            signature,
        } = progress::shown(&progress, work)
            .await?
            .map_err(|fault| match fault {
                AddError::After(_) if continues_none => Error::from(fault).context(
                    "these modules would be the first ones of all; if they continue others, such as the host's, name the folder of \
                     those with `--base`",
                ),
                fault => fault.into(),
            })?;
        let result = serde_json::json!({
            "folder": self.into,
            "added": added,
            "present": present,
            "inserted": insertions.migrations,
            "refused_at": insertions.refused_at,
            "modules": entries,
            "signature": signature,
        });
        self.form.print(&result, || {
            let added = added.iter().map(|file| format!("{file}  added\n"));
            let present = present
                .iter()
                .map(|file| format!("{file}  already present\n"));
            let count = format!("{} has {} modules\n", self.into.display(), entries.len());
            added
                .chain(present)
                .chain([
                    insertion_lines(&insertions),
                    count,
                    signature_line(signature, &self.into),
                ])
                .collect::<String>()
        })?;
        // Reports, for example, a second file of the same module that was copied there by hand.
        Catalog::entries(&self.into, &self.base)?;
        Ok(())
    }
}
