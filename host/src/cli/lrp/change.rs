//! The commands that change an LRP: each makes one call and says what happens then.

use bbs_client::{CallError, Client, Version, json, models};
use serde_json::{Value, json};

use super::super::bbs::{input, printable};
use super::super::confirm;
use super::super::output::OutputForm;
use super::{DesiredFile, NamedLrp, RemovedLrp, RolledBack, Scaled, UpdateFile, call_failed};

/// The result of a change.
fn print(form: OutputForm, value: &Value, text: &str) -> anyhow::Result<()> {
    form.print(value, || format!("{text}\n"))?;
    Ok(())
}

pub(super) async fn desire(DesiredFile { file, form, bbs }: DesiredFile) -> anyhow::Result<()> {
    let lrp: models::DesiredLrp = input::message(&file)?;
    let guid = printable(&lrp.process_guid);
    let client = match &lrp.definition_id[..] {
        [] => bbs.client()?,
        // In Diego's API an id would be ignored.
        _ => bbs.client()?.speaking(Version::Definitions),
    };
    let value = json!({ "process_guid": guid, "instances": lrp.instances });
    let text = format!(
        "{guid} is desired with {}; `bbs lrp show {guid}` shows it",
        instances(lrp.instances)
    );
    let request = models::DesireLrpRequest {
        desired_lrp: Some(lrp),
    };
    client
        .desire_lrp(&request)
        .await
        .map_err(|error| call_failed(error, &guid))?;
    print(form, &value, &text)
}

pub(super) async fn update(
    UpdateFile {
        process_guid,
        file,
        form,
        bbs,
    }: UpdateFile,
) -> anyhow::Result<()> {
    let update: models::DesiredLrpUpdate = input::message(&file)?;
    anyhow::ensure!(
        update != models::DesiredLrpUpdate::default(),
        "{} changes nothing; it may have `instances`, `routes`, `annotation`, `metric_tags` and `lrp_definition`",
        file.display()
    );
    let client = bbs.client()?;
    let has_definition = update.lrp_definition.is_some();
    change(&client, &process_guid, update).await?;
    if has_definition {
        return print_status(&client, &process_guid, form).await;
    }
    let guid = process_guid.escape_debug();
    print(
        form,
        &json!({ "process_guid": process_guid }),
        &format!("{guid} is changed; `bbs lrp show {guid}` shows it"),
    )
}

pub(super) async fn scale(
    Scaled {
        process_guid,
        instances: count,
        form,
        bbs,
    }: Scaled,
) -> anyhow::Result<()> {
    let update = models::DesiredLrpUpdate {
        instances: Some(count),
        ..Default::default()
    };
    change(&bbs.client()?, &process_guid, update).await?;
    let text = format!(
        "{} is desired with {}",
        process_guid.escape_debug(),
        instances(count)
    );
    print(
        form,
        &json!({ "process_guid": process_guid, "instances": count }),
        &text,
    )
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
    let changed = client.speaking(version).update_desired_lrp(&request).await;
    changed.map_err(|error| call_failed(error, process_guid))?;
    Ok(())
}

pub(super) async fn cancel(
    NamedLrp {
        process_guid,
        form,
        bbs,
    }: NamedLrp,
) -> anyhow::Result<()> {
    let client = bbs.client()?;
    let request = models::CancelUpdateDesiredLrpRequest {
        process_guid: process_guid.clone().into(),
    };
    client
        .cancel_update_desired_lrp(&request)
        .await
        .map_err(|error| call_failed(error, &process_guid))?;
    print_status(&client, &process_guid, form).await
}

pub(super) async fn roll_back(
    RolledBack {
        process_guid,
        definition_id,
        form,
        bbs,
    }: RolledBack,
) -> anyhow::Result<()> {
    let client = bbs.client()?;
    let request = models::RollbackDesiredLrpRequest {
        process_guid: process_guid.clone().into(),
        definition_id: definition_id.into(),
    };
    client
        .roll_back_desired_lrp(&request)
        .await
        .map_err(|error| call_failed(error, &process_guid))?;
    print_status(&client, &process_guid, form).await
}

/// Prints the update that a change has begun or cancelled.
async fn print_status(client: &Client, process_guid: &str, form: OutputForm) -> anyhow::Result<()> {
    let status = status_of(client, process_guid)
        .await
        .map_err(|error| call_failed(error, process_guid))?;
    let guid = process_guid.escape_debug();
    let definition = printable(&status.definition_id);
    let text = if status.previous_definition_id.is_empty() {
        format!("all instances of {guid} run the definition {definition}")
    } else if status.cancelled {
        format!(
            "the update of {guid} is cancelled; `bbs lrp watch {guid}` shows its instances return to the definition {definition}"
        )
    } else {
        format!(
            "the update of {guid} to the definition {definition} has begun; `bbs lrp watch {guid}` shows it"
        )
    };
    print(form, &json::to_value(&status), &text)
}

/// The status of the update of an LRP.
pub(super) async fn status_of(
    client: &Client,
    process_guid: &str,
) -> Result<models::DesiredLrpUpdateStatus, CallError> {
    let request = models::DesiredLrpUpdateStatusRequest {
        process_guid: process_guid.into(),
    };
    Ok(client
        .desired_lrp_update_status(&request)
        .await?
        .status
        .unwrap_or_default())
}

pub(super) async fn remove(
    RemovedLrp {
        process_guid,
        yes,
        form,
        bbs,
    }: RemovedLrp,
) -> anyhow::Result<()> {
    let guid = process_guid.escape_debug();
    if !yes {
        confirm::confirmed(&format!(
            "This removes the LRP {guid}: its instances are stopped, and its definitions deleted."
        ))?;
    }
    let request = models::RemoveDesiredLrpRequest {
        process_guid: process_guid.clone().into(),
    };
    bbs.client()?
        .remove_desired_lrp(&request)
        .await
        .map_err(|error| call_failed(error, &process_guid))?;
    print(
        form,
        &json!({ "process_guid": process_guid }),
        &format!("{guid} is removed; its instances are being stopped"),
    )
}

fn instances(count: i32) -> String {
    if count == 1 {
        "1 instance".to_owned()
    } else {
        format!("{count} instances")
    }
}
