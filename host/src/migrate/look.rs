//! What a start decides before it writes anything, and why it is refused: the versions, the modules that ran, the way between the
//! two versions, and what [`examine`] finds on it. Reads only.

use std::collections::{BTreeMap, BTreeSet};

use super::decide::{Decision, Found, Intent, decide};
use super::examine::{self, layouts_here};
use super::state::{self, Phase};
use super::{Context, MigrateError, Work, layout_history, residue};
use crate::database::Transaction;
use crate::layout::history::LayoutHistory;
use crate::layout::manifest::DataVersion;

/// What a start with this intent may do.
///
/// # Errors
/// An obstacle, or a database that cannot be read. Nothing was written.
pub async fn look(context: &Context, intent: Intent) -> Result<Decision, MigrateError> {
    let mut reader = context.database.read().await?;
    let layouts = layout_history(&context.migrations)?;
    let found = state::found(&mut reader).await?;
    let decision = decide(&found, intent).explained(|version| layouts.at(version).is_some());
    if !matches!(decision, Decision::ShutDown(_)) && found != Found::Fresh {
        let current = state::current_of(&found);
        check_history(context, current, &state::applied(&mut reader).await?)?;
        check_inserted(context, current, &state::applied_versions(&mut reader).await?)?;
    }
    MigrateError::refuse(reasons_against(context, &mut reader, &decision).await?)?;
    Ok(decision)
}

/// The reasons against a decision. None while tables still have names or rows from before a migration that is complete
/// otherwise: what completes it comes first.
async fn reasons_against(
    context: &Context,
    tx: &mut Transaction,
    decision: &Decision,
) -> Result<Vec<MigrateError>, MigrateError> {
    let awaits_completion = state::phase(tx).await?.is_some_and(Phase::awaits_completion);
    match *decision {
        Decision::ShutDown(_) => Ok(Vec::new()),
        _ if awaits_completion => Ok(Vec::new()),
        Decision::Begin { from, to } | Decision::Continue { from, to } => reasons_between(context, tx, from, to).await,
        Decision::Serve | Decision::Stay { .. } => {
            let at = state::current_of(&state::found(tx).await?);
            reasons_between(context, tx, at, at).await
        }
    }
}

/// The reasons against a migration from the version of the database to another, or against serving it where it is.
pub(super) async fn reasons_between(
    context: &Context,
    tx: &mut Transaction,
    from: DataVersion,
    to: DataVersion,
) -> Result<Vec<MigrateError>, MigrateError> {
    let layouts = layout_history(&context.migrations)?;
    check_ends(context, &layouts, from, to)?;
    if from == to {
        return examine::served(tx, &layouts, from).await;
    }
    let layouts = layouts_here(context, tx, from).await?;
    let restorable = residue::restorable(tx, from, to).await?;
    let work = Work::new(context, &layouts, from, to, restorable)?;
    examine::examine(tx, &layouts, &work).await
}

/// The objects for which a later migration could not replace tables of a database as it is now: those that a rollback would meet.
///
/// # Errors
/// The catalog does not lead from one version to the other, or the database cannot be read.
pub async fn reasons_against_rollback(
    context: &Context,
    from: DataVersion,
    to: DataVersion,
) -> Result<Vec<MigrateError>, MigrateError> {
    let mut reader = context.database.read().await?;
    let at = state::current_of(&state::found(&mut reader).await?);
    let layouts = layouts_here(context, &mut reader, at).await?;
    let work = Work::new(context, &layouts, from, to, BTreeSet::new())?;
    examine::hanging(&mut reader, &layouts, &work).await
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

/// Checks that the catalog has no migration below those that ran which was not there then: it would count as run. Above the last
/// version that a host worked with, another BBS may have run what the catalog has.
fn check_inserted(
    context: &Context,
    current: DataVersion,
    applied: &BTreeSet<DataVersion>,
) -> Result<(), MigrateError> {
    let Some(&last) = applied.last() else { return Ok(()) };
    let manifests = context.migrations.iter().map(|migration| migration.manifest());
    let mut passed = manifests.filter(|manifest| manifest.version <= current.min(last));
    match passed.find(|manifest| !applied.contains(&manifest.version)) {
        Some(manifest) => {
            Err(MigrateError::Inserted { version: manifest.version, name: manifest.name.clone(), current })
        }
        None => Ok(()),
    }
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
