//! Runs a migration's row function over a batch: resolves the manifest's declarations against the
//! columns, shows each unit to its author, and appends what was written to the outcome. One pass, and
//! nothing is allocated for a row. A refused unit leaves fillers, never half of what it wrote.

use crate::columns::{Batch, Builder, Cell, NEW_ROW, Outcome, Refusal, Shape, View, Written};
use crate::manifest::{Access, Direction, Manifest};
use crate::migration::{Migration, Refused, Run};
use crate::translator::Fault;
use crate::unit::{Draft, Plan, Unit};

/// Runs `up` or `down` over a batch. `manifest` is the migration's own, passed so that a guest
/// builds it once and not at every call.
pub fn transform<M: Migration>(
    manifest: &Manifest,
    direction: Direction,
    run: &Run,
    batch: &Batch,
) -> Result<Outcome, Fault> {
    let units = check_units(manifest.accesses(direction), direction, batch)?;
    let plans = plan(manifest, direction, batch)?;
    let mut outputs: Vec<Output> = plans.iter().map(|plan| Output::new(plan, units)).collect();
    let mut refused = Vec::new();
    let mut residue = Vec::new();
    let mut unit = Unit::new(direction, &plans, manifest.leaves_residue);
    for index in 0..units {
        unit.open(index, batch.residue.get(index).and_then(Option::as_deref));
        let ran = match direction {
            Direction::Up => M::up(run, &mut unit),
            Direction::Down => M::down(run, &mut unit),
        };
        let (drafts, left) = unit.close();
        let complete = ran.and_then(|()| {
            plans.iter().zip(drafts).zip(&outputs).try_for_each(|((plan, draft), output)| output.check(plan, draft))
        });
        for ((plan, draft), output) in plans.iter().zip(drafts).zip(&mut outputs) {
            match complete {
                Ok(()) => output.append(plan, draft),
                Err(_) => output.fill(plan, index),
            }
        }
        if let Err(Refused { reason }) = complete {
            refused.push(Refusal { unit: index as u32, reason });
        } else if let Some(left) = left {
            residue.resize(index, None);
            residue.push(Some(left));
        }
    }
    if !residue.is_empty() {
        residue.resize(units, None);
    }
    let tables = outputs.into_iter().map(Output::finish).collect();
    Ok(Outcome { tables, refused, residue })
}

/// How many units the batch holds, once its tables agree on it.
fn check_units(accesses: &[Access], direction: Direction, batch: &Batch) -> Result<usize, Fault> {
    let declared = accesses.len();
    let given = batch.tables.len();
    if declared != given {
        return Err(Fault::new(format!(
            "the batch has {given} tables, the manifest declares {declared} for {direction}"
        )));
    }
    let mut counts = batch.tables.iter().map(|table| table.unit_offsets.len());
    let Some(offsets) = counts.next() else { return Ok(0) };
    let units = offsets.checked_sub(1).ok_or_else(|| Fault::new("the batch has no unit offsets"))?;
    if counts.any(|other| other != offsets) {
        return Err(Fault::new("the tables of the batch disagree on the number of units"));
    }
    if !batch.residue.is_empty() && batch.residue.len() != units {
        return Err(Fault::new("the batch has residue for another number of units"));
    }
    Ok(units)
}

fn plan<'b>(manifest: &'b Manifest, direction: Direction, batch: &'b Batch) -> Result<Vec<Plan<'b>>, Fault> {
    let accesses = manifest.accesses(direction).iter();
    accesses
        .zip(&batch.tables)
        .map(|(access, table)| {
            let rows = table.unit_offsets.last().map_or(0, |end| *end as usize);
            let name = &access.table;
            if table.columns.len() != access.reads.len() || !table.unit_offsets.is_sorted() {
                return Err(Fault::new(format!("the batch's `{name}` is not the one that the manifest declares")));
            }
            let views = table.columns.iter().zip(&access.reads).map(|(column, read)| {
                View::new(column, rows).ok_or_else(|| Fault::new(format!("column `{read}` of `{name}` is malformed")))
            });
            let views = views.collect::<Result<Vec<_>, Fault>>()?;
            let through = access.writes.iter().map(|write| access.reads.iter().position(|read| *read == write.column));
            let through: Vec<_> = through.collect();
            let kinds = access.writes.iter().zip(&through).map(|(write, through)| {
                let read = || through.filter(|_| rows > 0).map(|at| views[at].kind);
                manifest.written_kind(name, write).or_else(read)
            });
            let kinds = kinds.collect();
            Ok(Plan { access, unit_offsets: &table.unit_offsets, views, through, kinds })
        })
        .collect()
}

/// What one table gives back.
struct Output {
    shape: Option<Shape>,
    columns: Vec<Builder>,
}

impl Output {
    fn new(plan: &Plan<'_>, units: usize) -> Self {
        let rows = plan.unit_offsets[units] as usize;
        let shape = plan.access.reshapes.then(|| Shape { unit_offsets: vec![0], origins: Vec::with_capacity(rows) });
        let columns = plan.kinds.iter().map(|kind| Builder::new(*kind, rows)).collect();
        Self { shape, columns }
    }

    /// Refuses a unit in which a column was left out or took another kind than before.
    fn check(&self, plan: &Plan<'_>, draft: &Draft) -> Result<(), Refused> {
        let writes = plan.access.writes.len();
        for (at, builder) in self.columns.iter().enumerate() {
            let named = || format!("`{}` of `{}`", plan.access.writes[at].column, plan.access.table);
            let mut settled = builder.kind();
            for (row, slot) in draft.slots.iter().enumerate().filter(|(_, slot)| !slot.removed) {
                let Some(cell) = draft.written(row * writes + at) else {
                    if slot.origin == NEW_ROW || plan.through[at].is_none() {
                        return Err(Refused::new(format!("{} was declared and not written", named())));
                    }
                    continue;
                };
                match (cell.kind(), settled) {
                    (Some(given), Some(before)) if given != before => {
                        return Err(Refused::new(format!("{} is {before} and was written as {given}", named())));
                    }
                    (given, before) => settled = before.or(given),
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, plan: &Plan<'_>, draft: &Draft) {
        let writes = plan.access.writes.len();
        for (row, slot) in draft.slots.iter().enumerate().filter(|(_, slot)| !slot.removed) {
            for (at, builder) in self.columns.iter_mut().enumerate() {
                let through =
                    || plan.through[at].map_or(Cell::Null, |read| plan.views[read].cell(slot.origin as usize));
                builder.push(draft.written(row * writes + at).unwrap_or_else(through));
            }
            if let Some(shape) = &mut self.shape {
                shape.origins.push(slot.origin);
            }
        }
        self.end_unit();
    }

    /// A refused unit keeps its rows where their number is fixed, and has none where it is not.
    fn fill(&mut self, plan: &Plan<'_>, unit: usize) {
        if self.shape.is_none() {
            for _ in plan.unit_offsets[unit]..plan.unit_offsets[unit + 1] {
                self.columns.iter_mut().for_each(Builder::push_filler);
            }
        }
        self.end_unit();
    }

    fn end_unit(&mut self) {
        if let Some(shape) = &mut self.shape {
            shape.unit_offsets.push(shape.origins.len() as u32);
        }
    }

    fn finish(self) -> Written {
        Written { shape: self.shape, columns: self.columns.into_iter().map(Builder::finish).collect() }
    }
}

#[cfg(test)]
mod tests;
