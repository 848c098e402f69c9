//! Members of etcd that answer wrongly or are not etcd: an import ends with a message that
//! names the member and says what to do, or another member answers; nothing is changed on either
//! side, and the next attempt succeeds. The databases play no part in this, so most of it is tested
//! on one.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;

use serde_json::{Value, json};

use super::stores::{self, StoreLayout};
use super::{MARK, import, importing, is_marked, listed, on_empty_database, served, tables};
use crate::faults::stops;
use crate::harness::database::{Kind, execute};
use crate::harness::etcd::Etcd;
use crate::harness::host::{Host, Installation, signal};

const KIND: Kind = Kind::Sqlite;

#[tokio::test(flavor = "multi_thread")]
async fn other_members_answer_for_one_that_is_down() {
    let etcd = Etcd::start_cluster().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let installation = importing(KIND, &etcd);
    // The first in the configuration.
    etcd.kill(0);
    etcd.until_healthy_from(1).await;
    import(&installation);
    assert_eq!(served(&installation).await.desired.len(), 2);
    etcd.restart(0);
    etcd.until_healthy().await;
    assert!(is_marked(&etcd).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn store_without_a_majority_is_not_imported() {
    let etcd = Etcd::start_cluster().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let before = etcd.everything().await;
    let installation = importing(KIND, &etcd);
    etcd.kill(1);
    etcd.kill(2);
    // The last member answers reads without a quorum, which may be old.
    let text = installation.fail(&["import", "etcd"]);
    assert!(
        text.contains("no majority") || text.contains("cannot connect"),
        "{text}"
    );
    assert!(text.contains("nothing was changed there"), "{text}");
    etcd.restart(1);
    etcd.restart(2);
    etcd.until_healthy().await;
    assert_eq!(etcd.everything().await, before);
    import(&installation);
    assert_eq!(served(&installation).await.desired.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn store_that_goes_away_between_the_readings_changes_nothing() {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let before = etcd.everything().await;
    let installation = importing(KIND, &etcd);
    let mut command = installation.command(&["import", "etcd"]);
    command
        .env("BBS_FAULT", "stop:after-import-tables")
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().expect("the executable starts");
    assert!(stops(&mut child));
    etcd.kill(0);
    signal("CONT", &child);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("cannot connect to etcd at http://127.0.0.1"),
        "{text}"
    );
    etcd.restart(0);
    etcd.until_healthy().await;
    assert_eq!(etcd.everything().await, before);
    import(&installation);
    assert_eq!(served(&installation).await.desired.len(), 2);
}

/// A host whose store goes away before the mark; it serves, because the records are durable.
async fn serving_unmarked(etcd: &Etcd, installation: &Installation) -> Host {
    let mut command = installation.command(&["serve"]);
    command.env("BBS_FAULT", "stop:after-import");
    let mut host = Host::start(command, "listening");
    host.until_stopped().await;
    etcd.kill(0);
    host.signal("CONT");
    host.wait_for_line(|line| line.contains("etcd is not marked as imported"));
    host.wait_for_line(|line| line.contains("serving"));
    host
}

#[tokio::test(flavor = "multi_thread")]
async fn mark_is_set_once_etcd_is_back() {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let installation = importing(KIND, &etcd);
    let mut host = serving_unmarked(&etcd, &installation).await;
    assert_eq!(listed(&host).await.desired.len(), 2);
    etcd.restart(0);
    etcd.until_healthy().await;
    host.wait_for_line(|line| line.contains("etcd is marked as imported"));
    assert!(is_marked(&etcd).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn next_start_sets_a_mark_that_is_missing() {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let installation = importing(KIND, &etcd);
    serving_unmarked(&etcd, &installation).await.kill();
    etcd.restart(0);
    etcd.until_healthy().await;
    // Clients have been served, so what an older BBS wrote since is no reason to end.
    etcd.put("/v1/domain/late", "", None).await;
    let mut host = installation.serve();
    assert!(
        host.output()
            .iter()
            .any(|line| line.contains("etcd is marked as imported")),
        "{:?}",
        host.output()
    );
    assert!(is_marked(&etcd).await);
    assert_eq!(listed(&host).await.domains, ["cf-apps", "forever"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_do_not_fit_are_named() {
    let etcd = Etcd::start_cluster().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let check = |keys: &[(&str, &str)]| {
        let installation = importing(KIND, &etcd);
        let set =
            |all: Installation, (key, file): &(&str, &str)| all.set(key, json!(etcd.file(file)));
        keys.iter().fold(installation, set)
    };
    check(&[]).succeed(&["import", "etcd", "--check"]);
    for (keys, expected) in [
        (&[("etcd_ca_file", "other-ca.crt")][..], "UnknownIssuer"),
        (
            &[
                ("etcd_cert_file", "expired.crt"),
                ("etcd_key_file", "expired.key"),
            ],
            "Check the dates of the certificates",
        ),
        (
            &[
                ("etcd_cert_file", "stranger.crt"),
                ("etcd_key_file", "stranger.key"),
            ],
            "no connection to etcd at",
        ),
        (
            &[("etcd_cert_file", "none.crt")],
            "correct `etcd_cert_file`",
        ),
    ] {
        let text = check(keys).fail(&["import", "etcd", "--check"]);
        assert!(
            text.contains(expected) && text.contains("etcd_c"),
            "{expected}: {text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_without_its_second_api_is_no_empty_store() {
    let etcd = Etcd::start_with(&["--enable-v2=false"]);
    let installation = importing(KIND, &etcd);
    etcd.until_healthy().await;
    let text = installation.fail(&["import", "etcd"]);
    assert!(
        text.contains("has no second API of etcd") && text.contains("--enable-v2=true"),
        "{text}"
    );
    let own: Vec<_> = tables(&installation)
        .await
        .into_iter()
        .filter(|name| !name.starts_with("bbs_"))
        .collect();
    assert_eq!(own, Vec::<String>::new());
}

/// A server that answers each connection with the next of these bytes, and closes it; the last ones
/// again and again.
fn answering(answers: Vec<Vec<u8>>) -> SocketAddr {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback interface has free ports");
    let address = listener.local_addr().expect("a listener has an address");
    std::thread::spawn(move || {
        let last = answers.last().cloned().unwrap_or_default();
        let mut answers = answers.into_iter();
        for mut stream in listener.incoming().map_while(Result::ok) {
            read_head(&mut stream);
            // The client may have left.
            let _ = stream.write_all(&answers.next().unwrap_or_else(|| last.clone()));
        }
    });
    address
}

/// A server that answers each connection with these bytes, and keeps it open.
fn stalling(bytes: Vec<u8>) -> SocketAddr {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback interface has free ports");
    let address = listener.local_addr().expect("a listener has an address");
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            read_head(&mut stream);
            let _ = stream.write_all(&bytes);
            open.push(stream);
        }
    });
    address
}

fn read_head(stream: &mut TcpStream) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
        request.extend(byte);
    }
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

const ETCD: &str = "X-Etcd-Index: 7\r\nX-Etcd-Cluster-Id: c1\r\ncontent-type: application/json\r\n";

/// A whole answer with these leaves.
fn store(leaves: &[(&str, &str)]) -> String {
    let nodes: Vec<_> = leaves
        .iter()
        .map(|(key, value)| json!({ "key": key, "value": value, "modifiedIndex": 5, "createdIndex": 5 }))
        .collect();
    json!({ "action": "get", "node": { "dir": true, "nodes": nodes } }).to_string()
}

fn at(address: SocketAddr) -> Installation {
    on_empty_database(KIND).set("etcd_cluster_urls", json!([format!("http://{address}")]))
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_that_is_cut_off_changes_nothing() {
    let whole = store(&[("/v1/domain/a", ""), ("/v1/domain/b", "")]);
    let sent = answer("200 OK", ETCD, &whole);
    let valid = answer("200 OK", ETCD, &whole);
    at(answering(vec![valid])).succeed(&["import", "etcd", "--check"]);
    // Cut by the connection, at several places of head and body.
    for cut in [
        10,
        sent.len() - whole.len() - 1,
        sent.len() - whole.len() + 5,
        sent.len() - 20,
        sent.len() - 1,
    ] {
        let installation = at(answering(vec![sent[..cut].to_vec()]));
        let text = installation.fail(&["import", "etcd"]);
        assert!(
            text.contains("ended before the answer did"),
            "{cut}: {text}"
        );
    }
    // Cut by the server, which calls the rest the whole.
    for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
        let installation = at(answering(vec![answer("200 OK", ETCD, &whole[..cut])]));
        let text = installation.fail(&["import", "etcd"]);
        assert!(text.contains("is damaged or incomplete"), "{cut}: {text}");
    }
}

/// Answers of a member, and a part of the error that refuses them.
type RefusedAnswers = (Vec<Vec<u8>>, &'static str);

fn answers_with_an_error() -> Vec<RefusedAnswers> {
    let error = |code: u64, message: &str| {
        json!({ "errorCode": code, "message": message, "cause": "", "index": 7 }).to_string()
    };
    vec![
        (
            vec![answer(
                "404 Not Found",
                "content-type: text/plain\r\n",
                "404 page not found",
            )],
            "has no second API of etcd",
        ),
        (
            vec![answer(
                "307 Temporary Redirect",
                "location: http://127.0.0.1:1/\r\n",
                "",
            )],
            "redirects are not followed",
        ),
        (
            vec![answer("401 Unauthorized", ETCD, &error(110, "no user"))],
            "turn its authentication off",
        ),
        (
            vec![answer("403 Forbidden", ETCD, &error(102, "Not a file"))],
            "answers with error 102: Not a file",
        ),
        (
            vec![answer(
                "500 Internal Server Error",
                ETCD,
                &error(300, "Raft Internal Error"),
            )],
            "has no majority",
        ),
        (
            vec![answer("502 Bad Gateway", "", "<html>")],
            "answers with the status 502",
        ),
    ]
}

fn malformed_answers() -> Vec<RefusedAnswers> {
    let whole = store(&[("/v1/domain/a", "")]);
    let other = ETCD.replace("c1", "c2");
    let node = |node: Value| {
        json!({ "action": "get", "node": { "dir": true, "nodes": [node] } }).to_string()
    };
    vec![
        (
            vec![answer("200 OK", "X-Etcd-Cluster-Id: c1\r\n", &whole)],
            "no header X-Etcd-Index",
        ),
        (
            vec![answer("200 OK", "X-Etcd-Index: 7\r\n", &whole)],
            "no header X-Etcd-Cluster-Id",
        ),
        (
            vec![answer("200 OK", ETCD, "<html>")],
            "is damaged or incomplete",
        ),
        (
            vec![answer("200 OK", ETCD, "{}")],
            "is damaged or incomplete",
        ),
        (
            vec![
                answer("200 OK", ETCD, &whole),
                answer("200 OK", &other, &whole),
            ],
            "name the members of that cluster",
        ),
        (
            vec![answer(
                "200 OK",
                ETCD,
                &store(&[("/v1/domain/b", ""), ("/v1/domain/a", "")]),
            )],
            "is not sorted",
        ),
        (
            vec![answer(
                "200 OK",
                ETCD,
                &store(&[("/v1/domain/a", ""), ("/v1/domain/a", "")]),
            )],
            "has \"/v1/domain/a\" twice",
        ),
        (
            vec![answer(
                "200 OK",
                ETCD,
                &node(json!({ "key": "/v1/domain/a", "value": "" })),
            )],
            "is damaged or incomplete",
        ),
        (
            vec![answer(
                "200 OK",
                ETCD,
                &node(
                    json!({ "key": "/a", "value": "", "modifiedIndex": 5, "expiration": "soon" }),
                ),
            )],
            "the expiration of /a is no time",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_etcd_does_not_give_are_refused() {
    for (answers, expected) in answers_with_an_error()
        .into_iter()
        .chain(malformed_answers())
    {
        let installation = at(answering(answers));
        let text = installation.fail(&["import", "etcd"]);
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_end_are_bounded() {
    let long = store(&[("/v1/task/a", &"x".repeat(100_000))]);
    let installation =
        at(answering(vec![answer("200 OK", ETCD, &long)])).set("etcd_max_answer_bytes", 50_000);
    let text = installation.fail(&["import", "etcd", "--check"]);
    assert!(
        text.contains("more than 50000 bytes; raise `etcd_max_answer_bytes`"),
        "{text}"
    );

    // Accepts connections and never answers.
    let silent =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback interface has free ports");
    let address = silent.local_addr().expect("a listener has an address");
    let installation = at(address).set("etcd_answer_timeout", "300ms");
    let text = installation.fail(&["import", "etcd", "--check"]);
    assert!(
        text.contains("sent no answer within 300ms; "),
        "not within the default of five minutes: {text}"
    );
    assert!(text.contains("`etcd_answer_timeout`"), "{text}");

    // Begins an answer and does not end it.
    let begun = answer("200 OK", ETCD, &long);
    let installation =
        at(stalling(begun[..begun.len() / 2].to_vec())).set("etcd_answer_timeout", "3s");
    let text = installation.fail(&["import", "etcd", "--check"]);
    assert!(
        text.contains("stalled for 3s; ") && text.contains("`etcd_answer_timeout`"),
        "{text}"
    );
}

/// Goal: the time in which an import does not read, because of a pause or its rate, is not that of
/// etcd. Method: the rate holds the import back for 4 s after the first leaves; more are left than
/// it has read ahead by then.
#[tokio::test(flavor = "multi_thread")]
async fn import_that_pauses_longer_than_an_answer_may_goes_on() {
    let first = (0..256).map(|number| (format!("/v1/domain/a{number:03}"), String::new()));
    let large = (0..20).map(|number| (format!("/v1/domain/b{number:02}"), "v".repeat(1_000_000)));
    let leaves: Vec<_> = first.chain(large).collect();
    let leaves: Vec<_> = leaves
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let whole = answer("200 OK", ETCD, &store(&leaves));
    let installation = at(answering(vec![whole]))
        .set("etcd_answer_timeout", "2s")
        .set("migration_units_per_second", 64);
    let mut command = installation.command(&["import", "etcd"]);
    // Nothing of the migration is tested here.
    command.env("BBS_FAULT", "after-import");
    let output = command.output().expect("the executable starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(9), "{text}");
}

/// Goal: a store that has the same indexes as the imported one, in another cluster, is not marked,
/// neither at the end of the import nor by a host that has served.
#[tokio::test(flavor = "multi_thread")]
async fn store_of_another_cluster_is_not_marked() {
    let whole = answer("200 OK", ETCD, &store(&[("/v1/domain/a", "")]));
    let missing =
        json!({ "errorCode": 100, "message": "Key not found", "cause": "/version", "index": 7 });
    let of_another = ETCD.replace("c1", "c2");
    let missing = answer("404 Not Found", &of_another, &missing.to_string());
    let node = json!({ "key": "/version", "value": MARK, "modifiedIndex": 8, "createdIndex": 8 });
    let marked = json!({ "action": "create", "node": node }).to_string();
    let marked = answer("201 Created", &of_another, &marked);
    let answers = vec![whole.clone(), whole, missing.clone(), marked.clone()];
    let installation = at(answering(answers));
    let refused = "is of cluster c2, and the store that was read before is of c1";
    let text = installation.fail(&["import", "etcd"]);
    assert!(text.contains(refused), "{text}");

    let database = installation.database.open().await;
    execute(&database, "UPDATE bbs_import SET phase = 'served'").await;
    database.close().await;
    let members = json!([format!("http://{}", answering(vec![missing, marked]))]);
    let mut host = installation.set("etcd_cluster_urls", members).serve();
    let lines = host.output();
    assert!(
        lines
            .iter()
            .any(|line| line.contains("etcd is not marked as imported") && line.contains(refused)),
        "{lines:?}"
    );
}
