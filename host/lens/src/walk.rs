//! Applies one step to the frame: passes the row function its input, changes the layout in memory,
//! applies the output, and saves what would be lost.

use std::collections::{BTreeMap, BTreeSet};

use super::bisect::RowFunctionCall;
use super::budget::OverBudget;
use super::column::Content;
use super::digests::{unit_digests, unit_row_digests};
use super::error::{ChangeError, LOSES_SAVED, LensError, SAVES_ANEW, StepError};
use super::frame::{ChangePlace, Frame};
use super::owners::Bound;
use super::residue::{self, Residue, ResidueEntry, ResidueValue, RowIdentity};
use super::step::{Step, StepScope};
use super::unit_keys::KeysBefore;
use super::{Applied, Arguments, Search};
use crate::layout::columns::{Batch, ColumnData, Outcome, Shape, TableData, Written};
use crate::layout::history::{column_before, name_before};
use crate::layout::manifest::{Access, Change, DataVersion, Direction};
use crate::layout::values::Value;

impl Step {
    /// The tables for which there may be residue of the other direction, and an empty name if for
    /// the row function: what this way has saved itself, or what is among `restorable`.
    pub(super) fn given_back(
        &self,
        frame: &Frame<'_>,
        restorable: &BTreeSet<(DataVersion, String)>,
    ) -> BTreeSet<String> {
        match self.went_down() {
            Some(place) => frame.saved(place).cloned().collect(),
            None => restorable
                .iter()
                .filter(|(of, _)| *of == self.version())
                .map(|(_, table)| table.clone())
                .collect(),
        }
    }

    /// Applies the step to the frame. Without `rows` it only records what would be read.
    pub(super) fn apply_to(
        &self,
        frame: &mut Frame<'_>,
        scope: &StepScope,
        rows: Option<(&Residue, &Arguments, Search)>,
        restorable: &BTreeSet<(DataVersion, String)>,
        applied: &mut Applied,
    ) -> Result<(), StepError> {
        let places = self.given_back(frame, restorable);
        let empty = Residue::default();
        let residue = rows.map_or(&empty, |(residue, ..)| residue);
        if rows.is_none() {
            frame.record_groups(self.place);
        }
        let given_back = |table: &str| places.contains(table);
        let unit_digests = self.saved_unit_digests(frame, &places)?;
        let mut bound = Bound::to_owners(self, frame, given_back);
        bound.identify(self, frame, Direction::Up)?;
        let keys = if scope.calls {
            KeysBefore::of(self, frame)?
        } else {
            None
        };
        let outcome = scope
            .calls
            .then(|| self.call(frame, given_back("").then_some(residue), rows, applied))
            .transpose()?;
        if let (Some(keys), Some(outcome)) = (&keys, &outcome) {
            keys.check(self, frame.units(), outcome)?;
        }
        let recognised_by = if outcome.is_some() && given_back("") {
            self.opposite_groups(frame)
        } else {
            Vec::new()
        };
        let mut row_identities = self.row_identities(frame, &places)?;
        self.join_taken_back(frame);
        bound.join_dropped(frame);
        self.change_layout(frame, scope, &mut applied.residue)?;
        if let Some(outcome) = outcome {
            self.accept(frame, outcome, &mut row_identities, applied)?;
            recognised_by
                .into_iter()
                .for_each(|group| frame.join_group(&self.accesses()[0].table, group));
        }
        self.identify_saved_tables(frame, &mut applied.residue)?;
        bound.identify(self, frame, Direction::Down)?;
        bound.join_restored(frame);
        bound.identify_entries(self.leg(), &mut applied.residue);
        for table in frame.names() {
            residue::keep_columns(frame, self, &table, &mut applied.residue)?;
            if !given_back(&table) {
                continue;
            }
            applied.stale += if self.fills(&table) {
                residue::restore_filled(frame, self, &table, &unit_digests, residue)?
            } else {
                let rows_before = row_identities.remove(&table);
                let owners = bound.identities(&table, frame.units());
                residue::restore_columns(frame, self, &table, rows_before, residue, &owners)?
            };
        }
        if rows.is_none() {
            frame.record_groups(self.place);
        }
        frame.settle();
        Ok(())
    }

    /// The digests of the units by which the saved rows of tables that the row function fills are
    /// recognised. Empty without such tables.
    fn saved_unit_digests(
        &self,
        frame: &Frame<'_>,
        given_back: &BTreeSet<String>,
    ) -> Result<Vec<Vec<u8>>, OverBudget> {
        let mut tables = self.target.tables.keys();
        if !tables.any(|table| given_back.contains(table) && self.fills(table)) {
            return Ok(Vec::new());
        }
        unit_row_digests(frame, &self.taken)
    }

    /// By table that is given back and has rows before the step, the identities of its rows.
    fn row_identities(
        &self,
        frame: &Frame<'_>,
        given_back: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Vec<RowIdentity>>, OverBudget> {
        let mut identities = BTreeMap::new();
        let tables = self.target.tables.keys();
        for table in tables.filter(|table| given_back.contains(*table)) {
            if let Some(name) = name_before(&self.changes, table).filter(|name| frame.has(name)) {
                identities.insert(table.clone(), residue::row_identities(frame, &name)?);
            }
        }
        Ok(identities)
    }

    /// Applies the changes of the layout, and saves or sets aside the tables that they drop.
    fn change_layout(
        &self,
        frame: &mut Frame<'_>,
        scope: &StepScope,
        entries: &mut Vec<ResidueEntry>,
    ) -> Result<(), StepError> {
        for (place, change) in self.changes.iter().enumerate() {
            if let Some(dropped) = self
                .dropped_by(place)
                .filter(|dropped| frame.has(dropped.table))
            {
                if self.sets_aside(&dropped) {
                    frame.set_aside(self.version(), dropped.table);
                    continue;
                }
                if self.transform.manifest().reversible {
                    residue::keep_table(frame, self, &dropped, entries)?;
                }
                frame.remove(dropped.table);
            }
            if scope.creates.contains(&place)
                && let Change::CreateTable(table) = change
            {
                frame.create(
                    ChangePlace {
                        step: self.place,
                        change: place,
                    },
                    self.version(),
                    table,
                );
            }
            if let Change::AddColumn { table, column } = change
                && self.went_down().is_some()
                && frame.return_column(self.version(), table, column)
            {
                continue;
            }
            if let Change::DropColumn { table, column } = change {
                let before = column_before(&self.changes[..place], table, column);
                frame.drop_column(table, column, before);
                continue;
            }
            frame.change(change).map_err(|fault| match fault {
                ChangeError::NoCounterpart { units, from, to } => {
                    let fault = |unit| LensError::Counterpart {
                        unit,
                        version: self.version(),
                        direction: self.direction,
                        from: from.clone(),
                        to: to.clone(),
                    };
                    StepError::Units(units.into_iter().map(fault).collect())
                }
                ChangeError::OverBudget(fault) => StepError::from(fault),
            })?;
        }
        Ok(())
    }

    /// The groups of the tables by which the units of given back residue are recognised.
    fn opposite_groups(&self, frame: &Frame<'_>) -> Vec<usize> {
        self.opposite()
            .iter()
            .map(|access| frame.table(&access.table).group)
            .collect()
    }

    /// The names before the step of tables that it drops and whose rows the row function of the
    /// other direction makes. Their rows are saved, and given back only to units that are then
    /// still what this step returned.
    fn dropped_to_be_filled(&self) -> impl Iterator<Item = String> {
        self.dropped()
            .map(|dropped| dropped.name)
            .filter(|name| self.is_filled_on_the_way_back(name))
    }

    /// Joins such tables with those by which the other direction recognises their units.
    fn join_taken_back(&self, frame: &mut Frame<'_>) {
        for table in self.dropped_to_be_filled() {
            for other in self
                .taken_back
                .iter()
                .filter_map(|(before, _)| before.as_ref())
            {
                if frame.has(&table) && frame.has(other) {
                    frame.join(&table, other);
                }
            }
        }
    }

    /// Gives the residue of such tables the digest of what the step returned for the units.
    fn identify_saved_tables(
        &self,
        frame: &Frame<'_>,
        entries: &mut [ResidueEntry],
    ) -> Result<(), OverBudget> {
        let dropped: Vec<_> = self.dropped_to_be_filled().collect();
        if dropped.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = self
            .taken_back
            .iter()
            .map(|(_, after)| after.clone())
            .collect();
        let digests = unit_row_digests(frame, &names)?;
        for entry in entries
            .iter_mut()
            .filter(|entry| entry.left_by == self.leg() && dropped.contains(&entry.table))
        {
            entry.value.digest.clone_from(&digests[entry.unit]);
        }
        Ok(())
    }

    /// Refuses units for a reason, if there are any.
    pub(super) fn refuse(
        &self,
        units: impl IntoIterator<Item = usize>,
        reason: &str,
    ) -> Result<(), StepError> {
        let fault = |unit| self.refused((unit, 1), reason.to_owned());
        let faults: Vec<_> = units.into_iter().map(fault).collect();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(StepError::Units(faults))
        }
    }

    /// `residue` is absent if none is given back to the row function.
    fn call(
        &self,
        frame: &mut Frame<'_>,
        residue: Option<&Residue>,
        rows: Option<(&Residue, &Arguments, Search)>,
        applied: &mut Applied,
    ) -> Result<Outcome, StepError> {
        let tables = self
            .accesses()
            .iter()
            .map(|access| self.reads(frame, access))
            .collect::<Result<_, _>>()?;
        let mut batch = Batch {
            tables,
            residue: Vec::new(),
        };
        if let Some(residue) = residue {
            batch.residue = residue::given_back(
                frame,
                self.version(),
                self.opposite(),
                &self.source,
                residue,
            )?;
            let stale = residue::not_given_back(self.version(), residue, &batch.residue);
            applied.stale += stale.len() as u64;
            if self.went_down().is_some() {
                self.refuse(stale, LOSES_SAVED)?;
            }
        }
        let Some((_, arguments, search)) = rows.filter(|_| frame.units() > 0) else {
            return Ok(self.nothing());
        };
        let run = &arguments[&self.version()];
        let call = RowFunctionCall {
            transform: self.transform.as_ref(),
            direction: self.direction,
            run,
            encodings: &self.encodings,
            search,
            budget: frame.budget(),
        };
        call.call(batch, frame.units())
    }

    fn reads(&self, frame: &Frame<'_>, access: &Access) -> Result<TableData, OverBudget> {
        let Some(name) = name_before(&self.changes, &access.table) else {
            return Ok(TableData {
                unit_offsets: vec![0; frame.units() + 1],
                columns: Vec::new(),
            });
        };
        let columns = access
            .reads
            .iter()
            .map(|column| frame.read(&name, column)?.into_owned(frame.budget()));
        let unit_offsets = frame.table(&name).unit_offsets.clone();
        Ok(TableData {
            unit_offsets,
            columns: columns.collect::<Result<_, _>>()?,
        })
    }

    /// The output of a row function for no units.
    fn nothing(&self) -> Outcome {
        let written = self
            .accesses()
            .iter()
            .zip(&self.encodings)
            .map(|(access, encodings)| Written {
                shape: access.reshapes.then(|| Shape {
                    unit_offsets: vec![0],
                    origins: Vec::new(),
                }),
                columns: encodings
                    .writes
                    .iter()
                    .map(|&e| ColumnData::repeat(e, Value::Null, 0))
                    .collect(),
            });
        Outcome {
            tables: written.collect(),
            refused: Vec::new(),
            residue: Vec::new(),
        }
    }

    /// Applies the output of the row function to the frame, whose layout is that after the step.
    fn accept(
        &self,
        frame: &mut Frame<'_>,
        outcome: Outcome,
        row_identities: &mut BTreeMap<String, Vec<RowIdentity>>,
        applied: &mut Applied,
    ) -> Result<(), StepError> {
        for (access, written) in self.accesses().iter().zip(outcome.tables) {
            if let Some(shape) = &written.shape {
                let given = &frame.table(&access.table).unit_offsets;
                applied.removed += shape.removed_rows(given).map(|(_, rows)| rows).sum::<u64>();
                frame.reshape(&access.table, shape)?;
                if let Some(identities) = row_identities.get_mut(&access.table) {
                    let of = |&row: &u32| identities.get(row as usize).cloned().unwrap_or_default();
                    *identities = shape.origins.iter().map(of).collect();
                }
            }
            for (name, data) in access.writes.iter().zip(written.columns) {
                frame
                    .table_mut(&access.table)
                    .set(name, Content::Given(data.into()));
            }
            if !access.writes.is_empty() || access.reshapes {
                frame.table_mut(&access.table).transformed = Some(self.leg());
            }
            frame.record_group(self.place, &access.table);
            frame.join(&self.accesses()[0].table, &access.table);
        }
        if !self.transform.manifest().leaves_residue || !self.transform.manifest().reversible {
            return Ok(());
        }
        let digests = unit_digests(frame, self.accesses(), &self.target)?;
        frame.record_saved(self.place, &self.accesses()[0].table, "");
        if self.went_down().is_some() {
            let saves = |(unit, bytes): (usize, &Option<Vec<u8>>)| bytes.as_ref().map(|_| unit);
            self.refuse(
                outcome.residue.iter().enumerate().filter_map(saves),
                SAVES_ANEW,
            )?;
        }
        for (unit, bytes) in outcome.residue.into_iter().enumerate() {
            if let Some(bytes) = bytes {
                let value = ResidueValue {
                    row_key: Vec::new(),
                    digest: digests[unit].clone(),
                    bytes,
                };
                let entry = ResidueEntry::of(self.leg(), unit, "", value);
                applied.residue.push(entry);
            }
        }
        Ok(())
    }
}
