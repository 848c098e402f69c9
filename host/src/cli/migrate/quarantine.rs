//! `bbs migrate quarantine`: units that would not go, and the way back. Owns arguments and wording; shows no value of
//! a record.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::{Args, Subcommand};

use super::existing;
use crate::config::Config;
use crate::lens::transform::Transform;
use crate::lock::fence::Fence;
use crate::migrate::{self, Fate, QuarantineEntry};
use crate::modules::Module;
use crate::startup;

/// Units that a migration could not take, and left out since it was told to.
///
/// Each is kept whole and sealed. Going back below the migration that it failed at puts it back by itself; so does
/// `retry`, once a record opens again or with a corrected module. All of them may run beside a serving host.
#[derive(Debug, Args)]
pub(super) struct QuarantineCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Which units there are, and why.
    List(Listed),
    /// One unit: where it was, what failed, and the file to run it again with.
    Show(Named),
    /// Try units again, and put those that go back into their tables at the version of the database.
    Retry(Retried),
}

#[derive(Debug, Args)]
struct Listed {
    /// The JSON configuration file of the host.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Named {
    /// The unit's name: a process guid, or a task's guid.
    unit: String,
    #[command(flatten)]
    listed: Listed,
}

#[derive(Debug, Args)]
struct Retried {
    /// The units' names [default: all]
    units: Vec<String>,
    /// A corrected module to run in place of the catalog's of the same version, for these units alone.
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
    #[command(flatten)]
    listed: Listed,
}

impl QuarantineCommand {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        match self.action {
            Action::List(listed) => list(listed).await,
            Action::Show(named) => show(named).await,
            Action::Retry(retried) => retry(retried).await,
        }
    }
}

async fn list(Listed { config, json }: Listed) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let entries = migrate::quarantined(&prepared.context()).await?;
    if json {
        println!("{}", serde_json::to_string_pretty(&entries)?);
        return Ok(());
    }
    if entries.is_empty() {
        println!("No unit is in quarantine.");
    }
    for entry in &entries {
        println!("{}  {}", entry.unit, short(entry));
    }
    Ok(())
}

fn short(entry: &QuarantineEntry) -> String {
    let QuarantineEntry { version, direction, reason, pending, .. } = entry;
    let pending = if *pending { " (the migration is still under way)" } else { "" };
    format!("{}, {version} {direction}: {reason}{pending}", rows(entry))
}

fn rows(entry: &QuarantineEntry) -> String {
    let rows = entry.rows.iter().filter(|(_, rows)| **rows > 0);
    rows.map(|(table, rows)| format!("{rows} {table}")).collect::<Vec<_>>().join(" + ")
}

async fn show(Named { unit, listed: Listed { config, json } }: Named) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let entries = migrate::quarantined(&prepared.context()).await?;
    let found: Vec<_> = entries.into_iter().filter(|entry| entry.unit == unit).collect();
    if found.is_empty() {
        bail!("there is no unit {unit:?} in quarantine; `bbs migrate quarantine list` names those there are");
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        found.iter().for_each(|entry| print!("{}", long(entry)));
    }
    Ok(())
}

fn long(entry: &QuarantineEntry) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(out, "{name:<11} {text}");
    };
    line("Unit", &entry.unit);
    line("Rows", &format!("{}, as they were at {}", rows(entry), entry.from));
    line("Way", &format!("{} from {} to {}", entry.direction, entry.from, entry.to));
    match entry.module.as_str() {
        "" => line("Failed at", &format!("{}, before any module ran", entry.version)),
        module => line("Failed at", &format!("{}-{module}, sha256 {}", entry.version, entry.digest)),
    }
    line("Reason", &entry.reason);
    if let Some(replay) = &entry.replay {
        line("Run again", &format!("bbs module replay {replay}"));
    }
    if entry.pending {
        line("State", "the migration is still under way; the unit is where it was, too");
    } else {
        line("State", "left out of the tables; `bbs migrate quarantine retry` puts it back if it goes");
    }
    out
}

async fn retry(Retried { units, module, listed: Listed { config, json } }: Retried) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let instead = module.map(|file| corrected(&file, &prepared.config)).transpose()?;
    // What goes back is sealed anew.
    prepared.check_keys().await?;
    // Nothing that is served changes, so whoever serves goes on meanwhile.
    let fence = Fence::beside(&prepared.database).await?;
    let fates = migrate::retry(&prepared.context(), &fence, &units, instead).await?;
    prepared.database.close().await;
    if json {
        let fates: Vec<_> =
            fates.iter().map(|(entry, fate)| serde_json::json!({ "unit": entry.unit, "fate": fate })).collect();
        println!("{}", serde_json::to_string_pretty(&fates)?);
    } else {
        fates.iter().for_each(|(entry, fate)| println!("{}  {}", entry.unit, outcome(fate)));
    }
    let stay = fates.iter().filter(|(_, fate)| *fate != Fate::Returned).count();
    match stay {
        0 => Ok(()),
        stay => bail!("{stay} of {} units stay in quarantine", fates.len()),
    }
}

fn outcome(fate: &Fate) -> String {
    match fate {
        Fate::Returned => "is back in its tables".to_owned(),
        Fate::Refused { reason } => format!("stays: {reason}"),
        Fate::InTheWay { table } => {
            format!("stays: {table} has a newer unit of that key; remove that one first if this is the one to keep")
        }
    }
}

fn corrected(file: &std::path::Path, config: &Config) -> anyhow::Result<Arc<dyn Transform>> {
    match Module::open(file, &startup::sandbox(config)?)? {
        Module::Migration(module) => Ok(module),
        Module::Translator(_) => bail!("{} is a translator, and units fail at migrations", file.display()),
    }
}
