//! `bbs lrp status` and `bbs lrp definitions`: the update of an LRP, and the definitions that it
//! has had.

use bbs_client::{json, models};

use super::super::bbs::{CalledBbs, printable};
use super::super::output::{details, table};
use super::change::status_of;
use super::counts::counts;
use super::instances::time;
use super::listed::action;
use super::{NamedLrp, about};

pub(super) async fn status(lrp: NamedLrp, bbs: CalledBbs) -> anyhow::Result<()> {
    let status = status_of(&bbs.client, &lrp).await?;
    bbs.form.print(&json::to_value(&status), || text(&status))
}

fn text(status: &models::DesiredLrpUpdateStatus) -> String {
    let previous = printable(&status.previous_definition_id);
    let started = time(status.started_at);
    let update = if previous.is_empty() {
        "none is under way".to_owned()
    } else if status.cancelled {
        format!("to {previous} is cancelled, since {started}")
    } else {
        format!("from {previous}, since {started}")
    };
    let halted = match printable(&status.halt_reason) {
        reason if reason.is_empty() => reason,
        reason => format!("since {}: {reason}", time(status.halted_at)),
    };
    let lines = [
        ("Definition", printable(&status.definition_id)),
        ("Update", update),
        ("Instances", counts(status)),
        ("Halted", halted),
    ];
    details(11, lines)
}

pub(super) async fn definitions(lrp: NamedLrp, bbs: CalledBbs) -> anyhow::Result<()> {
    let CalledBbs { client, form } = bbs;
    let request = models::LrpDefinitionsRequest {
        process_guid: lrp.process_guid.clone().into(),
    };
    let answer = about(&lrp.process_guid, client.lrp_definitions(&request)).await?;
    if form.json {
        return form.print(&json::to_values(&answer.definitions), String::new);
    }
    let status = status_of(&client, &lrp).await?;
    form.print(&(), || definitions_text(&answer.definitions, &status))
}

fn definitions_text(
    found: &[models::ArchivedLrpDefinition],
    status: &models::DesiredLrpUpdateStatus,
) -> String {
    let rows = found.iter().map(|archived| {
        let definition = archived.definition.clone().unwrap_or_default();
        let state = match &definition.definition_id {
            id if *id == status.definition_id => "current",
            id if *id == status.previous_definition_id => "previous",
            _ => "archived",
        };
        [
            printable(&definition.definition_id),
            state.to_owned(),
            time(archived.created_at),
            time(archived.last_active_at),
            definition.action.as_ref().map(action).unwrap_or_default(),
        ]
    });
    let heads = ["DEFINITION", "STATE", "CREATED", "LAST ACTIVE", "ACTION"];
    table(heads, rows)
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
