//! The nesting of actions.

use crate::models::Action;

impl Action {
    /// The actions directly within this one.
    pub fn inner(&self) -> impl Iterator<Item = &Self> {
        let one = [
            self.timeout_action
                .as_ref()
                .and_then(|outer| outer.action.as_deref()),
            self.emit_progress_action
                .as_ref()
                .and_then(|outer| outer.action.as_deref()),
            self.try_action
                .as_ref()
                .and_then(|outer| outer.action.as_deref()),
        ];
        let lists = [
            self.parallel_action.as_ref().map(|outer| &outer.actions),
            self.serial_action.as_ref().map(|outer| &outer.actions),
            self.codependent_action.as_ref().map(|outer| &outer.actions),
        ];
        one.into_iter()
            .flatten()
            .chain(lists.into_iter().flatten().flatten())
    }

    /// The actions directly within this one, to be changed.
    pub fn inner_mut(&mut self) -> impl Iterator<Item = &mut Self> {
        let one = [
            self.timeout_action
                .as_mut()
                .and_then(|outer| outer.action.as_deref_mut()),
            self.emit_progress_action
                .as_mut()
                .and_then(|outer| outer.action.as_deref_mut()),
            self.try_action
                .as_mut()
                .and_then(|outer| outer.action.as_deref_mut()),
        ];
        let lists = [
            self.parallel_action
                .as_mut()
                .map(|outer| &mut outer.actions),
            self.serial_action.as_mut().map(|outer| &mut outer.actions),
            self.codependent_action
                .as_mut()
                .map(|outer| &mut outer.actions),
        ];
        one.into_iter()
            .flatten()
            .chain(lists.into_iter().flatten().flatten())
    }
}
