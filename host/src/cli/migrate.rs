//! `bbs migrate`: what an operator looks at and does between deployments. Owns arguments and exit codes;
//! `render` has the words.

mod render;
mod steer;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::progress;
use super::serve::log_to_stderr;
use crate::config::{Config, LogLevel};
use crate::database::Address;
use crate::layout::manifest::DataVersion;
use crate::lock::fence::Fence;
use crate::migrate::{self, Decision, Intent};
use crate::startup::Prepared;

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
            Action::Watch(steered) => steer::watch(steered).await,
            Action::Pause(steered) => steer::pause(steered).await,
            Action::Resume(steered) => steer::resume(steered).await,
            Action::Rate(rated) => steer::rate(rated).await,
        }
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
    let status = migrate::status(&prepared.context()).await?;
    if json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print!("{}", render::status(&status, prepared.database.name()));
        steer::print_running_host(&prepared.config.admin_socket).await;
    }
    Ok(())
}

async fn plan(Planned { shown: Shown { config, json }, to }: Planned) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let to = to.unwrap_or_else(|| prepared.wanted());
    let plan = migrate::plan(&prepared.context(), to).await?;
    if json {
        println!("{}", serde_json::to_string_pretty(&plan)?);
    } else {
        print!("{}", render::plan(&plan));
    }
    Ok(())
}

async fn bring(prepared: &Prepared, intent: Intent) -> anyhow::Result<()> {
    let (lock, fence) = prepared.lock_now().await?;
    let done = tokio::select! {
        done = bring_to(prepared, &fence, intent) => done,
        lost = lock.lost() => Err(lost.into()),
    };
    prepared.database.close().await;
    lock.release().await;
    let decision = done?;
    match decision {
        Decision::Serve => println!("Nothing to migrate: the database is there already."),
        Decision::Begin { from, to } => println!("Migrated from {from} to {to}."),
        Decision::Continue { from, to } => println!("Finished the migration from {from} to {to} that had begun."),
        Decision::ShutDown(_) => unreachable!("a refusal is an error by now"),
    }
    Ok(())
}

async fn bring_to(prepared: &Prepared, fence: &Fence, intent: Intent) -> anyhow::Result<Decision> {
    let _admin = prepared.open_admin().await?;
    let decision = progress::shown(&prepared.progress, prepared.bring_to(fence, intent)).await?;
    progress::shown(&prepared.progress, prepared.rotate(fence)).await?;
    Ok(decision)
}
