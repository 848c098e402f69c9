//! The history of migrations: one row for each that began, with its times, its end, and the host
//! and release that worked on it last. Owns `bbs_migration_run`. Hosts of releases without that
//! table leave no row.

use bbs_database::{Database, Row, SqlError, StatementResult, Transaction, signed, sql};
use bbs_lens::layout::manifest::{DataVersion, Direction};
use serde::Serialize;

use super::own_tables::RUN;
use super::{MigrationRan, Phase, Underway, exists};
use crate::migrate::{Context, MigrateError, state};

/// The most characters of a host's name and of a release that are stored.
const LONGEST_NAME: usize = 255;

/// The process that works on a migration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runner {
    /// The name of the host.
    pub host: String,
    /// Its release.
    pub release: String,
}

/// How a migration ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// It has begun and not ended.
    Unfinished,
    /// The database is at its target.
    Completed,
    /// It was given up: the database stayed where it was.
    GivenUp,
    /// A migration to another version began in its place.
    Replaced,
}

impl RunState {
    const ALL: [Self; 4] = [
        Self::Unfinished,
        Self::Completed,
        Self::GivenUp,
        Self::Replaced,
    ];

    /// Its name in the database and in texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::Completed => "completed",
            Self::GivenUp => "given-up",
            Self::Replaced => "replaced",
        }
    }
}

/// A migration of this database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MigrationRun {
    /// Ascends.
    pub number: i64,
    /// 0 for an empty database.
    pub from: DataVersion,
    pub to: DataVersion,
    pub direction: Direction,
    pub state: RunState,
    /// In nanoseconds since 1970.
    pub began_at_ns: i64,
    /// In nanoseconds since 1970; absent while it is unfinished.
    pub ended_at_ns: Option<i64>,
    /// The host that ended it, or that began it.
    pub host: String,
    /// The release of that host.
    pub release: String,
}

/// Records that a migration begins. One between the same versions that has not ended goes on
/// instead.
pub(crate) async fn begin(
    tx: &mut Transaction,
    context: &Context,
    from: DataVersion,
    to: DataVersion,
) -> Result<(), MigrateError> {
    let others = sql("UPDATE bbs_migration_run SET state = ?, ended_at_ns = ? \
         WHERE ended_at_ns IS NULL AND NOT (from_version = ? AND to_version = ?)");
    let others = others
        .bind(RunState::Replaced.name())
        .bind(context.clock.now_ns());
    tx.execute(others.bind(signed(from)).bind(signed(to)))
        .await
        .about(RUN)?;
    if !has_open(tx).await? {
        insert(tx, context, from, to).await?;
    }
    Ok(())
}

/// Records that an unfinished migration is given up, unless a start that has postponed its clean-up
/// has recorded it.
pub(crate) async fn give_up(
    tx: &mut Transaction,
    context: &Context,
    underway: &Underway,
) -> Result<(), MigrateError> {
    if underway.phase == Phase::Copying || has_open(tx).await? {
        end(tx, context, underway.from, underway.to, RunState::GivenUp).await?;
    }
    Ok(())
}

/// Whether a migration has begun, according to the record, and not ended.
async fn has_open(tx: &mut Transaction) -> Result<bool, MigrateError> {
    let open = sql("SELECT run FROM bbs_migration_run WHERE ended_at_ns IS NULL");
    Ok(tx.fetch_optional(open).await.about(RUN)?.is_some())
}

async fn insert(
    tx: &mut Transaction,
    context: &Context,
    from: DataVersion,
    to: DataVersion,
) -> Result<(), MigrateError> {
    let number = last_run(tx).await? + 1;
    let insert = sql(
        "INSERT INTO bbs_migration_run (run, from_version, to_version, state, began_at_ns, ended_at_ns, host, release_name) \
         VALUES (?, ?, ?, ?, ?, NULL, ?, ?)",
    );
    let insert = insert
        .bind(number)
        .bind(signed(from))
        .bind(signed(to))
        .bind(RunState::Unfinished.name());
    let insert = insert
        .bind(context.now_ns)
        .bind(stored(&context.runner.host))
        .bind(stored(&context.runner.release));
    tx.execute(insert).await.about(RUN)?;
    Ok(())
}

fn stored(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}

/// Records how the migration that has begun ended. A host of a release without this table may have
/// begun it.
pub(crate) async fn end(
    tx: &mut Transaction,
    context: &Context,
    from: DataVersion,
    to: DataVersion,
    state: RunState,
) -> Result<(), MigrateError> {
    begin(tx, context, from, to).await?;
    let update = sql(
        "UPDATE bbs_migration_run SET state = ?, ended_at_ns = ?, host = ?, release_name = ? \
         WHERE ended_at_ns IS NULL",
    );
    let update = update.bind(state.name()).bind(context.clock.now_ns());
    let update = update
        .bind(stored(&context.runner.host))
        .bind(stored(&context.runner.release));
    tx.execute(update).await.about(RUN)?;
    Ok(())
}

/// Whether the last migration that was completed led down to a version.
pub(super) async fn last_led_down_to(
    tx: &mut Transaction,
    version: DataVersion,
) -> Result<bool, MigrateError> {
    if !exists(tx, RUN).await? {
        return Ok(false);
    }
    let select = sql(
        "SELECT from_version, to_version FROM bbs_migration_run WHERE state = ? ORDER BY run DESC LIMIT 1",
    );
    let select = select.bind(RunState::Completed.name());
    let Some(row) = tx.fetch_optional(select).await.about(RUN)? else {
        return Ok(false);
    };
    let from = row.unsigned(0).about(RUN)?;
    let to = row.unsigned(1).about(RUN)?;
    Ok(to == version && Direction::between(from, to) == Direction::Down)
}

/// The number of the last migration; 0 if there was none.
async fn last_run(tx: &mut Transaction) -> Result<i64, MigrateError> {
    Ok(tx
        .fetch_number(sql("SELECT MAX(run) FROM bbs_migration_run"))
        .await
        .about(RUN)?)
}

/// Takes back that the last migration has ended.
pub(crate) async fn reopen_last(tx: &mut Transaction) -> Result<(), MigrateError> {
    let number = last_run(tx).await?;
    let update = sql("UPDATE bbs_migration_run SET state = ?, ended_at_ns = NULL WHERE run = ?");
    tx.execute(update.bind(RunState::Unfinished.name()).bind(number))
        .await
        .about(RUN)?;
    Ok(())
}

/// The migrations of this database, oldest first. Reads only.
pub async fn runs(database: &Database) -> Result<Vec<MigrationRun>, MigrateError> {
    let mut reader = database.read().await?;
    if !exists(&mut reader, RUN).await? {
        return Ok(Vec::new());
    }
    let select = sql(
        "SELECT run, from_version, to_version, state, began_at_ns, ended_at_ns, host, release_name FROM bbs_migration_run ORDER BY run",
    );
    Ok(reader.fetch_as(select, read).await.about(RUN)?)
}

fn read(row: &Row) -> Result<MigrationRun, SqlError> {
    let from = row.unsigned(1)?;
    let to = row.unsigned(2)?;
    let state = row.text_or_empty(3)?;
    Ok(MigrationRun {
        number: row.integer_or_zero(0)?,
        from,
        to,
        direction: Direction::between(from, to),
        // A later release may have further ends.
        state: RunState::ALL
            .into_iter()
            .find(|known| known.name() == state)
            .unwrap_or(RunState::Replaced),
        began_at_ns: row.integer_or_zero(4)?,
        ended_at_ns: row.integer(5)?,
        host: row.owned_text(6)?,
        release: row.owned_text(7)?,
    })
}

/// The migrations of the catalog that ran on this database, in their order, those that were
/// reversed since among them. Reads only.
pub async fn migrations_ran(context: &Context) -> Result<Vec<MigrationRan>, MigrateError> {
    state::history(&mut context.database.read().await?).await
}
