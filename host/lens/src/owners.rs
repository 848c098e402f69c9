//! The records that the rows of dropped tables belong to: a row is given back only if its record is
//! still the one that it was taken from, and not another that a client has made under the same key.
//! The records are compared as they are on the lower side of a step, which both directions see.

use std::collections::BTreeMap;

use super::budget::OverBudget;
use super::digests;
use super::frame::Frame;
use super::residue::ResidueEntry;
use super::step::{DroppedTable, Step};
use crate::layout::history::Leg;
use crate::layout::history::name_before;
use crate::layout::manifest::Direction;
use crate::layout::schema::Table;

/// The tables of a step whose rows are bound to records, with the records of the units.
pub(super) struct Bound {
    /// The tables that the step drops, each with the place of its owners.
    dropped: BTreeMap<String, usize>,
    /// The tables that the step creates, and whose rows are given back, with the same.
    restored: BTreeMap<String, usize>,
    /// Each once: finding what identifies records takes a digest of each of them.
    owners: Vec<Owners>,
}

/// The tables with the records that the rows of some tables belong to.
struct Owners {
    tables: Vec<String>,
    groups: Vec<usize>,
    /// The identity of the record of each unit.
    identities: Vec<Vec<u8>>,
}

impl Bound {
    /// Before the changes of the step. `given_back` is whether there is residue for a table.
    pub(super) fn to_owners(
        step: &Step,
        frame: &Frame<'_>,
        given_back: impl Fn(&str) -> bool,
    ) -> Self {
        let is_kept = |dropped: &DroppedTable<'_>| {
            step.transform.manifest().reversible
                && frame.has(&dropped.name)
                && !step.is_filled_on_the_way_back(&dropped.name)
                && !step.sets_aside(dropped)
        };
        let dropped = step
            .dropped()
            .filter(is_kept)
            .filter_map(|dropped| step.source.tables.get(&dropped.name));
        let is_restored = |table: &&Table| {
            given_back(&table.name) && step.creates(&table.name) && !step.fills(&table.name)
        };
        let restored = step.target.tables.values().filter(is_restored);
        let group = |owner: &String| {
            let name = match step.direction {
                Direction::Up => Some(owner.clone()),
                Direction::Down => name_before(&step.changes, owner),
            };
            name.filter(|name| frame.has(name))
                .map(|name| frame.table(&name).group)
        };
        let mut owners: Vec<Owners> = Vec::new();
        let mut bind = |table: &Table| {
            let tables = step.owners(table);
            let known = owners.iter().position(|known| known.tables == tables);
            let place = known.unwrap_or(owners.len());
            if known.is_none() {
                owners.push(Owners {
                    groups: tables.iter().filter_map(group).collect(),
                    tables,
                    identities: Vec::new(),
                });
            }
            (table.name.clone(), place)
        };
        let is_of_units = |table: &&Table| table.partition_key.is_some();
        Self {
            dropped: dropped.filter(is_of_units).map(&mut bind).collect(),
            restored: restored.filter(is_of_units).map(bind).collect(),
            owners,
        }
    }

    /// Notes the records of the units, if the frame is now on the lower side of a step in this
    /// direction.
    pub(super) fn identify(
        &mut self,
        step: &Step,
        frame: &Frame<'_>,
        direction: Direction,
    ) -> Result<(), OverBudget> {
        if step.direction != direction {
            return Ok(());
        }
        for owners in &mut self.owners {
            let present = owners.tables.iter().filter(|owner| frame.has(owner));
            let present: Vec<_> = present.cloned().collect();
            owners.identities = digests::identities(frame, &present)?;
        }
        Ok(())
    }

    /// Makes the units of the dropped tables those of their records.
    pub(super) fn join_dropped(&self, frame: &mut Frame<'_>) {
        self.join(&self.dropped, frame);
    }

    /// As [`join_dropped`](Self::join_dropped), for the tables that the step has created.
    pub(super) fn join_restored(&self, frame: &mut Frame<'_>) {
        self.join(&self.restored, frame);
    }

    fn join(&self, tables: &BTreeMap<String, usize>, frame: &mut Frame<'_>) {
        for (table, place) in tables {
            if frame.has(table) {
                let groups = self.owners[*place].groups.iter();
                groups.for_each(|group| frame.join_group(table, *group));
            }
        }
    }

    /// Binds the saved rows of the dropped tables.
    pub(super) fn identify_entries(&self, left_by: Leg, entries: &mut [ResidueEntry]) {
        for entry in entries.iter_mut().filter(|entry| entry.left_by == left_by) {
            if let Some(place) = self.dropped.get(&entry.table) {
                let identity = &self.owners[*place].identities[entry.unit];
                entry.value.digest.clone_from(identity);
            }
        }
    }

    /// The identity of the record of each unit of a table that is given back; empty where it
    /// belongs to none.
    pub(super) fn identities(&self, table: &str, units: usize) -> Vec<Vec<u8>> {
        let place = self.restored.get(table);
        place.map_or_else(
            || vec![Vec::new(); units],
            |place| self.owners[*place].identities.clone(),
        )
    }
}
