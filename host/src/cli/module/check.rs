//! `bbs module check`: validates a file or a folder as a host does, and runs its row functions on
//! generated rows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{bail, ensure};
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::transform::Transform;
use bbs_modules::catalog::Catalog;
use bbs_modules::sandbox::Sandbox;
use bbs_modules::signatures::TrustedKeys;
use bbs_modules::translate::Translate;
use bbs_modules::{Insertions, MigrationModule, Module, TranslatorModule, Trial, trial};
use clap::Args;
use serde::Serialize;

use crate::cli::output::OutputForm;
use crate::startup;

/// Check a module, or a folder of modules with its catalog, as a host does before it starts.
///
/// In a folder, every migration is also run on generated rows of the layout that precedes it: twice
/// in a fresh instance, once in one that has run before. A row function that gives two answers to
/// the same rows keeps state between calls; one that traps would trap on an operator's database. It
/// may refuse rows that it cannot read, but not all. What a migration keeps for the way back must
/// belong to a record, so that another record which a client makes under the same key gets nothing
/// of it. Of an add-on, it names the migrations that are inserted below those of other folders.
/// Signatures are not verified: which keys are trusted is in the configuration of a host.
#[derive(Debug, Args)]
pub(super) struct CheckCommand {
    /// A .wasm file, or a folder that `bbs module build` has written.
    path: PathBuf,
    /// A folder of modules that this one continues, such as the host's; may be repeated. For an
    /// add-on.
    #[arg(long, value_name = "DIR")]
    base: Vec<PathBuf>,
    /// Check only this module of the folder against the rest, which is loaded and not run: its
    /// file, or the name or version of a migration, or the versions of a translator; may be
    /// repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    #[command(flatten)]
    form: OutputForm,
}

/// The result for one module.
#[derive(Debug, Default, Serialize)]
struct Finding {
    file: String,
    module: String,
    sha256: String,
    /// One for each direction with a row function.
    trials: Vec<Trial>,
    /// The migrations of other folders below which an add-on inserts it.
    inserted_below: Vec<DataVersion>,
    /// Residue and rows that it keeps for the way back without a record to bind them to.
    unbound: Vec<String>,
}

impl Finding {
    /// A migration of which nothing was run.
    fn of_migration(module: &MigrationModule, file: &str) -> Self {
        let manifest = module.manifest();
        Self {
            file: file.to_owned(),
            module: format!("migration {} {}", manifest.version, manifest.name),
            sha256: module.digest().to_owned(),
            ..Self::default()
        }
    }

    fn of_translator(module: &TranslatorModule, file: &str) -> Self {
        let manifest = module.manifest();
        Self {
            file: file.to_owned(),
            module: format!("translator {} to {}", manifest.serves, manifest.onto),
            sha256: module.digest().to_owned(),
            ..Self::default()
        }
    }

    fn is_good(&self) -> bool {
        self.unbound.is_empty() && self.trials.iter().all(|trial| trial.problem.is_none())
    }
}

impl CheckCommand {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let sandbox = super::sandbox()?;
        let mut insertions = Insertions::default();
        let findings = if self.path.is_dir() {
            let folders = [&self.base[..], std::slice::from_ref(&self.path)].concat();
            let catalog = startup::load_catalog(&folders, &TrustedKeys::default(), &sandbox)?;
            insertions = Insertions::of_add_on(&self.path, &self.base)?;
            check_catalog(&catalog, &insertions, &self.only)?
        } else {
            ensure!(
                self.only.is_empty(),
                "`--only` chooses modules of a folder; {} is a file",
                self.path.display()
            );
            vec![check_file(&self.path, &sandbox)?]
        };
        self.form.print(&findings, || {
            findings
                .iter()
                .map(text)
                .chain([super::insertion_lines(&insertions)])
                .collect::<String>()
        })?;
        match findings.iter().filter(|finding| !finding.is_good()).count() {
            0 => Ok(()),
            bad => bail!("{bad} of {} modules break a rule", findings.len()),
        }
    }
}

/// Checks the modules of these names; all of them if none is given.
fn check_catalog(
    catalog: &Catalog,
    insertions: &Insertions,
    only: &[String],
) -> anyhow::Result<Vec<Finding>> {
    let migrations = catalog.migrations().iter();
    let translators = catalog.translators().iter();
    let names: Vec<_> = migrations
        .map(migration_names)
        .chain(translators.map(translator_names))
        .collect();
    if let Some(unknown) = only
        .iter()
        .find(|name| !names.iter().flatten().any(|known| known == *name))
    {
        let files: Vec<_> = names.iter().map(|[file, ..]| file.as_str()).collect();
        bail!(
            "the folder has no module {unknown:?}; it has {}",
            files.join(", ")
        );
    }
    let is_chosen =
        |names: [String; 3]| only.is_empty() || names.iter().any(|name| only.contains(name));
    let history = catalog.layout_history();
    let migrations = catalog.migrations().iter();
    let migrations = migrations.filter(|module| is_chosen(migration_names(module)));
    let migrations = migrations.map(|module| {
        let unbound = history.unbound(module.manifest());
        Finding {
            trials: trial::run(module, history),
            inserted_below: insertions.of(module.manifest().version).to_vec(),
            unbound: unbound.iter().map(ToString::to_string).collect(),
            ..Finding::of_migration(module, module.file())
        }
    });
    let translators = catalog.translators().iter();
    let translators = translators.filter(|module| is_chosen(translator_names(module)));
    let translators = translators.map(|module| Finding::of_translator(module, module.file()));
    Ok(migrations.chain(translators).collect())
}

/// The names by which `--only` chooses a module, the file first.
fn migration_names(module: &Arc<MigrationModule>) -> [String; 3] {
    let manifest = module.manifest();
    [
        module.file().to_owned(),
        manifest.name.clone(),
        manifest.version.to_string(),
    ]
}

fn translator_names(module: &Arc<TranslatorModule>) -> [String; 3] {
    let manifest = module.manifest();
    let versions = format!("{}-to-{}", manifest.serves, manifest.onto);
    [module.file().to_owned(), manifest.name.clone(), versions]
}

fn check_file(file: &Path, sandbox: &Arc<Sandbox>) -> anyhow::Result<Finding> {
    let name = file.display().to_string();
    Ok(match Module::open(file, sandbox)? {
        Module::Migration(module) => Finding::of_migration(&module, &name),
        Module::Translator(module) => Finding::of_translator(&module, &name),
    })
}

fn text(finding: &Finding) -> String {
    let verdict = if finding.is_good() { "good" } else { "BAD " };
    let mut lines = format!("{verdict}  {}  {}\n", &finding.sha256[..12], finding.module);
    for trial in &finding.trials {
        let Trial {
            direction,
            units,
            refused,
            refusal,
            problem,
        } = trial;
        lines += &match problem {
            None => {
                format!(
                    "      {direction}: {units} generated units, {refused} of them refused, the same answer each time\n"
                )
            }
            Some(problem) => format!("      {direction}: {problem}\n"),
        };
        if let Some(refusal) = refusal {
            lines += &format!("      {direction}: the first refusal is: {refusal}\n");
        }
    }
    lines.extend(
        finding
            .unbound
            .iter()
            .map(|unbound| format!("      {unbound}\n")),
    );
    lines
}
