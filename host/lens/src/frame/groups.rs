//! Tables that share their units, and what the steps have to do with them.

use std::collections::BTreeSet;

use super::{ChangePlace, Frame};

impl Frame<'_> {
    /// Records that two tables share their units.
    pub(crate) fn join(&mut self, one: &str, other: &str) {
        self.join_group(one, self.table(other).group);
    }

    /// Records that a table shares the units of a group.
    pub(crate) fn join_group(&mut self, table: &str, group: usize) {
        let one = self.union_find_root(self.table(table).group);
        let other = self.union_find_root(group);
        self.group_parents[one] = other;
    }

    /// The element that stands for a group.
    pub(crate) fn union_find_root(&self, mut group: usize) -> usize {
        while self.group_parents[group] != group {
            group = self.group_parents[group];
        }
        group
    }

    pub(crate) fn source_group(&self, table: &str) -> usize {
        self.union_find_root(self.source_groups[table])
    }

    pub(crate) fn record_group(&mut self, step: usize, table: &str) {
        self.recorded_groups
            .insert((step, table.to_owned()), self.table(table).group);
    }

    /// Records the group of every table, before a step and after it.
    pub(crate) fn record_groups(&mut self, step: usize) {
        let groups: Vec<_> = self
            .tables
            .iter()
            .map(|(name, table)| (name.clone(), table.group))
            .collect();
        for (name, group) in groups {
            self.recorded_groups.insert((step, name), group);
        }
    }

    /// The tables of a group that a step recorded.
    pub(crate) fn tables_of_group(
        &self,
        step: usize,
        group: usize,
    ) -> impl Iterator<Item = &String> {
        let of_step = self
            .recorded_groups
            .range((step, String::new())..)
            .take_while(move |((of, _), _)| *of == step);
        of_step
            .filter(move |(_, recorded)| self.union_find_root(**recorded) == group)
            .map(|((_, table), _)| table)
    }

    /// The group of the table that a change created.
    pub(crate) fn created_group(&self, place: ChangePlace) -> usize {
        self.union_find_root(self.created[&place])
    }

    /// The group of a table that a step recorded.
    pub(crate) fn group_of(&self, step: usize, table: &str) -> usize {
        self.union_find_root(self.recorded_groups[&(step, table.to_owned())])
    }

    /// Records that a step saves values of a table's units, under the table's name or, for those of
    /// a row function, an empty one.
    pub(crate) fn record_saved(&mut self, step: usize, table: &str, name: &str) {
        let group = self.table(table).group;
        self.losing_groups.insert(group);
        self.saved.insert((step, name.to_owned()));
    }

    /// The names under which a step saves values.
    pub(crate) fn saved(&self, step: usize) -> impl Iterator<Item = &String> {
        self.saved
            .iter()
            .filter(move |(of, _)| *of == step)
            .map(|(_, name)| name)
    }

    pub(crate) fn losing_groups(&self) -> BTreeSet<usize> {
        self.losing_groups
            .iter()
            .map(|&group| self.union_find_root(group))
            .collect()
    }
}
