//! Tables that share their units, and what the steps have to do with them.

use std::collections::BTreeSet;

use super::{ChangePlace, Frame};

impl Frame<'_> {
    /// Records that two tables share their units.
    pub(crate) fn join(&mut self, one: &str, other: &str) {
        self.join_class(one, self.table(other).class);
    }

    /// Records that a table shares the units of a class.
    pub(crate) fn join_class(&mut self, table: &str, class: usize) {
        let one = self.find(self.table(table).class);
        let other = self.find(class);
        self.classes[one] = other;
    }

    pub(crate) fn find(&self, mut class: usize) -> usize {
        while self.classes[class] != class {
            class = self.classes[class];
        }
        class
    }

    pub(crate) fn source_class(&self, table: &str) -> usize {
        self.find(self.source_classes[table])
    }

    pub(crate) fn note(&mut self, step: usize, table: &str) {
        self.notes
            .insert((step, table.to_owned()), self.table(table).class);
    }

    /// Records the group of every table, before a step and after it.
    pub(crate) fn note_all(&mut self, step: usize) {
        let classes: Vec<_> = self
            .tables
            .iter()
            .map(|(name, table)| (name.clone(), table.class))
            .collect();
        for (name, class) in classes {
            self.notes.insert((step, name), class);
        }
    }

    /// The tables of a class that a step noted.
    pub(crate) fn noted_as(&self, step: usize, class: usize) -> impl Iterator<Item = &String> {
        let of_step = self
            .notes
            .range((step, String::new())..)
            .take_while(move |((of, _), _)| *of == step);
        of_step
            .filter(move |(_, noted)| self.find(**noted) == class)
            .map(|((_, table), _)| table)
    }

    /// The class of the table that a change created.
    pub(crate) fn created(&self, place: ChangePlace) -> usize {
        self.find(self.created[&place])
    }

    /// The class of a table that a step noted.
    pub(crate) fn noted(&self, step: usize, table: &str) -> usize {
        self.find(self.notes[&(step, table.to_owned())])
    }

    /// Records that a step saves values of a table's units, under the table's name or, for those of
    /// a row function, an empty one.
    pub(crate) fn note_saved(&mut self, step: usize, table: &str, name: &str) {
        let class = self.table(table).class;
        self.losing.insert(class);
        self.saved.insert((step, name.to_owned()));
    }

    /// The names under which a step saves values.
    pub(crate) fn saved(&self, step: usize) -> impl Iterator<Item = &String> {
        self.saved
            .iter()
            .filter(move |(of, _)| *of == step)
            .map(|(_, name)| name)
    }

    pub(crate) fn losing(&self) -> BTreeSet<usize> {
        self.losing.iter().map(|&class| self.find(class)).collect()
    }
}
