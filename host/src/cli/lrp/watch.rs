//! `bbs lrp watch`: follows the update of an LRP by the events of its instances and by its status,
//! which says when it is complete or halted.

mod lines;

use std::time::Duration;

use anyhow::bail;
use bbs_client::{CallError, Client, EventStream, LrpInstanceEvent, Version, json, models};
use serde_json::json;

use super::super::bbs::{CalledBbs, explained, printable};
use super::super::output::{self, OutputReader};
use super::NamedLrp;
use super::change::status_of;
use super::counts::{counts, outcome};
use lines::InstanceLine;

/// The time after which the status is read again without an event. An update may end without one of
/// an instance.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Longest wait for the last events of an update, which its status may be ahead of.
const LAST_EVENTS: Duration = Duration::from_secs(5);

/// The end of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchEnd {
    Complete,
    Halted,
}

pub(super) async fn watch(lrp: NamedLrp, bbs: CalledBbs) -> anyhow::Result<()> {
    let client = bbs.client.speaking(Version::Definitions);
    let process_guid = &lrp.process_guid;
    let printer = Printer {
        process_guid,
        is_json: bbs.form.json,
    };
    // Before the first status, so that no change falls between the two.
    let mut events = client.lrp_instance_events("").await.map_err(explained)?;
    let mut seen: Option<models::DesiredLrpUpdateStatus> = None;
    let mut event_of_end_is_read = false;
    loop {
        let status = status_of(&client, &lrp).await?;
        // The status may show the end before the last events arrive.
        if end(&status).is_some()
            && seen.is_some()
            && !event_of_end_is_read
            && printer.last_events(&mut events).await? == OutputReader::Gone
        {
            return Ok(());
        }
        if seen.as_ref() != Some(&status)
            && printer.status(seen.as_ref(), &status)? == OutputReader::Gone
        {
            return Ok(());
        }
        if let Some(end) = end(&status) {
            return check_end(end, process_guid, &status);
        }
        seen = Some(status);
        event_of_end_is_read = false;
        let event = next_event(&mut events, process_guid);
        match tokio::time::timeout(STATUS_INTERVAL, event).await {
            Ok(Ok(Some(WatchedEvent::Instance(line)))) => {
                if printer.instance(&line)? == OutputReader::Gone {
                    return Ok(());
                }
            }
            Ok(Ok(Some(WatchedEvent::End))) => event_of_end_is_read = true,
            // The BBS has ended the stream, or another one is the master by now.
            Ok(Ok(None) | Err(_)) => events = subscribed_again(&client).await.map_err(explained)?,
            // No event until the next status is due.
            Err(_) => {}
        }
    }
}

/// A new subscription. A host that ends its stream serves no longer for a moment, so the attempts
/// of a call may be too few.
async fn subscribed_again(client: &Client) -> Result<EventStream<LrpInstanceEvent>, CallError> {
    const MORE_ATTEMPTS: usize = 20;
    for _ in 0..MORE_ATTEMPTS {
        if let Ok(events) = client.lrp_instance_events("").await {
            return Ok(events);
        }
    }
    client.lrp_instance_events("").await
}

/// An event that a watch follows.
enum WatchedEvent {
    Instance(InstanceLine),
    /// The update is complete or halted. The events of its instances come before.
    End,
}

/// The next event about an LRP that a watch follows; `None` at the end of the stream.
async fn next_event(
    events: &mut EventStream<LrpInstanceEvent>,
    process_guid: &str,
) -> Result<Option<WatchedEvent>, CallError> {
    while let Some(event) = events.next().await? {
        if let LrpInstanceEvent::DesiredLrpChanged(changed) = &event
            && is_end(changed, process_guid)
        {
            return Ok(Some(WatchedEvent::End));
        }
        if let Some(line) =
            InstanceLine::of(&event).filter(|line| line.process_guid == process_guid.as_bytes())
        {
            return Ok(Some(WatchedEvent::Instance(line)));
        }
    }
    Ok(None)
}

/// Whether the update of an LRP is complete or halted with this change.
fn is_end(changed: &models::DesiredLrpChangedEvent, process_guid: &str) -> bool {
    let (Some(before), Some(after)) = (&changed.before, &changed.after) else {
        return false;
    };
    let is_complete =
        !before.previous_definition_id.is_empty() && after.previous_definition_id.is_empty();
    let is_halted = (changed.update_status.as_ref())
        .is_some_and(|status| end(status) == Some(WatchEnd::Halted));
    after.process_guid == process_guid.as_bytes() && (is_complete || is_halted)
}

fn end(status: &models::DesiredLrpUpdateStatus) -> Option<WatchEnd> {
    if status.previous_definition_id.is_empty() {
        Some(WatchEnd::Complete)
    } else if status.failing > 0 {
        Some(WatchEnd::Halted)
    } else {
        None
    }
}

/// Checks that the watch has ended without failing instances.
///
/// # Errors
/// Instances fail; the error has their number and the reason of the first one, and what to do.
fn check_end(
    end: WatchEnd,
    process_guid: &str,
    status: &models::DesiredLrpUpdateStatus,
) -> anyhow::Result<()> {
    let guid = process_guid.escape_debug();
    let definition = printable(&status.definition_id);
    let counts = counts(status);
    let reason = match printable(&status.halt_reason) {
        reason if reason.is_empty() => "no reason is known".to_owned(),
        reason => reason,
    };
    match end {
        WatchEnd::Complete if status.failing == 0 => Ok(()),
        WatchEnd::Complete => bail!(
            "instances of {guid} fail with the definition {definition}: {reason} ({counts}); correct it with `bbs lrp update`, or \
             return to another one with `bbs lrp rollback`"
        ),
        // A correction is accepted once the update is cancelled.
        WatchEnd::Halted if !status.cancelled => bail!(
            "the update of {guid} to the definition {definition} is halted: {reason} ({counts}); undo it with `bbs lrp cancel {guid}`, \
             after which `bbs lrp update` corrects it"
        ),
        WatchEnd::Halted => bail!(
            "the cancelled update of {guid} cannot return to the definition {definition}: {reason} ({counts}); correct it with \
             `bbs lrp update`, or go to another definition with `bbs lrp rollback`"
        ),
    }
}

struct Printer<'a> {
    process_guid: &'a str,
    is_json: bool,
}

impl Printer<'_> {
    fn status(
        &self,
        before: Option<&models::DesiredLrpUpdateStatus>,
        now: &models::DesiredLrpUpdateStatus,
    ) -> anyhow::Result<OutputReader> {
        if self.is_json {
            return output::json_line(&json!({ "status": json::to_value(now) }));
        }
        output::line(status_line(self.process_guid, before, now))
    }

    /// Prints the events up to the one of the end, for [`LAST_EVENTS`] at most.
    async fn last_events(
        &self,
        events: &mut EventStream<LrpInstanceEvent>,
    ) -> anyhow::Result<OutputReader> {
        let deadline = tokio::time::Instant::now() + LAST_EVENTS;
        while let Ok(Ok(Some(WatchedEvent::Instance(line)))) =
            tokio::time::timeout_at(deadline, next_event(events, self.process_guid)).await
        {
            if self.instance(&line)? == OutputReader::Gone {
                return Ok(OutputReader::Gone);
            }
        }
        Ok(OutputReader::Present)
    }

    fn instance(&self, line: &InstanceLine) -> anyhow::Result<OutputReader> {
        if self.is_json {
            return output::json_line(&json!({ "event": line.name, "content": line.content }));
        }
        output::line(&line.text)
    }
}

fn status_line(
    process_guid: &str,
    before: Option<&models::DesiredLrpUpdateStatus>,
    now: &models::DesiredLrpUpdateStatus,
) -> String {
    let guid = process_guid.escape_debug();
    let definition = printable(&now.definition_id);
    match before {
        None if end(now) == Some(WatchEnd::Complete) => {
            format!("{guid}: no update is under way; {}", outcome(now))
        }
        Some(before) if end(now) == Some(WatchEnd::Complete) && before.cancelled => {
            format!("{guid}: the cancelled update is undone; {}", outcome(now))
        }
        Some(_) if end(now) == Some(WatchEnd::Complete) => {
            format!("{guid}: the update is complete; {}", outcome(now))
        }
        _ if now.cancelled => format!(
            "{guid}: back to the definition {definition}: {}",
            counts(now)
        ),
        _ => format!("{guid}: to the definition {definition}: {}", counts(now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(definition: &str, previous: &str) -> models::DesiredLrpUpdateStatus {
        models::DesiredLrpUpdateStatus {
            definition_id: definition.into(),
            previous_definition_id: previous.into(),
            instances: 3,
            ..Default::default()
        }
    }

    fn complete(definition: &str) -> models::DesiredLrpUpdateStatus {
        models::DesiredLrpUpdateStatus {
            running: 3,
            ..status(definition, "")
        }
    }

    /// With one instance of three that fails.
    fn failing(definition: &str, previous: &str) -> models::DesiredLrpUpdateStatus {
        models::DesiredLrpUpdateStatus {
            running: 2,
            failing: 1,
            halt_reason: b"exit\x1b".to_vec(),
            ..status(definition, previous)
        }
    }

    #[test]
    fn update_ends_when_there_is_no_previous_definition_or_an_instance_fails() {
        let without_reason = models::DesiredLrpUpdateStatus {
            halt_reason: Vec::new(),
            ..failing("2", "1")
        };
        assert_eq!(end(&status("2", "1")), None);
        assert_eq!(end(&complete("2")), Some(WatchEnd::Complete));
        assert_eq!(end(&failing("2", "")), Some(WatchEnd::Complete));
        assert_eq!(end(&failing("2", "1")), Some(WatchEnd::Halted));
        assert_eq!(end(&without_reason), Some(WatchEnd::Halted));
    }

    #[test]
    fn watch_that_ends_with_failing_instances_is_an_error_that_names_what_is_accepted() {
        let error = |status: &models::DesiredLrpUpdateStatus| {
            let checked = check_end(end(status).unwrap(), "app", status);
            checked.err().map(|error| error.to_string())
        };
        assert_eq!(error(&complete("2")), None);
        assert_eq!(
            error(&failing("2", "")).unwrap(),
            "instances of app fail with the definition 2: exit\\u{1b} (2 of 3 run it, 1 fail); correct it with `bbs lrp update`, or \
             return to another one with `bbs lrp rollback`"
        );
        let halted = error(&failing("2", "1")).unwrap();
        assert!(
            halted.starts_with("the update of app to the definition 2 is halted: exit")
                && halted.contains("`bbs lrp cancel app`"),
            "{halted}"
        );
        let cancelled = models::DesiredLrpUpdateStatus {
            cancelled: true,
            ..failing("1", "2")
        };
        let halted = error(&cancelled).unwrap();
        assert!(
            halted.contains("`bbs lrp update`") && halted.contains("`bbs lrp rollback`"),
            "{halted}"
        );
        assert!(!halted.contains("lrp cancel"), "{halted}");
    }

    #[test]
    fn status_line_says_what_an_update_is_and_how_it_ended() {
        let one = complete("1");
        let two = complete("2");
        let under_way = status("2", "1");
        let cancelled = models::DesiredLrpUpdateStatus {
            cancelled: true,
            running: 1,
            ..status("1", "2")
        };
        let line = |before, now| status_line("app", before, now);
        assert_eq!(
            line(None, &one),
            "app: no update is under way; all 3 instances run the definition 1"
        );
        assert_eq!(
            line(None, &under_way),
            "app: to the definition 2: 0 of 3 run it"
        );
        assert_eq!(
            line(Some(&under_way), &two),
            "app: the update is complete; all 3 instances run the definition 2"
        );
        assert_eq!(
            line(Some(&under_way), &cancelled),
            "app: back to the definition 1: 1 of 3 run it"
        );
        assert_eq!(
            line(Some(&cancelled), &one),
            "app: the cancelled update is undone; all 3 instances run the definition 1"
        );
        assert_eq!(
            line(Some(&cancelled), &failing("1", "")),
            "app: the cancelled update is undone; the definition 1: 2 of 3 run it, 1 fail"
        );
    }
}
