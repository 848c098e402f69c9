//! The records that the rows of dropped tables belong to: a row is given back only if its record is
//! still the one that it was taken from, and not another that a client has made under the same key.
//! The records are compared as they are on the lower side of a step, which both directions see.

use std::collections::{BTreeMap, BTreeSet};

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
    /// By table that the step drops, the partition key.
    dropped: BTreeMap<String, String>,
    /// By table that the step creates, and whose rows are given back, the partition key.
    restored: BTreeMap<String, String>,
    /// By partition key, the classes of the tables with the records.
    owners: BTreeMap<String, Vec<usize>>,
    /// By partition key, what identifies the record of each unit.
    identities: BTreeMap<String, Vec<Vec<u8>>>,
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
        let dropped = by_partition_key(dropped);
        let restored = by_partition_key(step.target.tables.values().filter(is_restored));
        let keys: BTreeSet<_> = dropped.values().chain(restored.values()).collect();
        let class = |owner: String| {
            let name = match step.direction {
                Direction::Up => Some(owner),
                Direction::Down => name_before(&step.changes, &owner),
            };
            name.filter(|name| frame.has(name))
                .map(|name| frame.table(&name).class)
        };
        let classes = |key: &String| {
            (
                key.clone(),
                step.owners(key).into_iter().filter_map(class).collect(),
            )
        };
        let owners = keys.into_iter().map(classes).collect();
        Self {
            dropped,
            restored,
            owners,
            identities: BTreeMap::new(),
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
        for key in self.owners.keys() {
            let owners: Vec<_> = step
                .owners(key)
                .into_iter()
                .filter(|owner| frame.has(owner))
                .collect();
            self.identities
                .insert(key.clone(), digests::identities(frame, &owners)?);
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

    fn join(&self, tables: &BTreeMap<String, String>, frame: &mut Frame<'_>) {
        for (table, key) in tables
            .iter()
            .filter(|(table, _)| frame.has(table))
            .collect::<Vec<_>>()
        {
            self.owners[key]
                .iter()
                .for_each(|class| frame.join_class(table, *class));
        }
    }

    /// Binds the saved rows of the dropped tables.
    pub(super) fn identify_entries(&self, left_by: Leg, entries: &mut [ResidueEntry]) {
        for entry in entries.iter_mut().filter(|entry| entry.left_by == left_by) {
            if let Some(identities) = self
                .dropped
                .get(&entry.table)
                .and_then(|key| self.identities.get(key))
            {
                entry.value.digest.clone_from(&identities[entry.unit]);
            }
        }
    }

    /// The identity of the record of each unit of a table that is given back; empty where it
    /// belongs to none.
    pub(super) fn identities(&self, table: &str, units: usize) -> Vec<Vec<u8>> {
        let identities = self
            .restored
            .get(table)
            .and_then(|key| self.identities.get(key));
        identities
            .cloned()
            .unwrap_or_else(|| vec![Vec::new(); units])
    }
}

fn by_partition_key<'a>(tables: impl Iterator<Item = &'a Table>) -> BTreeMap<String, String> {
    tables
        .filter_map(|table| Some((table.name.clone(), table.partition_key.clone()?)))
        .collect()
}
