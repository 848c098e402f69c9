//! What the host remembers in the database while it migrates: the version, the intent, how far a copy is, which
//! modules ran. Owns these tables; every function works inside the caller's transaction.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqlx::{Row, SqliteConnection};
use uuid::Uuid;

use super::MigrateError;
use super::decide::Found;
use crate::layout::columns::RunArguments;
use crate::layout::dialect;
use crate::layout::fold::Line;
use crate::layout::manifest::{DataVersion, Direction};

/// Tables whose rows make a database without a version somebody's. Everything else may be foreign.
pub(super) const COUNTED_TABLES: [&str; 4] = ["actual_lrps", "desired_lrps", "domains", "tasks"];
pub(super) const RESIDUE_TABLE: &str = "bbs_residue";

const TABLES: [&str; 7] = [
    "CREATE TABLE IF NOT EXISTS configurations (id VARCHAR(255) PRIMARY KEY, value VARCHAR(255))",
    "CREATE TABLE IF NOT EXISTS bbs_history (seq INTEGER PRIMARY KEY AUTOINCREMENT, version BIGINT NOT NULL, \
     direction TEXT NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, ran_at_ns BIGINT NOT NULL, \
     started_at_ns BIGINT NOT NULL, namespace TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bbs_run_arguments (version BIGINT PRIMARY KEY, started_at_ns BIGINT NOT NULL, \
     namespace TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bbs_migration (id INTEGER PRIMARY KEY, from_version BIGINT NOT NULL, \
     to_version BIGINT NOT NULL, going_down BOOLEAN NOT NULL, fingerprint TEXT NOT NULL, token BIGINT NOT NULL, \
     phase TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bbs_copy (group_number BIGINT PRIMARY KEY, last_key TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bbs_copy_table (table_name TEXT PRIMARY KEY, rows_out BIGINT NOT NULL, \
     digest TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bbs_residue (unit TEXT NOT NULL, table_name TEXT NOT NULL, row_key TEXT NOT NULL, \
     version BIGINT NOT NULL, direction TEXT NOT NULL, digest TEXT NOT NULL, sealed TEXT NOT NULL, \
     PRIMARY KEY (unit, table_name, row_key, version, direction))",
];

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VersionRow {
    current_version: DataVersion,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_version: Option<DataVersion>,
}

/// How far a migration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The version says so, nothing else was done.
    Begun,
    /// Target tables exist; rows are on their way.
    Copying,
    /// The new version is durable; what it replaced waits to be removed.
    CleaningUp,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Copying => "copying",
            Self::CleaningUp => "cleaning-up",
        }
    }
}

/// A migration that is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Underway {
    pub from: DataVersion,
    pub to: DataVersion,
    pub going_down: bool,
    /// Of the modules and the ends: work of other modules is of no use.
    pub fingerprint: String,
    /// The fence of the host that worked on it last.
    pub token: i64,
    pub phase: Phase,
}

fn sql(what: &'static str) -> impl FnOnce(sqlx::Error) -> MigrateError {
    move |source| MigrateError::Sql { what: what.to_owned(), source }
}

pub(super) async fn exists(connection: &mut SqliteConnection, table: &str) -> Result<bool, MigrateError> {
    let found = sqlx::query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?")
        .bind(table)
        .fetch_optional(connection)
        .await
        .map_err(sql("the list of tables"))?;
    Ok(found.is_some())
}

pub(super) async fn create_tables(connection: &mut SqliteConnection) -> Result<(), MigrateError> {
    for table in TABLES {
        sqlx::query(table).execute(&mut *connection).await.map_err(sql("the host's own tables"))?;
    }
    Ok(())
}

/// What [`super::decide::decide`] has to know. Reads only.
pub(super) async fn found(connection: &mut SqliteConnection) -> Result<Found, MigrateError> {
    let version = match exists(connection, "configurations").await? {
        true => sqlx::query("SELECT value FROM configurations WHERE id = 'version'")
            .fetch_optional(&mut *connection)
            .await
            .map_err(sql("the row `version` of configurations"))?,
        false => None,
    };
    let version = version.map(|row| row.get::<Option<String>, _>(0).unwrap_or_default());
    let row = version.as_deref().map(serde_json::from_str::<VersionRow>).transpose();
    let row = row.map_err(|source| MigrateError::UnreadableVersion { text: version.unwrap_or_default(), source })?;
    // Diego writes version 0 before its first migration: nothing is there yet.
    let Some(row) = row.filter(|row| row.current_version > 0) else { return found_without_version(connection).await };
    let current = row.current_version;
    let underway = underway(connection).await?;
    let going_down = underway.filter(|found| found.going_down).map(|found| found.to);
    Ok(Found::Versioned { current, target: row.target_version.unwrap_or(current), going_down })
}

async fn found_without_version(connection: &mut SqliteConnection) -> Result<Found, MigrateError> {
    let mut tables = Vec::new();
    for table in COUNTED_TABLES {
        if exists(connection, table).await? && !is_empty(connection, table).await? {
            tables.push(table.to_owned());
        }
    }
    Ok(if tables.is_empty() { Found::Fresh } else { Found::Unversioned { tables } })
}

async fn is_empty(connection: &mut SqliteConnection, table: &str) -> Result<bool, MigrateError> {
    Ok(count(connection, table).await? == 0)
}

pub(super) async fn count(connection: &mut SqliteConnection, table: &str) -> Result<i64, MigrateError> {
    let mut query = sea_query::Query::select();
    query.expr(sea_query::Expr::cust("COUNT(*)")).from(sea_query::Alias::new(table));
    let statement = query.to_string(sea_query::SqliteQueryBuilder);
    let row =
        sqlx::query(sqlx::AssertSqlSafe(statement)).fetch_one(connection).await.map_err(sql("the number of rows"))?;
    Ok(row.get(0))
}

pub(super) async fn write_version(
    connection: &mut SqliteConnection,
    current: DataVersion,
    target: DataVersion,
) -> Result<(), MigrateError> {
    let row = VersionRow { current_version: current, target_version: Some(target) };
    let text = serde_json::to_string(&row).expect("two numbers");
    sqlx::query(
        "INSERT INTO configurations (id, value) VALUES ('version', ?) \
         ON CONFLICT (id) DO UPDATE SET value = excluded.value",
    )
    .bind(text)
    .execute(connection)
    .await
    .map_err(sql("the row `version` of configurations"))?;
    Ok(())
}

pub(super) async fn underway(connection: &mut SqliteConnection) -> Result<Option<Underway>, MigrateError> {
    if !exists(connection, "bbs_migration").await? {
        return Ok(None);
    }
    let row = sqlx::query(
        "SELECT from_version, to_version, going_down, fingerprint, token, phase FROM bbs_migration WHERE id = 1",
    )
    .fetch_optional(connection)
    .await
    .map_err(sql("bbs_migration"))?;
    let Some(row) = row else { return Ok(None) };
    let version = |at: usize| row.get::<i64, _>(at).unsigned_abs();
    let phase: String = row.get(5);
    let phases = [Phase::Begun, Phase::Copying, Phase::CleaningUp];
    let phase = phases.into_iter().find(|known| known.name() == phase).ok_or(MigrateError::UnknownPhase { phase })?;
    Ok(Some(Underway {
        from: version(0),
        to: version(1),
        going_down: row.get(2),
        fingerprint: row.get(3),
        token: row.get(4),
        phase,
    }))
}

pub(super) async fn write_underway(connection: &mut SqliteConnection, underway: &Underway) -> Result<(), MigrateError> {
    sqlx::query(
        "INSERT OR REPLACE INTO bbs_migration (id, from_version, to_version, going_down, fingerprint, token, phase) \
         VALUES (1, ?, ?, ?, ?, ?, ?)",
    )
    .bind(signed(underway.from))
    .bind(signed(underway.to))
    .bind(underway.going_down)
    .bind(&underway.fingerprint)
    .bind(underway.token)
    .bind(underway.phase.name())
    .execute(connection)
    .await
    .map_err(sql("bbs_migration"))?;
    Ok(())
}

/// Forgets the migration that was under way, and how far it was.
pub(super) async fn forget_underway(connection: &mut SqliteConnection) -> Result<(), MigrateError> {
    for statement in ["DELETE FROM bbs_migration", "DELETE FROM bbs_copy", "DELETE FROM bbs_copy_table"] {
        sqlx::query(statement).execute(&mut *connection).await.map_err(sql("bbs_migration"))?;
    }
    Ok(())
}

/// Drops every table that a migration made beside the real ones. Their names are ours alone: a layout
/// cannot have two underscores in a name.
pub(super) async fn drop_leftovers(connection: &mut SqliteConnection, line: &Line) -> Result<(), MigrateError> {
    for name in leftovers(connection, line).await? {
        let statement = dialect::drop_table(&name);
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut *connection).await.map_err(sql("a leftover table"))?;
    }
    Ok(())
}

/// What the migration under way has made or set aside: tables of the line under the name of one of its ends. The
/// database is shared, so whatever else looks like that is somebody else's.
pub(super) async fn leftovers(connection: &mut SqliteConnection, line: &Line) -> Result<Vec<String>, MigrateError> {
    let Some(Underway { from, to, .. }) = underway(connection).await? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for table in line.table_names() {
        for end in [from, to] {
            let name = format!("{table}__{end}");
            if exists(connection, &name).await? {
                found.push(name);
            }
        }
    }
    Ok(found)
}

/// The last run of each version that is applied now: the digest of the module that did it.
pub(super) async fn applied(connection: &mut SqliteConnection) -> Result<BTreeMap<DataVersion, String>, MigrateError> {
    if !exists(connection, "bbs_history").await? {
        return Ok(BTreeMap::new());
    }
    let rows = sqlx::query("SELECT version, direction, digest FROM bbs_history ORDER BY seq")
        .fetch_all(connection)
        .await
        .map_err(sql("bbs_history"))?;
    let mut applied = BTreeMap::new();
    for row in rows {
        let version = row.get::<i64, _>(0).unsigned_abs();
        match row.get::<String, _>(1).as_str() {
            "down" => drop(applied.remove(&version)),
            _ => drop(applied.insert(version, row.get(2))),
        }
    }
    Ok(applied)
}

/// One line of the history.
pub(super) struct Ran<'a> {
    pub version: DataVersion,
    pub direction: Direction,
    pub name: &'a str,
    pub digest: &'a str,
    pub at_ns: i64,
    pub arguments: &'a RunArguments,
}

pub(super) async fn write_history(connection: &mut SqliteConnection, ran: &Ran<'_>) -> Result<(), MigrateError> {
    sqlx::query(
        "INSERT INTO bbs_history (version, direction, name, digest, ran_at_ns, started_at_ns, namespace) \
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(signed(ran.version))
    .bind(ran.direction.to_string())
    .bind(ran.name)
    .bind(ran.digest)
    .bind(ran.at_ns)
    .bind(ran.arguments.started_at_ns)
    .bind(ran.arguments.namespace.to_string())
    .execute(connection)
    .await
    .map_err(sql("bbs_history"))?;
    Ok(())
}

/// The arguments of a migration on this database, drawn at first use and the same ever after.
pub(super) async fn run_arguments(
    connection: &mut SqliteConnection,
    version: DataVersion,
    now_ns: i64,
) -> Result<RunArguments, MigrateError> {
    sqlx::query("INSERT OR IGNORE INTO bbs_run_arguments (version, started_at_ns, namespace) VALUES (?, ?, ?)")
        .bind(signed(version))
        .bind(now_ns)
        .bind(Uuid::new_v4().to_string())
        .execute(&mut *connection)
        .await
        .map_err(sql("bbs_run_arguments"))?;
    let row = sqlx::query("SELECT started_at_ns, namespace FROM bbs_run_arguments WHERE version = ?")
        .bind(signed(version))
        .fetch_one(connection)
        .await
        .map_err(sql("bbs_run_arguments"))?;
    let namespace: String = row.get(1);
    let namespace = Uuid::parse_str(&namespace).map_err(|_| MigrateError::Namespace { version, namespace })?;
    Ok(RunArguments { started_at_ns: row.get(0), namespace })
}

/// Versions are timestamps: far below where the sign would matter.
pub(super) fn signed(version: DataVersion) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

/// The label that the database says all records are under.
pub(super) async fn encryption_key_label(connection: &mut SqliteConnection) -> Result<Option<String>, MigrateError> {
    if !exists(connection, "configurations").await? {
        return Ok(None);
    }
    let row = sqlx::query("SELECT value FROM configurations WHERE id = 'encryption_key_label'")
        .fetch_optional(connection)
        .await
        .map_err(sql("the row `encryption_key_label` of configurations"))?;
    Ok(row.and_then(|row| row.get(0)))
}

/// The length of all text of a table, from the headers of its rows.
pub(super) async fn text_bytes(
    connection: &mut SqliteConnection,
    table: &str,
    columns: impl Iterator<Item = &str>,
) -> Result<u64, MigrateError> {
    use sea_query::{Alias, Expr, ExprTrait, Func, Query, SqliteQueryBuilder};

    let length = |column: &str| {
        let length = Func::cust(Alias::new("octet_length")).arg(Expr::col(Alias::new(column)));
        Expr::expr(Func::coalesce([Expr::expr(length), Expr::val(0)]))
    };
    let Some(bytes) = columns.map(length).reduce(|sum, length| sum.add(length)) else { return Ok(0) };
    let statement = Query::select().expr(Func::sum(bytes)).from(Alias::new(table)).to_string(SqliteQueryBuilder);
    let row =
        sqlx::query(sqlx::AssertSqlSafe(statement)).fetch_one(connection).await.map_err(sql("lengths of text"))?;
    Ok(row.get::<Option<i64>, _>(0).unwrap_or_default().unsigned_abs())
}
