//! `bbs migrate`: what an operator looks at and does between deployments. Owns arguments and exit codes;
//! `render` has the words.

mod render;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::progress;
use super::serve::log_to_stderr;
use crate::config::{Config, LogLevel};
use crate::layout::manifest::DataVersion;
use crate::migrate::{self, Decision, Intent};
use crate::startup::Prepared;

/// See where a database is, what would be done to it, and do it.
///
/// `status` and `plan` only read and may run beside a serving host. `up` and `down` take the master lock and refuse
/// to start while another host has it. Both may be killed at any time: the same command finishes the job.
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
}

#[derive(Debug, Args)]
struct Downwards {
    /// The JSON configuration file of the host.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The version to go to.
    #[arg(long, value_name = "VERSION")]
    to: DataVersion,
}

impl MigrateCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        log_to_stderr(LogLevel::Error);
        match self.action {
            Action::Status(shown) => status(shown).await,
            Action::Plan(planned) => plan(planned).await,
            Action::Up(Upwards { config, to }) => {
                let prepared = Prepared::new(Config::read(&config)?).await?;
                let wanted = to.unwrap_or_else(|| prepared.wanted());
                bring(&prepared, Intent::Up { wanted }).await
            }
            Action::Down(Downwards { config, to }) => bring(&existing(&config).await?, Intent::Down { to }).await,
        }
    }
}

/// For what looks at a database or takes one back: a mistyped path is told, not made.
async fn existing(config: &Path) -> anyhow::Result<Prepared> {
    let config = Config::read(config)?;
    let database = config.database.display();
    anyhow::ensure!(
        config.database.exists(),
        "there is no database at {database}; correct `database_connection_string`, or make one with `bbs migrate up`"
    );
    Ok(Prepared::new(config).await?)
}

async fn status(Shown { config, json }: Shown) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let status = migrate::status(&prepared.context()).await?;
    if json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print!("{}", render::status(&status, prepared.database.name()));
    }
    Ok(())
}

async fn plan(Planned { shown: Shown { config, json }, to, check }: Planned) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let to = to.unwrap_or_else(|| prepared.wanted());
    let context = prepared.context();
    let plan = migrate::plan(&context, to).await?;
    let checked = match check {
        true => Some(progress::shown(&prepared.progress, migrate::check(&context, to)).await?),
        false => None,
    };
    if json {
        let mut value = serde_json::to_value(&plan)?;
        if let Some(checked) = &checked {
            value["check"] = serde_json::to_value(checked)?;
        }
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}", render::plan(&plan));
        checked.iter().for_each(|checked| print!("{}", render::check(checked)));
    }
    match checked.map_or(0, |checked| checked.lost()) {
        0 => Ok(()),
        lost => anyhow::bail!(
            "{lost} units would not go to {to} and back; repair them or the module, or leave them out with \
             `--refused-units quarantine`"
        ),
    }
}

async fn bring(prepared: &Prepared, intent: Intent) -> anyhow::Result<()> {
    let (_lock, fence) = prepared.lock_now().await?;
    let decision = progress::shown(&prepared.progress, prepared.bring_to(&fence, intent)).await?;
    match decision {
        Decision::Serve => println!("Nothing to migrate: the database is there already."),
        Decision::Begin { from, to } => println!("Migrated from {from} to {to}."),
        Decision::Continue { from, to } => println!("Finished the migration from {from} to {to} that had begun."),
        Decision::ShutDown(_) => unreachable!("a refusal is an error by now"),
    }
    prepared.database.close().await;
    Ok(())
}
