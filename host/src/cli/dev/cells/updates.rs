//! Lines about the updates of LRPs, from one round to the next.

use std::collections::BTreeMap;

use bbs_proto::models as proto;

use crate::cli::bbs::printable;

/// The updates of each desired LRP, by process guid, at the last round.
#[derive(Debug, Default)]
pub(super) struct SeenUpdates(BTreeMap<Vec<u8>, proto::DesiredLrpUpdateStatus>);

impl SeenUpdates {
    /// Takes the present states, and returns the lines about those that have changed. An LRP that
    /// is new begins without an update.
    pub(super) fn changed(
        &mut self,
        now: BTreeMap<Vec<u8>, proto::DesiredLrpUpdateStatus>,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for (guid, status) in &now {
            let Some(before) = self.0.get(guid) else {
                continue;
            };
            lines.extend(line(before, status).map(|line| format!("{}: {line}", printable(guid))));
        }
        self.0 = now;
        lines
    }
}

fn line(
    before: &proto::DesiredLrpUpdateStatus,
    now: &proto::DesiredLrpUpdateStatus,
) -> Option<String> {
    let was_underway = is_underway(before);
    let is_underway = is_underway(now);
    let definition = printable(&now.definition_id);
    if !is_underway {
        // One that was fast was not seen under way.
        let is_over = was_underway || before.definition_id != now.definition_id;
        // A cancellation, too, may be over at once.
        let is_undone =
            before.cancelled || was_underway && before.previous_definition_id == now.definition_id;
        return is_over.then(|| {
            if is_undone {
                format!(
                    "the cancelled update is undone; all instances run the definition {definition}"
                )
            } else {
                format!("the update to the definition {definition} is complete")
            }
        });
    }
    if before.halt_reason != now.halt_reason && !now.halt_reason.is_empty() {
        return Some(format!(
            "the update to the definition {definition} is halted: {}",
            printable(&now.halt_reason)
        ));
    }
    if now.cancelled && !before.cancelled {
        return Some(format!(
            "the update is cancelled; instances go back to the definition {definition}"
        ));
    }
    let is_new = !was_underway || before.definition_id != now.definition_id;
    is_new.then(|| format!("the update to the definition {definition} has begun"))
}

/// Whether an update is not complete.
fn is_underway(status: &proto::DesiredLrpUpdateStatus) -> bool {
    !status.previous_definition_id.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(states: &[proto::DesiredLrpUpdateStatus]) -> Vec<String> {
        let mut seen = SeenUpdates::default();
        states
            .iter()
            .flat_map(|state| seen.changed([(b"app".to_vec(), state.clone())].into()))
            .collect()
    }

    fn state(definition: &str, previous: &str) -> proto::DesiredLrpUpdateStatus {
        proto::DesiredLrpUpdateStatus {
            definition_id: definition.into(),
            previous_definition_id: previous.into(),
            ..Default::default()
        }
    }

    #[test]
    fn update_is_shown_when_it_begins_halts_is_cancelled_and_ends() {
        let one = state("1", "");
        let two = state("2", "1");
        let halted = proto::DesiredLrpUpdateStatus {
            halt_reason: "a\u{1b}b".into(),
            ..two.clone()
        };
        let cancelled = proto::DesiredLrpUpdateStatus {
            cancelled: true,
            ..state("1", "2")
        };
        assert_eq!(
            lines(&[
                one.clone(),
                two.clone(),
                two.clone(),
                halted.clone(),
                halted,
                cancelled,
                one.clone()
            ]),
            [
                "app: the update to the definition 2 has begun",
                "app: the update to the definition 2 is halted: a\\u{1b}b",
                "app: the update is cancelled; instances go back to the definition 1",
                "app: the cancelled update is undone; all instances run the definition 1",
            ]
        );
        assert_eq!(
            lines(&[one.clone(), two.clone(), one.clone()])[1],
            "app: the cancelled update is undone; all instances run the definition 1"
        );
        assert_eq!(
            lines(&[one.clone(), two, state("2", "")])[1],
            "app: the update to the definition 2 is complete"
        );
        assert_eq!(
            lines(&[one, state("2", "")]),
            ["app: the update to the definition 2 is complete"]
        );
    }
}
