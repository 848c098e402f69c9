//! Tests of behaviour that all routes share, and of `tests/routes.tsv`, which names a test for each
//! case of each route. A new route, a new error of a route and a renamed test have to be entered
//! there.

mod faults;
mod listed;
mod older;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use bbs::testing::api::{self, NativeVersion};
use bbs::testing::modules::translate::{AnswerForm, Verb};
use bbs_proto::models::error::Type;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::listed::{Body, ROUTES};
use crate::harness::database::Kind;
use crate::harness::layouts::on_layouts_of_sqlite;
use crate::harness::modules::translators;
use crate::harness::server::{Options, Reply, Server};
use crate::harness::workspace;

/// Cases that are tested for every route.
const CASES: [&str; 6] = [
    "success",
    "wrong verb",
    "garbage body",
    "body over the limit",
    "body that breaks off",
    "before the gate opens",
];
/// Cases that are tested for every route that reads tables.
const TABLE_CASES: [&str; 2] = ["Unrecoverable", "database away"];
/// Cases that are tested for every route that changes records and for every stream.
const MASTER_CASES: [&str; 1] = ["lock lost"];

/// A native route, or one below Diego's root that a translator adds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServedRoute {
    /// Diego's name, with the revision if there is one.
    name: String,
    verb: Verb,
    /// Diego's, or that of a version that adds the route.
    root: &'static str,
    /// The path below the root.
    path: String,
    is_stream: bool,
}

impl ServedRoute {
    /// Identifies the route in the tables: its path, with `GET ` in front where the verb is GET.
    fn key(&self) -> String {
        match self.verb {
            Verb::Get => format!("GET {}", self.path),
            Verb::Post => self.path.clone(),
        }
    }

    async fn send(&self, server: &Server, body: impl Into<Vec<u8>>) -> Reply {
        server
            .send(self.verb.name(), &self.whole_path(), &[], body.into())
            .await
    }

    fn whole_path(&self) -> String {
        format!("{}/{}", self.root, self.path)
    }

    fn reads_tables(&self) -> bool {
        !self.is_stream && !faults::WITHOUT_TABLES.contains(&self.path.as_str())
    }

    /// The cases that are tested for a route like this one.
    fn cases(&self) -> impl Iterator<Item = &'static str> {
        let needs_mastership = self.is_stream || faults::changes(&self.path);
        let parts = [
            (true, &CASES[..]),
            (self.reads_tables(), &TABLE_CASES[..]),
            (needs_mastership, &MASTER_CASES[..]),
        ];
        parts
            .into_iter()
            .filter(|(applies, _)| *applies)
            .flat_map(|(_, cases)| cases)
            .copied()
    }

    fn body(&self) -> Body {
        let known = ROUTES.iter().find(|(key, _, _)| *key == self.key());
        known
            .unwrap_or_else(|| panic!("{} is missing from `ROUTES`", self.key()))
            .1
    }
}

/// The routes that the translators of the default catalog add to Diego's root.
fn routes_of_translators() -> Vec<ServedRoute> {
    let manifests = translators()
        .into_iter()
        .map(|translator| translator.manifest().clone());
    let methods = manifests.flat_map(|manifest| manifest.methods);
    methods
        .filter_map(|method| {
            let path = method.path_of_diego()?.to_owned();
            let is_stream = matches!(method.answer, AnswerForm::Events(_));
            Some(ServedRoute {
                name: method.name,
                verb: method.verb,
                root: "/v1",
                path,
                is_stream,
            })
        })
        .collect()
}

/// All routes below Diego's root, and those that a newer version adds.
fn routes() -> &'static [ServedRoute] {
    static ROUTES: LazyLock<Vec<ServedRoute>> = LazyLock::new(|| {
        let native = |root| {
            move |api::Route {
                      name,
                      path,
                      is_stream,
                      ..
                  }| ServedRoute {
                name: name.to_owned(),
                verb: Verb::Post,
                root,
                path: path.to_owned(),
                is_stream,
            }
        };
        let of_diego: Vec<_> = api::routes(NativeVersion::Diego).collect();
        let added = api::routes(NativeVersion::Definitions)
            .filter(|route| !of_diego.contains(route))
            .map(native("/v1.2"));
        of_diego
            .iter()
            .copied()
            .map(native("/v1"))
            .chain(added)
            .chain(routes_of_translators())
            .collect()
    });
    &ROUTES
}

fn calls() -> impl Iterator<Item = &'static ServedRoute> {
    routes().iter().filter(|route| !route.is_stream)
}

/// An empty server with all routes.
async fn empty(kind: Kind) -> Server {
    Server::start(Options {
        kind,
        translators: translators(),
        ..Options::default()
    })
    .await
}

fn assert_is_rejected(reply: &Reply, route: &ServedRoute) {
    assert_eq!(
        reply.error(),
        (
            Type::InvalidRequest,
            "the request received is invalid".into()
        ),
        "{}",
        route.key()
    );
}

on_layouts_of_sqlite!(every_route_answers_its_own_verb_and_no_other);
async fn every_route_answers_its_own_verb_and_no_other(kind: Kind) {
    let server = empty(kind).await;
    for route in routes() {
        let key = route.key();
        if !route.is_stream {
            let reply = route.send(&server, []).await;
            assert_eq!(
                (reply.status, reply.header("content-type")),
                (200, "application/x-protobuf"),
                "{key}"
            );
            assert_eq!(
                reply.header("content-length"),
                reply.body.len().to_string(),
                "{key}"
            );
        }
        let path = route.whole_path();
        let of_path = routes().iter().filter(|other| other.whole_path() == path);
        let mut allowed: Vec<_> = of_path.map(|route| route.verb.name()).collect();
        allowed.sort_unstable();
        for verb in ["GET", "POST", "PUT", "DELETE", "PATCH"]
            .into_iter()
            .filter(|verb| !allowed.contains(verb))
        {
            let reply = server.send(verb, &path, &[], vec![]).await;
            assert_eq!(
                (reply.status, reply.header("allow")),
                (405, &allowed.join(", ")[..]),
                "{verb} {path}"
            );
            assert_eq!(reply.text(), "Method Not Allowed");
            assert!(
                reply.header("content-type").starts_with("text/plain"),
                "{path}"
            );
        }
    }
}

on_layouts_of_sqlite!(malformed_body_is_rejected_by_every_route_that_reads_it);
async fn malformed_body_is_rejected_by_every_route_that_reads_it(kind: Kind) {
    let server = empty(kind).await;
    for route in calls() {
        // A field number 0, a message cut short, a number where a message or text must be.
        for garbage in [&b"\x00"[..], b"\x0a\x09x", b"\x0d\x01"] {
            let reply = route.send(&server, garbage).await;
            match route.body() {
                Body::Read => assert_is_rejected(&reply, route),
                Body::Ignored => assert_eq!(
                    reply.body,
                    route.send(&server, []).await.body,
                    "{}",
                    route.key()
                ),
            }
        }
    }
}

/// Largest body of any request, in bytes.
const LARGEST_BODY: usize = 4 << 20;

on_layouts_of_sqlite!(body_over_the_limit_is_rejected_by_every_route);
async fn body_over_the_limit_is_rejected_by_every_route(kind: Kind) {
    let server = empty(kind).await;
    let length = LARGEST_BODY + 1;
    for route in routes() {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        let verb = route.verb.name();
        let path = route.whole_path();
        let head = format!("{verb} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        connection.write_all(head.as_bytes()).await.unwrap();
        let expected = "HTTP/1.1 413 Payload Too Large\r\n";
        let mut answer = vec![0; expected.len()];
        connection.read_exact(&mut answer).await.unwrap();
        assert_eq!(
            String::from_utf8(answer).unwrap(),
            expected,
            "{verb} {path}"
        );
    }
    assert_eq!(server.post("/v1/ping", []).await.status, 200);
}

on_layouts_of_sqlite!(paths_similar_to_a_route_are_answered_with_404);
async fn paths_similar_to_a_route_are_answered_with_404(kind: Kind) {
    let server = empty(kind).await;
    for ServedRoute { verb, path, .. } in routes() {
        for path in [
            format!("/v1/{path}/"),
            format!("/v1//{path}"),
            format!("/v1/{}", path.to_uppercase()),
            format!("/v1/{path}.r9"),
            format!("/{path}"),
        ] {
            let reply = server.send(verb.name(), &path, &[], vec![]).await;
            assert_eq!(
                (reply.status, reply.text().trim_end()),
                (404, "404 page not found"),
                "{path}"
            );
        }
    }
}

on_layouts_of_sqlite!(truncated_body_is_answered_by_every_route_as_diego_answers);
async fn truncated_body_is_answered_by_every_route_as_diego_answers(kind: Kind) {
    let server = empty(kind).await;
    for route in routes() {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        let verb = route.verb.name();
        let path = route.whole_path();
        let head =
            format!("{verb} {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        connection
            .write_all(format!("{head}no length\r\n").as_bytes())
            .await
            .unwrap();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.unwrap();
        let text = String::from_utf8_lossy(&answer);
        let (status, part) = if route.is_stream {
            (
                "HTTP/1.1 500 Internal Server Error\r\n",
                "content-length: 0",
            )
        } else {
            (
                "HTTP/1.1 200 OK\r\n",
                "the request failed for an unknown reason",
            )
        };
        assert!(
            text.starts_with(status) && text.contains(part),
            "{verb} {path}: {text}"
        );
        let keeps_container =
            path.contains("evacuate_claimed") || path.contains("evacuate_running");
        let kept = [2 << 3, 1];
        assert_eq!(answer.ends_with(&kept), keeps_container, "{verb} {path}");
    }
}

on_layouts_of_sqlite!(every_route_answers_503_before_and_after_mastership);
async fn every_route_answers_503_before_and_after_mastership(kind: Kind) {
    let server = Server::closed(Options {
        kind,
        translators: translators(),
        ..Options::default()
    })
    .await;
    let assert_unavailable = async || {
        for route in routes() {
            let reply = route.send(&server, []).await;
            let key = route.key();
            assert_eq!(
                (reply.status, reply.header("content-type")),
                (503, "application/json"),
                "{key}"
            );
            assert!(
                reply.header("retry-after").parse::<u32>().unwrap() >= 1,
                "{key}"
            );
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
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
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
    let own = ROUTES
        .iter()
        .flat_map(|(key, _, errors)| errors.iter().map(|error| ((*key).to_owned(), *error)));
    let common = routes()
        .iter()
        .flat_map(|route| route.cases().map(|case| (route.key(), case)));
    let wanted = common.chain(own).map(|(key, case)| (key, case.to_owned()));
    let (wanted, found): (BTreeSet<_>, BTreeSet<_>) =
        (wanted.collect(), table().into_keys().collect());
    let missing: Vec<_> = wanted.difference(&found).collect();
    let unknown: Vec<_> = found.difference(&wanted).collect();
    assert!(
        missing.is_empty(),
        "without a test in tests/routes.tsv: {missing:#?}"
    );
    assert!(
        unknown.is_empty(),
        "in tests/routes.tsv, but not a case of a route: {unknown:#?}"
    );
    let served: BTreeSet<_> = routes().iter().map(ServedRoute::key).collect();
    assert_eq!(
        ROUTES
            .iter()
            .map(|(key, _, _)| (*key).to_owned())
            .collect::<BTreeSet<_>>(),
        served
    );
}

#[test]
fn every_test_in_the_route_table_exists() {
    let absent: BTreeSet<_> = table()
        .into_values()
        .filter(|test| !is_test(test))
        .collect();
    assert!(absent.is_empty(), "there is no test called: {absent:#?}");
}

/// Whether `module::of::the::suite::name` is a test, according to its source file.
fn is_test(test: &str) -> bool {
    let (module, name) = test.rsplit_once("::").expect("a test is in a module");
    let file = workspace()
        .join("tests/suite")
        .join(module.replace("::", "/"))
        .with_extension("rs");
    let Ok(text) = std::fs::read_to_string(file) else {
        return false;
    };
    let runs = [
        "on_each_layout",
        "on_layouts_of_sqlite",
        "on_each_database",
        "on_each_server",
    ]
    .map(|run| format!("{run}!({name});"));
    let itself = [format!("async fn {name}()"), format!("fn {name}()")];
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let is_marked = |at: usize| {
        at > 0 && (lines[at - 1].starts_with("#[tokio::test") || lines[at - 1] == "#[test]")
    };
    lines.iter().enumerate().any(|(at, line)| {
        runs.iter().any(|run| line == run)
            || (is_marked(at) && itself.iter().any(|start| line.starts_with(start)))
    })
}
