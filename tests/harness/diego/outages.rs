//! The outages in the trace of a simulation: the moments at which an LRP lost its last instance
//! that received traffic, and whether the faults before them explain that. Judges by the order of
//! the steps alone.
//!
//! An outage is explained if each instance that it took was hit by a fault, or was requested to
//! stop while another one received traffic, which a fault has taken since: a container that was
//! requested to stop cannot be kept. After a new connection of the emitter, one fault is enough,
//! because the order of the losses that it missed is unknown.

use std::collections::{BTreeMap, BTreeSet};

use super::cell::Text;
use super::trace::{LrpChange, Step};

/// Steps that are printed of an LRP before its outage.
const PRINTED: usize = 60;

/// The loss of the last instances of an LRP that received traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// The number of the step.
    pub step: usize,
    pub process_guid: Text,
    pub is_explained: bool,
}

/// The instances of one LRP, by instance guid.
#[derive(Debug, Default)]
struct LrpTraffic {
    routable: BTreeSet<Text>,
    /// Instances that were requested to stop while another one received traffic, and whether a
    /// fault took one of the others since.
    stopping: BTreeMap<Text, bool>,
}

/// All outages in the order of their steps.
pub fn outages(steps: &[Step]) -> Vec<Outage> {
    let mut faulted = BTreeSet::new();
    let mut lrps = BTreeMap::<&Text, LrpTraffic>::new();
    let mut found = Vec::new();
    for (step, recorded) in steps.iter().enumerate() {
        match recorded {
            Step::Decision { .. } => {}
            Step::Fault(hit) => faulted.extend(hit),
            Step::Stop {
                process_guid,
                instance_guid,
            } => lrps.entry(process_guid).or_default().stop(instance_guid),
            Step::Change(change) => {
                let is_explained = lrps
                    .entry(&change.process_guid)
                    .or_default()
                    .change(change, &faulted);
                found.extend(is_explained.map(|is_explained| Outage {
                    step,
                    process_guid: change.process_guid.clone(),
                    is_explained,
                }));
            }
        }
    }
    found
}

impl LrpTraffic {
    fn stop(&mut self, instance_guid: &Text) {
        if self.routable.iter().any(|other| other != instance_guid) {
            self.stopping.entry(instance_guid.clone()).or_default();
        }
    }

    /// Applies a change; whether the outage that it begins, if it begins one, is explained.
    fn change(&mut self, change: &LrpChange, faulted: &BTreeSet<&Text>) -> Option<bool> {
        let before = std::mem::replace(&mut self.routable, change.routable.clone());
        let lost: BTreeSet<_> = before.difference(&self.routable).collect();
        let taken: BTreeSet<_> = lost.intersection(faulted).copied().collect();
        for (stopping, lost_another) in &mut self.stopping {
            *lost_another |= taken.iter().any(|other| *other != stopping);
        }
        if before.is_empty() || !self.routable.is_empty() {
            return None;
        }
        Some(
            lost.iter().all(|lost| {
                faulted.contains(lost)
                    || self
                        .stopping
                        .get(*lost)
                        .is_some_and(|lost_another| *lost_another)
            }) || !change.by_event && !taken.is_empty(),
        )
    }
}

/// The steps before an outage that concern its LRP, each with its number.
pub fn history(steps: &[Step], outage: &Outage) -> Vec<String> {
    let until = steps.iter().enumerate().take(outage.step + 1);
    let concerned = until.filter(|(_, step)| step.concerns(&outage.process_guid));
    let all: Vec<_> = concerned
        .map(|(number, step)| format!("{number}: {step}"))
        .collect();
    all[all.len().saturating_sub(PRINTED)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<Text> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    fn change(routable: &[&str], by_event: bool) -> Step {
        let process_guid = b"app".to_vec();
        let description = String::new();
        Step::Change(LrpChange {
            process_guid,
            description,
            routable: names(routable),
            by_event,
        })
    }

    fn event(routable: &[&str]) -> Step {
        change(routable, true)
    }

    fn list(routable: &[&str]) -> Step {
        change(routable, false)
    }

    fn fault(hit: &[&str]) -> Step {
        Step::Fault(names(hit))
    }

    fn stop(name: &str) -> Step {
        Step::Stop {
            process_guid: b"app".to_vec(),
            instance_guid: name.into(),
        }
    }

    /// Whether each outage is explained.
    fn explained(steps: &[Step]) -> Vec<bool> {
        outages(steps)
            .into_iter()
            .map(|outage| outage.is_explained)
            .collect()
    }

    #[test]
    fn replacement_without_a_gap_is_no_outage() {
        assert_eq!(
            explained(&[
                event(&["old"]),
                event(&["new", "old"]),
                stop("old"),
                event(&["new"])
            ]),
            [false; 0]
        );
    }

    #[test]
    fn outage_is_explained_by_a_fault_before_it_and_not_by_one_after_it() {
        assert_eq!(
            explained(&[event(&["old"]), fault(&["old"]), event(&[])]),
            [true]
        );
        assert_eq!(
            explained(&[event(&["old"]), event(&[]), fault(&["old"])]),
            [false]
        );
        assert_eq!(
            explained(&[event(&["old"]), fault(&["other"]), event(&[])]),
            [false]
        );
    }

    #[test]
    fn stop_before_its_successor_receives_traffic_is_unexplained() {
        assert_eq!(
            explained(&[event(&["old"]), stop("old"), event(&[]), event(&["new"])]),
            [false]
        );
    }

    #[test]
    fn stopped_container_whose_successor_is_lost_to_a_fault_is_explained_however_long_that_takes() {
        let between = std::iter::repeat_n(event(&["old"]), 1_000);
        let begin = [
            event(&["new", "old"]),
            stop("old"),
            fault(&["new"]),
            event(&["old"]),
        ];
        let steps: Vec<_> = begin
            .into_iter()
            .chain(between)
            .chain([event(&[])])
            .collect();
        assert_eq!(explained(&steps), [true]);
    }

    #[test]
    fn container_that_is_stopped_after_its_successor_was_lost_is_unexplained() {
        let steps = [
            event(&["new", "old"]),
            fault(&["new"]),
            event(&["old"]),
            stop("old"),
            event(&[]),
        ];
        assert_eq!(explained(&steps), [false]);
    }

    #[test]
    fn losses_without_a_known_order_are_explained_by_one_fault() {
        let begin = [event(&["new", "old"]), fault(&["new"])];
        assert_eq!(explained(&[&begin[..], &[list(&[])]].concat()), [true]);
        assert_eq!(explained(&[&begin[..], &[event(&[])]].concat()), [false]);
        assert_eq!(explained(&[event(&["new", "old"]), list(&[])]), [false]);
    }

    #[test]
    fn history_has_the_numbered_steps_of_one_lrp_up_to_its_outage() {
        let decision = |process_guid: Option<&str>| Step::Decision {
            process_guid: process_guid.map(|guid| guid.into()),
            text: "update".into(),
        };
        let steps = [
            decision(Some("app")),
            decision(Some("other")),
            event(&["old"]),
            event(&[]),
            event(&["new"]),
        ];
        let outage = &outages(&steps)[0];
        let expected = [
            "0: app: update",
            "2: event: ; traffic to [old]",
            "3: event: ; traffic to []",
        ];
        assert_eq!(history(&steps, outage), expected);
    }
}
