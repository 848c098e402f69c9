//! Finds what has a name that a migration needs: for a table that it creates, for an original that
//! it sets aside, and for the columns and indexes that a table gets; and the names of indexes that
//! an import needs. Reads only.

use std::collections::BTreeMap;

use bbs_database::schema::{self, PhysicalTable};
use bbs_database::{Dialect, StatementResult, Transaction};
use bbs_lens::layout::history::LayoutHistory;
use bbs_lens::layout::schema::{Layout, Table};

use crate::migrate::error::in_catalog;
use crate::migrate::plan::{Strategy, TablePlan, replaced, side_table};
use crate::migrate::{HistoryPair, MigrateError, Work, state};

/// The names that the migration needs are free, or those of empty tables, which it may drop; those
/// of replaced tables are free, and so are those of new columns and indexes.
pub(crate) async fn check(
    tx: &mut Transaction,
    histories: &HistoryPair,
    work: &Work,
    reasons: &mut Vec<MigrateError>,
) -> Result<(), MigrateError> {
    let recorded = state::side_tables(tx).await?;
    for name in &recorded {
        let mut objects = schema::attached(tx, name).await.about(in_catalog(name))?;
        objects.retain(|object| !object.ends_with_table);
        if !objects.is_empty() {
            reasons.push(MigrateError::AttachedToLeftover {
                table: name.clone(),
                objects,
            });
        }
    }
    let names = work
        .plans
        .iter()
        .flat_map(|plan| plan.new_names(&work.lens, work.from, work.to));
    let names: Vec<_> = names.filter(|name| !recorded.contains(name)).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut found = state::relations(tx, &names).await?;
    for name in names {
        let Some(relation) = found.remove(name) else {
            continue;
        };
        if let Some(reason) = state::not_a_table(name, relation) {
            reasons.push(reason);
        } else if state::count(tx, name).await? > 0 {
            let table = name.to_owned();
            reasons.push(MigrateError::TableInTheWay { table });
        }
    }
    let replaced = replaced(&work.lens, &work.plans).into_iter();
    let aside = replaced.map(|name| side_table(&name, work.from));
    let aside: Vec<_> = aside.filter(|name| !recorded.contains(name)).collect();
    let aside: Vec<_> = aside.iter().map(String::as_str).collect();
    for name in state::relations(tx, &aside).await?.into_keys() {
        reasons.push(in_the_way(name, "another object".to_owned()));
    }
    let names: Vec<_> = work
        .plans
        .iter()
        .flat_map(|plan| new_index_names(work, plan))
        .collect();
    let holders = holders(tx, &names).await?;
    for plan in &work.plans {
        for name in new_index_names(work, plan) {
            if let Some(holder) = holders.get(&name)
                && !lets_go(histories, work, plan, &name, holder, &recorded)
            {
                reasons.push(held(&name, holder));
            }
        }
    }
    Ok(())
}

/// The names of the indexes of a layout are free, or those of indexes of the catalog's tables,
/// which are dropped before those of the layout are created.
pub(crate) async fn check_of_new_tables(
    tx: &mut Transaction,
    layouts: &LayoutHistory,
    layout: &Layout,
) -> Result<(), MigrateError> {
    let dialect = tx.dialect();
    let tables = layout.tables.values();
    let names: Vec<_> = tables
        .flat_map(|table| index_names(dialect, table))
        .collect();
    let dropped = layouts.table_names();
    let holders = holders(tx, &names).await?;
    let reasons = holders
        .iter()
        .filter(|(_, holder)| !dropped.contains(holder.as_str()))
        .map(|(name, holder)| held(name, holder));
    MigrateError::refuse(reasons.collect())
}

/// By name of an index, the table whose index has it, or the object that has it.
async fn holders(
    tx: &mut Transaction,
    names: &[String],
) -> Result<BTreeMap<String, String>, MigrateError> {
    Ok(schema::holders_of_index_names(tx, names)
        .await
        .about("the indexes of this schema")?)
}

/// The reason against an index whose name `holder` has.
fn held(name: &str, holder: &str) -> MigrateError {
    let object = if holder == name {
        "another object".to_owned()
    } else {
        format!("an index of table {holder}")
    };
    in_the_way(name, object)
}

fn in_the_way(name: &str, object: String) -> MigrateError {
    MigrateError::NameInTheWay {
        name: name.to_owned(),
        object,
    }
}

/// The columns and indexes of a table whose names are equal, for the server, to those of others that
/// it gets.
pub(crate) fn alike(work: &Work, table: &str, found: &PhysicalTable) -> Vec<MigrateError> {
    let is_changed = |plan: &&TablePlan| {
        plan.strategy != Strategy::Untouched && plan.replaces(&work.lens) == Some(table)
    };
    let plans = work.plans.iter().filter(is_changed);
    plans
        .flat_map(|plan| alike_in(work.dialect, table, plan, found))
        .collect()
}

fn alike_in(
    dialect: Dialect,
    table: &str,
    plan: &TablePlan,
    found: &PhysicalTable,
) -> Vec<MigrateError> {
    let mut reasons = Vec::new();
    let mut compare = |kind: &str, there: &str, new: &str| {
        if there != new && schema::is_same_name(dialect, there, new) {
            reasons.push(in_the_way(new, format!("{kind} {there} of table {table}")));
        }
    };
    for there in &found.columns {
        for new in &plan.table.columns {
            compare("column", &there.name, &new.name);
        }
    }
    for there in &found.indexes {
        for new in &plan.table.indexes {
            compare("index", &there.name, &new.name);
        }
    }
    // One of them is the owner's, of a table that was renamed since.
    for (at, new) in plan.table.indexes.iter().enumerate() {
        if plan.table.indexes[..at]
            .iter()
            .any(|index| index.name == new.name)
        {
            reasons.push(in_the_way(&new.name, format!("an index of table {table}")));
        }
    }
    reasons
}

/// The names of the indexes that are created for a table, with that of its primary key.
fn new_index_names(work: &Work, plan: &TablePlan) -> Vec<String> {
    let table = &plan.table;
    match plan.strategy {
        Strategy::Untouched => Vec::new(),
        Strategy::InPlace => {
            let (_, new, _) = plan.additions(work.lens.source.tables.get(&table.name));
            new.into_iter().map(|index| index.name).collect()
        }
        Strategy::Create | Strategy::Copy => index_names(work.dialect, table),
    }
}

/// The names of the indexes of a table, with that of its primary key.
fn index_names(dialect: Dialect, table: &Table) -> Vec<String> {
    let indexes = table.indexes.iter();
    indexes
        .map(|index| index.name.clone())
        .chain(schema::name_of_key(dialect, &table.name))
        .collect()
}

/// Whether a new index may have the name that something else has, where the names of indexes are
/// those of the whole schema. An index of the same table is examined with that.
fn lets_go(
    histories: &HistoryPair,
    work: &Work,
    plan: &TablePlan,
    name: &str,
    holder: &str,
    recorded: &[String],
) -> bool {
    let lens = &work.lens;
    let is_the_same = holder == plan.table.name || Some(holder) == plan.replaces(lens);
    let is_dropped = recorded.iter().any(|table| table == holder)
        || holder == plan.staged(work.to)
        || work.from == 0 && histories.catalog.table_names().contains(holder);
    let has_index = |table: &Table| table.indexes.iter().any(|index| index.name == name);
    // The cut-over takes it from that table before it creates others.
    let is_moved = (replaced(lens, &work.plans).contains(holder)
        || work.in_place(holder).is_some())
        && lens.source.tables.get(holder).is_some_and(has_index)
        && !lens
            .target
            .tables
            .values()
            .any(|table| table.name != plan.table.name && has_index(table));
    is_the_same || is_dropped || is_moved
}
