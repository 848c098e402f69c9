//! The state of a migration in the database: the version, the intent, the position of a copy, the
//! modules that ran. Owns these tables; every function works inside the caller's transaction.

pub(super) mod arguments;
pub(super) mod catalog_serials;
pub(super) mod changed_units;
pub(super) mod found;
pub(super) mod history_pair;
pub(super) mod own_tables;
pub(super) mod removal;
pub(super) mod residue;
pub(super) mod runs;

use std::collections::{BTreeMap, BTreeSet};

use bbs_database::schema::{self, Relation, exists as table_exists};
use bbs_database::{SqlError, StatementResult, Transaction, signed, sql, upsert};
use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_lens::layout::migration_set::MigrationSet;
use bbs_lens::{Arguments, Lens};
use bbs_units::UnitKey;
use sea_query::{Alias, Expr, ExprTrait, Func, Query};
use serde::{Deserialize, Serialize};

use super::decide::Found;
use super::lock_waits::{self, change_schema, patiently};
use super::plan::side_table;
use super::{Context, MigrateError, fault};
use crate::lock::fence::Fence;
use own_tables::APPLIED;

/// Tables whose rows mean that a database without a version is in use. Other tables may belong to
/// another program.
pub(super) const COUNTED_TABLES: [&str; 4] = ["actual_lrps", "desired_lrps", "domains", "tasks"];

/// Rows of `configurations`.
const VERSION: &str = "version";
pub(super) const KEY_LABEL: &str = "encryption_key_label";

const SIDE_TABLES: &str = "bbs_side_table";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct VersionRow {
    pub current_version: DataVersion,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_version: Option<DataVersion>,
}

/// The phase of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The target is recorded; nothing else was done.
    Begun,
    /// Target tables exist; rows are being copied.
    Copying,
    /// The new version is durable, but tables may still have their old names: where such a change
    /// commits by itself.
    Renaming,
    /// As [`Self::Renaming`], and tables that were not copied may still have units that are in
    /// quarantine.
    Settling,
    /// The new version is durable; what it replaced is not removed yet.
    CleaningUp,
}

impl Phase {
    const ALL: [Self; 5] = [
        Self::Begun,
        Self::Copying,
        Self::Renaming,
        Self::Settling,
        Self::CleaningUp,
    ];

    /// Its name in the database and in texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Copying => "copying",
            Self::Renaming => "renaming",
            Self::Settling => "settling",
            Self::CleaningUp => "cleaning-up",
        }
    }

    /// Whether the new version is durable.
    pub(super) fn has_arrived(self) -> bool {
        match self {
            Self::Begun | Self::Copying => false,
            Self::Renaming | Self::Settling | Self::CleaningUp => true,
        }
    }

    /// Whether the migration is complete, except that replaced tables are not removed yet.
    pub fn is_clean_up(self) -> bool {
        self == Self::CleaningUp
    }

    /// Whether the new version is durable, and no client may be served before the cut-over is
    /// completed.
    pub(super) fn awaits_completion(self) -> bool {
        matches!(self, Self::Renaming | Self::Settling)
    }
}

/// A migration that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Underway {
    pub from: DataVersion,
    pub to: DataVersion,
    pub going_down: bool,
    /// The fingerprint of the modules and versions: a copy made by other modules is not resumed.
    pub fingerprint: String,
    /// The fencing token of the host that worked on it last.
    pub token: i64,
    pub phase: Phase,
}

pub(super) async fn exists(tx: &mut Transaction, table: &str) -> Result<bool, MigrateError> {
    Ok(table_exists(tx, table).await.about("the list of tables")?)
}

/// As [`schema::existing`], with an error of a migration.
pub(super) async fn existing<'a>(
    tx: &mut Transaction,
    tables: &[&'a str],
) -> Result<BTreeSet<&'a str>, MigrateError> {
    let existing = schema::existing(tx, tables).await;
    Ok(existing.about("the list of tables")?)
}

/// The uses of names, with one query. A free name is absent.
pub(super) async fn relations<'a>(
    tx: &mut Transaction,
    names: &[&'a str],
) -> Result<BTreeMap<&'a str, Relation>, MigrateError> {
    let relations = schema::relations(tx, names).await;
    Ok(relations.about("the list of tables")?)
}

/// The refusal of an object that has the name of a table and is no plain table.
pub(super) fn not_a_table(name: &str, found: Relation) -> Option<MigrateError> {
    (!found.is_plain_table).then(|| MigrateError::NotATable {
        name: name.to_owned(),
        kind: found.kind,
        remedy: found.remedy,
    })
}

/// The refusals of objects that have the name of a table and are no plain table, by name.
pub(super) async fn not_tables<'a>(
    tx: &mut Transaction,
    names: &[&'a str],
) -> Result<BTreeMap<&'a str, MigrateError>, MigrateError> {
    let relations = relations(tx, names).await?.into_iter();
    Ok(relations
        .filter_map(|(name, found)| Some((name, not_a_table(name, found)?)))
        .collect())
}

/// The version according to the database.
pub(super) async fn version_row(tx: &mut Transaction) -> Result<Option<VersionRow>, MigrateError> {
    let version = configuration(tx, VERSION).await?;
    let row = version
        .as_deref()
        .map(serde_json::from_str::<VersionRow>)
        .transpose();
    row.map_err(|source| MigrateError::UnreadableVersion {
        text: version.unwrap_or_default(),
        source,
    })
}

/// A row of Diego's `configurations`; NULL reads as empty.
async fn configuration(
    tx: &mut Transaction,
    id: &'static str,
) -> Result<Option<String>, MigrateError> {
    const TABLE: &str = "configurations";
    if !exists(tx, TABLE).await? {
        return Ok(None);
    }
    let row = tx
        .fetch_optional(sql("SELECT value FROM configurations WHERE id = ?").bind(id))
        .await;
    let Some(row) = row.about(TABLE)? else {
        return Ok(None);
    };
    Ok(Some(row.owned_text(0).about(TABLE)?))
}

pub(super) async fn count(tx: &mut Transaction, table: &str) -> Result<i64, MigrateError> {
    let mut query = sea_query::Query::select();
    query
        .expr(sea_query::Expr::cust("COUNT(*)"))
        .from(sea_query::Alias::new(table));
    Ok(tx.fetch_number(&query).await.about("the number of rows")?)
}

pub(super) async fn write_version(
    tx: &mut Transaction,
    current: DataVersion,
    target: DataVersion,
) -> Result<(), MigrateError> {
    let row = VersionRow {
        current_version: current,
        target_version: Some(target),
    };
    let text = serde_json::to_string(&row).expect("two numbers");
    let row = upsert(
        "configurations",
        [("id", VERSION.into())],
        [("value", text.into())],
    );
    tx.execute(&row)
        .await
        .about("the row `version` of configurations")?;
    Ok(())
}

pub(super) async fn underway(tx: &mut Transaction) -> Result<Option<Underway>, MigrateError> {
    const TABLE: &str = "bbs_migration";
    if !exists(tx, TABLE).await? {
        return Ok(None);
    }
    let select = sql(
        "SELECT from_version, to_version, going_down, fingerprint, token, phase FROM bbs_migration WHERE id = 1",
    );
    let Some(row) = tx.fetch_optional(select).await.about(TABLE)? else {
        return Ok(None);
    };
    let phase = row.owned_text(5).about(TABLE)?;
    let phase = Phase::ALL
        .into_iter()
        .find(|known| known.name() == phase)
        .ok_or(MigrateError::UnknownPhase { phase })?;
    let read = || -> Result<_, SqlError> {
        Ok(Underway {
            from: row.unsigned(0)?,
            to: row.unsigned(1)?,
            going_down: row.flag(2)?.unwrap_or_default(),
            fingerprint: row.owned_text(3)?,
            token: row.integer_or_zero(4)?,
            phase,
        })
    };
    Ok(Some(read().about(TABLE)?))
}

/// Updates that lock a row: one that changes nothing; one that changes the row, and one that
/// changes it back.
type LockUpdates = [&'static str; 3];

const LOCK_RECORD: LockUpdates = [
    "UPDATE bbs_migration SET token = token WHERE id = 1",
    "UPDATE bbs_migration SET token = token + 1 WHERE id = 1",
    "UPDATE bbs_migration SET token = token - 1 WHERE id = 1",
];
const LOCK_VERSION: LockUpdates = [
    "UPDATE configurations SET value = value WHERE id = 'version'",
    "UPDATE configurations SET value = CONCAT(value, ' ') WHERE id = 'version'",
    "UPDATE configurations SET value = RTRIM(value) WHERE id = 'version'",
];

/// Locks a row, which waits for transactions that have written it. In a Galera cluster, where a
/// lock is one of a node, the row is changed and changed back: of two transactions that change a
/// row, the cluster commits one.
async fn lock_row(
    tx: &mut Transaction,
    is_in_cluster: bool,
    table: &'static str,
    updates: LockUpdates,
) -> Result<(), MigrateError> {
    let updates = if is_in_cluster {
        &updates[1..]
    } else {
        &updates[..1]
    };
    for update in updates {
        tx.execute(sql(*update)).await.about(table)?;
    }
    Ok(())
}

/// Waits for transactions that have written the record of the unfinished migration: none that is
/// being committed commits afterwards.
///
/// # Errors
/// Transient if such a transaction may still commit.
pub(super) async fn wait_for_writers(fence: &Fence) -> Result<(), MigrateError> {
    let mut tx = fence.begin_change().await?;
    lock_row(&mut tx, fence.is_in_cluster(), "bbs_migration", LOCK_RECORD).await?;
    tx.commit().await.about("bbs_migration")?;
    Ok(())
}

/// Waits for commits of this host that have written the record of the unfinished migration: a commit
/// goes on after its caller was dropped. Until then readers see the rows of before.
pub(super) async fn wait_for_commits(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    if !exists(&mut context.database.read().await?, "bbs_migration").await? {
        return Ok(());
    }
    patiently(context, || wait_for_writers(fence)).await
}

/// Locks the version: waits for a migration or a key rotation that begins, and lets none begin
/// before the transaction ends.
///
/// # Errors
/// Transient if another transaction keeps the lock, or conflicts; otherwise the database fails.
pub async fn lock_version(tx: &mut Transaction, is_in_cluster: bool) -> Result<(), MigrateError> {
    lock_row(tx, is_in_cluster, "configurations", LOCK_VERSION).await
}

/// The phase of the unfinished migration.
pub(super) async fn phase(tx: &mut Transaction) -> Result<Option<Phase>, MigrateError> {
    Ok(underway(tx).await?.map(|underway| underway.phase))
}

pub(super) async fn write_underway(
    tx: &mut Transaction,
    underway: &Underway,
) -> Result<(), MigrateError> {
    let values = [
        ("from_version", signed(underway.from).into()),
        ("to_version", signed(underway.to).into()),
        ("going_down", underway.going_down.into()),
        ("fingerprint", underway.fingerprint.as_str().into()),
        ("token", underway.token.into()),
        ("phase", underway.phase.name().into()),
    ];
    tx.execute(&upsert("bbs_migration", [("id", 1_i64.into())], values))
        .await
        .about("bbs_migration")?;
    Ok(())
}

/// Records another phase of an unfinished migration. With [`Phase::Begun`] its copies are not
/// resumed; to be recorded before the first of them is dropped.
pub(super) async fn write_phase(
    tx: &mut Transaction,
    found: Underway,
    phase: Phase,
) -> Result<(), MigrateError> {
    write_underway(tx, &Underway { phase, ..found }).await
}

/// Removes the record of the unfinished migration and its position, but for its tables that exist.
pub(super) async fn forget_underway(tx: &mut Transaction) -> Result<(), MigrateError> {
    for statement in [
        "DELETE FROM bbs_migration",
        "DELETE FROM bbs_copy",
        "DELETE FROM bbs_copy_table",
    ] {
        tx.execute(sql(statement)).await.about("bbs_migration")?;
    }
    for name in side_tables(tx).await? {
        if !exists(tx, &name).await? {
            let delete = sql("DELETE FROM bbs_side_table WHERE table_name = ?").bind(name);
            tx.execute(delete).await.about(SIDE_TABLES)?;
        }
    }
    Ok(())
}

/// The last unit that a pass of the copy has written.
pub(super) async fn cursor(
    context: &Context,
    pass: usize,
) -> Result<Option<UnitKey>, MigrateError> {
    const TABLE: &str = "bbs_copy";
    let mut reader = context.database.read().await?;
    let select = sql("SELECT last_key FROM bbs_copy WHERE group_number = ?").bind(pass as i64);
    let Some(row) = reader.fetch_optional(select).await.about(TABLE)? else {
        return Ok(None);
    };
    let key = row.text(0).about(TABLE)?.and_then(UnitKey::from_text);
    key.ok_or(MigrateError::DamagedCursor { group: pass })
        .map(Some)
}

/// The number in the place of a pass's under which it is recorded that all units are copied.
const COPIED: i64 = -1;

/// Whether all units were copied, but for those that clients have changed since.
pub(super) async fn has_copied_all(context: &Context) -> Result<bool, MigrateError> {
    let mut reader = context.database.read().await?;
    let select = sql("SELECT last_key FROM bbs_copy WHERE group_number = ?").bind(COPIED);
    let row = reader.fetch_optional(select).await.about("bbs_copy")?;
    Ok(row.is_some())
}

pub(super) async fn record_copied(tx: &mut Transaction) -> Result<(), MigrateError> {
    let row = upsert(
        "bbs_copy",
        [("group_number", COPIED.into())],
        [("last_key", "".into())],
    );
    tx.execute(&row).await.about("bbs_copy")?;
    Ok(())
}

/// Records the tables that a migration creates beside the real ones, before the first of them is
/// created. The host that removes them may have an older catalog, from which their names cannot be
/// derived. Tables that an earlier migration has left stay recorded.
pub(super) async fn write_side_tables(
    tx: &mut Transaction,
    names: &[String],
) -> Result<(), MigrateError> {
    let recorded = side_tables(tx).await?;
    let new: Vec<_> = names
        .iter()
        .filter(|name| !recorded.contains(name))
        .collect();
    let mut insert = Query::insert();
    insert
        .into_table(Alias::new(SIDE_TABLES))
        .columns([Alias::new("table_name")]);
    for name in &new {
        insert.values_panic([name.as_str().into()]);
    }
    if !new.is_empty() {
        tx.execute(&insert).await.about(SIDE_TABLES)?;
    }
    Ok(())
}

/// Drops every recorded table beside the real ones: of this migration, and of those before it.
/// Before or after a migration `between` two versions, a table of an earlier one that another
/// session has locked is left to a later clean-up, unless this one may need its name.
pub(super) async fn drop_leftovers(
    context: &Context,
    fence: &Fence,
    between: Option<[DataVersion; 2]>,
) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let leftovers = leftovers(&mut reader).await?;
    drop(reader);
    for table in leftovers {
        let statement = [schema::drop_table(context.database.dialect(), &table)];
        let may_have_to_go = between.is_none_or(|versions| {
            versions
                .iter()
                .any(|version| table.ends_with(&side_table("", *version)))
        });
        if may_have_to_go {
            change_schema(context, fence, &statement).await?;
        } else if let Err(fault) = fence.change_schema(&statement).await {
            if !fault.is_transient() {
                return Err(fault.into());
            }
            let holders = lock_waits::holders(&context.database).await;
            tracing::warn!(
                name: "leftover-is-locked",
                table,
                holders,
                "a table that an earlier migration replaced is locked; it is dropped when a later one is cleaned up"
            );
        }
        fault::point(fault::BETWEEN_CLEAN_UPS);
    }
    Ok(())
}

/// The recorded side tables that exist. The database is shared, so a table that only has a similar
/// name is left alone.
pub(super) async fn leftovers(tx: &mut Transaction) -> Result<Vec<String>, MigrateError> {
    let mut found = Vec::new();
    for name in side_tables(tx).await? {
        if exists(tx, &name).await? {
            found.push(name);
        }
    }
    Ok(found)
}

/// The side tables that are recorded, in the order of their names.
pub(super) async fn side_tables(tx: &mut Transaction) -> Result<Vec<String>, MigrateError> {
    if !exists(tx, SIDE_TABLES).await? {
        return Ok(Vec::new());
    }
    let select = sql("SELECT table_name FROM bbs_side_table ORDER BY table_name");
    let names = tx.fetch_as(select, |row| row.owned_text(0)).await;
    Ok(names.about(SIDE_TABLES)?)
}

/// The last run of each version that is applied: the digest of its module.
pub(super) async fn applied(
    tx: &mut Transaction,
) -> Result<BTreeMap<DataVersion, String>, MigrateError> {
    let mut applied = BTreeMap::new();
    for ran in history(tx).await? {
        match ran.direction {
            Direction::Down => drop(applied.remove(&ran.version)),
            Direction::Up => drop(applied.insert(ran.version, ran.digest)),
        }
    }
    Ok(applied)
}

/// The migrations that had run when a host worked with the database last; empty if none has.
pub(super) async fn recorded_migrations(
    tx: &mut Transaction,
) -> Result<MigrationSet, MigrateError> {
    if !exists(tx, APPLIED).await? {
        return Ok(MigrationSet::default());
    }
    let select = sql("SELECT version FROM bbs_applied_version");
    let versions = tx.fetch_as(select, |row| row.unsigned(0)).await;
    Ok(versions.about(APPLIED)?)
}

/// Records the migrations that have run on the database from now on.
pub(super) async fn record_migrations(
    tx: &mut Transaction,
    migrations: &MigrationSet,
) -> Result<(), MigrateError> {
    tx.execute(sql("DELETE FROM bbs_applied_version"))
        .await
        .about(APPLIED)?;
    let mut insert = Query::insert();
    insert.into_table(APPLIED).columns(["version"]);
    for version in migrations.versions() {
        insert.values_panic([signed(version).into()]);
    }
    if *migrations != MigrationSet::default() {
        tx.execute(&insert).await.about(APPLIED)?;
    }
    Ok(())
}

/// A migration of the catalog that ran here, up or down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MigrationRan {
    pub version: DataVersion,
    pub direction: Direction,
    pub name: String,
    /// The sha256 of its module.
    pub digest: String,
    /// The start of the run that completed it, in nanoseconds since 1970.
    pub at_ns: i64,
}

/// The history, oldest first.
pub(super) async fn history(tx: &mut Transaction) -> Result<Vec<MigrationRan>, MigrateError> {
    if !exists(tx, "bbs_history").await? {
        return Ok(Vec::new());
    }
    let select =
        sql("SELECT version, direction, name, digest, ran_at_ns FROM bbs_history ORDER BY seq");
    let ran = tx.fetch_as(select, |row| {
        let direction = if row.text_or_empty(1)? == "down" {
            Direction::Down
        } else {
            Direction::Up
        };
        Ok(MigrationRan {
            version: row.unsigned(0)?,
            direction,
            name: row.owned_text(2)?,
            digest: row.owned_text(3)?,
            at_ns: row.integer_or_zero(4)?,
        })
    });
    Ok(ran.await.about("bbs_history")?)
}

/// The number of the last entry of the history; 0 if it is empty.
pub(super) async fn last_of_history(tx: &mut Transaction) -> Result<i64, MigrateError> {
    Ok(tx
        .fetch_number(sql("SELECT MAX(seq) FROM bbs_history"))
        .await
        .about("bbs_history")?)
}

/// Removes the entries of the history after the one with the number `last`.
pub(super) async fn forget_history_after(
    tx: &mut Transaction,
    last: i64,
) -> Result<(), MigrateError> {
    tx.execute(sql("DELETE FROM bbs_history WHERE seq > ?").bind(last))
        .await
        .about("bbs_history")?;
    Ok(())
}

/// Adds the migrations of a lens, which ran at a time in nanoseconds since 1970, to the history. In
/// one statement: clients may wait for it.
pub(super) async fn write_history(
    tx: &mut Transaction,
    lens: &Lens,
    arguments: &Arguments,
    at_ns: i64,
) -> Result<(), MigrateError> {
    let mut seq = last_of_history(tx).await?;
    let mut insert = Query::insert();
    insert
        .into_table("bbs_history")
        .columns(own_tables::HISTORY_COLUMNS.map(|(name, _)| name));
    for (step, leg) in lens.steps().zip(lens.legs()) {
        seq += 1;
        let of_step = &arguments[&leg.version];
        insert.values_panic([
            seq.into(),
            signed(leg.version).into(),
            leg.direction.to_string().into(),
            step.manifest().name.as_str().into(),
            step.digest().into(),
            at_ns.into(),
            of_step.started_at_ns.into(),
            of_step.namespace.to_string().into(),
        ]);
    }
    // A way has no step where only the recorded target of the database is another one.
    if lens.steps().next().is_some() {
        tx.execute(&insert).await.about("bbs_history")?;
    }
    Ok(())
}

/// The version of the tables; 0 for none.
pub(super) fn current_of(found: &Found) -> DataVersion {
    match found {
        Found::Fresh | Found::Unversioned { .. } => 0,
        Found::Versioned { current, .. } => *current,
    }
}

/// The label of the key under which all records are, according to the database.
pub(super) async fn encryption_key_label(
    tx: &mut Transaction,
) -> Result<Option<String>, MigrateError> {
    configuration(tx, KEY_LABEL).await
}

/// The length of all text of a table, from the headers of its rows.
pub(super) async fn text_bytes(
    tx: &mut Transaction,
    table: &str,
    columns: impl Iterator<Item = &str>,
) -> Result<u64, MigrateError> {
    let Some(bytes) = bbs_units::text_length(columns) else {
        return Ok(0);
    };
    let sum = Expr::expr(Func::sum(bytes)).cast_as(Alias::new(tx.dialect().integer_cast()));
    let query = Query::select().expr(sum).from(Alias::new(table)).take();
    let bytes = tx.fetch_number(&query).await.about("lengths of text")?;
    Ok(bytes.unsigned_abs())
}
