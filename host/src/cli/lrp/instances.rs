//! `bbs lrp instances`: a line for each container of an instance.

use bbs_client::{json, methods, models};

use super::super::bbs::{CalledBbs, explained, printable};
use super::super::output::{self, table};
use super::{ListedInstances, call_newest};

pub(super) async fn list(listed: ListedInstances, bbs: CalledBbs) -> anyhow::Result<()> {
    let filter = models::ActualLrPsRequest {
        domain: listed.domain.unwrap_or_default().into(),
        cell_id: listed.cell.unwrap_or_default().into(),
        process_guid: listed.process_guid.unwrap_or_default().into(),
        index: None,
    };
    let rows = call_newest(&bbs.client, methods::ACTUAL_LRPS, &filter)
        .await
        .map_err(explained)?
        .actual_lrps;
    bbs.form.print(&json::to_values(&rows), || match &rows[..] {
        [] => "There are no such instances.\n".to_owned(),
        rows => text(rows),
    })
}

/// The table of instances, in the order of their LRPs and indices.
pub(super) fn text(rows: &[models::ActualLrp]) -> String {
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by_key(|row| {
        row.actual_lrp_key
            .as_ref()
            .map(|key| (&key.process_guid, key.index))
    });
    let heads = [
        "INSTANCE",
        "STATE",
        "CELL",
        "ADDRESS",
        "SINCE",
        "DEFINITION",
    ];
    table(heads, rows.into_iter().map(line))
}

fn line(row: &models::ActualLrp) -> [String; 6] {
    let key = row.actual_lrp_key.clone().unwrap_or_default();
    let cell = row
        .actual_lrp_instance_key
        .as_ref()
        .map(|instance| printable(&instance.cell_id));
    [
        format!("{}/{}", printable(&key.process_guid), key.index),
        state(row),
        cell.unwrap_or_default(),
        address(row),
        time(row.since),
        printable(&row.desired_lrp_definition_id),
    ]
}

fn state(row: &models::ActualLrp) -> String {
    let mut state = printable(&row.state).to_lowercase();
    if row.presence() != models::actual_lrp::Presence::Ordinary {
        state += &format!(", {}", row.presence().as_str_name().to_lowercase());
    }
    if row.routable == Some(false) && row.state == b"RUNNING" {
        state += ", not routable";
    }
    if row.crash_count > 0 {
        state += &format!(", {} crashes", row.crash_count);
    }
    let reason = if row.placement_error.is_empty() {
        &row.crash_reason
    } else {
        &row.placement_error
    };
    if reason.is_empty() {
        state
    } else {
        format!("{state}: {}", printable(reason))
    }
}

fn address(row: &models::ActualLrp) -> String {
    let Some(net) = row
        .actual_lrp_net_info
        .as_ref()
        .filter(|net| !net.address.is_empty())
    else {
        return String::new();
    };
    let port = net
        .ports
        .first()
        .map(|port| format!(":{}", port.host_port))
        .unwrap_or_default();
    format!("{}{port}", printable(&net.address))
}

/// A time of the API, in ns since 1970; empty for 0.
pub(super) fn time(ns: i64) -> String {
    if ns == 0 {
        String::new()
    } else {
        output::time(ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_shown_in_order_with_what_is_unusual_about_them() {
        let row = |index, state: &str| models::ActualLrp {
            actual_lrp_key: Some(models::ActualLrpKey {
                process_guid: b"p".to_vec(),
                index,
                ..Default::default()
            }),
            state: state.into(),
            ..Default::default()
        };
        let net = models::ActualLrpNetInfo {
            address: b"10.0.0.1".to_vec(),
            ports: vec![models::PortMapping {
                host_port: 61001,
                ..Default::default()
            }],
            ..Default::default()
        };
        let running = models::ActualLrp {
            since: 1_469_643_829_500_000_000,
            routable: Some(false),
            presence: models::actual_lrp::Presence::Evacuating.into(),
            actual_lrp_net_info: Some(net),
            desired_lrp_definition_id: b"version-1".to_vec(),
            ..row(0, "RUNNING")
        };
        let crashed = models::ActualLrp {
            crash_count: 3,
            crash_reason: b"exit\n1".to_vec(),
            ..row(1, "CRASHED")
        };
        let text = text(&[crashed, running]);
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "INSTANCE STATE CELL ADDRESS SINCE DEFINITION",
                "p/0 running, evacuating, not routable 10.0.0.1:61001 2016-07-27T18:23:49Z version-1",
                "p/1 crashed, 3 crashes: exit\\n1",
            ]
        );
    }
}
