//! Calls a row function for a batch, and halves a batch that fails until each unit at fault is
//! alone: the only search for failing units there is. A batch that is only too large for one call
//! passes in halves.

use super::Search;
use super::budget::BatchBudget;
use super::error::{FailedStep, LensError, StepError};
use super::transform::Transform;
use crate::layout::columns::{
    Batch, ColumnData, NEW_ROW, Outcome, Refusal, Shape, TableData, Written,
};
use crate::layout::manifest::Direction;
use crate::layout::values::{ColumnBuilder, Encoding};
use crate::transform::RunArguments;

/// How the columns of one access are encoded.
#[derive(Debug, Clone)]
pub(super) struct Encodings {
    pub(super) reads: Vec<Encoding>,
    pub(super) writes: Vec<Encoding>,
}

/// The call of a row function for one batch of a lens.
pub(super) struct RowFunctionCall<'a> {
    pub(super) transform: &'a dyn Transform,
    pub(super) direction: Direction,
    pub(super) run: &'a RunArguments,
    pub(super) encodings: &'a [Encodings],
    pub(super) search: Search,
    pub(super) budget: &'a BatchBudget,
}

impl RowFunctionCall<'_> {
    /// Calls it for a batch of `units` units. The outcome is spent from the batch budget.
    pub(super) fn call(&self, batch: Batch, units: usize) -> Result<Outcome, StepError> {
        self.call_from(batch, units, 0)
    }

    /// `first` is the place of the batch's first unit in the whole batch.
    fn call_from(&self, batch: Batch, units: usize, first: usize) -> Result<Outcome, StepError> {
        let failed = match self.transform.apply(self.direction, self.run, &batch) {
            Ok(outcome) if outcome.refused.is_empty() => {
                self.budget.spend(outcome.bytes())?.keep();
                return Ok(outcome);
            }
            Ok(outcome) => return Err(self.refused(outcome.refused, first).into()),
            Err(failed) => failed,
        };
        if failed.is_slow && !self.budget.allows_slow_call() {
            return Err(StepError::Module(LensError::Slow {
                step: self.step(),
                reason: failed.reason,
            }));
        }
        if units == 1 {
            return Err(vec![self.at_fault(first, failed.reason)].into());
        }
        let middle = units / 2;
        let _halves = self.budget.spend(batch.bytes())?;
        let front = self.slice(&batch, 0..middle);
        let back = self.slice(&batch, middle..units);
        drop(batch);
        let input_rows: Vec<_> = front
            .tables
            .iter()
            .zip(&back.tables)
            .map(|(front, back)| (rows(front), rows(back)))
            .collect();
        let front = self.call_from(front, middle, first);
        if matches!(front, Err(StepError::Module(_)))
            || (front.is_err() && self.search == Search::First)
        {
            return front;
        }
        match (front, self.call_from(back, units - middle, first + middle)) {
            (Ok(front), Ok(back)) => {
                let parts = front.bytes() + back.bytes();
                // Both parts and the whole are in memory until the parts are dropped.
                self.budget.spend(parts)?.keep();
                let joined = self.join(front, back, &input_rows, (middle, units - middle));
                self.budget.give_back(parts);
                Ok(joined)
            }
            (Err(StepError::Units(mut faults)), Err(StepError::Units(more))) => {
                faults.extend(more);
                Err(StepError::Units(faults))
            }
            (_, Err(fault @ StepError::Module(_))) => Err(fault),
            // Units that are known to be at fault are left out before the others are taken again.
            (Err(faults @ StepError::Units(_)), _) | (_, Err(faults @ StepError::Units(_))) => {
                Err(faults)
            }
            (Err(fault), _) | (_, Err(fault)) => Err(fault),
        }
    }

    /// The units that the module refused by name.
    fn refused(&self, mut refusals: Vec<Refusal>, first: usize) -> Vec<LensError> {
        refusals.sort_by_key(|refusal| refusal.unit);
        let refused = refusals
            .into_iter()
            .map(|Refusal { unit, reason }| self.at_fault(first + unit as usize, reason));
        refused.collect()
    }

    fn at_fault(&self, unit: usize, reason: String) -> LensError {
        LensError::Unit {
            unit,
            step: self.step(),
            reason,
        }
    }

    fn step(&self) -> FailedStep {
        FailedStep::of(self.transform, self.direction)
    }

    fn slice(&self, batch: &Batch, units: std::ops::Range<usize>) -> Batch {
        let tables = batch
            .tables
            .iter()
            .zip(self.encodings)
            .map(|(table, encodings)| {
                let offsets = &table.unit_offsets[units.start..=units.end];
                let start = offsets[0];
                let end = offsets[units.len()];
                let columns = table.columns.iter().zip(&encodings.reads);
                TableData {
                    unit_offsets: offsets.iter().map(|offset| offset - start).collect(),
                    columns: columns
                        .map(|(data, &e)| data.slice(e, start as usize..end as usize))
                        .collect(),
                }
            });
        let tables = tables.collect();
        let residue = if batch.residue.is_empty() {
            Vec::new()
        } else {
            batch.residue[units].to_vec()
        };
        Batch { tables, residue }
    }

    /// Joins the outcomes of both halves. `units`, and for each table `input_rows`, have a number
    /// for the front half and one for the back half.
    fn join(
        &self,
        front: Outcome,
        back: Outcome,
        input_rows: &[(usize, usize)],
        units: (usize, usize),
    ) -> Outcome {
        let tables = front
            .tables
            .into_iter()
            .zip(back.tables)
            .zip(self.encodings)
            .zip(input_rows)
            .map(|(((front, back), encodings), &input_rows)| {
                let output_rows = |written: &Written, input_rows: usize| {
                    written
                        .shape
                        .as_ref()
                        .map_or(input_rows, |shape| shape.origins.len())
                };
                let rows = (
                    output_rows(&front, input_rows.0),
                    output_rows(&back, input_rows.1),
                );
                let columns = front
                    .columns
                    .iter()
                    .zip(&back.columns)
                    .zip(&encodings.writes)
                    .map(|((front, back), &encoding)| concatenate(encoding, front, back, rows))
                    .collect();
                Written {
                    columns,
                    shape: join_shapes(front.shape, back.shape, input_rows.0),
                }
            })
            .collect();
        let residue = if front.residue.is_empty() && back.residue.is_empty() {
            Vec::new()
        } else {
            padded(front.residue, units.0)
                .chain(padded(back.residue, units.1))
                .collect()
        };
        Outcome {
            tables,
            refused: Vec::new(),
            residue,
        }
    }
}

fn padded(residue: Vec<Option<Vec<u8>>>, units: usize) -> impl Iterator<Item = Option<Vec<u8>>> {
    let missing = units - residue.len();
    residue
        .into_iter()
        .chain(std::iter::repeat_n(None, missing))
}

fn rows(table: &TableData) -> usize {
    table.unit_offsets.last().map_or(0, |&rows| rows as usize)
}

fn concatenate(
    encoding: Encoding,
    front: &ColumnData,
    back: &ColumnData,
    rows: (usize, usize),
) -> ColumnData {
    let mut joined = ColumnBuilder::new(encoding);
    (0..rows.0).for_each(|row| joined.push(front.get(encoding, row)));
    (0..rows.1).for_each(|row| joined.push(back.get(encoding, row)));
    joined.finish()
}

fn join_shapes(front: Option<Shape>, back: Option<Shape>, input_rows: usize) -> Option<Shape> {
    let (mut front, back) = front.zip(back)?;
    let rows = *front
        .unit_offsets
        .last()
        .expect("a shape has one offset more than units");
    let input_rows = u32::try_from(input_rows).expect("batches are bounded");
    front
        .unit_offsets
        .extend(back.unit_offsets[1..].iter().map(|offset| offset + rows));
    front.origins.extend(back.origins.iter().map(|&row| {
        if row == NEW_ROW {
            NEW_ROW
        } else {
            row + input_rows
        }
    }));
    Some(front)
}
