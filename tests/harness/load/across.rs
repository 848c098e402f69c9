//! A load that goes on while a host migrates its database: aimed at the units that are being copied, with a slow reader
//! of everything who begins before the cut-over and ends after it.

use std::time::{Duration, Instant};

use bbs::admin::{Client, Command};
use bbs::database::Database;
use bbs::progress::Snapshot;
use tokio::sync::watch;

use super::calls::{Caller, Failure};
use super::listing::{everything, slowly};
use super::model::Model;
use super::{Aim, Load, Report, Settings};
use crate::harness::database::texts;
use crate::harness::host::{Host, Installation};

/// Calls that are made after the cut-over, so that what it left behind shows.
const CALLS_AFTER: u64 = 400;
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub struct Outcome {
    pub report: Report,
    /// Of the final state, of the instances, and of the list that was read across the cut-over.
    pub differences: Vec<String>,
    /// From the first call until the database was at the version.
    pub migrating: Duration,
    /// How much of the copy was done when the calls first met it, as far as the host said.
    pub began_at: Option<f64>,
    /// What the host said of the moment in which nobody could write.
    pub cut_over: String,
}

/// Loads a host that has just begun to serve and to migrate, until its database is at `version` and a little longer.
/// `before` is what the API answered at the version that it comes from.
pub async fn migration(
    installation: &Installation,
    host: &mut Host,
    before: Model,
    version: u64,
    settings: Settings,
) -> Result<Outcome, Failure> {
    let caller = Caller::new(watch::channel(host.url("")).1);
    let (hurry, hurried) = watch::channel(false);
    let slow = tokio::spawn({
        let caller = caller.clone();
        async move { slowly(&caller, hurried).await }
    });
    let aim = Aim::default();
    let mut began_at = progress(installation).await.as_ref().and_then(part_done);
    let mut load = Load::start(&caller, before, &aim, settings);
    let began = Instant::now();
    let database = installation.database.open().await;
    while current_version(&database).await != version {
        if let Some(progress) = progress(installation).await {
            if progress.phase == "stopped" {
                return Err(Failure::Answer(format!("the migration stopped: {}", progress.detail)));
            }
            began_at = began_at.or(part_done(&progress));
            aim.at(part_done(&progress).unwrap_or_default());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let migrating = began.elapsed();
    let cut_over = host.wait_for_line(|line| line.contains("cut over"));
    database.close().await;
    load.calls(CALLS_AFTER).await;
    hurry.send_replace(true);
    let slow = slow.await.expect("the slow reader does not panic")?;
    let (report, model) = load.stop().await;
    let mut differences = model.differences(&everything(&caller).await?);
    differences.extend(model.differences_of_instances(&caller).await?);
    differences.extend(model.differences_of_untouched(&slow));
    Ok(Outcome { report, differences, migrating, began_at, cut_over })
}

async fn current_version(database: &Database) -> u64 {
    let found = texts(database, "SELECT value FROM configurations WHERE id = 'version'").await;
    let row: serde_json::Value = serde_json::from_str(&found[0]).expect("the version is JSON");
    row["CurrentVersion"].as_u64().expect("a number")
}

/// What the host is doing, while it can be asked.
async fn progress(installation: &Installation) -> Option<Snapshot> {
    let mut client = Client::ask(&installation.admin_socket(), Command::Status).await.ok()?;
    Some(client.next().await.ok()??.progress)
}

fn part_done(progress: &Snapshot) -> Option<f64> {
    let total = progress.total.filter(|total| *total > 0 && progress.phase == "copy")?;
    Some(progress.done as f64 / total as f64)
}
