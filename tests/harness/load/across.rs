//! A load during an online migration: writes aimed at the units that are being copied, and a slow
//! reader of a list of all records that begins before the cut-over and ends after it.

use std::time::{Duration, Instant};

use bbs::testing::admin::{AdminClient, Command};
use bbs::testing::progress::Snapshot;
use tokio::sync::watch;

use super::calls::{Caller, Failure};
use super::listing::{everything, slowly};
use super::model::Model;
use super::{Aim, Load, Report, Settings};
use crate::harness::database::data_version;
use crate::harness::host::{Host, Installation};

/// Calls made after the cut-over, to detect its after-effects.
const CALLS_AFTER: u64 = 400;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub struct Outcome {
    pub report: Report,
    /// Differences from the model: of the final state, of the instances, and of the list read
    /// across the cut-over.
    pub differences: Vec<String>,
    /// From the first call until the database was at the target version.
    pub migrating: Duration,
    /// The fraction of the copy that was done when the calls began; `None` if the copy was never
    /// seen.
    pub began_at: Option<f64>,
    /// The host's log line about the cut-over, during which writes block.
    pub cut_over: String,
}

/// Loads a host that has begun to serve and migrate, until [`CALLS_AFTER`] calls after its database
/// is at `version`. `before` is the state that the API returned at the previous version.
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
    let mut load = Load::start_catching_up(&caller, before, &aim, settings);
    let began = Instant::now();
    let database = installation.database.open().await;
    while data_version(&database).await != version {
        if let Some(progress) = progress(installation).await {
            if progress.phase == "stopped" {
                return Err(Failure::Answer(format!(
                    "the migration stopped: {}",
                    progress.detail
                )));
            }
            began_at = began_at.or(part_done(&progress));
            aim.at(part_done(&progress).unwrap_or_default());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
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
    Ok(Outcome {
        report,
        differences,
        migrating,
        began_at,
        cut_over,
    })
}

/// The host's progress, if its admin socket answers.
pub async fn progress(installation: &Installation) -> Option<Snapshot> {
    let mut client = AdminClient::send(&installation.admin_socket(), Command::Status)
        .await
        .ok()?;
    Some(client.next().await.ok()??.progress)
}

fn part_done(progress: &Snapshot) -> Option<f64> {
    let total = progress
        .total
        .filter(|total| *total > 0 && progress.phase == "copy")?;
    Some(progress.done as f64 / total as f64)
}
