//! Lines about instances, one for each event of the stream that changes what a reader sees.

use bbs_client::LrpInstanceEvent;
use bbs_client::json::to_value;
use bbs_client::models::{self, actual_lrp::Presence};
use serde_json::Value;

use super::super::super::bbs::printable;

/// An event about an instance.
#[derive(Debug)]
pub(super) struct InstanceLine {
    pub(super) process_guid: Vec<u8>,
    /// The name of the event.
    pub(super) name: &'static str,
    /// The event in Diego's JSON form.
    pub(super) content: Value,
    pub(super) text: String,
}

impl InstanceLine {
    /// `None` for an event about a desired LRP.
    pub(super) fn of(event: &LrpInstanceEvent) -> Option<Self> {
        let (key, content, text) = match event {
            LrpInstanceEvent::InstanceCreated(created) => {
                let row = created.actual_lrp.as_ref()?;
                (
                    row.actual_lrp_key.as_ref()?,
                    to_value(&**created),
                    state_of(row),
                )
            }
            LrpInstanceEvent::InstanceRemoved(removed) => {
                let row = removed.actual_lrp.as_ref()?;
                let definition = printable(&row.desired_lrp_definition_id);
                let cell = on_cell(&row.actual_lrp_instance_key);
                (
                    row.actual_lrp_key.as_ref()?,
                    to_value(&**removed),
                    format!("{definition}{cell} is gone"),
                )
            }
            LrpInstanceEvent::InstanceChanged(changed) => {
                let text = change(changed)?;
                (changed.actual_lrp_key.as_ref()?, to_value(&**changed), text)
            }
            LrpInstanceEvent::Crashed(crashed) => {
                let definition = printable(&crashed.desired_lrp_definition_id);
                let cell = on_cell(&crashed.actual_lrp_instance_key);
                let reason = printable(&crashed.crash_reason);
                let text = format!(
                    "{definition}{cell} crashed (crash {}): {reason}",
                    crashed.crash_count
                );
                (crashed.actual_lrp_key.as_ref()?, to_value(&**crashed), text)
            }
            LrpInstanceEvent::DesiredLrpCreated(_)
            | LrpInstanceEvent::DesiredLrpChanged(_)
            | LrpInstanceEvent::DesiredLrpRemoved(_) => return None,
        };
        let text = format!("  instance {}: {text}", key.index);
        Some(Self {
            process_guid: key.process_guid.clone(),
            name: event.name(),
            content,
            text,
        })
    }
}

/// ` on CELL`; empty for an instance without a cell.
fn on_cell(instance: &Option<models::ActualLrpInstanceKey>) -> String {
    let cell = instance
        .as_ref()
        .map(|instance| printable(&instance.cell_id))
        .filter(|cell| !cell.is_empty());
    cell.map(|cell| format!(" on {cell}")).unwrap_or_default()
}

fn state_of(row: &models::ActualLrp) -> String {
    let definition = printable(&row.desired_lrp_definition_id);
    let cell = on_cell(&row.actual_lrp_instance_key);
    let state = state(&row.state, row.presence(), row.routable);
    format!("{definition}{cell} {state}")
}

fn change(changed: &models::ActualLrpInstanceChangedEvent) -> Option<String> {
    let after = changed.after.as_ref()?;
    let now = state(&after.state, after.presence(), after.routable);
    let before = changed.before.as_ref();
    let was = before.map(|before| state(&before.state, before.presence(), before.routable));
    let reason = if after.placement_error.is_empty() {
        ""
    } else {
        ": "
    };
    // Other changes, such as those of metric tags, are none of an update.
    if was.as_ref() == Some(&now)
        && before.is_some_and(|before| before.placement_error == after.placement_error)
    {
        return None;
    }
    let definition = printable(&after.desired_lrp_definition_id);
    let cell = on_cell(&changed.actual_lrp_instance_key);
    Some(format!(
        "{definition}{cell} {now}{reason}{}",
        printable(&after.placement_error)
    ))
}

fn state(state: &[u8], presence: Presence, routable: Option<bool>) -> String {
    let text = match state {
        b"UNCLAIMED" => "waits for a cell",
        b"CLAIMED" => "is starting",
        b"RUNNING" if routable == Some(false) => "runs, and is not routable yet",
        b"RUNNING" => "runs",
        b"CRASHED" => "has crashed",
        other => return printable(other),
    };
    match presence {
        Presence::Ordinary => text.to_owned(),
        // The row of a container that its successor replaces, or that leaves its cell.
        Presence::Evacuating => format!("{text} until its successor does"),
        Presence::Suspect => format!("{text}, and its cell is gone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Option<models::ActualLrpKey> {
        Some(models::ActualLrpKey {
            process_guid: b"app".to_vec(),
            index: 2,
            domain: b"d".to_vec(),
        })
    }

    fn cell() -> Option<models::ActualLrpInstanceKey> {
        Some(models::ActualLrpInstanceKey {
            instance_guid: b"i".to_vec(),
            cell_id: b"cell-1".to_vec(),
        })
    }

    fn info(state: &str, routable: bool) -> models::ActualLrpInfo {
        models::ActualLrpInfo {
            state: state.into(),
            routable: Some(routable),
            desired_lrp_definition_id: b"v2".to_vec(),
            ..Default::default()
        }
    }

    fn changed(before: models::ActualLrpInfo, after: models::ActualLrpInfo) -> Option<String> {
        let event = models::ActualLrpInstanceChangedEvent {
            actual_lrp_key: key(),
            actual_lrp_instance_key: cell(),
            before: Some(before),
            after: Some(after),
            ..Default::default()
        };
        InstanceLine::of(&LrpInstanceEvent::InstanceChanged(Box::new(event))).map(|line| line.text)
    }

    #[test]
    fn changes_of_an_instance_are_lines_and_others_are_not() {
        let line = |before: (&str, bool), after: (&str, bool)| {
            changed(info(before.0, before.1), info(after.0, after.1))
        };
        assert_eq!(
            line(("UNCLAIMED", false), ("CLAIMED", false)).unwrap(),
            "  instance 2: v2 on cell-1 is starting"
        );
        assert_eq!(
            line(("CLAIMED", false), ("RUNNING", false)).unwrap(),
            "  instance 2: v2 on cell-1 runs, and is not routable yet"
        );
        assert_eq!(
            line(("RUNNING", false), ("RUNNING", true)).unwrap(),
            "  instance 2: v2 on cell-1 runs"
        );
        assert_eq!(line(("RUNNING", true), ("RUNNING", true)), None);
        let refused = models::ActualLrpInfo {
            placement_error: b"no cell".to_vec(),
            ..info("UNCLAIMED", false)
        };
        assert_eq!(
            changed(info("UNCLAIMED", false), refused).unwrap(),
            "  instance 2: v2 on cell-1 waits for a cell: no cell"
        );
    }

    #[test]
    fn crash_and_end_of_a_container_are_lines() {
        let crashed = models::ActualLrpCrashedEvent {
            actual_lrp_key: key(),
            actual_lrp_instance_key: cell(),
            crash_count: 2,
            crash_reason: b"exit\x1b".to_vec(),
            desired_lrp_definition_id: b"v3".to_vec(),
            ..Default::default()
        };
        let line = InstanceLine::of(&LrpInstanceEvent::Crashed(Box::new(crashed))).unwrap();
        assert_eq!(
            line.text,
            "  instance 2: v3 on cell-1 crashed (crash 2): exit\\u{1b}"
        );
        assert_eq!(
            (line.name, &line.content["cell_id"]),
            ("actual_lrp_crashed", &"cell-1".into())
        );
        let row = models::ActualLrp {
            actual_lrp_key: key(),
            actual_lrp_instance_key: cell(),
            desired_lrp_definition_id: b"v1".to_vec(),
            ..Default::default()
        };
        let removed = models::ActualLrpInstanceRemovedEvent {
            actual_lrp: Some(row),
            ..Default::default()
        };
        let line = InstanceLine::of(&LrpInstanceEvent::InstanceRemoved(Box::new(removed))).unwrap();
        assert_eq!(line.text, "  instance 2: v1 on cell-1 is gone");
    }
}
