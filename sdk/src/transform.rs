//! Runs a migration's row functions over a batch: resolves the manifest's declarations against the
//! columns, shows each unit to the row function, and builds columns of what it wrote. Allocates
//! nothing per row. The rows of a refused unit become filler values.

use crate::columns::{Batch, Outcome, Refusal, Shape, View, Written};
use crate::manifest::{Access, Direction, Manifest};
use crate::migration::{Migration, Run};
use crate::refused::Refused;
use crate::translator::Fault;
use crate::unit::Unit;
use crate::unit::draft::{Draft, Plan};

/// Runs `up` or `down` over a batch. `manifest` is the migration's own, which a guest builds once
/// and not for every call.
///
/// # Errors
/// If the batch does not match the manifest. A refused unit is no error, but part of the outcome.
pub fn transform<M: Migration>(
    manifest: &Manifest,
    direction: Direction,
    run: &Run,
    batch: &Batch,
) -> Result<Outcome, Fault> {
    let units = check_units(manifest.accesses(direction), direction, batch)?;
    let plans = plan(manifest, direction, batch)?;
    let mut refused = Vec::new();
    let mut residue = Vec::new();
    let mut unit = Unit::new(direction, &plans, manifest.leaves_residue);
    for index in 0..units {
        unit.open(index, batch.residue.get(index).and_then(Option::as_deref));
        let ran = match direction {
            Direction::Up => M::up(run, &mut unit),
            Direction::Down => M::down(run, &mut unit),
        };
        match unit.close(index, ran) {
            Err(Refused { reason }) => refused.push(Refusal {
                unit: index as u32,
                reason,
            }),
            Ok(None) => {}
            Ok(left) => {
                residue.resize(index, None);
                residue.push(left);
            }
        }
    }
    if !residue.is_empty() {
        residue.resize(units, None);
    }
    let tables = unit
        .finish()
        .zip(&plans)
        .map(|(draft, plan)| written(draft, plan))
        .collect();
    Ok(Outcome {
        tables,
        refused,
        residue,
    })
}

fn written(draft: Draft, plan: &Plan<'_>) -> Written {
    let columns = (0..plan.access.writes.len())
        .map(|at| draft.column(plan, at))
        .collect();
    let shape = plan.access.reshapes.then(|| Shape {
        origins: draft
            .slots
            .iter()
            .filter(|slot| !slot.removed)
            .map(|slot| slot.origin)
            .collect(),
        unit_offsets: draft.ends,
    });
    Written { shape, columns }
}

/// Returns the number of units, on which the batch's tables have to agree.
fn check_units(accesses: &[Access], direction: Direction, batch: &Batch) -> Result<usize, Fault> {
    let declared = accesses.len();
    let given = batch.tables.len();
    if declared != given {
        return Err(Fault::new(format!(
            "the batch has {given} tables, the manifest declares {declared} for {direction}"
        )));
    }
    let mut counts = batch.tables.iter().map(|table| table.unit_offsets.len());
    let Some(offsets) = counts.next() else {
        return Ok(0);
    };
    let units = offsets
        .checked_sub(1)
        .ok_or_else(|| Fault::new("the batch has no unit offsets"))?;
    if counts.any(|other| other != offsets) {
        return Err(Fault::new(
            "the tables of the batch disagree on the number of units",
        ));
    }
    if !batch.residue.is_empty() && batch.residue.len() != units {
        return Err(Fault::new(
            "the batch has residue for another number of units",
        ));
    }
    Ok(units)
}

fn plan<'b>(
    manifest: &'b Manifest,
    direction: Direction,
    batch: &'b Batch,
) -> Result<Vec<Plan<'b>>, Fault> {
    let accesses = manifest.accesses(direction).iter();
    accesses
        .zip(&batch.tables)
        .map(|(access, table)| {
            let rows = table.unit_offsets.last().map_or(0, |end| *end as usize);
            let name = &access.table;
            if table.columns.len() != access.reads.len() || !table.unit_offsets.is_sorted() {
                return Err(Fault::new(format!(
                    "the batch's `{name}` is not the one that the manifest declares"
                )));
            }
            let views = table
                .columns
                .iter()
                .zip(&access.reads)
                .map(|(column, read)| {
                    View::new(column, rows).ok_or_else(|| {
                        Fault::new(format!("column `{read}` of `{name}` is malformed"))
                    })
                });
            let views = views.collect::<Result<Vec<_>, Fault>>()?;
            let through = access
                .writes
                .iter()
                .map(|write| access.reads.iter().position(|read| read == write));
            let through: Vec<_> = through.collect();
            let kinds = through.iter().enumerate().map(|(place, through)| {
                let read = || through.filter(|_| rows > 0).map(|at| views[at].encoding);
                manifest.written_encoding(access, place).or_else(read)
            });
            let kinds = kinds.collect();
            let removes_rows = manifest.removes_rows;
            Ok(Plan {
                access,
                unit_offsets: &table.unit_offsets,
                views,
                through,
                kinds,
                removes_rows,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
