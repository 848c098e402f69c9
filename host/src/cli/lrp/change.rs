//! The commands that change an LRP: each makes one call and says what happens then.

use bbs_client::{Client, Version, json, models};
use serde_json::{Value, json};

use super::super::bbs::input::MessageFile;
use super::super::bbs::{CalledBbs, printable};
use super::super::output::OutputForm;
use super::counts::outcome;
use super::{NamedLrp, RemovedLrp, RollBackArgs, ScaleArgs, UpdateFile, about};

/// The result of a change.
fn print(form: OutputForm, value: &Value, text: &str) -> anyhow::Result<()> {
    form.print(value, || format!("{text}\n"))
}

pub(super) async fn desire(file: MessageFile, bbs: CalledBbs) -> anyhow::Result<()> {
    let lrp: models::DesiredLrp = file.message()?;
    let guid = printable(&lrp.process_guid);
    let client = match &lrp.definition_id[..] {
        [] => bbs.client,
        // In Diego's API an id would be ignored.
        _ => bbs.client.speaking(Version::Definitions),
    };
    let value = json!({ "process_guid": guid, "instances": lrp.instances });
    let text = format!(
        "{guid} is desired with {}; `bbs lrp show {guid}` shows it",
        instances(lrp.instances)
    );
    let request = models::DesireLrpRequest {
        desired_lrp: Some(lrp),
    };
    about(&guid, client.desire_lrp(&request)).await?;
    print(bbs.form, &value, &text)
}

pub(super) async fn update(
    UpdateFile { lrp, update: file }: UpdateFile,
    bbs: CalledBbs,
) -> anyhow::Result<()> {
    let update: models::DesiredLrpUpdate = file.message()?;
    anyhow::ensure!(
        update != models::DesiredLrpUpdate::default(),
        "{} changes nothing; it may have `instances`, `routes`, `annotation`, `metric_tags` and `lrp_definition`",
        file.path().display()
    );
    let has_definition = update.lrp_definition.is_some();
    change(&bbs.client, &lrp.process_guid, update).await?;
    if has_definition {
        return print_status(bbs, &lrp).await;
    }
    let guid = lrp.process_guid.escape_debug();
    print(
        bbs.form,
        &json!({ "process_guid": lrp.process_guid }),
        &format!("{guid} is changed; `bbs lrp show {guid}` shows it"),
    )
}

pub(super) async fn scale(args: ScaleArgs, bbs: CalledBbs) -> anyhow::Result<()> {
    let ScaleArgs {
        lrp: NamedLrp { process_guid },
        instances: count,
    } = args;
    let update = models::DesiredLrpUpdate {
        instances: Some(count),
        ..Default::default()
    };
    change(&bbs.client, &process_guid, update).await?;
    let text = format!(
        "{} is desired with {}",
        process_guid.escape_debug(),
        instances(count)
    );
    let value = json!({ "process_guid": process_guid, "instances": count });
    print(bbs.form, &value, &text)
}

/// Changes an LRP, in Diego's API unless it has a definition.
async fn change(
    client: &Client,
    process_guid: &str,
    update: models::DesiredLrpUpdate,
) -> anyhow::Result<()> {
    let version = if update.lrp_definition.is_some() {
        Version::Definitions
    } else {
        Version::Diego
    };
    let request = models::UpdateDesiredLrpRequest {
        process_guid: process_guid.into(),
        update: Some(update),
    };
    let client = client.speaking(version);
    about(process_guid, client.update_desired_lrp(&request)).await?;
    Ok(())
}

pub(super) async fn cancel(lrp: NamedLrp, bbs: CalledBbs) -> anyhow::Result<()> {
    let request = models::CancelUpdateDesiredLrpRequest {
        process_guid: lrp.process_guid.clone().into(),
    };
    about(
        &lrp.process_guid,
        bbs.client.cancel_update_desired_lrp(&request),
    )
    .await?;
    print_status(bbs, &lrp).await
}

pub(super) async fn roll_back(
    RollBackArgs { lrp, definition_id }: RollBackArgs,
    bbs: CalledBbs,
) -> anyhow::Result<()> {
    let request = models::RollbackDesiredLrpRequest {
        process_guid: lrp.process_guid.clone().into(),
        definition_id: definition_id.into(),
    };
    about(
        &lrp.process_guid,
        bbs.client.roll_back_desired_lrp(&request),
    )
    .await?;
    print_status(bbs, &lrp).await
}

/// Prints the update that a change has begun or cancelled.
async fn print_status(bbs: CalledBbs, lrp: &NamedLrp) -> anyhow::Result<()> {
    let status = status_of(&bbs.client, lrp).await?;
    let guid = lrp.process_guid.escape_debug();
    let definition = printable(&status.definition_id);
    let text = if status.previous_definition_id.is_empty() {
        format!("no update of {guid} is under way; {}", outcome(&status))
    } else if status.cancelled {
        format!(
            "the update of {guid} is cancelled; `bbs lrp watch {guid}` shows its instances return to the definition {definition}"
        )
    } else {
        format!(
            "the update of {guid} to the definition {definition} has begun; `bbs lrp watch {guid}` shows it"
        )
    };
    print(bbs.form, &json::to_value(&status), &text)
}

/// The status of the update of an LRP.
pub(super) async fn status_of(
    client: &Client,
    NamedLrp { process_guid }: &NamedLrp,
) -> anyhow::Result<models::DesiredLrpUpdateStatus> {
    let request = models::DesiredLrpUpdateStatusRequest {
        process_guid: process_guid.clone().into(),
    };
    let answer = about(process_guid, client.desired_lrp_update_status(&request)).await?;
    Ok(answer.status.unwrap_or_default())
}

pub(super) async fn remove(removed: RemovedLrp, bbs: CalledBbs) -> anyhow::Result<()> {
    let RemovedLrp {
        lrp: NamedLrp { process_guid },
        confirmation,
    } = removed;
    let guid = process_guid.escape_debug();
    confirmation.obtain(&format!(
        "This removes the LRP {guid}: its instances are stopped, and its definitions deleted."
    ))?;
    let request = models::RemoveDesiredLrpRequest {
        process_guid: process_guid.clone().into(),
    };
    about(&process_guid, bbs.client.remove_desired_lrp(&request)).await?;
    let text = format!("{guid} is removed; its instances are being stopped");
    print(bbs.form, &json!({ "process_guid": process_guid }), &text)
}

fn instances(count: i32) -> String {
    if count == 1 {
        "1 instance".to_owned()
    } else {
        format!("{count} instances")
    }
}
