//! `bbs migrate`: what an operator looks at and does between deployments. Owns arguments and exit codes;
//! `render` has the words.

mod quarantine;
mod render;
mod steer;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::progress;
use crate::config::{Config, LogLevel, OnUnreadable};
use crate::database::Address;
use crate::layout::manifest::DataVersion;
use crate::lock::fence::Fence;
use crate::logs::Logs;
use crate::migrate::{self, Intent, RunOutcome};
use crate::startup::{Prepared, StartupError};

/// See where a database is, what would be done to it, and do it.
///
/// `status` and `plan` only read and may run beside a serving host. `up` and `down` take the master lock and refuse
/// to start while another host has it. Both may be killed at any time: the same command finishes the job.
/// `watch`, `pause`, `resume` and `rate` reach a host that is running on this machine.
#[derive(Debug, Args)]
pub struct MigrateCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Where the database is: version, pending migrations, rows, key, what is under way.
    Status(Shown),
    /// What a migration would do to each table, how long it may take and whether it can be taken back.
    Plan(Planned),
    /// Migrate up, without serving. `bbs serve` does the same before it serves.
    Up(Upwards),
    /// Take the database back to an older version, for an older host. Rows lose nothing: what an older layout
    /// has no room for is kept, sealed, and restored by the next way up.
    Down(Downwards),
    /// Units that would not go and were left out: see them, and put them back.
    Quarantine(quarantine::QuarantineCommand),
    /// Show how far a running host has come, until it serves.
    Watch(steer::Steered),
    /// Let a running host begin no more batches.
    Pause(steer::Steered),
    /// Let a running host go on.
    Resume(steer::Steered),
    /// Bound how fast a running host goes.
    Rate(steer::Rated),
}

#[derive(Debug, Args)]
struct Shown {
    /// The JSON configuration file of the host.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Planned {
    #[command(flatten)]
    shown: Shown,
    /// The version to go to, up or down [default: the newest, or the pin of the configuration]
    #[arg(long, value_name = "VERSION")]
    to: Option<DataVersion>,
    /// Take every unit there and back in memory, and say which would not go or not come back, and why. Reads all rows,
    /// writes nothing, and may run beside a serving host. The exit code is 1 if there is any.
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Args)]
struct Upwards {
    /// The JSON configuration file of the host.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The version to go to [default: the newest, or the pin of the configuration]
    #[arg(long, value_name = "VERSION")]
    to: Option<DataVersion>,
    #[command(flatten)]
    terms: Terms,
}

/// What both directions know.
#[derive(Debug, Args)]
struct Terms {
    /// Migrate at most this many units, then stop; a unit is everything of one process guid, or one task. The exit code
    /// is 0 once all are migrated and 3 as long as they are not. The same command goes on, and so does `bbs serve`.
    /// 0 means all of them.
    #[arg(long, value_name = "N")]
    max_count: Option<u64>,
    /// What becomes of a unit that a migration cannot take [default: `on_unreadable` of the configuration, or stop]
    #[arg(long, value_name = "WHAT")]
    on_unreadable: Option<OnUnreadable>,
}

#[derive(Debug, Args)]
struct Downwards {
    /// The JSON configuration file of the host.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The version to go to.
    #[arg(long, value_name = "VERSION")]
    to: DataVersion,
    #[command(flatten)]
    terms: Terms,
}

/// Says that a bounded run did its part and that there is more to do.
const NOT_YET: u8 = 3;

impl MigrateCommand {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let _logs = Logs::readable(LogLevel::Error);
        match self.action {
            Action::Status(shown) => status(shown).await?,
            Action::Plan(planned) => plan(planned).await?,
            Action::Up(Upwards { config, to, terms }) => {
                let prepared = Prepared::new(Config::read(&config)?).await?;
                to.map_or(Ok(()), |to| prepared.check_version("`--to`", to))?;
                let wanted = to.unwrap_or_else(|| prepared.wanted());
                return bring(prepared, Intent::Up { wanted }, &terms).await;
            }
            Action::Down(Downwards { config, to, terms }) => {
                let prepared = existing(&config).await?;
                prepared.check_version("`--to`", to)?;
                return bring(prepared, Intent::Down { to }, &terms).await;
            }
            Action::Quarantine(command) => command.run().await?,
            Action::Watch(steered) => steer::watch(steered).await?,
            Action::Pause(steered) => steer::pause(steered).await?,
            Action::Resume(steered) => steer::resume(steered).await?,
            Action::Rate(rated) => steer::rate(rated).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// For what looks at a database or takes one back: a mistyped path is told, not made.
pub(super) async fn existing(config: &Path) -> anyhow::Result<Prepared> {
    let config = Config::read(config)?;
    if let Address::Sqlite(path) = &config.database {
        anyhow::ensure!(
            path.exists(),
            "there is no database at {}; correct `database_connection_string`, or make one with `bbs migrate up`",
            path.display()
        );
    }
    Ok(Prepared::new(config).await?)
}

async fn status(Shown { config, json }: Shown) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let status = migrate::status(&prepared.context(), prepared.intent()).await?;
    let wrong_keys = prepared.wrong_keys().await?;
    if json {
        let mut value = serde_json::to_value(&status)?;
        value["wrong_keys"] = serde_json::to_value(&wrong_keys)?;
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}", render::status(&status, prepared.database.name(), &wrong_keys));
        steer::print_running_host(&prepared.config.admin_socket).await;
    }
    Ok(())
}

async fn plan(Planned { shown: Shown { config, json }, to, check }: Planned) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    to.map_or(Ok(()), |to| prepared.check_version("`--to`", to))?;
    let to = to.unwrap_or_else(|| prepared.wanted());
    let context = prepared.context();
    let plan = migrate::plan(&context, to).await?;
    let checked = match check {
        true => Some(progress::shown(&prepared.progress, migrate::check(&context, to)).await?),
        false => None,
    };
    let wrong_keys = prepared.wrong_keys().await?;
    if json {
        let mut value = serde_json::to_value(&plan)?;
        value["wrong_keys"] = serde_json::to_value(&wrong_keys)?;
        if let Some(checked) = &checked {
            value["check"] = serde_json::to_value(checked)?;
        }
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}{}", render::plan(&plan), render::wrong_keys(&wrong_keys));
        checked.iter().for_each(|checked| print!("{}", render::check(checked)));
    }
    match checked.map_or(0, |checked| checked.lost()) {
        0 => Ok(()),
        lost => anyhow::bail!(
            "{lost} units would not go to {to} and back; repair them or the module, or leave them out as you migrate, with \
             `bbs migrate up --on-unreadable quarantine`"
        ),
    }
}

async fn bring(mut prepared: Prepared, intent: Intent, terms: &Terms) -> anyhow::Result<ExitCode> {
    if let Some(on_unreadable) = terms.on_unreadable {
        prepared.config.migration.on_unreadable = on_unreadable;
    }
    let before = migrate::found(&prepared.database).await?;
    let taken = prepared.lock_now(async || prepared.may_begin(intent).await).await;
    let (lock, fence) = taken.map_err(|error| match error {
        StartupError::ShutDown(reason) => anyhow::anyhow!("nothing was done: {reason}"),
        error => error.into(),
    })?;
    let most = terms.max_count.filter(|most| *most > 0);
    let done = tokio::select! {
        done = bring_part(&prepared, &fence, intent, most) => done,
        lost = lock.lost() => Err(lost.into()),
    };
    prepared.database.close().await;
    lock.release().await;
    let (progressed, waiting) = done?;
    print!("{}", render::progressed(&progressed, &before, waiting));
    Ok(match progressed {
        RunOutcome::Done(_) => ExitCode::SUCCESS,
        RunOutcome::Partial(_) => ExitCode::from(NOT_YET),
    })
}

/// What was done, and how many units are in quarantine.
async fn bring_part(
    prepared: &Prepared,
    fence: &Fence,
    intent: Intent,
    most: Option<u64>,
) -> anyhow::Result<(RunOutcome, usize)> {
    let _admin = prepared.open_admin().await?;
    let progressed = progress::shown(&prepared.progress, prepared.bring_part(fence, intent, most)).await?;
    if matches!(progressed, RunOutcome::Done(_)) {
        progress::shown(&prepared.progress, prepared.rotate(fence)).await?;
    }
    Ok((progressed, migrate::quarantined(&prepared.context()).await?.len()))
}
