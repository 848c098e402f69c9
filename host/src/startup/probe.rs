//! Whether the database still does what it is asked: a row that is written and read back now and then. Owns when that
//! has failed for good; what is in the row means nothing.

use std::convert::Infallible;

use super::{Prepared, StartupError};
use crate::clock::{Clock, SystemClock};
use crate::config::HealthCheck;
use crate::database::{SqlError, sql, upsert};
use crate::layout::manifest::DataVersion;
use crate::lock::fence::{Fence, FenceError};

/// Diego's, from the version on that made it.
const TABLE: &str = "bbs_health_check";

#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Statement(#[from] SqlError),
    #[error("what was written was not there to be read")]
    Lost,
}

/// Returns when the database has failed as often in a row as the configuration allows. Without a probe it never does.
pub(super) async fn watch(prepared: &Prepared, fence: &Fence, served: DataVersion) -> Result<Infallible, StartupError> {
    let Some(check) = &prepared.config.listeners.health_check else { return std::future::pending().await };
    let has_table = prepared.catalog.line().at(served).is_some_and(|layout| layout.tables.contains_key(TABLE));
    loop {
        tokio::time::sleep(check.interval).await;
        probe(fence, has_table, check).await.map_err(|attempts| StartupError::Unhealthy { attempts })?;
    }
}

async fn probe(fence: &Fence, has_table: bool, check: &HealthCheck) -> Result<(), String> {
    let mut attempts = Vec::new();
    for _ in 0..check.attempts {
        let attempt = match tokio::time::timeout(check.timeout, ask(fence, has_table)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("timed out after {:?} while executing DB health check", check.timeout),
        };
        tracing::error!(name: "db-healthcheck.failed", error = attempt, "the database did not do what it was asked");
        attempts.push(attempt);
    }
    Err(attempts.join(", "))
}

/// As the master writes everything. A database that is kept at a version without the table is only read from.
async fn ask(fence: &Fence, has_table: bool) -> Result<(), ProbeError> {
    let mut transaction = fence.begin().await?;
    if has_table {
        let now_ns = SystemClock.now_ns();
        transaction.execute(&upsert(TABLE, [("id", 1.into())], [("time", now_ns.into())])).await?;
        let written = sql("SELECT time FROM bbs_health_check WHERE id = 1 AND time = ?").bind(now_ns);
        transaction.fetch_optional(written).await?.ok_or(ProbeError::Lost)?;
    }
    transaction.commit().await?;
    Ok(())
}
