//! What holds for every route alike, and that every route has a test of each kind: `tests/routes.tsv` says which. A
//! route that is added to the host, an error that it can give or a test that is renamed has to be brought into it.

mod faults;

use std::collections::{BTreeMap, BTreeSet};

use bbs::api::{Route, routes};
use bbs_proto::models::error::Type;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::database::Kind;
use crate::harness::layouts::on_each_layout;
use crate::harness::server::{Options, Reply, Server};
use crate::harness::workspace;

/// What each route answers besides success: whether it reads its body, and the errors that are its own.
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

/// What every route has a test of.
const CASES: [&str; 6] =
    ["success", "wrong verb", "garbage body", "body over the limit", "body that breaks off", "before the gate opens"];
/// What all that look into tables have a test of.
const OF_TABLES: [&str; 2] = ["Unrecoverable", "database away"];
/// What all that change something, and all that go on, have a test of.
const OF_THE_MASTER: [&str; 1] = ["lock lost"];

/// What every route like this one has a test of.
fn common(route: Route) -> impl Iterator<Item = &'static str> {
    let looks = !route.is_stream && !faults::OTHERS.contains(&route.path);
    let is_the_masters = route.is_stream || faults::changes(route.path);
    let parts = [(true, &CASES[..]), (looks, &OF_TABLES[..]), (is_the_masters, &OF_THE_MASTER[..])];
    parts.into_iter().filter(|(is_so, _)| *is_so).flat_map(|(_, cases)| cases).copied()
}

fn body_of(route: Route) -> Body {
    let known = ROUTES.iter().find(|(path, _, _)| *path == route.path);
    known.unwrap_or_else(|| panic!("{} is missing from the routes of this test", route.path)).1
}

fn calls() -> impl Iterator<Item = Route> {
    routes().filter(|route| !route.is_stream)
}

fn assert_is_refused(reply: &Reply, path: &str) {
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

on_each_layout!(a_body_that_is_no_message_is_refused_by_every_route_that_reads_it);
async fn a_body_that_is_no_message_is_refused_by_every_route_that_reads_it(kind: Kind) {
    let server = Server::empty(kind).await;
    for route in calls() {
        let path = format!("/v1/{}", route.path);
        // A field number 0, a message cut short, a number where a message or text must be.
        for garbage in [&b"\x00"[..], b"\x0a\x09x", b"\x0d\x01"] {
            let reply = server.post(&path, garbage).await;
            match body_of(route) {
                Body::Read => assert_is_refused(&reply, &path),
                Body::Ignored => assert_eq!(reply.body, server.post(&path, []).await.body, "{path}"),
            }
        }
    }
}

on_each_layout!(a_body_over_the_limit_is_not_read_by_any_route);
async fn a_body_over_the_limit_is_not_read_by_any_route(kind: Kind) {
    let server = Server::empty(kind).await;
    let length = bbs::http::LARGEST_BODY + 1;
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

on_each_layout!(a_path_that_is_nearly_a_route_does_not_exist);
async fn a_path_that_is_nearly_a_route_does_not_exist(kind: Kind) {
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

on_each_layout!(a_body_that_breaks_off_is_answered_as_diego_does_by_every_route);
async fn a_body_that_breaks_off_is_answered_as_diego_does_by_every_route(kind: Kind) {
    let server = Server::empty(kind).await;
    for route in routes() {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        let head = format!("POST /v1/{} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", route.path);
        connection.write_all(format!("{head}no length\r\n").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        let text = String::from_utf8_lossy(&answer);
        let (status, said) = match route.is_stream {
            true => ("HTTP/1.1 500 Internal Server Error\r\n", "content-length: 0"),
            false => ("HTTP/1.1 200 OK\r\n", "the request failed for an unknown reason"),
        };
        assert!(text.starts_with(status) && text.contains(said), "{}: {text}", route.path);
    }
}

on_each_layout!(whoever_is_not_the_master_yet_or_any_more_tells_every_route_to_come_back);
async fn whoever_is_not_the_master_yet_or_any_more_tells_every_route_to_come_back(kind: Kind) {
    let server = Server::closed(Options { kind, ..Options::default() }).await;
    let assert_shut = async || {
        for route in routes() {
            let reply = server.post(&format!("/v1/{}", route.path), []).await;
            assert_eq!((reply.status, reply.header("content-type")), (503, "application/json"), "{}", route.path);
            assert!(reply.header("retry-after").parse::<u32>().unwrap() >= 1, "{}", route.path);
        }
    };
    assert_shut().await;
    server.gate.open(server.api.clone());
    assert_eq!(server.post("/v1/ping", []).await.status, 200);
    server.gate.close();
    assert_shut().await;
}

/// The test of each case of each route.
type Table = BTreeMap<(String, String), String>;

fn table() -> Table {
    let path = workspace().join("tests/routes.tsv");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut table = Table::new();
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
    assert!(unknown.is_empty(), "in tests/routes.tsv, but of no route here: {unknown:#?}");
    let served: BTreeSet<_> = routes().map(|route| route.path).collect();
    assert_eq!(ROUTES.iter().map(|(path, _, _)| *path).collect::<BTreeSet<_>>(), served);
}

#[test]
fn every_test_that_the_table_names_is_run() {
    let absent: BTreeSet<_> = table().into_values().filter(|test| !is_test(test)).collect();
    assert!(absent.is_empty(), "there is no test called: {absent:#?}");
}

/// Whether `module::of::the::suite::name` is one, by its source.
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
