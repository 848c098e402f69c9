//! The lease: a master lock as one row in the database, which its holder renews by changing it.
//! Owns that row.
//!
//! Clocks of different hosts are never compared. A standby takes the lease when it has seen the row
//! unchanged for the whole TTL of the holder, by its own monotonic clock; the holder counts its TTL
//! from before it sent the renewal, so it stops no later than a standby may start.

use std::sync::Arc;
use std::time::Duration;

use bbs_database::{
    Address, ConnectionCheck, ConnectionLimits, Database, DatabaseError, READ_ONLY, Server,
    SqlError, Transaction, first_write_advice, is_missing_table, is_read_only, is_transient,
    is_unique_violation, schema, sql,
};
use bbs_lens::layout::schema::{Column, Table};
use tokio::time::Instant;
use uuid::Uuid;

use super::first_token;
use super::holder::Holder;
use super::renewal::{Expiring, Failure, Renewal};
use crate::clock::{Clock, SystemClock};
use crate::config;

/// The table that holds the lease, in one row.
pub const LEASE_TABLE: &str = "bbs_lease";

/// Valid TTLs; another value was not written by a host.
const VALID_TTL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(3600);

/// Why the lease cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("cannot use the table {LEASE_TABLE}; {}", first_write_advice(.0))]
    Table(#[source] SqlError),
    #[error("{READ_ONLY}")]
    ReadOnly(#[source] SqlError),
}

impl LeaseError {
    fn of_write(source: SqlError) -> Self {
        if is_read_only(&source) {
            Self::ReadOnly(source)
        } else {
            Self::Table(source)
        }
    }
}

/// A lease to take.
#[derive(Debug)]
pub struct Lease {
    /// Connections of the lease's own, so that a busy host still renews it.
    database: Database,
    /// The connections of everything else.
    others: Option<Arc<ConnectionCheck>>,
    owner: String,
    ttl: Duration,
    retry_interval: Duration,
    clock: Arc<dyn Clock>,
}

/// The lease's row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    /// Empty if released.
    owner: String,
    /// Incremented with each holder.
    token: i64,
    /// Changes with each renewal.
    beat: i64,
    ttl_ms: i64,
}

impl Claim {
    /// Whether no other live host than `owner` can have it. The owner may not hold it either: the
    /// answer to its claim was lost.
    fn is_free_for(&self, owner: &str) -> bool {
        self.owner.is_empty() || self.owner == owner || Holder::has_ended(&self.owner)
    }
}

/// The row that a waiting host has seen, and since when it has not changed.
#[derive(Debug)]
struct Sighting {
    claim: Claim,
    since: Instant,
}

fn table() -> Table {
    Table::new(LEASE_TABLE)
        .column(Column::integer("id"))
        .column(Column::varchar("owner", 255))
        .column(Column::big_integer("token"))
        .column(Column::big_integer("beat"))
        .column(Column::big_integer("ttl_ms"))
        .primary_key(["id"])
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Lease {
    /// Opens connections for the lease. It is renewed only while those of `others` can be used.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn open(
        config: &config::Lock,
        server: &Server,
        others: &Database,
    ) -> Result<Self, LeaseError> {
        let limits = ConnectionLimits {
            max_connections: server.limits.lease_connections,
            min_connections: 0,
            connect_timeout: server.limits.connect_timeout.min(config.ttl),
            statement_timeout: server.limits.statement_timeout.min(config.ttl),
            ..server.limits.clone()
        };
        let database = Database::open(&Address::Server(Box::new(Server {
            limits,
            ..server.clone()
        })))
        .await?;
        let others = Some(Arc::new(ConnectionCheck::new(others)));
        Ok(Self {
            others,
            ..Self::on(database, config, Arc::new(SystemClock))
        })
    }

    fn on(database: Database, config: &config::Lock, clock: Arc<dyn Clock>) -> Self {
        let name = config
            .uuid
            .clone()
            .unwrap_or_else(|| Uuid::new_v4().to_string());
        let owner = Holder::this(&name).to_string();
        Self {
            database,
            others: None,
            owner,
            ttl: config.ttl,
            retry_interval: config.retry_interval,
            clock,
        }
    }

    /// Whether the lease can be taken without displacing a live host. Reads only.
    pub(super) async fn is_free(&self) -> Result<bool, LeaseError> {
        let claim = self.claim().await?;
        Ok(claim.is_none_or(|claim| claim.is_free_for(&self.owner)))
    }

    /// The holder, described for operators.
    pub(super) async fn holder(&self) -> Option<String> {
        let claim = self.claim().await.ok()??;
        Holder::describe(&claim.owner)
    }

    async fn claim(&self) -> Result<Option<Claim>, LeaseError> {
        let mut tx = self.database.read().await?;
        if schema::exists(&mut tx, LEASE_TABLE)
            .await
            .map_err(LeaseError::Table)?
        {
            read(&mut tx).await.map_err(LeaseError::Table)
        } else {
            Ok(None)
        }
    }

    async fn create_table(&self) -> Result<(), LeaseError> {
        let mut tx = self.database.write().await?;
        if schema::exists(&mut tx, LEASE_TABLE)
            .await
            .map_err(LeaseError::Table)?
        {
            return Ok(());
        }
        let created = tx
            .execute(sql(schema::ensure_table(tx.dialect(), &table())))
            .await;
        let created = match created {
            Ok(_) => tx.commit().await,
            Err(error) => Err(error),
        };
        match created {
            // On PostgreSQL, hosts that create the table concurrently can fail on a system catalog.
            Err(error) if !is_unique_violation(&error) => Err(LeaseError::of_write(error)),
            _ => Ok(()),
        }
    }

    pub(super) async fn try_take(&self) -> Result<Option<Renewal>, LeaseError> {
        self.create_table().await?;
        let mut sighting = None;
        loop {
            let before = sighting.as_ref().map(|seen: &Sighting| seen.claim.clone());
            if let Some(taken) = self.look(&mut sighting).await? {
                return Ok(Some(taken));
            }
            let seen = sighting.as_ref().map(|seen| &seen.claim);
            if before.is_some() && seen != before.as_ref() {
                return Ok(None);
            }
            self.clock.sleep(self.look_interval()).await;
        }
    }

    pub(super) async fn take(&self) -> Result<Renewal, LeaseError> {
        self.create_table().await?;
        let mut sighting = None;
        loop {
            match self.look(&mut sighting).await {
                Ok(Some(taken)) => return Ok(taken),
                Ok(None) => {}
                Err(fault) => {
                    tracing::warn!(
                        fault = &fault as &dyn std::error::Error,
                        "cannot read the lease of this database; retrying"
                    );
                    // The database was restored or emptied since this host began to wait.
                    if matches!(&fault, LeaseError::Table(source) if is_missing_table(source))
                        && let Err(fault) = self.create_table().await
                    {
                        tracing::warn!(
                            fault = &fault as &dyn std::error::Error,
                            "cannot create the table of the lease; retrying"
                        );
                    }
                }
            }
            self.clock.sleep(self.look_interval()).await;
        }
    }

    /// Frequent enough to notice a renewal, and its absence, in good time.
    fn look_interval(&self) -> Duration {
        self.retry_interval.min(self.ttl / 4)
    }

    /// Takes the lease if it is free, or if its holder has not renewed it for its TTL.
    async fn look(&self, sighting: &mut Option<Sighting>) -> Result<Option<Renewal>, LeaseError> {
        // Before the first statement: this host counts its lease from here, and others from when
        // they see it, so a slow database only shortens it.
        let asked = self.clock.instant();
        let mut tx = self.database.write().await?;
        let claim = read(&mut tx).await.map_err(LeaseError::Table)?;
        // After the read: a renewal that committed while the read waited was sent before this.
        let seen = self.clock.instant();
        let next = Claim {
            owner: self.owner.clone(),
            token: claim
                .as_ref()
                .map_or_else(first_token, |claim| claim.token.wrapping_add(1)),
            beat: 0,
            ttl_ms: milliseconds(self.ttl),
        };
        let taken = match &claim {
            None => insert(&mut tx, &next).await,
            Some(claim) if self.may_be_taken(claim, sighting, asked, seen) => {
                replace(&mut tx, claim, &next).await
            }
            Some(_) => return Ok(None),
        };
        let taken = match taken {
            Ok(true) => tx.commit().await.map(|()| true),
            other => other,
        };
        match taken {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            // Another host was faster; its claim is read next time.
            Err(error) if is_unique_violation(&error) || is_transient(&error) => return Ok(None),
            Err(error) => return Err(LeaseError::of_write(error)),
        }
        let holding = HeldLease {
            database: self.database.clone(),
            claim: next,
            ttl: self.ttl,
        };
        let others = self.others.clone();
        Ok(Some(Renewal::start(
            Arc::new(holding),
            others,
            asked,
            Arc::clone(&self.clock),
        )))
    }

    /// Whether a claim that was read between `asked` and `seen` may be replaced. Measures the
    /// silence of its holder from after the first read of it to before the last one, so that a slow
    /// read never makes it longer.
    fn may_be_taken(
        &self,
        claim: &Claim,
        sighting: &mut Option<Sighting>,
        asked: Instant,
        seen: Instant,
    ) -> bool {
        debug_assert!(asked <= seen, "the clock is monotonic");
        let since = match sighting {
            Some(earlier) if earlier.claim == *claim => earlier.since,
            _ => {
                *sighting = Some(Sighting {
                    claim: claim.clone(),
                    since: seen,
                });
                seen
            }
        };
        let claimed = Duration::from_millis(claim.ttl_ms.unsigned_abs());
        let ttl = if claim.ttl_ms > 0 && VALID_TTL.contains(&claimed) {
            claimed
        } else {
            self.ttl
        };
        let silent = asked.saturating_duration_since(since);
        claim.is_free_for(&self.owner) || silent >= ttl
    }
}

async fn read(tx: &mut Transaction) -> Result<Option<Claim>, SqlError> {
    let row = tx
        .fetch_optional(sql(
            "SELECT owner, token, beat, ttl_ms FROM bbs_lease WHERE id = 1",
        ))
        .await?;
    row.map(|row| {
        Ok(Claim {
            owner: row.owned_text(0)?,
            token: row.integer_or_zero(1)?,
            beat: row.integer_or_zero(2)?,
            ttl_ms: row.integer_or_zero(3)?,
        })
    })
    .transpose()
}

async fn insert(tx: &mut Transaction, next: &Claim) -> Result<bool, SqlError> {
    let statement =
        sql("INSERT INTO bbs_lease (id, owner, token, beat, ttl_ms) VALUES (1, ?, ?, ?, ?)");
    let statement = statement
        .bind(next.owner.clone())
        .bind(next.token)
        .bind(next.beat)
        .bind(next.ttl_ms);
    Ok(tx.execute(statement.unprepared(tx.dialect())).await? == 1)
}

/// Updates the row only if it is still the one that was read.
async fn replace(tx: &mut Transaction, seen: &Claim, next: &Claim) -> Result<bool, SqlError> {
    let statement = sql(
        "UPDATE bbs_lease SET owner = ?, token = ?, beat = ?, ttl_ms = ? \
                         WHERE id = 1 AND owner = ? AND token = ? AND beat = ? AND ttl_ms = ?",
    );
    let values = [next, seen].into_iter();
    let statement = values.fold(statement, |statement, claim| {
        statement
            .bind(claim.owner.clone())
            .bind(claim.token)
            .bind(claim.beat)
            .bind(claim.ttl_ms)
    });
    Ok(tx.execute(statement.unprepared(tx.dialect())).await? == 1)
}

/// The lease while this host holds it.
struct HeldLease {
    database: Database,
    claim: Claim,
    ttl: Duration,
}

impl HeldLease {
    async fn change(&self, assignment: &'static str) -> Result<bool, Failure> {
        let mut tx = self.database.write().await?;
        let statement =
            format!("UPDATE bbs_lease SET {assignment} WHERE id = 1 AND owner = ? AND token = ?");
        let statement = sql(statement)
            .bind(self.claim.owner.clone())
            .bind(self.claim.token);
        // The lease must not depend on what the statements of the API leave of the server's limit.
        let ours = tx.execute(statement.unprepared(tx.dialect())).await? == 1;
        tx.commit().await?;
        Ok(ours)
    }
}

impl Expiring for HeldLease {
    const WHAT: &'static str = "the lease of this database";

    fn ttl(&self) -> Duration {
        self.ttl
    }

    async fn renew(&self) -> Result<Option<String>, Failure> {
        if self.change("beat = beat + 1").await? {
            return Ok(None);
        }
        let mut tx = self.database.read().await?;
        let claim = read(&mut tx).await?;
        Ok(Some(claim.map_or_else(
            || "its row is gone".to_owned(),
            |claim| claim.owner,
        )))
    }

    async fn release(&self) -> Result<(), Failure> {
        self.change("owner = ''").await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
