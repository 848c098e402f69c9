//! `bbs migrate quarantine export`, `edit`, `import` and `delete`. Owns where decrypted content may
//! go: a terminal, or a private file.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde_json::error::Category;

use super::editor::{DOCUMENT_BYTES, EditedFile};
use super::{ShownArgs, existing, fence_for_writes, lines, mode, rows};
use crate::cli::confirm::{self, Confirmation};
use crate::cli::output;
use crate::migrate::{
    self, MigrateError, QuarantineDocument, QuarantineEntry, SealedValues, WriteMode,
};
use crate::startup::Prepared;

/// Write the content of a unit as JSON: for each of its entries the rows by table, with a value for
/// every column.
///
/// A text is a JSON text, bytes that are no plain text are {"hex": "0a05"}, and sealed values stay
/// sealed, as {"sealed": "…"}, unless `--decrypt` is given.
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// The unit's name as `list` prints it.
    unit: String,
    /// Decrypt sealed values with the keys of the configuration: at a terminal, or with `--output`.
    /// A value that does not open stays sealed.
    #[arg(long)]
    decrypt: bool,
    /// The file to write, which only this user may read [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace a file that exists.
    #[arg(long, requires = "output")]
    force: bool,
    #[command(flatten)]
    shown: ShownArgs,
}

/// Correct the content of a unit in an editor, the one that VISUAL or EDITOR names.
///
/// The editor gets what `export --decrypt` writes, in a private file that is removed afterwards.
/// Its result is imported as by `import`. Without a change, nothing is written. At a terminal, the
/// editor opens again for content that does not fit, and a file that is not imported is kept.
#[derive(Debug, Args)]
pub(super) struct EditArgs {
    /// The unit's name as `list` prints it.
    unit: String,
    #[command(flatten)]
    shown: ShownArgs,
}

/// Put corrected content, a file of `export`, in the place of that in quarantine.
///
/// All of it is compared with the layout of its version first: columns, types, NULL, lengths and
/// keys. Nothing is written if anything does not fit. It is sealed with the active key, and stays
/// in quarantine until `retry`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// A file that `export` wrote, corrected.
    file: PathBuf,
    /// Compare it, and write nothing. The exit code is that of the import.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    shown: ShownArgs,
}

/// Delete units from quarantine for good. No migration and no `retry` restores them.
///
/// The instances of a desired LRP that a host could not read end, unless it was desired again. To
/// keep the content, `export` it first.
#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// The units' names as `list` prints them.
    #[arg(required = true)]
    units: Vec<String>,
    #[command(flatten)]
    confirmation: Confirmation,
    /// Show what would be deleted, and write nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    shown: ShownArgs,
}

impl ExportArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let Self {
            unit,
            decrypt,
            output: file,
            force,
            shown: ShownArgs { config, form },
        } = self;
        ensure!(
            !decrypt || file.is_some() || io::stdout().is_terminal(),
            "decrypted values are written to a terminal or to a private file only; name one with `--output FILE`"
        );
        let prepared = existing(&config).await?;
        let sealed = if decrypt {
            SealedValues::Decrypted
        } else {
            SealedValues::Kept
        };
        let documents = migrate::export_quarantined(&prepared.context(), &unit, sealed).await?;
        prepared.database.close().await;
        let Some(file) = file else {
            output::json(&documents)?;
            return Ok(());
        };
        write_private(&file, text_of(&documents)?.as_bytes(), force)?;
        let result = serde_json::json!({ "file": file, "entries": documents.len() });
        form.print(&result, || {
            format!(
                "{} has {} entries of unit {unit:?}.\n",
                file.display(),
                documents.len()
            )
        })
    }
}

impl EditArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let Self { unit, shown } = self;
        let prepared = existing(&shown.config).await?;
        // A wrong key would be noticed only after the edit.
        fence_for_writes(&prepared).await?;
        let documents =
            migrate::export_quarantined(&prepared.context(), &unit, SealedValues::Decrypted)
                .await?;
        let mut file = EditedFile::new(&text_of(&documents)?)?;
        let imported = loop {
            let content = file.edited().await?;
            let fault = match corrected(&prepared, &documents, &content).await {
                Ok(imported) => break imported,
                Err(fault) => fault,
            };
            // A program that edits has its work elsewhere.
            if !io::stdin().is_terminal() {
                return Err(fault);
            }
            let question = format!("{fault}\nThe editor opens again with what you have written.");
            if !is_of_content(&fault) || confirm::confirmed(&question).is_err() {
                return Err(file.kept(fault));
            }
        };
        prepared.database.close().await;
        print_imported(&shown, &imported, WriteMode::Real)
    }
}

/// The content that was edited cannot be read as entries.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name} is not of the form that `bbs migrate quarantine export` writes: {what}, line {line}, column {column}; nothing was written"
)]
struct NoExport {
    name: String,
    what: &'static str,
    line: usize,
    column: usize,
}

fn is_of_content(fault: &anyhow::Error) -> bool {
    fault.is::<NoExport>()
        || matches!(
            fault.downcast_ref(),
            Some(MigrateError::NotCorrected { .. })
        )
}

async fn corrected(
    prepared: &Prepared,
    before: &[QuarantineDocument],
    content: &[u8],
) -> anyhow::Result<Vec<QuarantineEntry>> {
    let edited = documents_of("the edited file", content)?;
    if edited == before {
        return Ok(Vec::new());
    }
    let fence = fence_for_writes(prepared).await?;
    Ok(migrate::import_quarantined(&prepared.context(), &fence, &edited, WriteMode::Real).await?)
}

impl ImportArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let Self {
            file,
            dry_run,
            shown,
        } = self;
        let name = file.display().to_string();
        let bytes = bbs_files::read(&file, DOCUMENT_BYTES)
            .with_context(|| format!("{name} cannot be read"))?;
        let documents = documents_of(&name, &bytes)?;
        ensure!(!documents.is_empty(), "{name} has no entry");
        let prepared = existing(&shown.config).await?;
        let fence = fence_for_writes(&prepared).await?;
        let imported =
            migrate::import_quarantined(&prepared.context(), &fence, &documents, mode(dry_run))
                .await?;
        prepared.database.close().await;
        print_imported(&shown, &imported, mode(dry_run))
    }
}

fn print_imported(
    shown: &ShownArgs,
    imported: &[QuarantineEntry],
    mode: WriteMode,
) -> anyhow::Result<()> {
    shown.form.print(&imported, || match (imported, mode) {
        ([], _) => "Nothing was changed.\n".to_owned(),
        (imported, WriteMode::DryRun) => lines(imported, |entry| {
            format!("{}, can be imported; nothing was written", rows(entry))
        }),
        (imported, WriteMode::Real) => lines(imported, |entry| {
            format!(
                "{}, imported; `bbs migrate quarantine retry` restores it to its tables",
                rows(entry)
            )
        }),
    })
}

impl DeleteArgs {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let Self {
            units,
            confirmation,
            dry_run,
            shown,
        } = self;
        let prepared = existing(&shown.config).await?;
        let context = prepared.context();
        let fence = fence_for_writes(&prepared).await?;
        let mut found =
            migrate::delete_quarantined(&context, &fence, &units, WriteMode::DryRun).await?;
        let mut outcome = "would be deleted; nothing was written";
        if !dry_run {
            confirmation.obtain(&format!(
                "This deletes for good, without a way back:\n{}",
                lines(&found, rows).trim_end()
            ))?;
            found = migrate::delete_quarantined(&context, &fence, &units, WriteMode::Real).await?;
            outcome = "deleted";
        }
        prepared.database.close().await;
        shown.form.print(&found, || {
            lines(&found, |entry| format!("{}, {outcome}", rows(entry)))
        })
    }
}

fn text_of(documents: &[QuarantineDocument]) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(documents)? + "\n")
}

/// The reason of a failure without the text at its place, which may be a secret.
fn documents_of(name: &str, content: &[u8]) -> Result<Vec<QuarantineDocument>, NoExport> {
    serde_json::from_slice(content).map_err(|fault| NoExport {
        name: name.to_owned(),
        what: match fault.classify() {
            Category::Eof => "it ends too early",
            Category::Data => "it is no list of entries, or a member is missing or of another type",
            Category::Syntax | Category::Io => "it is not JSON in UTF-8",
        },
        line: fault.line(),
        column: fault.column(),
    })
}

/// Writes a file that only this user may read.
///
/// # Errors
/// It exists and is not to be replaced, or cannot be written.
fn write_private(path: &Path, content: &[u8], replace: bool) -> anyhow::Result<()> {
    let path = std::path::absolute(path).context("the current folder is gone")?;
    let failed = || format!("{} cannot be written", path.display());
    if replace {
        return bbs_files::replace_private(&path, content, || ()).with_context(failed);
    }
    let mut file = match bbs_files::private()
        .write(true)
        .create_new(true)
        .open(&path)
    {
        Err(fault) if fault.kind() == ErrorKind::AlreadyExists => {
            bail!(
                "{} exists; name another file, or replace it with `--force`",
                path.display()
            )
        }
        opened => opened.with_context(failed)?,
    };
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    written.with_context(failed)
}
