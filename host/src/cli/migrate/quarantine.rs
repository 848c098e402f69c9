//! `bbs migrate quarantine`: lists units that could not be migrated, repairs and retries them. Owns
//! arguments and wording; only `repair` prints values of records.

mod editor;
mod repair;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use bbs_lens::layout::manifest::Direction;
use bbs_lens::transform::Transform;
use bbs_modules::Module;
use clap::{Args, Subcommand};

use super::{ShownArgs, existing};
use crate::cli::output::details;
use crate::config::Config;
use crate::lock::fence::Fence;
use crate::migrate::{self, Fate, QuarantineEntry, WriteMode};
use crate::startup::{self, Prepared};

/// List, repair and retry units that a migration could not transform, and rows that a host could
/// not read, in quarantine.
///
/// The unit at which a migration stopped is listed as well, and is in its tables: quarantine has a
/// copy of it until the migration is run again or given up.
///
/// Each is stored whole and sealed. A migration back below the one that it failed at restores it;
/// so does `retry`, once its records open again or with a corrected module. A row that a host could
/// not read returns by `retry` alone. Where its content is at fault, `edit` corrects it in place,
/// or `export` writes it to a file and `import` reads the corrected file; then `retry`. `delete`
/// gives a unit up. All of these may run beside a serving host.
#[derive(Debug, Args)]
pub(super) struct QuarantineCommand {
    #[command(subcommand)]
    action: QuarantineAction,
}

#[derive(Debug, Subcommand)]
enum QuarantineAction {
    /// List the units, with the reason of each.
    List(ShownArgs),
    /// Show one unit: its tables, the failure, and what to do.
    Show(UnitArgs),
    /// Retry units, and write those that succeed into their tables at the version of the database.
    Retry(RetryArgs),
    Export(repair::ExportArgs),
    Edit(repair::EditArgs),
    Import(repair::ImportArgs),
    Delete(repair::DeleteArgs),
}

const NO_UNIT: &str = "No unit is in quarantine.";

#[derive(Debug, Args)]
struct UnitArgs {
    /// The unit's name as `list` prints it: a process guid, a task's guid, or `<process
    /// guid>/<index>/<presence>`.
    unit: String,
    #[command(flatten)]
    shown: ShownArgs,
}

#[derive(Debug, Args)]
struct RetryArgs {
    /// The units' names [default: all]
    units: Vec<String>,
    /// A corrected module to run in place of the catalog's of the same version, for these units
    /// only.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    /// Show what would become of each unit, and write nothing. The exit code is that of the retry.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    shown: ShownArgs,
}

impl QuarantineCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self.action {
            QuarantineAction::List(listed) => list(listed).await,
            QuarantineAction::Show(args) => show(args).await,
            QuarantineAction::Retry(args) => retry(args).await,
            QuarantineAction::Export(args) => args.run().await,
            QuarantineAction::Edit(args) => Box::pin(args.run()).await,
            QuarantineAction::Import(args) => args.run().await,
            QuarantineAction::Delete(args) => args.run().await,
        }
    }
}

async fn list(ShownArgs { config, form }: ShownArgs) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let entries = migrate::quarantined(&prepared.context()).await?;
    form.print(&entries, || lines(&entries, short))
}

/// A line for each entry.
fn lines(entries: &[QuarantineEntry], text: impl Fn(&QuarantineEntry) -> String) -> String {
    if entries.is_empty() {
        return format!("{NO_UNIT}\n");
    }
    entries
        .iter()
        .map(|entry| format!("{}  {}\n", name(entry), text(entry)))
        .collect()
}

/// The unit's name for a terminal: clients choose it.
fn name(entry: &QuarantineEntry) -> String {
    entry.unit.escape_debug().to_string()
}

fn short(entry: &QuarantineEntry) -> String {
    let QuarantineEntry {
        version,
        direction,
        reason,
        pending,
        ..
    } = entry;
    if entry.is_of_a_serving_host() {
        return format!("{}, unreadable at {version}: {reason}", rows(entry));
    }
    if entry.stopped {
        return format!("stopped {version} {direction}: {reason} (it is in its tables)");
    }
    let pending = if *pending {
        " (the migration is still in progress)"
    } else {
        ""
    };
    format!("{}, {version} {direction}: {reason}{pending}", rows(entry))
}

fn rows(entry: &QuarantineEntry) -> String {
    let rows = entry.rows.iter().filter(|(_, rows)| **rows > 0);
    let counts: Vec<_> = rows
        .map(|(table, rows)| format!("{rows} {table}"))
        .collect();
    if counts.is_empty() {
        "residue alone".to_owned()
    } else {
        counts.join(" + ")
    }
}

async fn show(
    UnitArgs {
        unit,
        shown: ShownArgs { config, form },
    }: UnitArgs,
) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let entries = migrate::quarantined(&prepared.context()).await?;
    let found: Vec<_> = entries
        .into_iter()
        .filter(|entry| entry.unit == unit)
        .collect();
    if found.is_empty() {
        bail!(
            "there is no unit {unit:?} in quarantine; `bbs migrate quarantine list` lists its units"
        );
    }
    form.print(&found, || found.iter().map(long).collect::<String>())
}

fn long(entry: &QuarantineEntry) -> String {
    let QuarantineEntry {
        from,
        to,
        version,
        module,
        digest,
        ..
    } = entry;
    let is_of_a_serving_host = entry.is_of_a_serving_host();
    let mut lines = vec![("Unit", name(entry))];
    if !entry.stopped {
        lines.push(("Rows", format!("{}, as they were at {from}", rows(entry))));
    }
    if is_of_a_serving_host {
        let place = "no migration; a serving host could not read it".to_owned();
        lines.push(("Failed at", place));
    } else {
        let way = Direction::between(*from, *to);
        lines.push(("Way", format!("{way} from {from} to {to}")));
        let place = match module.as_str() {
            "" => format!("{version}, before any module ran"),
            module => format!("{version}-{module}, sha256 {digest}"),
        };
        lines.push(("Failed at", place));
    }
    lines.push(("Reason", entry.reason.clone()));
    if !module.is_empty() {
        let command = format!("bbs module replay {}", name(entry));
        lines.push(("Run again", command));
    }
    let (state, repair) = if entry.stopped {
        (
            "the migration stopped at it; the unit is in its tables, and clients may change it",
            "the unit or the module, then run the migration again; `bbs migrate abort` gives it up",
        )
    } else if entry.pending {
        (
            "the migration is still in progress; the unit is still in its original tables, too",
            "",
        )
    } else {
        (
            if is_of_a_serving_host {
                "not in the tables; `bbs migrate quarantine retry` restores it if it can be read; a part of a unit only if no migration since its move reads it"
            } else {
                "not in the tables; `bbs migrate quarantine retry` restores it if it can be migrated"
            },
            "`bbs migrate quarantine edit` corrects its content, then retry; `delete` gives it up",
        )
    };
    lines.extend([("State", state.to_owned()), ("Repair", repair.to_owned())]);
    details(11, lines)
}

async fn retry(args: RetryArgs) -> anyhow::Result<()> {
    let RetryArgs {
        units,
        module,
        dry_run,
        shown: ShownArgs { config, form },
    } = args;
    let mode = mode(dry_run);
    let prepared = existing(&config).await?;
    let instead = module
        .map(|file| corrected(&file, &prepared.config))
        .transpose()?;
    let fence = fence_for_writes(&prepared).await?;
    let fates = migrate::retry(&prepared.context(), &fence, &units, instead, mode).await?;
    prepared.database.close().await;
    let result: Vec<_> = fates
        .iter()
        .map(|(entry, fate)| serde_json::json!({ "unit": entry.unit, "fate": fate }))
        .collect();
    form.print(&result, || match fates.as_slice() {
        [] => format!("{NO_UNIT}\n"),
        fates => fates
            .iter()
            .map(|(entry, fate)| format!("{}  {}\n", name(entry), outcome(fate, mode)))
            .collect(),
    })?;
    let stay = fates
        .iter()
        .filter(|(_, fate)| *fate != Fate::Returned)
        .count();
    match stay {
        0 => Ok(()),
        stay if dry_run => bail!(
            "{stay} of {} units would remain in quarantine; nothing was written",
            fates.len()
        ),
        stay => bail!("{stay} of {} units remain in quarantine", fates.len()),
    }
}

fn mode(dry_run: bool) -> WriteMode {
    if dry_run {
        WriteMode::DryRun
    } else {
        WriteMode::Real
    }
}

/// The fence under which entries are changed: the current one, which is not raised. The data that a
/// host serves does not change, so the host may continue.
///
/// # Errors
/// A key does not open the records of the database, as every content is sealed with the active key;
/// a catalog is too old; or the database fails.
async fn fence_for_writes(prepared: &Prepared) -> anyhow::Result<Fence> {
    prepared.check_keys().await?;
    prepared.check_serials().await?;
    Ok(Fence::of_master(&prepared.database).await?)
}

fn outcome(fate: &Fate, mode: WriteMode) -> String {
    match fate {
        Fate::Returned if mode == WriteMode::DryRun => {
            "would be restored to its tables; nothing was written".to_owned()
        }
        Fate::Returned => "restored to its tables".to_owned(),
        Fate::Refused { reason } => format!("remains: {reason}"),
        Fate::InTheWay { table } => {
            format!(
                "remains: {table} has a newer unit with that key; to restore this one, remove the newer one first"
            )
        }
    }
}

/// The migration that a file corrects.
pub(in crate::cli) fn corrected(
    file: &std::path::Path,
    config: &Config,
) -> anyhow::Result<Arc<dyn Transform>> {
    match Module::open(file, &startup::sandbox(config)?)? {
        Module::Migration(module) => Ok(module),
        Module::Translator(_) => bail!(
            "{} is a translator; give `--module` the file of a migration",
            file.display()
        ),
    }
}
