//! The decision of a start before it writes anything, and the reasons to refuse it: the versions,
//! the modules that ran, the way between the two versions, and what [`examine`] finds on it. Reads
//! only.

pub(super) mod examine;
pub(super) mod in_the_way;
pub(super) mod readable;
pub(super) mod unit_counts;

use std::collections::{BTreeMap, BTreeSet};

use bbs_database::{Dialect, Transaction};
use bbs_lens::layout::history::Way;
use bbs_lens::layout::manifest::{DataVersion, Direction, Manifest};
use bbs_lens::layout::migration_set::MigrationSet;
use bbs_lens::layout::schema::Layout;

use super::decide::{Decision, Found, Intent, decide};
use super::state::{self, Phase, found, history_pair};
use super::{Context, HistoryPair, MigrateError, Work};

/// The decision of a start with this intent.
///
/// # Errors
/// An obstacle, or a database that cannot be read. Nothing was written.
pub async fn look(context: &Context, intent: Intent) -> Result<Decision, MigrateError> {
    let mut reader = context.database.read().await?;
    let found = found::read(&mut reader).await?;
    let decision = decide(&found, intent).explained(|version| context.migration(version).is_some());
    if !matches!(decision, Decision::ShutDown(_)) && found != Found::Fresh {
        let current = state::current_of(&found);
        check_history(context, current, &state::applied(&mut reader).await?)?;
        let wanted = match decision {
            Decision::Begin { to, .. } | Decision::Continue { to, .. } => to,
            Decision::Serve | Decision::Stay { .. } | Decision::ShutDown(_) => current,
        };
        let ran = history_pair::ran(context, &mut reader).await?;
        check_inserted(context, &ran, wanted)?;
    }
    MigrateError::refuse(reasons_against(context, &mut reader, &decision).await?)?;
    Ok(decision)
}

/// The reasons against a decision. None while tables still have names or rows from before a
/// migration that is complete otherwise: what completes it comes first.
async fn reasons_against(
    context: &Context,
    tx: &mut Transaction,
    decision: &Decision,
) -> Result<Vec<MigrateError>, MigrateError> {
    let awaits_completion = state::phase(tx)
        .await?
        .is_some_and(Phase::awaits_completion);
    match *decision {
        Decision::ShutDown(_) => Ok(Vec::new()),
        _ if awaits_completion => Ok(Vec::new()),
        Decision::Begin { from, to } | Decision::Continue { from, to } => {
            reasons_between(context, tx, from, to).await
        }
        Decision::Serve | Decision::Stay { .. } => {
            let at = state::current_of(&found::read(tx).await?);
            let histories = HistoryPair::declared(context, tx).await?;
            check_ends(context, &histories, at, at)?;
            examine::examine_served(tx, &histories.ran, at).await
        }
    }
}

/// The reasons against a migration from the version of the database to another, or against serving
/// it there.
async fn reasons_between(
    context: &Context,
    tx: &mut Transaction,
    from: DataVersion,
    to: DataVersion,
) -> Result<Vec<MigrateError>, MigrateError> {
    let declared = HistoryPair::declared(context, tx).await?;
    check_ends(context, &declared, from, to)?;
    if from == to {
        return examine::examine_served(tx, &declared.ran, from).await;
    }
    let histories = HistoryPair::here(context, tx).await?;
    let way = histories.way(from, to);
    let mut work = Work::planned(context, tx, way).await?;
    let unfinished = passed_unfinished(tx, &histories, &work).await?;
    work.passed.extend(unfinished);
    examine::examine(tx, &histories, &work).await
}

/// The layouts that an unfinished migration from the same version passes. A migration on another way
/// undoes the changes made ahead when it begins.
async fn passed_unfinished(
    tx: &mut Transaction,
    histories: &HistoryPair,
    work: &Work,
) -> Result<Vec<Layout>, MigrateError> {
    if work.dialect != Dialect::Mysql {
        return Ok(Vec::new());
    }
    let unfinished = state::underway(tx).await?.filter(|found| {
        let is_known = histories.have(found.from, found.to);
        is_known && found.from == work.from && !found.phase.has_arrived()
    });
    let Some(unfinished) = unfinished else {
        return Ok(Vec::new());
    };
    let way = histories.way(unfinished.from, unfinished.to);
    Ok(way.passed().cloned().collect())
}

/// The objects for which a later migration could not replace tables of a database as it is now:
/// those that a rollback would meet.
///
/// # Errors
/// The catalog does not lead from one version to the other, or the database cannot be read.
pub async fn reasons_against_rollback(
    context: &Context,
    from: DataVersion,
    to: DataVersion,
) -> Result<Vec<MigrateError>, MigrateError> {
    let mut reader = context.database.read().await?;
    let histories = HistoryPair::here(context, &mut reader).await?;
    // Of the history that the database has at the end of the way up.
    let work = Work::new(
        context,
        Way::within(&histories.catalog, from, to),
        BTreeSet::new(),
    )?;
    examine::find_attached(&mut reader, &histories, &work).await
}

/// The layout of a database at its version, for a catalog with every module that ran there.
///
/// # Errors
/// The catalog lacks the version or a module that ran, or has another in its place; or the
/// database cannot be read.
pub async fn layout_that_ran(
    context: &Context,
    current: DataVersion,
) -> Result<Layout, MigrateError> {
    layout_read_in(context, &mut context.database.read().await?, current).await
}

/// As [`layout_that_ran`], read in a transaction.
pub(super) async fn layout_read_in(
    context: &Context,
    tx: &mut Transaction,
    current: DataVersion,
) -> Result<Layout, MigrateError> {
    let unknown = MigrateError::UnknownVersion { version: current };
    if current > 0 && context.migration(current).is_none() {
        return Err(unknown);
    }
    check_history(context, current, &state::applied(tx).await?)?;
    let declared = HistoryPair::declared(context, tx).await?;
    declared.ran.at(current).cloned().ok_or(unknown)
}

/// Checks that the catalog has the modules that ran here, and that they are the same.
fn check_history(
    context: &Context,
    current: DataVersion,
    applied: &BTreeMap<DataVersion, String>,
) -> Result<(), MigrateError> {
    for (&version, ran) in applied {
        let ran = ran.clone();
        match context
            .migration(version)
            .map(|migration| migration.digest())
        {
            Some(catalog) if catalog == ran => {}
            Some(catalog) => {
                return Err(MigrateError::DigestChanged {
                    version,
                    ran,
                    catalog: catalog.to_owned(),
                });
            }
            None if version <= current => {
                return Err(MigrateError::RanAndIsMissing { version, ran });
            }
            // The version says that it did not run: another program set it back.
            None => {}
        }
    }
    Ok(())
}

/// Checks that the version to which the database is taken, or at which it is served, does not mean
/// other migrations than those that ran: the catalog may have inserted some. A version that it did
/// not have before can mean them.
fn check_inserted(
    context: &Context,
    ran: &MigrationSet,
    wanted: DataVersion,
) -> Result<(), MigrateError> {
    let wanted = history_pair::catalog_migrations(context).up_to(wanted);
    let Some(version) = ran
        .inserted(&wanted)
        .next()
        .filter(|_| ran.contradicts(&wanted))
    else {
        return Ok(());
    };
    let inserted = context.migration(version);
    let name = inserted.map_or_else(String::new, |inserted| inserted.manifest().name.clone());
    Err(MigrateError::Inserted {
        version,
        name,
        current: ran.newest(),
        wanted: wanted.newest(),
    })
}

/// Checks that the histories have both versions, and that every migration can be reversed that the
/// way goes down through.
pub(super) fn check_ends(
    context: &Context,
    histories: &HistoryPair,
    from: DataVersion,
    to: DataVersion,
) -> Result<(), MigrateError> {
    if histories.ran.at(from).is_none() {
        return Err(MigrateError::UnknownVersion { version: from });
    }
    if histories.catalog.at(to).is_none() {
        return Err(MigrateError::UnknownTarget { version: to });
    }
    let legs = histories.way(from, to).legs();
    let is_undone = |version| {
        legs.iter()
            .any(|leg| leg.version == version && leg.direction == Direction::Down)
    };
    check_reversible(
        context
            .manifests()
            .filter(|manifest| is_undone(manifest.version)),
    )
}

/// Checks that every migration between a version and a lower one of a catalog can be reversed.
///
/// # Errors
/// A migration on the way is not reversible; the error names the lowest one.
pub fn check_way_back<'a>(
    manifests: impl IntoIterator<Item = &'a Manifest>,
    from: DataVersion,
    to: DataVersion,
) -> Result<(), MigrateError> {
    check_reversible(
        manifests
            .into_iter()
            .filter(|manifest| manifest.version > to && manifest.version <= from),
    )
}

fn check_reversible<'a>(
    undone: impl IntoIterator<Item = &'a Manifest>,
) -> Result<(), MigrateError> {
    match undone.into_iter().find(|manifest| !manifest.reversible) {
        Some(manifest) => Err(MigrateError::NotReversible {
            version: manifest.version,
            name: manifest.name.clone(),
        }),
        None => Ok(()),
    }
}
