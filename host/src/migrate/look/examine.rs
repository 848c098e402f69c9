//! Finds every reason why a migration of this database could not run, before its first write: what
//! its tables lack, what is in their place or in the way, objects attached to the replaced tables,
//! and what this user may not do. Every entry that migrates calls it, and so do `status` and
//! `plan`, so that they promise what a start keeps. Reads only.

use std::collections::BTreeMap;

use bbs_database::schema::{self, AttachedObject, PhysicalColumn, PhysicalTable};
use bbs_database::{Dialect, StatementResult, Transaction};
use bbs_lens::layout::history::{Additions, LayoutHistory};
use bbs_lens::layout::manifest::DataVersion;
use bbs_lens::layout::schema::{Column, Index, Table};

use super::in_the_way;
use super::readable::{check_keys, check_readable, check_record_versions};
use crate::migrate::error::in_catalog;
use crate::migrate::plan::{Strategy, replaced, side_table};
use crate::migrate::{Context, HistoryPair, MigrateError, Work, fresh, same_schema, state};

/// The reasons against a migration; empty if nothing speaks against it. `histories` have what the
/// owner of the database has added.
pub(crate) async fn examine(
    tx: &mut Transaction,
    histories: &HistoryPair,
    work: &Work,
) -> Result<Vec<MigrateError>, MigrateError> {
    let mut reasons = Vec::new();
    if work.from == 0 {
        push_reason(&mut reasons, fresh::check(tx, &histories.catalog).await)?;
    }
    check_sources(tx, work, &mut reasons).await?;
    in_the_way::check(tx, histories, work, &mut reasons).await?;
    reasons.extend(find_attached(tx, histories, work).await?);
    check_records(tx, &histories.ran, work.from, &mut reasons).await?;
    if reasons.is_empty() {
        // Of tables that are what their version says.
        let read = (0..work.lens.groups.len())
            .filter(|group| work.has_copies(*group) || work.visits_units(*group));
        push_reason(&mut reasons, check_keys(tx, work, read).await)?;
    }
    Ok(reasons)
}

/// Looks, before the cut-over, for what has been added to the tables since they were examined.
pub(crate) async fn examine_again(context: &Context, work: &Work) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let histories = HistoryPair::declared(context, &mut reader).await?;
    MigrateError::refuse(find_attached(&mut reader, &histories, work).await?)
}

/// The names of the replaced tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableNames {
    /// The names in the layout.
    Own,
    /// The names under which a cut-over sets the tables aside.
    SetAside,
}

/// Looks, within the cut-over, for what has been added to the replaced tables since they were
/// examined, once no other session changes them any more. In few queries: clients may wait for
/// them.
pub(crate) async fn examine_replaced(
    context: &Context,
    tx: &mut Transaction,
    work: &Work,
    names: TableNames,
) -> Result<Vec<MigrateError>, MigrateError> {
    let histories = HistoryPair::after(context, &work.ran)?;
    let lost = lost_objects(tx, &histories, work, names).await?;
    let reasons = lost
        .into_iter()
        .filter_map(|(table, objects)| refusal(&table, objects));
    Ok(reasons.collect())
}

/// The reasons against serving a database at a version, where nothing is migrated: tables that are
/// none, or none with transactions, and records that the version does not have.
pub(super) async fn examine_served(
    tx: &mut Transaction,
    layouts: &LayoutHistory,
    at: DataVersion,
) -> Result<Vec<MigrateError>, MigrateError> {
    let tables = layouts.at(at).map(|layout| layout.tables.keys());
    let tables: Vec<_> = tables.into_iter().flatten().map(String::as_str).collect();
    let refused = state::not_tables(tx, &tables).await?;
    let mut reasons: Vec<_> = refused.into_values().collect();
    if reasons.is_empty() {
        check_records(tx, layouts, at, &mut reasons).await?;
    }
    Ok(reasons)
}

/// Checks that every record can be read, and has been through no migration that the database has
/// not been through.
async fn check_records(
    tx: &mut Transaction,
    layouts: &LayoutHistory,
    at: DataVersion,
    reasons: &mut Vec<MigrateError>,
) -> Result<(), MigrateError> {
    let readable = check_readable(tx, layouts, at).await;
    // After a statement that was refused, the transaction can read nothing more.
    if readable.is_ok() {
        push_reason(reasons, check_record_versions(tx, layouts, at).await)?;
    }
    push_reason(reasons, readable)
}

/// Keeps a refusal among the reasons; an error of the database ends the examination, which has
/// found out nothing then.
fn push_reason(
    reasons: &mut Vec<MigrateError>,
    checked: Result<(), MigrateError>,
) -> Result<(), MigrateError> {
    match checked {
        Err(fault @ MigrateError::Sql { .. }) => return Err(fault),
        Err(reason) => reasons.push(reason),
        Ok(()) => {}
    }
    Ok(())
}

/// Checks that each source is a base table with the layout of its version.
async fn check_sources(
    tx: &mut Transaction,
    work: &Work,
    reasons: &mut Vec<MigrateError>,
) -> Result<(), MigrateError> {
    let tables = &work.lens.source.tables;
    let mut names: Vec<_> = tables.keys().map(String::as_str).collect();
    let mut refused = state::not_tables(tx, &names).await?;
    names.retain(|name| !refused.contains_key(name));
    let mut found = schema::read_back_all(tx, &names).await?;
    for (name, table) in tables {
        if let Some(reason) = refused.remove(name.as_str()) {
            reasons.push(reason);
            continue;
        }
        let found = found.remove(name);
        let mut known = as_it_may_be_found(tx.dialect(), work, table, found.as_ref());
        if let Some(found) = found.as_ref() {
            let others = under_new_names(work, table, found, &known);
            known.columns.extend(others);
            reasons.extend(in_the_way::alike(work, name, found));
        }
        push_reason(reasons, same_schema(tx.dialect(), name, found, &known))?;
    }
    Ok(())
}

/// The columns that a table gets in place, for which it has others of the same names. Those would
/// be taken for the new ones, and dropped if the migration is given up.
fn under_new_names(
    work: &Work,
    source: &Table,
    found: &PhysicalTable,
    known: &Table,
) -> Vec<Column> {
    let Some(plan) = work.in_place(&source.name) else {
        return Vec::new();
    };
    let (mut columns, _, _) = plan.additions(Some(source));
    columns.retain(|column| {
        found.has_column(&column.name) && known.find_column(&column.name).is_none()
    });
    columns
}

/// A table of the source as it may be found: with some of the changes that lead to the target. A
/// start that was interrupted made them, or Diego's BBS, whose changes of a schema commit before
/// the version on MySQL. A migration that was given up there leaves types that it made wider.
fn as_it_may_be_found(
    dialect: Dialect,
    work: &Work,
    source: &Table,
    found: Option<&PhysicalTable>,
) -> Table {
    let Some(found) = found else {
        return source.clone();
    };
    let mut table = found.widened(dialect, source);
    let passed: Vec<_> = work
        .passed
        .iter()
        .filter_map(|layout| layout.tables.get(&source.name))
        .collect();
    for column in &found.columns {
        let serves = |wanted: &&Column| schema::serves(dialect, column, wanted);
        let at = table
            .columns
            .iter()
            .position(|known| known.name == column.name);
        if at.is_some_and(|at| serves(&&table.columns[at])) {
            continue;
        }
        let Some(changed) = passed
            .iter()
            .filter_map(|table| table.find_column(&column.name))
            .find(serves)
        else {
            continue;
        };
        match at {
            Some(at) => table.columns[at] = changed.clone(),
            None => table.columns.push(changed.clone()),
        }
    }
    if passed
        .iter()
        .any(|table| table.primary_key == found.primary_key)
    {
        table.primary_key.clone_from(&found.primary_key);
    }
    let indexes = passed.iter().flat_map(|table| &table.indexes);
    for index in indexes.filter(|index| found.has_index(&index.name)) {
        let mut known = table.indexes.iter();
        match known.position(|known| known.name == index.name) {
            Some(at) if found.has_same_index(index) => table.indexes[at] = index.clone(),
            Some(_) => {}
            // If it is found with another definition, that one is in the way.
            None => table.indexes.push(index.clone()),
        }
    }
    let is_dropped = |index: &Index| passed.iter().any(|table| !table.indexes.contains(index));
    table
        .indexes
        .retain(|index| found.has_index(&index.name) || !is_dropped(index));
    table
}

/// The reasons against replacing tables: objects that would be lost with them, or that keep them,
/// and rights that this user lacks. The histories are with or without the additions that the
/// migration carries over.
pub(super) async fn find_attached(
    tx: &mut Transaction,
    histories: &HistoryPair,
    work: &Work,
) -> Result<Vec<MigrateError>, MigrateError> {
    let mut reasons = Vec::new();
    let replaced = replaced(&work.lens, &work.plans);
    let in_place = work
        .plans
        .iter()
        .filter(|plan| plan.strategy == Strategy::InPlace)
        .map(|plan| &plan.table.name);
    let mut lost = lost_objects(tx, histories, work, TableNames::Own).await?;
    for table in replaced.iter().chain(in_place) {
        let objects = match lost.remove(table) {
            Some(objects) => objects,
            None => find_blocking(tx, work, table).await?,
        };
        reasons.extend(refusal(table, objects));
        let rights = schema::missing_rights(tx, table)
            .await
            .about(in_catalog(table))?;
        if !rights.is_empty() {
            reasons.push(MigrateError::MissingRights {
                table: table.clone(),
                rights,
            });
        }
    }
    reasons.extend(lost_additions(work));
    Ok(reasons)
}

/// The additions of the owner that a migration would lose which goes down and up again for others
/// that are inserted: on the way up, tables and columns are made as they are declared.
fn lost_additions(work: &Work) -> Vec<MigrateError> {
    let legs: Vec<_> = work.lens.legs().collect();
    if !legs.iter().any(|leg| legs.contains(&leg.back())) {
        return Vec::new();
    }
    work.added
        .iter()
        .filter_map(|(table, added)| refusal(table, lost_of(work, table, added)))
        .collect()
}

/// The additions to a table that its successors lack. An index ends with its columns, and a column
/// with its table.
fn lost_of(work: &Work, table: &str, added: &Additions) -> Vec<AttachedObject> {
    let successors: Vec<_> = work
        .plans
        .iter()
        .filter(|plan| plan.succeeds(table))
        .collect();
    let has = |column: &String| successors.iter().any(|plan| plan.continues(table, column));
    let columns = added
        .columns
        .iter()
        .filter(|column| !successors.is_empty() && !has(&column.name));
    let columns = columns.map(|Column { name, .. }| {
        let removal = schema::drop_column(work.dialect, table, name);
        AttachedObject::new(format!("column {name}"), removal)
    });
    let known = successors.iter().flat_map(|plan| &plan.table.indexes);
    let known: Vec<_> = known.map(|index| &index.name).collect();
    let indexes = added
        .indexes
        .iter()
        .filter(|index| index.columns.iter().all(&has) && !known.contains(&&index.name));
    columns
        .chain(indexes.map(|index| lost_index(work.dialect, table, &index.name)))
        .collect()
}

/// An index that the successors of its table lack.
fn lost_index(dialect: Dialect, table: &str, index: &str) -> AttachedObject {
    let removal = schema::drop_index(dialect, table, index);
    AttachedObject::new(format!("index {index}"), removal)
}

/// The reason against a migration, if a table has such objects.
fn refusal(table: &str, objects: Vec<AttachedObject>) -> Option<MigrateError> {
    (!objects.is_empty()).then(|| MigrateError::Attached {
        table: table.to_owned(),
        objects,
    })
}

/// The objects that keep a column of a table from getting its wider type in place.
async fn find_blocking(
    tx: &mut Transaction,
    work: &Work,
    table: &str,
) -> Result<Vec<AttachedObject>, MigrateError> {
    let source = work.lens.source.tables.get(table);
    let plan = work.in_place(table);
    let widened: Vec<&String> = plan
        .into_iter()
        .flat_map(|plan| plan.widened(source, work.dialect))
        .map(|column| &column.name)
        .collect();
    if widened.is_empty() {
        return Ok(Vec::new());
    }
    let mut objects = schema::attached(tx, table).await.about(in_catalog(table))?;
    objects.retain(|object| {
        widened
            .iter()
            .any(|name| object.keeps_types_of.contains(name))
    });
    Ok(objects)
}

/// The objects of each replaced table that its successor cannot be given.
async fn lost_objects(
    tx: &mut Transaction,
    histories: &HistoryPair,
    work: &Work,
    names: TableNames,
) -> Result<BTreeMap<String, Vec<AttachedObject>>, MigrateError> {
    let replaced = replaced(&work.lens, &work.plans);
    let names: Vec<_> = replaced
        .iter()
        .map(|table| match names {
            TableNames::Own => table.clone(),
            TableNames::SetAside => side_table(table, work.from),
        })
        .collect();
    let read: Vec<_> = names.iter().map(String::as_str).collect();
    let found = schema::read_back_all(tx, &read).await?;
    let mut lost = BTreeMap::new();
    for (table, name) in replaced.into_iter().zip(&names) {
        if let Some(found) = found.get(name) {
            let attached = schema::attached(tx, name).await.about(in_catalog(name))?;
            let objects = lost_with(histories, work, &table, found, attached);
            lost.insert(table, objects);
        }
    }
    Ok(lost)
}

/// The objects of a table that its successor cannot be given: of those that are attached to it, and
/// its columns and indexes.
fn lost_with(
    histories: &HistoryPair,
    work: &Work,
    table: &str,
    found: &PhysicalTable,
    mut objects: Vec<AttachedObject>,
) -> Vec<AttachedObject> {
    if !work.plans.iter().any(|plan| plan.succeeds(table)) {
        objects.retain(|object| !object.ends_with_table);
    }
    let dialect = work.dialect;
    let Some(source) = work.lens.source.tables.get(table) else {
        return objects;
    };
    let known = as_it_may_be_found(dialect, work, source, Some(found));
    for column in &found.columns {
        // On PostgreSQL a generated column is among the objects.
        let is_listed = dialect == Dialect::Postgres && column.is_generated();
        if !is_listed && known.find_column(&column.name).is_none() {
            objects.push(as_object(dialect, table, column));
        }
    }
    for index in &found.indexes {
        let is_known = known.indexes.iter().any(|known| known.name == index.name);
        if !is_known && !histories.declares_index(table, &index.name) {
            objects.push(lost_index(dialect, table, &index.name));
        }
    }
    objects
}

/// A column that the migration does not know.
fn as_object(dialect: Dialect, table: &str, column: &PhysicalColumn) -> AttachedObject {
    let special = column
        .special
        .iter()
        .map(|special| format!(" {special}"))
        .collect::<String>();
    AttachedObject::new(
        format!("column {} of type {}{special}", column.name, column.kind),
        schema::drop_column(dialect, table, &column.name),
    )
}
