//! The first steps of a migration: recording its target, creating the tables that rows are copied
//! into, and discarding a copy that cannot be trusted. Each is durable and safe to repeat.

use std::sync::Arc;

use bbs_database::schema::{self, PhysicalTable};
use bbs_database::{StatementResult, Transaction};
use bbs_lens::layout::history::Leg;
use bbs_lens::layout::manifest::Direction;
use bbs_lens::layout::schema::{Index, Table};

use super::cut_over::{self, BegunBy};
use super::lock_waits::change_schema;
use super::plan::TablePlan;
use super::state::{self, Phase, Underway, changed_units, residue, runs};
use super::{
    Context, Job, MigrateError, OnUnreadable, Work, fault, fresh, quarantine, same_schema,
    undo_abandoned,
};
use crate::lock::fence::Fence;

/// Records the target. An earlier copy is resumed only if it is of the same modules, its tables have
/// the columns of the plan, to which the owner may have added some, it leaves out no unit at which
/// this start has to stop, and no other host has held the lock since, which might have written to
/// the originals. Diego's BBS might have, too, which leaves no trace. Verification finds it; where
/// clients write meanwhile, only if each copy is compared with its original.
pub(super) async fn begin(
    context: &Context,
    fence: &Fence,
    work: Work,
) -> Result<Arc<Job>, MigrateError> {
    context.progress.enter("begin", work.describe(), None);
    let token = fence.token();
    let mut tx = fence.begin().await?;
    quarantine::remove_stopped(&mut tx).await?;
    let found = state::underway(&mut tx).await?;
    let is_resumed = found.as_ref().is_some_and(|found| {
        found.phase == Phase::Copying
            && found.fingerprint == work.fingerprint()
            && (found.token == token
                || found.token + 1 == token && (!work.is_online || work.compares_all_copies()))
    });
    // The policy may be another one than that of the start which left units out.
    let may_omit = work.on_unreadable == OnUnreadable::Quarantine;
    let is_resumed = is_resumed
        && (may_omit || !quarantine::has_pending(&mut tx).await?)
        && have_planned_columns(&mut tx, &work).await?;
    // A migration whose version is durable stays finished, whatever it has not removed yet.
    let abandoned = found.filter(|found| !is_resumed && !found.phase.has_arrived());
    if let Some(found) = &abandoned {
        state::write_phase(&mut tx, found.clone(), Phase::Begun).await?;
    }
    tx.commit().await.about("bbs_migration")?;
    if !is_resumed {
        // Clients wait for the begin of an online migration: `prepare` drops what is in its way.
        if !work.is_online {
            state::drop_leftovers(context, fence, Some([work.from, work.to])).await?;
        }
        forget_copies(context, fence).await?;
        if let Some(found) = abandoned.filter(|found| !passes(&work, found)) {
            undo_abandoned(context, fence, &found).await?;
        }
        if work.from == 0 {
            fresh::forget(context, fence).await?;
        }
    }
    let mut tx = fence.begin().await?;
    // A command may change the quarantine beside a host that begins a migration.
    state::lock_version(&mut tx, fence.is_in_cluster()).await?;
    let arguments = work.draw_arguments(&mut tx, context.now_ns).await?;
    if !is_resumed {
        state::forget_underway(&mut tx).await?;
        runs::begin(&mut tx, context, work.from, work.to).await?;
    }
    let job = Job {
        work,
        arguments,
        token,
        is_resumed,
    };
    let phase = if is_resumed {
        Phase::Copying
    } else {
        Phase::Begun
    };
    job.write_phase(&mut tx, phase).await?;
    state::write_version(&mut tx, job.from, job.to).await?;
    fault::point(fault::BEFORE_BEGIN);
    tx.commit()
        .await
        .about("the row `version` of configurations")?;
    fault::point(fault::AFTER_BEGIN);
    Ok(Arc::new(job))
}

/// Whether a migration repeats the changes that another one made ahead of its cut-over: it has the
/// same ends, or passes the version of the other.
fn passes(work: &Work, other: &Underway) -> bool {
    let to_its_end = Leg {
        version: other.to,
        direction: Direction::Up,
    };
    (work.from, work.to) == (other.from, other.to) || work.lens.legs().any(|leg| leg == to_its_end)
}

/// Whether the copies that an earlier start has begun have the columns that they have in this plan.
async fn have_planned_columns(tx: &mut Transaction, work: &Work) -> Result<bool, MigrateError> {
    for plan in work.copied_plans() {
        let planned = PhysicalTable {
            indexes: Vec::new(),
            ..schema::expected(work.dialect, &plan.table)
        };
        let has_them = schema::read_back(tx, &plan.staged(work.to))
            .await?
            .is_some_and(|found| {
                found.columns.len() == planned.columns.len()
                    && schema::differences(&found, &planned).is_empty()
            });
        if !has_them {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the residue, the quarantine entries and the changed units of copies that are given up.
/// Nothing needs them any more, so they may be removed in transactions of their own, before the one
/// that records a phase.
async fn forget_copies(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    quarantine::forget_left_out(fence).await?;
    changed_units::forget_all(fence).await?;
    residue::remove_useless(context, fence).await
}

/// Creates the tables that rows are copied into; for an online migration, in the place of those that
/// an earlier one has left. Safe to repeat.
pub(super) async fn prepare(
    context: &Context,
    fence: &Fence,
    job: &Job,
) -> Result<(), MigrateError> {
    context.progress.enter("prepare", job.describe(), None);
    if job.is_online {
        // Another client may have locked them, which must not keep a start from serving.
        state::drop_leftovers(context, fence, Some([job.from, job.to])).await?;
    }
    let mut reader = context.database.read().await?;
    let dialect = reader.dialect();
    let mut statements = Vec::new();
    if job.from == 0 {
        let versions = context.manifests().map(|manifest| manifest.version);
        let layouts = context.layouts()?;
        statements = fresh::clear(&mut reader, &layouts, versions).await?;
    }
    for plan in &job.plans {
        for name in plan.new_names(&job.lens, job.from, job.to) {
            statements.extend(make_way(&mut reader, &name).await?);
        }
        if plan.is_copied() {
            let staged = plan.staged(job.to);
            let options = plan.options(&mut reader, &job.lens, &staged).await;
            let options = options.about("the options of a table")?;
            let indexes = indexes_of_empty(fence, plan);
            statements.extend(super::statements::copy(
                dialect, plan, &staged, &options, indexes,
            ));
        }
    }
    drop(reader);
    change_schema(context, fence, &statements).await?;
    let mut tx = fence.begin().await?;
    for plan in job.copied_plans() {
        let staged = plan.staged(job.to);
        let found = schema::read_back(&mut tx, &staged).await?;
        let indexes = indexes_of_empty(fence, plan).to_vec();
        same_schema(
            dialect,
            &staged,
            found,
            &Table {
                indexes,
                ..plan.table.clone()
            },
        )?;
    }
    job.write_phase(&mut tx, Phase::Copying).await?;
    fault::point(fault::BEFORE_PREPARE);
    tx.commit().await.about("the new tables")?;
    fault::point(fault::AFTER_PREPARE);
    Ok(())
}

/// The indexes of a copy that are made while it is empty. Filling it is slower with them; but in a
/// cluster all commits wait for a statement that changes the schema, until each node has run it.
fn indexes_of_empty<'a>(fence: &Fence, plan: &'a TablePlan) -> &'a [Index] {
    if fence.is_in_cluster() {
        &plan.table.indexes
    } else {
        &[]
    }
}

/// An empty table of the same name is dropped; one with rows is an error.
async fn make_way(tx: &mut Transaction, table: &str) -> Result<Option<String>, MigrateError> {
    if !state::exists(tx, table).await? {
        return Ok(None);
    }
    fresh::is_empty(tx, table).await?;
    Ok(Some(schema::drop_table(tx.dialect(), table)))
}

/// Discards a copy that cannot be trusted.
pub(super) async fn start_over(
    context: &Context,
    fence: &Fence,
    job: &Job,
) -> Result<(), MigrateError> {
    abandon(context, fence, job).await?;
    remove_copies(context, fence, job).await
}

/// Records that the copies of a migration are abandoned: no start resumes them.
pub(super) async fn abandon(
    context: &Context,
    fence: &Fence,
    job: &Job,
) -> Result<(), MigrateError> {
    context.progress.enter("start-over", job.describe(), None);
    let mut tx = fence.begin().await?;
    state::forget_underway(&mut tx).await?;
    job.write_phase(&mut tx, Phase::Begun).await?;
    tx.commit().await.about("bbs_migration")?;
    Ok(())
}

/// Removes abandoned copies and what belongs to them, and undoes what was changed ahead. Safe to
/// repeat. Clients may read and write the originals meanwhile.
pub(super) async fn remove_copies(
    context: &Context,
    fence: &Fence,
    job: &Job,
) -> Result<(), MigrateError> {
    forget_copies(context, fence).await?;
    state::drop_leftovers(context, fence, Some([job.from, job.to])).await?;
    cut_over::undo_ahead(context, fence, job, BegunBy::TheseModules).await
}
