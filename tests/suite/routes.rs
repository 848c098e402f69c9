//! Tests of behaviour that all routes share, and of `tests/routes.tsv`, which names a test for each case of each route.
//! A new route, a new error of a route and a renamed test have to be entered there.

mod faults;

use std::collections::{BTreeMap, BTreeSet};

use bbs::testing::api::{Route, routes};
use bbs_proto::models::error::Type;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::database::Kind;
use crate::harness::layouts::on_each_layout;
use crate::harness::server::{Options, Reply, Server};
use crate::harness::workspace;

/// For each route: whether it reads its body, and the errors that are specific to it.
const ROUTES: &[(&str, Body, &[&str])] = &[
    ("ping", Body::Ignored, &[]),
    ("cells/list.r1", Body::Ignored, &["UnknownError"]),
    ("domains/list", Body::Ignored, &[]),
    ("domains/upsert", Body::Read, &["InvalidRequest"]),
    ("actual_lrps/list", Body::Read, &[]),
    ("actual_lrps/list_by_process_guids", Body::Read, &["InvalidRequest"]),
    (
        "actual_lrps/claim",
        Body::Read,
        &["InvalidRequest", "ResourceNotFound", "ActualLRPCannotBeClaimed", "Deserialize"],
    ),
    ("actual_lrps/start.r1", Body::Read, &["InvalidRequest", "ActualLRPCannotBeStarted", "Deserialize"]),
    (
        "actual_lrps/crash",
        Body::Read,
        &["InvalidRequest", "ResourceNotFound", "ActualLRPCannotBeCrashed", "Deserialize"],
    ),
    ("actual_lrps/fail", Body::Read, &["InvalidRequest", "ActualLRPCannotBeFailed", "Deserialize"]),
    ("actual_lrps/remove", Body::Read, &["InvalidRequest", "ResourceNotFound", "Deserialize"]),
    ("actual_lrps/retire", Body::Read, &["InvalidRequest", "ResourceNotFound", "Deserialize", "UnknownError"]),
    ("actual_lrps/remove_evacuating", Body::Read, &["InvalidRequest", "ResourceNotFound", "Deserialize"]),
    (
        "actual_lrps/evacuate_claimed",
        Body::Read,
        &["InvalidRequest", "ResourceNotFound", "ActualLRPCannotBeUnclaimed", "Deserialize"],
    ),
    ("actual_lrps/evacuate_running.r1", Body::Read, &["InvalidRequest", "Deserialize"]),
    (
        "actual_lrps/evacuate_crashed",
        Body::Read,
        &["InvalidRequest", "ResourceNotFound", "ActualLRPCannotBeCrashed", "Deserialize"],
    ),
    ("actual_lrps/evacuate_stopped", Body::Read, &["InvalidRequest", "ResourceNotFound", "Deserialize"]),
    ("desired_lrp_scheduling_infos/list", Body::Read, &[]),
    (
        "desired_lrp_scheduling_infos/get_by_process_guid",
        Body::Read,
        &["InvalidRequest", "ResourceNotFound", "Deserialize"],
    ),
    ("desired_lrp_routing_infos/list", Body::Read, &[]),
    ("desired_lrps/list.r3", Body::Read, &[]),
    ("desired_lrps/get_by_process_guid.r3", Body::Read, &["InvalidRequest", "ResourceNotFound", "Deserialize"]),
    ("desired_lrp/desire.r2", Body::Read, &["InvalidRequest", "ResourceExists"]),
    ("desired_lrp/update", Body::Read, &["InvalidRequest", "ResourceNotFound", "Deserialize"]),
    ("desired_lrp/remove", Body::Read, &["InvalidRequest", "ResourceNotFound"]),
    ("tasks/list.r3", Body::Read, &[]),
    ("tasks/get_by_task_guid.r3", Body::Read, &["InvalidRequest", "ResourceNotFound", "Deserialize"]),
    ("tasks/desire.r2", Body::Read, &["InvalidRequest", "ResourceExists"]),
    ("tasks/start", Body::Read, &["InvalidRequest", "ResourceNotFound", "InvalidStateTransition", "Deserialize"]),
    (
        "tasks/cancel",
        Body::Read,
        &["InvalidRequest", "ResourceNotFound", "InvalidStateTransition", "Deserialize", "UnknownError"],
    ),
    ("tasks/reject", Body::Read, &["InvalidRequest", "ResourceNotFound", "Deserialize"]),
    (
        "tasks/complete",
        Body::Read,
        &["InvalidRequest", "ResourceNotFound", "InvalidStateTransition", "RunningOnDifferentCell", "Deserialize"],
    ),
    ("tasks/resolving", Body::Read, &["InvalidRequest", "ResourceNotFound", "InvalidStateTransition", "Deserialize"]),
    ("tasks/delete", Body::Read, &["InvalidRequest", "ResourceNotFound", "InvalidStateTransition", "Deserialize"]),
    ("events/tasks.r1", Body::Ignored, &["closed"]),
    ("events/lrp_instances.r1", Body::Read, &["closed"]),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Read,
    Ignored,
}

/// Cases that are tested for every route.
const CASES: [&str; 6] =
    ["success", "wrong verb", "garbage body", "body over the limit", "body that breaks off", "before the gate opens"];
/// Cases that are tested for every route that reads tables.
const TABLE_CASES: [&str; 2] = ["Unrecoverable", "database away"];
/// Cases that are tested for every route that changes records and for every stream.
const MASTER_CASES: [&str; 1] = ["lock lost"];

/// The cases that are tested for a route like this one.
fn common(route: Route) -> impl Iterator<Item = &'static str> {
    let reads_tables = !route.is_stream && !faults::WITHOUT_TABLES.contains(&route.path);
    let needs_mastership = route.is_stream || faults::changes(route.path);
    let parts = [(true, &CASES[..]), (reads_tables, &TABLE_CASES[..]), (needs_mastership, &MASTER_CASES[..])];
    parts.into_iter().filter(|(applies, _)| *applies).flat_map(|(_, cases)| cases).copied()
}

fn body_of(route: Route) -> Body {
    let known = ROUTES.iter().find(|(path, _, _)| *path == route.path);
    known.unwrap_or_else(|| panic!("{} is missing from `ROUTES`", route.path)).1
}

fn calls() -> impl Iterator<Item = Route> {
    routes().filter(|route| !route.is_stream)
}

fn assert_is_rejected(reply: &Reply, path: &str) {
    assert_eq!(reply.error(), (Type::InvalidRequest, "the request received is invalid".into()), "{path}");
}

on_each_layout!(every_route_answers_a_post_and_no_other_verb);
async fn every_route_answers_a_post_and_no_other_verb(kind: Kind) {
    let server = Server::empty(kind).await;
    for route in routes() {
        let path = format!("/v1/{}", route.path);
        if !route.is_stream {
            let reply = server.post(&path, []).await;
            assert_eq!((reply.status, reply.header("content-type")), (200, "application/x-protobuf"), "{path}");
            assert_eq!(reply.header("content-length"), reply.body.len().to_string(), "{path}");
        }
        for verb in ["GET", "PUT", "DELETE", "PATCH"] {
            let reply = server.send(verb, &path, &[], vec![]).await;
            assert_eq!((reply.status, reply.header("allow")), (405, "POST"), "{verb} {path}");
            assert_eq!(reply.text(), "Method Not Allowed");
            assert!(reply.header("content-type").starts_with("text/plain"), "{path}");
        }
    }
}

on_each_layout!(malformed_body_is_rejected_by_every_route_that_reads_it);
async fn malformed_body_is_rejected_by_every_route_that_reads_it(kind: Kind) {
    let server = Server::empty(kind).await;
    for route in calls() {
        let path = format!("/v1/{}", route.path);
        // A field number 0, a message cut short, a number where a message or text must be.
        for garbage in [&b"\x00"[..], b"\x0a\x09x", b"\x0d\x01"] {
            let reply = server.post(&path, garbage).await;
            match body_of(route) {
                Body::Read => assert_is_rejected(&reply, &path),
                Body::Ignored => assert_eq!(reply.body, server.post(&path, []).await.body, "{path}"),
            }
        }
    }
}

on_each_layout!(body_over_the_limit_is_rejected_by_every_route);
async fn body_over_the_limit_is_rejected_by_every_route(kind: Kind) {
    let server = Server::empty(kind).await;
    let length = bbs::testing::http::LARGEST_BODY + 1;
    for Route { path, .. } in routes() {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        let head = format!("POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        connection.write_all(head.as_bytes()).await.unwrap();
        let expected = "HTTP/1.1 413 Payload Too Large\r\n";
        let mut answer = vec![0; expected.len()];
        connection.read_exact(&mut answer).await.unwrap();
        assert_eq!(String::from_utf8(answer).unwrap(), expected, "{path}");
    }
    assert_eq!(server.post("/v1/ping", []).await.status, 200);
}

on_each_layout!(paths_similar_to_a_route_are_answered_with_404);
async fn paths_similar_to_a_route_are_answered_with_404(kind: Kind) {
    let server = Server::empty(kind).await;
    for Route { path, .. } in routes() {
        for path in [
            format!("/v1/{path}/"),
            format!("/v1//{path}"),
            format!("/v1/{}", path.to_uppercase()),
            format!("/v1/{path}.r9"),
            format!("/{path}"),
        ] {
            let reply = server.post(&path, []).await;
            assert_eq!((reply.status, reply.text().trim_end()), (404, "404 page not found"), "{path}");
        }
    }
}

on_each_layout!(truncated_body_is_answered_by_every_route_as_diego_answers);
async fn truncated_body_is_answered_by_every_route_as_diego_answers(kind: Kind) {
    let server = Server::empty(kind).await;
    for route in routes() {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        let head = format!("POST /v1/{} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", route.path);
        connection.write_all(format!("{head}no length\r\n").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        let text = String::from_utf8_lossy(&answer);
        let (status, part) = match route.is_stream {
            true => ("HTTP/1.1 500 Internal Server Error\r\n", "content-length: 0"),
            false => ("HTTP/1.1 200 OK\r\n", "the request failed for an unknown reason"),
        };
        assert!(text.starts_with(status) && text.contains(part), "{}: {text}", route.path);
    }
}

on_each_layout!(every_route_answers_503_before_and_after_mastership);
async fn every_route_answers_503_before_and_after_mastership(kind: Kind) {
    let server = Server::closed(Options { kind, ..Options::default() }).await;
    let assert_unavailable = async || {
        for route in routes() {
            let reply = server.post(&format!("/v1/{}", route.path), []).await;
            assert_eq!((reply.status, reply.header("content-type")), (503, "application/json"), "{}", route.path);
            assert!(reply.header("retry-after").parse::<u32>().unwrap() >= 1, "{}", route.path);
        }
    };
    assert_unavailable().await;
    server.gate.open(server.api.clone());
    assert_eq!(server.post("/v1/ping", []).await.status, 200);
    server.gate.close();
    assert_unavailable().await;
}

/// The test of each case of each route.
type RouteTable = BTreeMap<(String, String), String>;

fn table() -> RouteTable {
    let path = workspace().join("tests/routes.tsv");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut table = RouteTable::new();
    for line in text.lines().skip(1) {
        let [route, case, test] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?} is not a route, a case and a test")
        };
        let before = table.insert((route.to_owned(), case.to_owned()), test.to_owned());
        assert_eq!(before, None, "{route} has two tests for {case}");
    }
    table
}

#[test]
fn every_route_has_a_test_of_each_kind() {
    let own = ROUTES.iter().flat_map(|(path, _, errors)| errors.iter().map(|error| (*path, *error)));
    let wanted = routes().flat_map(|route| common(route).map(move |case| (route.path, case))).chain(own);
    let wanted = wanted.map(|(path, case)| (path.to_owned(), case.to_owned()));
    let (wanted, found): (BTreeSet<_>, BTreeSet<_>) = (wanted.collect(), table().into_keys().collect());
    let missing: Vec<_> = wanted.difference(&found).collect();
    let unknown: Vec<_> = found.difference(&wanted).collect();
    assert!(missing.is_empty(), "without a test in tests/routes.tsv: {missing:#?}");
    assert!(unknown.is_empty(), "in tests/routes.tsv, but not a case of a route: {unknown:#?}");
    let served: BTreeSet<_> = routes().map(|route| route.path).collect();
    assert_eq!(ROUTES.iter().map(|(path, _, _)| *path).collect::<BTreeSet<_>>(), served);
}

#[test]
fn every_test_in_the_route_table_exists() {
    let absent: BTreeSet<_> = table().into_values().filter(|test| !is_test(test)).collect();
    assert!(absent.is_empty(), "there is no test called: {absent:#?}");
}

/// Whether `module::of::the::suite::name` is a test, according to its source file.
fn is_test(test: &str) -> bool {
    let (module, name) = test.rsplit_once("::").expect("a test is in a module");
    let file = workspace().join("tests/suite").join(module.replace("::", "/")).with_extension("rs");
    let Ok(text) = std::fs::read_to_string(file) else { return false };
    let runs = ["on_each_layout", "on_each_database", "on_each_server"].map(|run| format!("{run}!({name});"));
    let itself = [format!("async fn {name}()"), format!("fn {name}()")];
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let is_marked = |at: usize| at > 0 && (lines[at - 1].starts_with("#[tokio::test") || lines[at - 1] == "#[test]");
    lines.iter().enumerate().any(|(at, line)| {
        runs.iter().any(|run| line == run) || (is_marked(at) && itself.iter().any(|start| line.starts_with(start)))
    })
}
