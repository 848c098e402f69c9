//! `bbs module remove`: removes a module that has run nowhere from a folder and its catalog.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use bbs_modules::catalog::{CatalogEntry, CatalogPosition};
use bbs_modules::remove::{self, Removed};
use clap::Args;

use super::add::check_api;
use super::sign::signature_line;
use crate::cli::migrate::existing;
use crate::cli::output::OutputForm;
use crate::migrate;

/// Remove a module that has run nowhere, such as a draft, from a folder and its catalog.
///
/// The whole folder is loaded as a host would load it without the module, which may be below
/// others. If a host would refuse it, as it does if a later migration needs the module's tables,
/// nothing is changed. A migration that has run on a database, or is under way there, stays: hosts
/// refuse a folder without it. With `--config`, that database shows whether it has run or is under
/// way.
#[derive(Debug, Args)]
pub(super) struct RemoveCommand {
    /// The name of the module's file in the folder.
    #[arg(value_name = "FILE")]
    file: String,
    /// The folder to remove it from.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// A folder of modules that this one continues, such as the host's; may be repeated. For an
    /// add-on.
    #[arg(long, value_name = "DIR")]
    base: Vec<PathBuf>,
    /// The JSON configuration file of a host with this folder, whose database is looked at; may be
    /// repeated.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Remove it without a look at any database: no host has had it.
    #[arg(long)]
    never_ran: bool,
    #[command(flatten)]
    form: OutputForm,
}

impl RemoveCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        // Not a requirement of the argument parser: its message would name `--never-ran` alone, the
        // way around the check.
        ensure!(
            self.never_ran || !self.config.is_empty(),
            "give `--config FILE` of each host with this folder, whose databases show whether it has run; or `--never-ran` if \
             there is none"
        );
        let entry = remove::listed(&self.file, &self.from)?;
        for config in &self.config {
            check_unused(&entry, config).await?;
        }
        let sandbox = super::sandbox()?;
        let folder = self.from.clone();
        let work = tokio::task::spawn_blocking(move || {
            remove::remove(&self.file, &folder, &self.base, &check_api, &sandbox)
        });
        let Removed {
            entry,
            modules,
            signature,
        } = work.await??;
        let result = serde_json::json!({
            "folder": self.from,
            "removed": entry,
            "modules": modules,
            "signature": signature,
        });
        self.form.print(&result, || {
            let signature = signature_line(signature, &self.from);
            format!(
                "{}  removed\n{} has {modules} modules\n{signature}",
                entry.file,
                self.from.display()
            )
        })
    }
}

/// Checks that a module has not run on the database of a host, and that no migration under way
/// there may need it. The host that copies has it in memory and would complete that migration;
/// every later start would refuse the folder, and the only file would be gone.
async fn check_unused(entry: &CatalogEntry, config: &Path) -> anyhow::Result<()> {
    let prepared = existing(config).await?;
    let status = migrate::status(&prepared.context(), prepared.intent()).await?;
    let CatalogPosition::Migration { version, .. } = entry.position else {
        return Ok(());
    };
    ensure!(
        !status.has_run(version),
        "{} has run on the database of {}, so it stays; take the database down below it first, or correct it with a later \
         migration",
        entry.file,
        config.display()
    );
    ensure!(
        !status.may_be_under_way(version),
        "{} may be part of the migration that is under way on the database of {}, so it stays; complete that migration, or \
         stop the host and give it up with `bbs migrate abort`",
        entry.file,
        config.display()
    );
    Ok(())
}
