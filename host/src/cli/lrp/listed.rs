//! `bbs lrp list` and `bbs lrp show`: desired LRPs beside what runs of them.

use std::collections::{BTreeMap, BTreeSet};

use bbs_client::{json, methods, models};
use bbs_work::joined;

use super::super::bbs::{CalledBbs, explained, printable};
use super::super::output::{details, table};
use super::{ListedLrps, NamedLrp, about, call_newest, instances};

/// The state of an instance that runs.
const RUNNING: &[u8] = b"RUNNING";

pub(super) async fn list(listed: ListedLrps, bbs: CalledBbs) -> anyhow::Result<()> {
    let CalledBbs { client, form } = bbs;
    let domain = listed.domain.unwrap_or_default();
    let filter = models::DesiredLrPsRequest {
        domain: domain.clone().into(),
        ..Default::default()
    };
    if form.json {
        let answer = call_newest(&client, methods::DESIRED_LRPS, &filter).await;
        let lrps = answer.map_err(explained)?.desired_lrps;
        return form.print(&json::to_values(&lrps), String::new);
    }
    let answer = client.desired_lrp_scheduling_infos(&filter).await;
    let infos = answer.map_err(explained)?.desired_lrp_scheduling_infos;
    let filter = models::ActualLrPsRequest {
        domain: domain.into(),
        ..Default::default()
    };
    let answer = client.actual_lrps(&filter).await.map_err(explained)?;
    form.print(&(), || text(&infos, &running(&answer.actual_lrps)))
}

/// The number of instances of each LRP that run, by process guid. One on two cells counts once.
fn running(rows: &[models::ActualLrp]) -> BTreeMap<&[u8], usize> {
    let mut indices: BTreeMap<&[u8], BTreeSet<i32>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.state == RUNNING) {
        let Some(key) = &row.actual_lrp_key else {
            continue;
        };
        indices
            .entry(&key.process_guid)
            .or_default()
            .insert(key.index);
    }
    indices
        .into_iter()
        .map(|(guid, indices)| (guid, indices.len()))
        .collect()
}

fn text(infos: &[models::DesiredLrpSchedulingInfo], running: &BTreeMap<&[u8], usize>) -> String {
    if infos.is_empty() {
        return "No LRPs are desired. `bbs lrp desire --help` shows how to create one.\n"
            .to_owned();
    }
    let heads = [
        "PROCESS GUID",
        "DOMAIN",
        "RUNNING",
        "MEMORY",
        "DISK",
        "ROOT FS",
    ];
    let rows = infos.iter().map(|info| {
        let key = info.desired_lrp_key.clone().unwrap_or_default();
        let resource = info.desired_lrp_resource.clone().unwrap_or_default();
        let running = running.get(&key.process_guid[..]).copied().unwrap_or(0);
        [
            printable(&key.process_guid),
            printable(&key.domain),
            format!("{running}/{}", info.instances),
            format!("{} MB", resource.memory_mb),
            format!("{} MB", resource.disk_mb),
            printable(&resource.root_fs),
        ]
    });
    table(heads, rows)
}

pub(super) async fn show(lrp: NamedLrp, bbs: CalledBbs) -> anyhow::Result<()> {
    let CalledBbs { client, form } = bbs;
    let request = models::DesiredLrpByProcessGuidRequest {
        process_guid: lrp.process_guid.clone().into(),
    };
    let call = call_newest(&client, methods::DESIRED_LRP, &request);
    let answer = about(&lrp.process_guid, call).await?;
    let desired = answer.desired_lrp.unwrap_or_default();
    if form.json {
        return form.print(&json::to_value(&desired), String::new);
    }
    let filter = models::ActualLrPsRequest {
        process_guid: lrp.process_guid.into(),
        ..Default::default()
    };
    let answer = call_newest(&client, methods::ACTUAL_LRPS, &filter).await;
    let rows = answer.map_err(explained)?.actual_lrps;
    form.print(&(), || text_of(&desired, &rows))
}

fn text_of(lrp: &models::DesiredLrp, rows: &[models::ActualLrp]) -> String {
    let running = running(rows)
        .get(&lrp.process_guid[..])
        .copied()
        .unwrap_or(0);
    let update = match printable(&lrp.previous_definition_id) {
        previous if previous.is_empty() => previous,
        previous => format!("from the definition {previous}"),
    };
    let limits = format!("{} MB of memory, {} MB of disk", lrp.memory_mb, lrp.disk_mb);
    let mut lines = vec![
        ("Process guid", printable(&lrp.process_guid)),
        ("Domain", printable(&lrp.domain)),
        (
            "Instances",
            format!("{} desired, {running} run", lrp.instances),
        ),
        ("Definition", printable(&lrp.definition_id)),
        ("Update", update),
        ("Root fs", printable(&lrp.root_fs)),
        (
            "Action",
            lrp.action.as_ref().map(action).unwrap_or_default(),
        ),
        (
            "Monitor",
            lrp.monitor.as_ref().map(action).unwrap_or_default(),
        ),
        ("Limits", limits),
        ("Ports", joined(&lrp.ports)),
    ];
    let routes = lrp.routes.iter().flat_map(|routes| &routes.routes);
    lines.extend(routes.map(|route| {
        (
            "Route",
            format!("{} {}", printable(&route.key), printable(&route.value)),
        )
    }));
    lines.push(("Annotation", printable(&lrp.annotation)));
    let mut out = details(12, lines);
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&instances::text(rows));
    }
    out
}

/// An action in a line: the command that it runs, or else its JSON.
pub(in crate::cli) fn action(action: &models::Action) -> String {
    let Some(run) = &action.run_action else {
        return json::to_value(action).to_string();
    };
    let words = std::iter::once(&run.path)
        .chain(&run.args)
        .map(|word| printable(word));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_on_two_cells_counts_once() {
        let row = |guid: &str, index, state: &str| models::ActualLrp {
            actual_lrp_key: Some(models::ActualLrpKey {
                process_guid: guid.into(),
                index,
                ..Default::default()
            }),
            state: state.into(),
            ..Default::default()
        };
        let rows = [
            row("a", 0, "RUNNING"),
            row("a", 0, "RUNNING"),
            row("a", 1, "CLAIMED"),
            row("b", 0, "RUNNING"),
        ];
        assert_eq!(
            running(&rows),
            BTreeMap::from([(&b"a"[..], 1), (&b"b"[..], 1)])
        );
    }

    #[test]
    fn action_is_shown_by_its_command_or_as_json() {
        let run = models::RunAction {
            path: b"/bin/sh".to_vec(),
            args: vec![b"-c\n".to_vec()],
            ..Default::default()
        };
        let run = models::Action {
            run_action: Some(run),
            ..Default::default()
        };
        assert_eq!(action(&run), "/bin/sh -c\\n");
        let download = models::DownloadAction {
            from: b"http://x".to_vec(),
            ..Default::default()
        };
        let download = models::Action {
            download_action: Some(download),
            ..Default::default()
        };
        assert!(
            action(&download).starts_with(r#"{"download":{"#),
            "{}",
            action(&download)
        );
    }
}
