//! `bbs lrp status` and `bbs lrp definitions`: the update of an LRP, and the definitions that it
//! has had.

use std::fmt::Write;

use bbs_client::{json, models};

use super::super::bbs::{columns, printable};
use super::change::status_of;
use super::instances::time;
use super::listed::action;
use super::{NamedLrp, call_failed};

pub(super) async fn status(
    NamedLrp {
        process_guid,
        form,
        bbs,
    }: NamedLrp,
) -> anyhow::Result<()> {
    let client = bbs.client()?;
    let status = status_of(&client, &process_guid)
        .await
        .map_err(|error| call_failed(error, &process_guid))?;
    form.print(&json::to_value(&status), || text(&status))?;
    Ok(())
}

fn text(status: &models::DesiredLrpUpdateStatus) -> String {
    let mut out = format!("Definition  {}\n", printable(&status.definition_id));
    let mut line = |name: &str, text: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:11} {text}");
    };
    let previous = printable(&status.previous_definition_id);
    match (previous.is_empty(), status.cancelled) {
        (true, _) => line("Update", "none is under way"),
        (false, false) => line(
            "Update",
            &format!("from {previous}, since {}", time(status.started_at)),
        ),
        (false, true) => line(
            "Update",
            &format!(
                "to {previous} is cancelled, since {}",
                time(status.started_at)
            ),
        ),
    }
    line("Instances", &counts(status));
    if !status.halt_reason.is_empty() {
        line(
            "Halted",
            &format!(
                "since {}: {}",
                time(status.halted_at),
                printable(&status.halt_reason)
            ),
        );
    }
    out
}

/// The instances of an update by what they run.
pub(super) fn counts(status: &models::DesiredLrpUpdateStatus) -> String {
    let mut text = format!("{} of {} run it", status.running, status.instances);
    for (count, rest) in [
        (status.running_previous, "run another definition"),
        (status.waiting, "do not run yet"),
        (status.failing, "fail"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {rest}");
        }
    }
    text
}

pub(super) async fn definitions(
    NamedLrp {
        process_guid,
        form,
        bbs,
    }: NamedLrp,
) -> anyhow::Result<()> {
    let client = bbs.client()?;
    let request = models::LrpDefinitionsRequest {
        process_guid: process_guid.clone().into(),
    };
    let found = client
        .lrp_definitions(&request)
        .await
        .map_err(|error| call_failed(error, &process_guid))?
        .definitions;
    if form.json {
        form.print(&json::to_values(&found), String::new)?;
        return Ok(());
    }
    let status = status_of(&client, &process_guid)
        .await
        .map_err(|error| call_failed(error, &process_guid))?;
    form.print(&(), || definitions_text(&found, &status))?;
    Ok(())
}

fn definitions_text(
    found: &[models::ArchivedLrpDefinition],
    status: &models::DesiredLrpUpdateStatus,
) -> String {
    let mut rows = vec![
        ["DEFINITION", "STATE", "CREATED", "LAST ACTIVE", "ACTION"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for archived in found {
        let definition = archived.definition.clone().unwrap_or_default();
        let state = match &definition.definition_id {
            id if *id == status.definition_id => "current",
            id if *id == status.previous_definition_id => "previous",
            _ => "archived",
        };
        rows.push(vec![
            printable(&definition.definition_id),
            state.to_owned(),
            time(archived.created_at),
            time(archived.last_active_at),
            definition.action.as_ref().map(action).unwrap_or_default(),
        ]);
    }
    columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_shows_how_far_an_update_is_and_why_it_is_halted() {
        let complete = models::DesiredLrpUpdateStatus {
            definition_id: b"2".to_vec(),
            instances: 3,
            running: 3,
            ..Default::default()
        };
        assert_eq!(
            text(&complete),
            "Definition  2\nUpdate      none is under way\nInstances   3 of 3 run it\n"
        );
        let halted = models::DesiredLrpUpdateStatus {
            previous_definition_id: b"1".to_vec(),
            started_at: 1_000_000_000,
            running: 1,
            running_previous: 2,
            failing: 1,
            halt_reason: b"exit\x1b".to_vec(),
            halted_at: 2_000_000_000,
            ..complete
        };
        assert_eq!(
            text(&halted),
            "Definition  2\n\
             Update      from 1, since 1970-01-01T00:00:01Z\n\
             Instances   1 of 3 run it, 2 run another definition, 1 fail\n\
             Halted      since 1970-01-01T00:00:02Z: exit\\u{1b}\n"
        );
    }
}
