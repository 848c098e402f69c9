//! What a start checks before it writes anything: the versions, the modules that ran, the way between the two versions,
//! obstacles on it, and the record versions. Owns every refusal that needs no lock. Reads only.

use std::collections::{BTreeMap, BTreeSet};

use sea_query::{Alias, Expr, Query};

use super::decide::{Decision, Found, Intent, decide};
use super::state::{self, exists};
use super::{Context, MigrateError, fresh, layout_history};
use crate::database::{SqlError, Transaction, is_denied, schema};
use crate::layout::history::LayoutHistory;
use crate::layout::manifest::DataVersion;
use crate::layout::schema::Layout;
use crate::layout::values::Encoding;
use crate::rows::RECORD_VERSION;

/// What a start with this intent may do.
///
/// # Errors
/// An obstacle, or a database that cannot be read. Nothing was written.
pub async fn look(context: &Context, intent: Intent) -> Result<Decision, MigrateError> {
    look_along(context, &layout_history(&context.migrations)?, intent).await
}

pub(super) async fn look_along(
    context: &Context,
    layouts: &LayoutHistory,
    intent: Intent,
) -> Result<Decision, MigrateError> {
    let mut reader = context.database.read().await?;
    let found = state::found(&mut reader).await?;
    let decision = decide(&found, intent).explained(|version| layouts.at(version).is_some());
    if !matches!(decision, Decision::ShutDown(_)) && found != Found::Fresh {
        check_history(context, state::current_of(&found), &state::applied(&mut reader).await?)?;
    }
    if let Decision::Begin { from, to } | Decision::Continue { from, to } = decision {
        check_ends(context, layouts, from, to)?;
        if from == 0 {
            fresh::check(&mut reader, layouts).await?;
        }
        check_readable(&mut reader, layouts, from).await?;
        check_record_versions(&mut reader, layouts, from).await?;
    }
    Ok(decision)
}

/// Checks that the catalog has the modules that ran here, and that they are the same.
fn check_history(
    context: &Context,
    current: DataVersion,
    applied: &BTreeMap<DataVersion, String>,
) -> Result<(), MigrateError> {
    for (&version, ran) in applied {
        let known = context.migrations.iter().find(|migration| migration.manifest().version == version);
        let ran = ran.clone();
        match known.map(|migration| migration.digest()) {
            Some(catalog) if catalog == ran => {}
            Some(catalog) => return Err(MigrateError::DigestChanged { version, ran, catalog: catalog.to_owned() }),
            None if version <= current => return Err(MigrateError::RanAndIsMissing { version, ran }),
            // The version says that it did not run: another program set it back.
            None => {}
        }
    }
    Ok(())
}

/// Checks that the catalog has both versions, and that no one-way migration lies between them against the direction.
pub(super) fn check_ends(
    context: &Context,
    layouts: &LayoutHistory,
    from: DataVersion,
    to: DataVersion,
) -> Result<(), MigrateError> {
    if layouts.at(from).is_none() {
        return Err(MigrateError::UnknownVersion { version: from });
    }
    if layouts.at(to).is_none() {
        return Err(MigrateError::UnknownTarget { version: to });
    }
    check_way_back(context.migrations.iter().map(|migration| migration.manifest()), from, to)
}

/// Checks that every migration between a version and a lower one can be reversed.
///
/// # Errors
/// A migration on the way is not reversible; the error names the lowest one.
pub fn check_way_back<'a>(
    manifests: impl IntoIterator<Item = &'a crate::layout::manifest::Manifest>,
    from: DataVersion,
    to: DataVersion,
) -> Result<(), MigrateError> {
    let mut undone = manifests.into_iter().filter(|manifest| manifest.version > to && manifest.version <= from);
    match undone.find(|manifest| !manifest.reversible) {
        Some(manifest) => Err(MigrateError::NotReversible { version: manifest.version, name: manifest.name.clone() }),
        None => Ok(()),
    }
}

/// Checks that this user may read every row of the tables at a version: PostgreSQL refuses a statement that a policy would hide
/// rows from.
async fn check_readable(tx: &mut Transaction, layouts: &LayoutHistory, at: DataVersion) -> Result<(), MigrateError> {
    let Some(layout) = layouts.at(at) else { return Ok(()) };
    for table in layout.tables.keys() {
        if !exists(tx, table).await? {
            continue;
        }
        let mut query = Query::select();
        query.expr(Expr::val(1)).from(Alias::new(table)).limit(1);
        if let Err(source) = tx.fetch(&query).await {
            let table = table.clone();
            return Err(if is_denied(&source) {
                MigrateError::Unreadable { table, source }
            } else {
                MigrateError::Sql { what: table, source }
            });
        }
    }
    Ok(())
}

/// Checks that every record went through migrations that the catalog knows. A record of any other version was written
/// with another catalog, and nothing is known of its layout. One pass over a narrow column of each table.
pub(super) async fn check_record_versions(
    tx: &mut Transaction,
    layouts: &LayoutHistory,
    at: DataVersion,
) -> Result<(), MigrateError> {
    let Some(layout) = layouts.at(at) else { return Ok(()) };
    for table in stamped_tables(layout) {
        if !exists(tx, table).await? || !has_column(tx, table).await? {
            continue;
        }
        let found = record_versions(tx, table).await?;
        let unknown: Vec<_> = found.into_iter().filter(|version| layouts.at(*version).is_none()).collect();
        if !unknown.is_empty() {
            return Err(MigrateError::UnknownRecordVersions { table: table.to_owned(), versions: unknown });
        }
    }
    Ok(())
}

fn stamped_tables(layout: &Layout) -> impl Iterator<Item = &str> {
    let is_stamped = |table: &&crate::layout::schema::Table| {
        table.column(RECORD_VERSION).is_some_and(|column| Encoding::from(column.kind) == Encoding::Integer)
    };
    layout.tables.values().filter(is_stamped).map(|table| table.name.as_str())
}

/// Between a durable version and the renaming of its tables, the column may be absent.
async fn has_column(tx: &mut Transaction, table: &str) -> Result<bool, MigrateError> {
    let found = schema::read_back(tx, table).await?;
    Ok(found.is_some_and(|found| found.columns.iter().any(|column| column.name == RECORD_VERSION)))
}

/// The record versions of a table, without records that no row function has transformed.
async fn record_versions(tx: &mut Transaction, table: &str) -> Result<BTreeSet<DataVersion>, MigrateError> {
    let failed = |source: SqlError| MigrateError::Sql { what: format!("{RECORD_VERSION} of {table}"), source };
    let mut query = Query::select();
    query.distinct().expr(Expr::col(Alias::new(RECORD_VERSION))).from(Alias::new(table));
    let rows = tx.fetch(&query).await.map_err(failed)?;
    let versions = rows.iter().map(|row| row.integer(0)).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    Ok(versions.into_iter().flatten().map(i64::unsigned_abs).collect())
}
