//! The host's clients of other components of Diego, against stub servers with the real protocols
//! over mutual TLS that fail in various ways: no call hangs, each error says what to do, and calls
//! succeed again when the server does.

mod loggregator;

use std::collections::BTreeMap;
use std::time::Duration;

use bbs::testing::clients::auctioneer::{LrpStart, TaskStart};
use bbs::testing::clients::cells::CellsError;
use bbs::testing::clients::{ClientError, Clients};
use bbs::testing::config::{self, CertificateFiles};
use bbs_model::TraceId;
use bbs_model::actual_lrp::{InstanceKey, LrpKey};
use bbs_model::convergence::Push;
use bbs_model::task::Task;
use bbs_proto::models as proto;
use serde_json::{Value, json};

use crate::harness::diego::trust::Trust;
use crate::harness::locket::Locket;
use crate::harness::neighbours::{ReceivedRequest, StubReply, StubServer};
use crate::harness::ports::free_address;
use crate::harness::proxy::Proxy;
use crate::harness::{PATIENCE, until_async};

/// The presence of a cell with this rep.
fn cell(rep: &StubServer) -> proto::CellPresence {
    cell_at(&rep.url())
}

fn cell_at(rep_url: &str) -> proto::CellPresence {
    proto::CellPresence {
        cell_id: b"cell-1".to_vec(),
        rep_url: rep_url.into(),
        ..Default::default()
    }
}

/// Clients of this auctioneer, with certificates signed by `trust`.
fn clients(trust: &Trust, auctioneer: &str, require_tls: bool) -> Clients {
    clients_with_timeout(trust, auctioneer, require_tls, PATIENCE)
}

fn clients_with_timeout(
    trust: &Trust,
    auctioneer: &str,
    require_tls: bool,
    communication_timeout: Duration,
) -> Clients {
    let config = config::ClientsConfig {
        communication_timeout,
        auctioneer: Some(config::AuctioneerConfig {
            address: auctioneer.to_owned(),
            tls: Some(trust.client_tls()),
            require_tls,
        }),
        rep: config::RepConfig {
            tls: Some(trust.client_tls()),
            require_tls,
            session_cache_size: Some(8),
        },
        ..config::ClientsConfig::default()
    };
    Clients::new(&config, None, Some(&trust.client_tls())).unwrap()
}

fn lrp_start() -> LrpStart {
    LrpStart {
        process_guid: b"guid".to_vec(),
        domain: b"domain".to_vec(),
        indices: vec![0, 2],
        placement_tags: vec![b"gpu".to_vec()],
        volume_drivers: vec![b"nfs".to_vec(), b"nfs".to_vec()],
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        memory_mb: 256,
        disk_mb: 1024,
        max_pids: 100,
    }
}

fn trace() -> TraceId {
    TraceId("a-trace".to_owned())
}

fn instance() -> (LrpKey, InstanceKey) {
    let key = LrpKey {
        process_guid: b"a/guid".to_vec(),
        index: 3,
        domain: b"domain".to_vec(),
    };
    (
        key,
        InstanceKey {
            instance_guid: b"instance".to_vec(),
            cell_id: b"cell-1".to_vec(),
        },
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn auctioneer_requests_have_the_expected_bodies() {
    let trust = Trust::new();
    let auctioneer = StubServer::start(&trust);
    let clients = clients(&trust, &auctioneer.url(), true);
    clients
        .auctioneer
        .request_lrps(&[lrp_start()], &trace())
        .await
        .unwrap();
    let definition = proto::TaskDefinition {
        root_fs: b"docker:///a".to_vec(),
        memory_mb: 1,
        ..Default::default()
    };
    let task = Task {
        guid: b"task".to_vec(),
        domain: b"domain".to_vec(),
        definition,
        ..Task::default()
    };
    let starts = [TaskStart::of(&task)];
    clients.auctioneer.request_tasks(&starts).await.unwrap();
    let lrps = json!([{
        "process_guid": "guid", "domain": "domain", "indices": [0, 2], "PlacementTags": ["gpu"],
        "VolumeDrivers": ["nfs", "nfs"], "RootFs": "preloaded:cflinuxfs4", "MemoryMB": 256, "DiskMB": 1024,
        "MaxPids": 100,
    }]);
    let tasks = json!([{
        "TaskGuid": "task", "Domain": "domain", "PlacementTags": [], "VolumeDrivers": [], "RootFs": "docker:///a",
        "MemoryMB": 1, "DiskMB": 0, "MaxPids": 0, "state": "Invalid", "failed": false,
    }]);
    let expected = |path: &str, trace_id: &str, body| ReceivedRequest {
        method: "POST".to_owned(),
        path: path.to_owned(),
        trace_id: Some(trace_id.to_owned()),
        body,
    };
    assert_eq!(
        auctioneer.take_requests(),
        [
            expected("/v1/lrps", "a-trace", lrps),
            expected("/v1/tasks", "", tasks)
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn auctioneer_failures_return_errors_and_later_requests_succeed() {
    let trust = Trust::new();
    let auctioneer = StubServer::start(&trust);
    let clients = clients(&trust, &auctioneer.url(), true);
    let request = || async {
        clients
            .auctioneer
            .request_lrps(&[lrp_start()], &trace())
            .await
    };
    for (status, attempts) in [(200, 1), (404, 1), (500, 3)] {
        auctioneer.reply_next(&vec![StubReply::Status(status); attempts]);
        let error = request().await.unwrap_err();
        assert!(
            matches!(error, ClientError::Status { status: found, .. } if found == status),
            "{error}"
        );
        assert!(
            error.to_string().contains("see the log of that component"),
            "{error}"
        );
        request().await.unwrap();
    }
    auctioneer.reply_always(StubReply::Truncated);
    let error = request().await.unwrap_err();
    // The head of the response may be sent before the connection is closed, or not.
    assert!(
        matches!(
            error,
            ClientError::Status { status: 200, .. } | ClientError::Unreachable { .. }
        ),
        "{error}"
    );
    auctioneer.reply_always(StubReply::Status(202));
    request().await.unwrap();
}

/// Makes a request with each of the clients to a component, which is their auctioneer.
async fn request_each(clients: &Clients, url: &str) -> [Result<(), ClientError>; 3] {
    let (key, instance) = instance();
    let definition = proto::TaskDefinition {
        completion_callback_url: url.into(),
        ..Default::default()
    };
    let task = Task {
        definition,
        ..Task::default()
    };
    [
        clients
            .auctioneer
            .request_lrps(&[lrp_start()], &trace())
            .await,
        clients
            .reps
            .stop(&cell_at(url), &key, &instance, &trace())
            .await,
        clients.callbacks.post(&task).await.map(drop),
    ]
}

/// The timeout is short, so no call may have to succeed within it.
#[tokio::test(flavor = "multi_thread")]
async fn request_without_an_answer_is_given_up_and_later_requests_succeed() {
    let trust = Trust::new();
    let component = StubServer::start(&trust);
    component.reply_always(StubReply::Never);
    let clients = clients_with_timeout(&trust, &component.url(), true, Duration::from_secs(1));
    for failed in request_each(&clients, &component.url()).await {
        let error = failed.unwrap_err();
        assert!(
            matches!(&error, ClientError::Unreachable { source, .. } if source.is_timeout()),
            "{error}"
        );
    }
    component.reply_always(StubReply::Status(202));
    until_async(async || {
        let starts = [lrp_start()];
        let requested = clients.auctioneer.request_lrps(&starts, &trace()).await;
        requested.is_ok()
    })
    .await;
}

/// Method: a listener whose connections wait, so that no handshake begins, and a clock that passes
/// each wait at once.
#[tokio::test(start_paused = true)]
async fn component_without_a_handshake_is_given_up_before_the_timeout_of_a_request() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let trust = Trust::new();
    let clients = clients(&trust, &url, true);
    for failed in request_each(&clients, &url).await {
        let error = failed.unwrap_err();
        assert!(
            error.is_timeout() && !error.is_request_timeout(),
            "{error:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn untrusted_and_unreachable_auctioneers_are_errors() {
    let trust = Trust::new();
    let untrusted = Trust::new();
    let auctioneer = StubServer::start(&trust);
    let url = auctioneer.url();
    let with_untrusted = clients(&untrusted, &url, true);
    let error = with_untrusted
        .auctioneer
        .request_lrps(&[lrp_start()], &trace())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the certificates of both belong together"),
        "{error}"
    );
    let plain = clients(&trust, &url.replace("https", "http"), true);
    assert!(
        plain
            .auctioneer
            .request_lrps(&[lrp_start()], &trace())
            .await
            .is_err()
    );
    // A port without a server, with and without a retry over HTTP.
    let nowhere = format!("https://{}", free_address());
    for require_tls in [true, false] {
        let unreachable = clients(&trust, &nowhere, require_tls);
        let error = unreachable
            .auctioneer
            .request_lrps(&[lrp_start()], &trace())
            .await
            .unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn auctioneer_without_tls_is_reached_unless_tls_is_required() {
    let trust = Trust::new();
    let auctioneer = StubServer::start_plain();
    let url = auctioneer.url().replace("http:", "https:");
    assert!(
        clients(&trust, &url, true)
            .auctioneer
            .request_lrps(&[lrp_start()], &trace())
            .await
            .is_err()
    );
    clients(&trust, &url, false)
        .auctioneer
        .request_lrps(&[lrp_start()], &trace())
        .await
        .unwrap();
    assert_eq!(auctioneer.take_requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rep_requests_use_https_and_name_one_container() {
    let trust = Trust::new();
    let rep = StubServer::start(&trust);
    let clients = clients(&trust, "https://127.0.0.1:1", true);
    let cell = cell(&rep);
    let (key, instance) = instance();
    clients
        .reps
        .stop(&cell, &key, &instance, &TraceId::NONE)
        .await
        .unwrap();
    clients
        .reps
        .cancel_task(&cell, b"task", &trace())
        .await
        .unwrap();
    let requests = rep.take_requests();
    assert_eq!(
        requests[0].path,
        "/v1/lrps/a%2Fguid/instances/instance/stop"
    );
    assert_eq!(
        (
            requests[0].method.as_str(),
            &requests[0].trace_id,
            &requests[0].body
        ),
        ("POST", &None, &Value::Null)
    );
    assert_eq!(
        (requests[1].path.as_str(), requests[1].trace_id.as_deref()),
        ("/v1/tasks/task/cancel", Some("a-trace"))
    );
    for rep_url in ["", "http://127.0.0.1:1", "not a url", "https:"] {
        let cell = proto::CellPresence {
            rep_url: rep_url.into(),
            ..cell.clone()
        };
        let error = clients
            .reps
            .stop(&cell, &key, &instance, &trace())
            .await
            .unwrap_err();
        assert!(
            matches!(error, ClientError::NoSecureAddress { .. }),
            "{rep_url:?}: {error}"
        );
    }
    rep.reply_next(&[StubReply::Status(500)]);
    assert!(
        clients
            .reps
            .stop(&cell, &key, &instance, &trace())
            .await
            .is_err()
    );
    clients
        .reps
        .stop(&cell, &key, &instance, &trace())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rep_without_tls_gets_requests_unless_tls_is_required() {
    let trust = Trust::new();
    let rep = StubServer::start_plain();
    let clients = clients(&trust, "https://127.0.0.1:1", false);
    let (key, instance) = instance();
    let older = proto::CellPresence {
        rep_url: Vec::new(),
        rep_address: rep.url().into_bytes(),
        ..cell(&rep)
    };
    for cell in [cell(&rep), older] {
        clients
            .reps
            .stop(&cell, &key, &instance, &trace())
            .await
            .unwrap();
        clients
            .reps
            .cancel_task(&cell, b"task", &trace())
            .await
            .unwrap();
        assert_eq!(rep.take_requests().len(), 2);
    }
    rep.reply_next(&[StubReply::Status(500)]);
    let error = clients
        .reps
        .stop(&cell(&rep), &key, &instance, &trace())
        .await
        .unwrap_err()
        .to_string();
    let address = rep.url().replace("http://", "");
    assert!(
        error.contains(&format!("the answer of {address} was 500")),
        "{error}"
    );
    for rep_url in ["not a url", "https:", "ftp://127.0.0.1:1"] {
        let cell = proto::CellPresence {
            rep_url: rep_url.into(),
            ..cell(&rep)
        };
        let error = clients
            .reps
            .stop(&cell, &key, &instance, &trace())
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains(rep_url) && error.to_string().contains("cell-1"),
            "{error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn update_to_an_older_rep_falls_back_to_routes_only() {
    let trust = Trust::new();
    let rep = StubServer::start(&trust);
    let clients = clients(&trust, "https://127.0.0.1:1", true);
    let cell = cell(&rep);
    let (key, instance) = instance();
    let routes = Some(vec![b"a.internal".to_vec()]);
    let tags = Some(BTreeMap::from([(b"a".to_vec(), b"b".to_vec())]));
    let both = Push {
        key,
        instance,
        internal_routes: routes,
        metric_tags: tags,
    };
    let update = async |push: &Push| clients.reps.update(&cell, push, &trace()).await;
    update(&both).await.unwrap();
    let body = |tags: Value| {
        json!({
            "instance_guid": "instance", "process_guid": "a/guid", "index": 3, "domain": "domain",
            "internal_routes": [{ "hostname": "a.internal" }], "metric_tags": tags,
        })
    };
    let requests = rep.take_requests();
    assert_eq!(
        (requests[0].method.as_str(), &requests[0].body),
        ("PUT", &body(json!({ "a": "b" })))
    );
    assert_eq!(requests[0].path, "/v2/lrps/a%2Fguid/instances/instance");

    rep.reply_next(&[StubReply::Status(404)]);
    update(&both).await.unwrap();
    let requests = rep.take_requests();
    assert_eq!(
        (requests[1].path.as_str(), &requests[1].body),
        ("/v1/lrps/a%2Fguid/instances/instance", &body(Value::Null))
    );
    rep.reply_next(&[StubReply::Status(404), StubReply::Status(404)]);
    update(&both).await.unwrap();
    assert_eq!(rep.take_requests().len(), 2);
    rep.reply_next(&[StubReply::Status(404), StubReply::Status(500)]);
    assert!(matches!(
        update(&both).await.unwrap_err(),
        ClientError::Status { status: 500, .. }
    ));
    rep.take_requests();
    rep.reply_next(&[StubReply::Status(404)]);
    let tags_alone = Push {
        internal_routes: None,
        ..both
    };
    update(&tags_alone).await.unwrap();
    assert_eq!(rep.take_requests().len(), 1, "older reps accept no tags");
}

#[tokio::test(flavor = "multi_thread")]
async fn task_callback_contains_the_whole_result() {
    let trust = Trust::new();
    let receiver = StubServer::start(&trust);
    let clients = clients(&trust, "https://127.0.0.1:1", true);
    let task = |annotation: &str, url: String| Task {
        guid: b"task".to_vec(),
        created_at_ns: 7,
        failed: true,
        failure_reason: b"a \xff reason".to_vec(),
        result: b"<result>".to_vec(),
        definition: proto::TaskDefinition {
            annotation: annotation.into(),
            completion_callback_url: url.into(),
            ..Default::default()
        },
        ..Task::default()
    };
    let url = format!("{}/ended?a=b", receiver.url());
    receiver.reply_next(&[StubReply::Status(200), StubReply::Status(503)]);
    assert_eq!(
        clients
            .callbacks
            .post(&task("", url.clone()))
            .await
            .unwrap(),
        200
    );
    assert_eq!(
        clients.callbacks.post(&task("mine", url)).await.unwrap(),
        503
    );
    let mut body = json!({
        "task_guid": "task", "failed": true, "failure_reason": "a \u{fffd} reason", "result": "<result>",
        "created_at": 7,
    });
    let requests = receiver.take_requests();
    assert_eq!(
        (
            requests[0].path.as_str(),
            &requests[0].trace_id,
            &requests[0].body
        ),
        ("/ended", &None, &body)
    );
    body["annotation"] = "mine".into();
    assert_eq!(requests[1].body, body);
    let error = clients
        .callbacks
        .post(&task("", "nowhere".to_owned()))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::NoCallback { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_are_the_readable_presences_of_locket() {
    let locket = Locket::start();
    let clients = Clients::new(
        &config::ClientsConfig::default(),
        Some(&locket.lookup_config()),
        None,
    )
    .unwrap();
    let cells = clients.cells;
    assert_eq!(cells.all().await.unwrap(), Some(Vec::new()));
    locket.add_presence("a", r#"{"cell_id":"a","rep_url":"https://a"}"#);
    locket.add_presence("b", "not JSON");
    let found = cells.all().await.unwrap().unwrap();
    assert_eq!(
        found
            .iter()
            .map(|cell| &cell.cell_id[..])
            .collect::<Vec<_>>(),
        [b"a"]
    );
    assert_eq!(cells.find(b"a").await.unwrap(), Some(found[0].clone()));
    let error = cells.find(b"b").await.unwrap_err();
    assert!(matches!(error, CellsError::Malformed { .. }), "{error}");
    assert_eq!(cells.find(b"c").await.unwrap(), None);
    locket.set_unavailable(true);
    let error = cells.all().await.unwrap_err();
    assert!(matches!(error, CellsError::Locket(_)), "{error}");
    assert!(cells.find(b"a").await.is_err());
    locket.set_unavailable(false);
    locket.remove_presence("a");
    assert_eq!(cells.find(b"a").await.unwrap(), None);
    assert_eq!(
        Clients::default().cells.all().await.unwrap(),
        None,
        "without Locket no cells are known"
    );
}

/// Lists the cells until Locket answers.
async fn wait_for_locket(clients: &Clients) {
    until_async(async || clients.cells.all().await.is_ok()).await;
}

/// Goal: a Locket that accepts connections and answers nothing, and goes without closing them, does
/// not keep a host from the next one. Method: the clock passes the limit of its handshake, and
/// cells are looked up until the next Locket answers. Without that limit it would, too, but later:
/// a look-up without an answer connects anew if the connection is three seconds old.
#[tokio::test]
async fn silent_locket_is_given_up_for_the_next_one_at_its_address() {
    const LONGEST_HANDSHAKE: Duration = Duration::from_secs(10);
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let locket = config::LocketConfig {
        address: address.to_string(),
        lookup_timeout: Duration::from_secs(1),
        ..Locket::start().lookup_config()
    };
    let clients = Clients::new(&config::ClientsConfig::default(), Some(&locket), None).unwrap();
    let (accepted, looked_up) = tokio::join!(silent.accept(), clients.cells.all());
    let error = looked_up.unwrap_err();
    assert!(matches!(error, CellsError::Silent { .. }), "{error}");
    // Its connection stays open.
    let _accepted = accepted.unwrap();
    drop(silent);
    Locket::start_at(address);
    tokio::time::pause();
    tokio::time::advance(LONGEST_HANDSHAKE).await;
    // Otherwise the clock would pass the limit of the next handshake, too.
    tokio::time::resume();
    wait_for_locket(&clients).await;
}

/// Goal: nor does a machine that dies while its connection is in use. Method: a proxy forwards
/// nothing on the connections that are open, and new ones as before.
#[tokio::test(flavor = "multi_thread")]
async fn locket_machine_that_dies_is_given_up_for_the_next_one_at_its_address() {
    let locket = Locket::start();
    let proxy = Proxy::to(locket.address());
    let through_proxy = config::LocketConfig {
        address: proxy.address().to_string(),
        lookup_timeout: Duration::from_millis(500),
        ..locket.lookup_config()
    };
    let clients = Clients::new(
        &config::ClientsConfig::default(),
        Some(&through_proxy),
        None,
    )
    .unwrap();
    wait_for_locket(&clients).await;
    proxy.stall_open();
    let error = clients.cells.all().await.unwrap_err();
    assert!(matches!(error, CellsError::Silent { .. }), "{error}");
    wait_for_locket(&clients).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_client_configuration_is_an_error_that_names_the_key() {
    let trust = Trust::new();
    let rejected = |auctioneer: config::AuctioneerConfig| {
        let config = config::ClientsConfig {
            auctioneer: Some(auctioneer),
            ..config::ClientsConfig::default()
        };
        Clients::new(&config, None, None).unwrap_err().remove(0)
    };
    let address = "https://127.0.0.1:1".to_owned();
    let tls = trust.client_tls();
    let error = rejected(config::AuctioneerConfig {
        address: "https://".to_owned(),
        tls: None,
        require_tls: true,
    });
    assert!(error.to_string().contains("write it as a URL"), "{error}");
    let without_key = CertificateFiles {
        key_file: "/nonexistent.key".into(),
        ..tls.clone()
    };
    let error = rejected(config::AuctioneerConfig {
        address: address.clone(),
        tls: Some(without_key),
        require_tls: true,
    });
    assert!(error.to_string().contains("`auctioneer_*`"), "{error}");
    let mismatched = CertificateFiles {
        key_file: tls.cert_file.clone(),
        ..tls
    };
    rejected(config::AuctioneerConfig {
        address,
        tls: Some(mismatched),
        require_tls: true,
    });
}
