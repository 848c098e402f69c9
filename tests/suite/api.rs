//! Tests of the API over HTTP on a real database: the effect of each method and the text of each
//! error.

pub(crate) mod actual_lrps;
pub(crate) mod answers;
mod changes;
mod concurrency;
pub(crate) mod contention;
mod crashes;
mod damage;
mod disconnects;
mod domains;
pub(crate) mod evacuation;
mod framing;
mod list_snapshots;
mod outgoing;
mod pages;
mod request_limits;
mod retire;
mod waits;

use bbs_proto::models as proto;

use crate::harness::server::Server;

/// The smallest action that validation accepts.
pub(crate) fn run_action() -> proto::Action {
    let run = proto::RunAction {
        path: b"/bin/app".to_vec(),
        user: b"vcap".to_vec(),
        ..Default::default()
    };
    proto::Action {
        run_action: Some(run),
        ..Default::default()
    }
}

pub(crate) fn tag(key: &str, value: &str) -> proto::MetricTagEntry {
    let value = proto::MetricTagValue {
        r#static: value.into(),
        ..Default::default()
    };
    proto::MetricTagEntry {
        key: key.into(),
        value: Some(value),
    }
}

pub(crate) fn routes(entries: &[(&str, &str)]) -> proto::ProtoRoutes {
    proto::ProtoRoutes {
        routes: entries
            .iter()
            .map(|(key, value)| proto::RouteEntry {
                key: (*key).into(),
                value: (*value).into(),
            })
            .collect(),
    }
}

/// The smallest desired LRP that validation accepts.
pub(crate) fn lrp(process_guid: &str) -> proto::DesiredLrp {
    proto::DesiredLrp {
        process_guid: process_guid.into(),
        domain: b"domain".to_vec(),
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        instances: 2,
        action: Some(run_action()),
        metric_tags: vec![tag("source_id", "source")],
        ..Default::default()
    }
}

pub(crate) async fn desire(server: &Server, lrp: proto::DesiredLrp) {
    let reply = server
        .call(
            "/v1/desired_lrp/desire.r2",
            &proto::DesireLrpRequest {
                desired_lrp: Some(lrp),
            },
        )
        .await;
    reply.assert_no_error();
}

async fn remove(server: &Server, guid: &str) -> Option<proto::Error> {
    let request = proto::RemoveDesiredLrpRequest {
        process_guid: guid.into(),
    };
    server
        .call("/v1/desired_lrp/remove", &request)
        .await
        .message::<proto::DesiredLrpLifecycleResponse>()
        .error
}

pub(crate) async fn get(server: &Server, process_guid: &str) -> proto::DesiredLrp {
    let request = proto::DesiredLrpByProcessGuidRequest {
        process_guid: process_guid.into(),
    };
    let reply = server
        .call("/v1/desired_lrps/get_by_process_guid.r3", &request)
        .await;
    let answer: proto::DesiredLrpResponse = reply.message();
    assert_eq!(answer.error, None);
    answer
        .desired_lrp
        .expect("an answer without an error has the LRP")
}

async fn list(server: &Server, request: proto::DesiredLrPsRequest) -> Vec<proto::DesiredLrp> {
    let answer: proto::DesiredLrPsResponse = server
        .call("/v1/desired_lrps/list.r3", &request)
        .await
        .message();
    assert_eq!(answer.error, None);
    answer.desired_lrps
}

/// Sorted, because lists have no defined order.
fn guids(lrps: &[proto::DesiredLrp]) -> Vec<String> {
    let mut guids: Vec<_> = lrps
        .iter()
        .map(|lrp| String::from_utf8(lrp.process_guid.clone()).unwrap())
        .collect();
    guids.sort();
    guids
}
