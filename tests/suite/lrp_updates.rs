//! Definitions of desired LRPs over HTTP on a real database: updates, cancellations and rollbacks,
//! instance by instance, with the calls of cells made by the tests. No cell is present, so a
//! replaced container is removed as soon as it is to be stopped. `tests/definitions.tsv` names the
//! test of each sentence of the specification.

mod archive;
mod auctions;
mod calls;
mod cancellations;
mod contents;
mod down;
mod events;
mod halts;
mod hosts;
mod instances;
mod pace;
mod pinned;
mod pushes;
mod sentences;
mod sequences;
mod stops;

use std::time::Instant;

use bbs::testing::domain::Policy;
use bbs_model::lrp_update::Pace;
use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use bbs_proto::prost::Message;

use crate::api::actual_lrps::{CLAIM, CRASH, START, call_error, claim, crash, sorted, start};
use crate::api::{lrp, tag};
use crate::harness::database::Kind;
use crate::harness::modules::translators;
use crate::harness::neighbours::Neighbours;
use crate::harness::server::{Options, Server};
use crate::harness::{PATIENCE, pause, until};

const UPDATE: &str = "/v1.2/desired_lrp/update";
const CANCEL: &str = "/v1.2/desired_lrp/cancel_update";
const ROLLBACK: &str = "/v1.2/desired_lrp/rollback";

/// A server with a desired LRP of this many instances, which runs version-1 in the containers
/// `old-0`, `old-1` and so on.
async fn running(kind: Kind, instances: i32) -> Server {
    running_with(Options::on(kind), instances).await
}

/// An update whose first container waits for its successor. The cell of that container is present.
async fn replacing(kind: Kind, neighbours: &Neighbours) -> Server {
    neighbours.add_cell("cell-old-0");
    let options = Options {
        clients: neighbours.clients(),
        ..Options::on(kind)
    };
    let server = running_with(options, 1).await;
    update_to(&server, "version-2").await;
    until_rows(&server, &REPLACED).await;
    server
}

async fn running_with(options: Options, instances: i32) -> Server {
    let server = Server::start(Options {
        translators: translators(),
        ..options
    })
    .await;
    desire(
        &server,
        proto::DesiredLrp {
            instances,
            ..version_1()
        },
    )
    .await;
    for index in 0..instances {
        start_new(&server, index, &format!("old-{index}")).await;
    }
    server
}

/// A server as [`running`], with a policy.
async fn running_under(kind: Kind, policy: Policy, instances: i32) -> Server {
    let options = Options {
        policy,
        ..Options::on(kind)
    };
    running_with(options, instances).await
}

/// A server as [`running`], with a pace of updates.
async fn running_at(kind: Kind, update_pace: Pace, instances: i32) -> Server {
    let policy = Policy {
        update_pace,
        ..Policy::default()
    };
    running_under(kind, policy, instances).await
}

/// A server as [`running`], with an update to version-2 that is replacing the first instance.
async fn updating(kind: Kind, instances: i32) -> Server {
    let server = running(kind, instances).await;
    update_to(&server, "version-2").await;
    let others = (1..instances).map(|index| format!("{index}/0 RUNNING old-{index} version-1"));
    let expected: Vec<_> = REPLACED
        .map(str::to_owned)
        .into_iter()
        .chain(others)
        .collect();
    until_rows(
        &server,
        &expected.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .await;
    server
}

fn version_1() -> proto::DesiredLrp {
    proto::DesiredLrp {
        definition_id: b"version-1".to_vec(),
        memory_mb: 64,
        ..lrp("guid")
    }
}

/// The smallest definition that validation accepts.
pub(crate) fn definition(id: &str) -> proto::LrpDefinition {
    proto::LrpDefinition {
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        action: lrp("").action,
        metric_tags: vec![tag("source_id", "source")],
        memory_mb: 128,
        definition_id: id.into(),
        ..Default::default()
    }
}

/// An environment of this many bytes.
fn environment(bytes: usize) -> Vec<proto::EnvironmentVariable> {
    vec![proto::EnvironmentVariable {
        name: b"LARGE".to_vec(),
        value: vec![b'x'; bytes],
    }]
}

/// A definition of 3.5 MB as stored.
fn large(id: &str) -> proto::LrpDefinition {
    proto::LrpDefinition {
        environment_variables: environment(2_600_000),
        ..definition(id)
    }
}

fn to(definition: proto::LrpDefinition) -> proto::DesiredLrpUpdate {
    proto::DesiredLrpUpdate {
        lrp_definition: Some(definition),
        ..Default::default()
    }
}

/// Makes a call about the desired LRP and returns its error.
async fn error_of(server: &Server, path: &str, request: &impl Message) -> Option<Type> {
    let answer: proto::DesiredLrpLifecycleResponse = server.call(path, request).await.message();
    answer.error.map(|error| error.r#type())
}

async fn desire(server: &Server, lrp: proto::DesiredLrp) {
    let request = proto::DesireLrpRequest {
        desired_lrp: Some(lrp),
    };
    assert_eq!(
        error_of(server, "/v1.2/desired_lrp/desire.r2", &request).await,
        None
    );
}

async fn get(server: &Server, process_guid: &str) -> proto::DesiredLrp {
    let request = proto::DesiredLrpByProcessGuidRequest {
        process_guid: process_guid.into(),
    };
    let answer: proto::DesiredLrpResponse = server
        .call("/v1.2/desired_lrps/get_by_process_guid.r3", &request)
        .await
        .message();
    assert_eq!(answer.error, None);
    answer
        .desired_lrp
        .expect("an answer without an error has the LRP")
}

/// All instances, sorted.
async fn images(server: &Server) -> Vec<proto::ActualLrp> {
    let reply = server
        .call(
            "/v1.2/actual_lrps/list",
            &proto::ActualLrPsRequest::default(),
        )
        .await;
    sorted(reply.message::<proto::ActualLrPsResponse>().actual_lrps)
}

async fn update(server: &Server, update: proto::DesiredLrpUpdate) -> Option<Type> {
    let request = proto::UpdateDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        update: Some(update),
    };
    error_of(server, UPDATE, &request).await
}

async fn update_to(server: &Server, id: &str) {
    assert_eq!(update(server, to(definition(id))).await, None);
}

async fn cancel(server: &Server) -> Option<Type> {
    error_of(
        server,
        CANCEL,
        &proto::CancelUpdateDesiredLrpRequest {
            process_guid: b"guid".to_vec(),
        },
    )
    .await
}

async fn remove_lrp(server: &Server) -> Option<Type> {
    let request = proto::RemoveDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
    };
    error_of(server, "/v1.2/desired_lrp/remove", &request).await
}

async fn roll_back(server: &Server, id: &str) -> Option<Type> {
    let request = proto::RollbackDesiredLrpRequest {
        process_guid: b"guid".to_vec(),
        definition_id: id.into(),
    };
    error_of(server, ROLLBACK, &request).await
}

async fn status(server: &Server) -> proto::DesiredLrpUpdateStatus {
    let request = proto::DesiredLrpUpdateStatusRequest {
        process_guid: b"guid".to_vec(),
    };
    let answer: proto::DesiredLrpUpdateStatusResponse = server
        .call("/v1.2/desired_lrp/update_status", &request)
        .await
        .message();
    assert_eq!(answer.error, None);
    answer
        .status
        .expect("an answer without an error has the status")
}

async fn claim_new(server: &Server, index: i32, name: &str) {
    assert_eq!(call_error(server, CLAIM, &claim(index, name)).await, None);
}

/// A cell claims an instance and starts it.
async fn start_new(server: &Server, index: i32, name: &str) {
    claim_new(server, index, name).await;
    assert_eq!(call_error(server, START, &start(index, name)).await, None);
}

async fn start_new_unroutable(server: &Server, index: i32, name: &str) {
    claim_new(server, index, name).await;
    let request = proto::StartActualLrpRequest {
        routable: Some(false),
        ..start(index, name)
    };
    assert_eq!(call_error(server, START, &request).await, None);
}

/// A cell claims an instance, whose container crashes.
async fn crash_new(server: &Server, index: i32, name: &str) {
    claim_new(server, index, name).await;
    assert_eq!(call_error(server, CRASH, &crash(index, name)).await, None);
}

/// A container crashes, as do its two successors.
async fn crash_three_times(server: &Server, index: i32, name: &str) {
    assert_eq!(call_error(server, CRASH, &crash(index, name)).await, None);
    crash_new(server, index, name).await;
    crash_new(server, index, name).await;
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The ids of the current and the previous definition.
async fn ids(server: &Server) -> (String, String) {
    let lrp = get(server, "guid").await;
    (text(&lrp.definition_id), text(&lrp.previous_definition_id))
}

/// All rows, formatted as index, presence, state, container and definition.
async fn rows(server: &Server) -> Vec<String> {
    images(server)
        .await
        .into_iter()
        .map(|lrp| {
            let index = lrp.actual_lrp_key.unwrap_or_default().index;
            let presence = lrp.presence;
            let container = text(
                &lrp.actual_lrp_instance_key
                    .unwrap_or_default()
                    .instance_guid,
            );
            format!(
                "{index}/{presence} {} {container} {}",
                text(&lrp.state),
                text(&lrp.desired_lrp_definition_id)
            )
        })
        .collect()
}

/// The rows of one instance that is being replaced.
const REPLACED: [&str; 2] = ["0/0 UNCLAIMED  version-2", "0/1 RUNNING old-0 version-1"];
/// The rows of two instances, the first of which is being replaced.
const FIRST_OF_TWO: [&str; 3] = [
    "0/0 UNCLAIMED  version-2",
    "0/1 RUNNING old-0 version-1",
    "1/0 RUNNING old-1 version-1",
];
/// The rows of two instances, the second of which is being replaced.
const SECOND_OF_TWO: [&str; 3] = [
    "0/0 RUNNING new-0 version-2",
    "1/0 UNCLAIMED  version-2",
    "1/1 RUNNING old-1 version-1",
];

/// Waits until there are exactly these rows.
#[track_caller]
fn until_rows<'a>(server: &'a Server, expected: &'a [&'a str]) -> impl Future<Output = ()> + 'a {
    let caller = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = rows(server).await;
            if found == expected {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{caller}: {found:#?} instead of {expected:#?}"
            );
            pause().await;
        }
    }
}

/// Waits until no update is under way.
async fn until_done(server: &Server) {
    let deadline = Instant::now() + PATIENCE;
    while !ids(server).await.1.is_empty() {
        assert!(
            Instant::now() < deadline,
            "the update does not end: {:?} {:#?}",
            status(server).await,
            rows(server).await
        );
        pause().await;
    }
}

/// Waits until the work in the background has done all that it does before something else changes.
async fn settle(server: &Server) {
    until(|| !server.service.is_replacing()).await;
}
