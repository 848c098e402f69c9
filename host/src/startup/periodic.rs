//! The periodic work of a serving master: convergence, and the health check of the database, which
//! writes a row and reads it back. Owns when failed checks end the host.

use std::convert::Infallible;
use std::time::Duration;

use bbs_database::{sql, upsert};
use bbs_lens::layout::manifest::DataVersion;
use bbs_work::causes::with_causes;
use tracing::Instrument;

use super::{Prepared, StartupError};
use crate::clock::{Clock, SystemClock};
use crate::config::HealthCheck;
use crate::domain::{DomainError, Service, convergence};
use crate::migrate::settled_version;

/// Diego's table, present from the data version on that created it.
const TABLE: &str = "bbs_health_check";

/// Runs convergence. Waits one interval before the first run, and after the end of each run.
/// Returns an error when too many records cannot be read; never returns otherwise.
pub(super) async fn converge(
    service: &Service,
    interval: Duration,
) -> Result<Infallible, StartupError> {
    tracing::info!(name: "converger-process.started", ?interval, "convergence begins");
    loop {
        tokio::time::sleep(interval).await;
        // The span's name is part of the log's messages, as in Diego's.
        let session = tracing::info_span!("executing-convergence");
        if let Err(fault) = convergence::run(service).instrument(session).await {
            if matches!(fault, DomainError::TooManyUnreadable { .. }) {
                return Err(StartupError::TooManyUnreadable(fault));
            }
            tracing::error!(
                name: "startup.converge",
                reason = %with_causes(&fault), "a convergence run failed; the next one follows after the interval"
            );
        }
    }
}

/// Whether a version has the table that the health check writes to.
fn has_health_table(prepared: &Prepared, version: DataVersion) -> bool {
    prepared
        .catalog
        .layout_history()
        .at(version)
        .is_some_and(|layout| layout.tables.contains_key(TABLE))
}

/// Checks the health of the database, which is served at a version. Returns an error when it has
/// failed the configured number of attempts in a row; never returns otherwise.
pub(super) async fn check_health(
    prepared: &Prepared,
    served: DataVersion,
) -> Result<Infallible, StartupError> {
    let Some(check) = prepared.config.listeners.health_check.as_ref() else {
        return std::future::pending().await;
    };
    let mut has_table = has_health_table(prepared, served);
    loop {
        tokio::time::sleep(check.interval).await;
        probe(prepared, &mut has_table, check)
            .await
            .map_err(|attempts| StartupError::Unhealthy { attempts })?;
    }
}

async fn probe(
    prepared: &Prepared,
    has_table: &mut bool,
    check: &HealthCheck,
) -> Result<(), String> {
    let mut attempts = Vec::new();
    for _ in 0..check.attempts {
        let attempt =
            match tokio::time::timeout(check.timeout, write_and_read(prepared, has_table)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!(
                    "timed out after {:?} while executing DB health check",
                    check.timeout
                ),
            };
        tracing::error!(name: "db-healthcheck.failed", error = attempt, "an attempt of the health check failed");
        attempts.push(attempt);
    }
    Err(attempts.join(", "))
}

/// If the version of the database lacks the table, only reads that version. Without the fence, which
/// a probe that waits for the row would keep from the next master; the row has no meaning to anyone
/// else.
async fn write_and_read(prepared: &Prepared, has_table: &mut bool) -> anyhow::Result<()> {
    let mut transaction = prepared.database.write().await?;
    // An online migration may be complete by now. The version alone does not show that: MySQL has
    // it before the tables are renamed, and it is taken back if they cannot be.
    let writes = *has_table
        || settled_version(&mut transaction)
            .await?
            .is_some_and(|version| has_health_table(prepared, version));
    if writes {
        let now_ns = SystemClock.now_ns();
        transaction
            .execute(&upsert(
                TABLE,
                [("id", 1.into())],
                [("time", now_ns.into())],
            ))
            .await?;
        let written =
            sql("SELECT time FROM bbs_health_check WHERE id = 1 AND time = ?").bind(now_ns);
        anyhow::ensure!(
            transaction.fetch_optional(written).await?.is_some(),
            "the row that was written could not be read back"
        );
    }
    transaction.commit().await?;
    *has_table = writes;
    Ok(())
}
