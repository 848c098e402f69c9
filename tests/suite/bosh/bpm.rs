//! The host on a machine as bpm makes it: read-only packages, no executable data, and a kill some
//! time after the signals.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use bytes::Bytes;
use futures_util::{StreamExt, future, stream};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::api::lrp;
use crate::harness::bosh::bpm::BpmWorld;
use crate::harness::bosh::package::parse_yaml;
use crate::harness::certificates::client_builder;
use crate::harness::database::{Kind, execute, on_each_server};
use crate::harness::fixture::{self, UNSPLIT_TAGS, VERSION};
use crate::harness::host::Host;
use crate::harness::layouts::NEWEST;
use crate::harness::output::succeeded;
use crate::harness::ports::free_address;
use crate::harness::proxy::Proxy;
use crate::harness::{until, until_async};

/// Most looks at the status of the host until a migration has begun. Each starts a process.
const LOOKS: usize = 500;

/// A time above that of requests in flight after a signal.
const LIMIT_OF_SIGNAL: Duration = Duration::from_secs(9);

fn version(world: &BpmWorld) -> u64 {
    let status: Value =
        serde_json::from_str(&succeeded(world.migrate(&["status", "--json"]))).expect("it is JSON");
    status["found"]["versioned"]["current"]
        .as_u64()
        .expect("a version")
}

/// A host that has migrated the fixture.
async fn deployed(kind: Kind) -> (BpmWorld, Host) {
    deploy(BpmWorld::new(kind)).await
}

async fn deploy(world: BpmWorld) -> (BpmWorld, Host) {
    let world = world.set("migration", json!({ "rollback_on_drain_to": VERSION }));
    fixture::write_to(&world.database).await;
    let opened = world.database.open().await;
    // Convergence creates no instances.
    execute(&opened, "UPDATE desired_lrps SET instances = 0").await;
    opened.close().await;
    world.install();
    tokio::task::spawn_blocking(|| {
        let host = world.start();
        succeeded(world.script("post-start"));
        (world, host)
    })
    .await
    .expect("the host serves")
}

/// The drain script, which has begun.
fn begin_drain(world: &BpmWorld) -> Child {
    world
        .command("/var/vcap/jobs/bbs/bin/drain", &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the script starts")
}

/// Waits until the host has begun to take the database back and the rate holds it back.
fn wait_for_the_rate(world: &BpmWorld, host: &mut Host) {
    host.wait_for_line(|line| line.contains("drain.going-back"));
    let is_held_back = || succeeded(world.migrate(&["status"])).contains("held back by the rate");
    assert!(
        (0..LOOKS).any(|_| is_held_back()),
        "the rate does not hold the host back"
    );
}

on_each_server!(drain_goes_back_however_long_it_takes);
/// Goal: the drain script waits until the host has gone back and ended, and bpm sends no signal
/// before that. Method: a rate at which going back takes five minutes holds it back until the
/// limit is lifted.
async fn drain_goes_back_however_long_it_takes(kind: Kind) {
    let (world, mut host) = deployed(kind).await;
    tokio::task::spawn_blocking(move || {
        assert_eq!(version(&world), NEWEST);
        succeeded(world.migrate(&["rate", "1/s"]));
        let mut drain = begin_drain(&world);
        wait_for_the_rate(&world, &mut host);
        assert!(
            drain
                .try_wait()
                .expect("the script can be waited for")
                .is_none(),
            "the script did not wait"
        );
        assert_eq!(world.signals(), Vec::<String>::new());
        succeeded(world.migrate(&["rate", "none"]));
        assert_eq!(
            succeeded(
                drain
                    .wait_with_output()
                    .expect("the script can be waited for")
            ),
            "0\n"
        );
        assert!(host.wait().success());
        assert_eq!(version(&world), VERSION);
        assert_eq!(
            succeeded(world.script("drain")),
            "0\n",
            "no host is running"
        );
        // The process may end a moment after its report, and then gets the first signal.
        assert!(
            world.signals().iter().all(|signal| signal == "TERM"),
            "{:?}",
            world.signals()
        );
    })
    .await
    .expect("the host is drained");
}

on_each_server!(drain_whose_host_is_killed_is_completed_by_the_next_start);
/// Goal: the host that monit starts after one that was killed takes the database back without a
/// drain, and ends; the next one serves it there. A signal ends it before, as it ends any host that
/// is not drained. Method: a rate that the killed host and the first start after it are held to.
async fn drain_whose_host_is_killed_is_completed_by_the_next_start(kind: Kind) {
    let (world, mut host) = deployed(kind).await;
    tokio::task::spawn_blocking(move || {
        succeeded(world.migrate(&["rate", "1/s"]));
        let drain = begin_drain(&world);
        wait_for_the_rate(&world, &mut host);
        host.kill();
        let drained = drain
            .wait_with_output()
            .expect("the script can be waited for");
        assert_eq!(drained.status.code(), Some(1), "{drained:?}");
        let status = succeeded(world.migrate(&["status"]));
        let next = format!("`bbs serve` completes the rollback to {VERSION} and then ends");
        assert!(status.contains(&next), "{status}");

        let back = json!({ "rollback_on_drain_to": VERSION, "rate": 1 });
        let world = world.set("migration", back);
        world.install();
        let mut host = world.begin();
        wait_for_the_rate(&world, &mut host);
        host.signal("TERM");
        assert_eq!(host.wait().code(), Some(0));
        assert_eq!(world.locket.holder(), None);
        assert_eq!(version(&world), NEWEST);

        let world = world.set("migration", json!({ "rollback_on_drain_to": VERSION }));
        world.install();
        let (ended, output) = world.begin().wait_for_end();
        assert!(ended.success(), "{output}");
        assert_eq!(version(&world), VERSION);
        let mut host = world.start();
        assert_eq!(version(&world), VERSION);
        succeeded(world.bpm_stop());
        assert_eq!(host.wait().code(), Some(0));
    })
    .await
    .expect("the rollback is completed");
}

on_each_server!(drain_without_a_host_takes_the_database_back);
/// Goal: an instance whose host does not run leaves no database that the older BBS refuses.
async fn drain_without_a_host_takes_the_database_back(kind: Kind) {
    let (world, mut host) = deployed(kind).await;
    tokio::task::spawn_blocking(move || {
        succeeded(world.bpm_stop());
        host.wait();
        assert_eq!(version(&world), NEWEST);
        for _ in 0..2 {
            assert_eq!(succeeded(world.script("drain")), "0\n");
            assert_eq!(version(&world), VERSION);
            assert_eq!(world.locket.holder(), None);
        }
    })
    .await
    .expect("the database is taken back");
}

/// Goal: a wrong value does not block the deployment that corrects it, unless the database has to be
/// taken back. Method: a value that the templates reject, in the configuration of an instance whose
/// host does not run.
#[tokio::test(flavor = "multi_thread")]
async fn drain_with_a_faulty_configuration_fails_only_on_the_way_back() {
    let drained = |world: BpmWorld| {
        world.install();
        let path = world.path("jobs/bbs/config/bbs.json");
        let rendered = std::fs::read_to_string(&path).expect("it was rendered");
        let mut config: Value = serde_json::from_str(&rendered).expect("it is JSON");
        config["quarantine_limit"] = "x".into();
        std::fs::write(&path, config.to_string()).expect("a file of this user");
        let output = world.script("drain");
        let log = std::fs::read_to_string(world.path("sys/log/bbs/drain.log")).expect("a log");
        assert!(log.contains("`quarantine_limit` is \"x\""), "{log}");
        let [answer, message] = [&output.stdout, &output.stderr]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        (output.status.code(), answer, message)
    };
    let outcomes = tokio::task::spawn_blocking(move || {
        let back = json!({ "rollback_on_drain_to": VERSION });
        let worlds = [
            BpmWorld::new(Kind::Postgres),
            BpmWorld::new(Kind::Postgres).set("migration", back),
        ];
        worlds.map(drained)
    });
    let [(stays, answer, message), (goes_back, no_answer, reason)] =
        outcomes.await.expect("the scripts run");
    assert_eq!((stays, &*answer), (Some(0), "0\n"), "{message}");
    assert!(message.contains("bpm stops it"), "{message}");
    assert_eq!((goes_back, &*no_answer), (Some(1), ""), "{reason}");
    assert!(
        reason.contains(&format!("the database may be above {VERSION}")),
        "{reason}"
    );
}

/// Inode and time of the last change of each compiled module.
fn compiled(world: &BpmWorld) -> BTreeMap<String, (u64, i64)> {
    let files = std::fs::read_dir(world.path("data/bbs/tmp/module-cache"))
        .expect("the folder of compiled modules");
    let state = files.map(|file| {
        let file = file.expect("a file");
        let metadata = file.metadata().expect("a file");
        (
            file.file_name().into_string().expect("text"),
            (metadata.ino(), metadata.mtime_nsec()),
        )
    });
    state.collect()
}

on_each_server!(stop_without_a_drain_ends_in_time_and_does_not_go_back);
async fn stop_without_a_drain_ends_in_time_and_does_not_go_back(kind: Kind) {
    let (world, mut host) = deployed(kind).await;
    tokio::task::spawn_blocking(move || {
        succeeded(world.bpm_stop());
        assert_eq!(
            (host.wait().code(), world.signals()),
            (Some(0), vec!["TERM".to_owned()])
        );
        assert_eq!(version(&world), NEWEST);
        let before = compiled(&world);
        assert!(!before.is_empty());
        // A restart loads the compiled modules from the data folder. One that could not be loaded
        // would be logged, and replaced.
        let mut again = world.start();
        let failures = [
            "modules.not-kept",
            "a folder of compiled modules is not used",
            "a compiled module is not used",
        ];
        assert_eq!(
            again
                .output()
                .iter()
                .find(|line| failures.iter().any(|failure| line.contains(failure))),
            None
        );
        assert_eq!(compiled(&world), before);
        succeeded(world.bpm_stop());
        assert_eq!(again.wait().code(), Some(0));
    })
    .await
    .expect("the host is stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_cannot_be_changed_and_data_cannot_be_executed() {
    let world = BpmWorld::new(Kind::Postgres);
    world.install_errand(&json!({}));
    std::fs::copy(
        world.path("jobs/bpm/bin/bpm"),
        world.path("data/bbs/tmp/program"),
    )
    .expect("a file can be copied");
    assert_eq!(
        world
            .run("/var/vcap/jobs/bpm/bin/bpm", &["stop", "bbs"])
            .status
            .code(),
        Some(0)
    );
    let refused = world.run("/var/vcap/data/bbs/tmp/program", &["stop", "bbs"]);
    assert_eq!(refused.status.code(), Some(126));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("Permission denied"),
        "{refused:?}"
    );
    let refused = world.run("touch", &["/var/vcap/packages/bbs-modules/new"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("Read-only file system"),
        "{refused:?}"
    );
}

async fn call<A: Message + Default>(
    client: &reqwest::Client,
    url: String,
    request: &impl Message,
) -> A {
    let response = client
        .post(url)
        .body(request.encode_to_vec())
        .send()
        .await
        .expect("the host answers");
    assert_eq!(response.status(), 200);
    A::decode(response.bytes().await.expect("the answer is complete")).expect("an answer")
}

on_each_server!(api_serves_clients_with_a_certificate_and_no_others);
async fn api_serves_clients_with_a_certificate_and_no_others(kind: Kind) {
    let (world, _host) = deployed(kind).await;
    let client = world.client();
    let ping: proto::PingResponse = call(&client, world.url("/v1/ping"), &()).await;
    assert!(ping.available);
    let desire = proto::DesireLrpRequest {
        desired_lrp: Some(lrp("smoke")),
    };
    let desired: proto::DesiredLrpLifecycleResponse =
        call(&client, world.url("/v1/desired_lrp/desire.r2"), &desire).await;
    assert_eq!(desired.error, None);
    let request = proto::DesiredLrPsRequest::default();
    let listed: proto::DesiredLrPsResponse =
        call(&client, world.url("/v1/desired_lrps/list.r3"), &request).await;
    assert_eq!(listed.error, None);
    let guids: Vec<_> = listed
        .desired_lrps
        .iter()
        .map(|lrp| &lrp.process_guid[..])
        .collect();
    assert!(
        guids.contains(&&b"smoke"[..]) && guids.len() > 1,
        "the new one beside those of the fixture"
    );

    let stranger = client_builder(&world.authority, None)
        .build()
        .expect("a client");
    stranger
        .post(world.url("/v1/ping"))
        .send()
        .await
        .expect_err("the host requires a certificate");
}

/// A request whose head the host has read. The rest of its body is sent after its beginning.
async fn begin_request(
    world: &BpmWorld,
    beginning: Bytes,
    rest: impl Future<Output = Bytes> + Send + Sync + 'static,
) -> JoinHandle<reqwest::Result<reqwest::Response>> {
    let (sent, is_sent) = oneshot::channel();
    let first = stream::iter([Ok::<_, std::io::Error>(Frame::data(beginning))]);
    // It is awaited once the head is sent.
    let rest = stream::once(async move {
        let _ = sent.send(());
        Ok(Frame::data(rest.await))
    });
    let body = reqwest::Body::wrap(StreamBody::new(first.chain(rest)));
    let call_of_body = world.client().post(world.url("/v1/domains/upsert"));
    let in_flight = tokio::spawn(call_of_body.body(body).send());
    is_sent.await.expect("the connection is open");
    // The host has read the head of that request once it has answered a later one of another
    // connection.
    let _: proto::PingResponse = call(&world.client(), world.url("/v1/ping"), &()).await;
    in_flight
}

on_each_server!(stop_with_a_request_in_flight_cuts_it_off_and_ends_in_time);
async fn stop_with_a_request_in_flight_cuts_it_off_and_ends_in_time(kind: Kind) {
    let (world, mut host) = deployed(kind).await;
    let in_flight = begin_request(&world, Bytes::from_static(b"\n"), future::pending()).await;
    tokio::task::spawn_blocking(move || {
        succeeded(world.bpm_stop());
        assert_eq!(
            (host.wait().code(), world.signals()),
            (Some(0), vec!["TERM".to_owned()])
        );
        host.wait_for_line(|line| {
            line.contains("requests.cut-off") && line.contains(r#""requests":1"#)
        });
    })
    .await
    .expect("the host is stopped");
    in_flight
        .await
        .expect("no panic")
        .expect_err("the request was cut off");
}

on_each_server!(drain_of_a_host_that_a_signal_ends_takes_the_database_back);
/// Goal: a signal that the host gets before the drain leaves no database that the older BBS
/// refuses. Method: a request in flight keeps the host from its end until the drain has reached it.
async fn drain_of_a_host_that_a_signal_ends_takes_the_database_back(kind: Kind) {
    let (world, mut host) = deployed(kind).await;
    let in_flight = begin_request(&world, Bytes::from_static(b"\n"), future::pending()).await;
    let api = world.address("listen_addr");
    host.signal("TERM");
    until(|| TcpStream::connect(api).is_err()).await;
    tokio::task::spawn_blocking(move || {
        assert_eq!(succeeded(world.script("drain")), "0\n");
        assert_eq!(host.wait().code(), Some(0));
        let log = std::fs::read_to_string(world.path("sys/log/bbs/drain.log")).expect("a log");
        assert!(log.contains("The host has ended."), "{log}");
        assert_eq!(version(&world), VERSION);
        assert_eq!(world.locket.holder(), None);
    })
    .await
    .expect("the database is taken back");
    in_flight
        .await
        .expect("no panic")
        .expect_err("the request was cut off");
}

/// Goal: a request is answered that takes longer than a host has after a signal, since nothing
/// limits a drain. Method: a body whose end is sent after that time.
#[tokio::test(flavor = "multi_thread")]
async fn drain_lets_a_request_finish_that_a_signal_would_cut_off() {
    let world = BpmWorld::new(Kind::Postgres);
    world.install();
    let started = tokio::task::spawn_blocking(|| {
        let host = world.start();
        (world, host)
    });
    let (world, mut host) = started.await.expect("the host serves");
    let request = proto::UpsertDomainRequest {
        domain: "late".into(),
        ttl: 0,
    };
    let request = request.encode_to_vec();
    let [beginning, end] = [&request[..1], &request[1..]].map(Bytes::copy_from_slice);
    let (finish, is_late) = oneshot::channel::<()>();
    let rest = async move {
        let _ = is_late.await;
        end
    };
    let in_flight = begin_request(&world, beginning, rest).await;
    let api = world.address("listen_addr");
    let drained = tokio::task::spawn_blocking(move || world.script("drain"));
    until(|| TcpStream::connect(api).is_err()).await;
    let closed = Instant::now();
    until(|| closed.elapsed() > LIMIT_OF_SIGNAL).await;
    assert!(!drained.is_finished(), "it waits for the request");
    finish.send(()).expect("the request is in flight");
    let answered = in_flight.await.expect("no panic");
    assert_eq!(answered.expect("it is not cut off").status(), 200);
    let output = drained.await.expect("the script runs");
    assert_eq!(succeeded(output), "0\n");
    let ended = tokio::task::spawn_blocking(move || host.wait());
    assert!(ended.await.expect("it has ended").success());
}

on_each_server!(stop_while_the_database_does_not_answer_releases_the_lock_in_time);
/// Goal: a host whose database does not answer leaves the lock to the next master before bpm loses
/// its patience, and before the lock expires, which it would no longer renew.
async fn stop_while_the_database_does_not_answer_releases_the_lock_in_time(kind: Kind) {
    let proxy = Proxy::to(kind.engine().address());
    let world = BpmWorld::new(kind);
    let through = world.database.through(proxy.address()).properties();
    let (world, mut host) = deploy(world.set("sql", through)).await;
    proxy.stall();
    tokio::task::spawn_blocking(move || {
        succeeded(world.bpm_stop());
        assert_eq!(
            (host.wait().code(), world.signals()),
            (Some(0), vec!["TERM".to_owned()])
        );
        host.wait_for_line(|line| line.contains("encryptor.unknown"));
        assert_eq!(world.locket.holder(), None);
    })
    .await
    .expect("the host is stopped");
}

/// Runs post-start while another process listens at the address. In one namespace: `lsof` finds no
/// processes of others.
const POST_START_BESIDE: &str = r#"
ruby -rsocket -e 'server = TCPServer.new(*ARGV); File.write("/var/vcap/sys/log/bbs/listens", "x"); server.accept' "$1" "$2" &
until [ -s /var/vcap/sys/log/bbs/listens ]; do sleep 0.1; done
/var/vcap/jobs/bbs/bin/post-start
status=$?
kill "$!"
exit "$status"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn post_start_fails_if_another_process_has_the_port_of_the_api() {
    let world = BpmWorld::new(Kind::Postgres);
    world.install();
    let health = tokio::net::TcpListener::bind(world.address("health_addr"))
        .await
        .expect("a free port");
    tokio::spawn(async { axum::serve(health, axum::Router::new().fallback(|| async {})).await });
    let api = world.address("listen_addr");
    let ip = api.ip().to_string();
    let port = api.port().to_string();
    let script = move || world.run("sh", &["-c", POST_START_BESIDE, "beside", &ip, &port]);
    let output = tokio::task::spawn_blocking(script)
        .await
        .expect("the script runs");
    let message = String::from_utf8_lossy(&output.stderr);
    let expected = format!(
        "the port {} of the API belongs to ruby; stop it, or change diego.bbs.listen_addr",
        api.port()
    );
    assert!(
        output.status.code() == Some(1) && message.contains(&expected),
        "{output:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn post_start_fails_if_the_host_does_not_become_healthy() {
    let world = BpmWorld::new(Kind::Postgres);
    world.install();
    world.add_program("sleep", "#!/bin/sh\n");
    let output = tokio::task::spawn_blocking(move || world.script("post-start"))
        .await
        .expect("the script runs");
    let message = String::from_utf8_lossy(&output.stderr);
    let is_refused =
        message.contains("the host is not healthy") && message.contains("bbs.stdout.log");
    assert!(output.status.code() == Some(1) && is_refused, "{output:?}");
}

/// Reads the parameters of the kernel after a script.
const PARAMETERS_AFTER: &str = r#"
"$1" && cat /proc/sys/net/ipv4/tcp_fin_timeout /proc/sys/net/ipv4/tcp_tw_reuse
"#;

#[tokio::test(flavor = "multi_thread")]
async fn hook_of_each_start_sets_the_parameters_of_the_kernel_unless_it_is_turned_off() {
    let parameters = |is_on: bool| {
        let world =
            BpmWorld::new(Kind::Postgres).set_of_the_job("set_kernel_parameters", is_on.into());
        world.install();
        let bpm = std::fs::read_to_string(world.path("jobs/bbs/config/bpm.yml"))
            .expect("it was rendered");
        let hook = parse_yaml(&bpm)["processes"][0]["hooks"]["pre_start"].clone();
        let hook = hook.as_str().expect("a hook").to_owned();
        succeeded(world.run_in_own_network("sh", &["-c", PARAMETERS_AFTER, "after", &hook]))
    };
    let set = tokio::task::spawn_blocking(move || [parameters(true), parameters(false)])
        .await
        .expect("it runs");
    assert_eq!(set[0], "10\n1\n");
    assert_ne!(set[1], set[0]);
}

/// Goal: the deployment of an instance that cannot start stops there, instead of going on to drain
/// the next one.
#[tokio::test(flavor = "multi_thread")]
async fn post_start_fails_while_the_database_cannot_be_reached() {
    let sql = BpmWorld::new(Kind::Postgres).database.properties();
    let mut nowhere = sql.clone();
    nowhere["db_port"] = free_address().port().into();
    let world = BpmWorld::new(Kind::Postgres).set("sql", nowhere);
    world.install();
    // The script has as many attempts as in a deployment, without the pauses.
    world.add_program("sleep", "#!/bin/sh\n");
    let output = tokio::task::spawn_blocking(move || {
        let mut host = world.begin();
        host.wait_for_line(|line| line.contains("bbs.database.unreachable"));
        let output = world.script("post-start");
        assert!(!host.has_ended(), "the start waits for the database");
        output
    });
    let output = output.await.expect("the script runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && message.contains("the host is not healthy"),
        "{output:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
/// Method: the database answers once the health port has.
async fn host_with_a_wrong_passphrase_is_never_healthy() {
    let proxy = Proxy::to(Kind::Postgres.engine().address());
    let (world, mut host) = deployed(Kind::Postgres).await;
    let through = world.database.through(proxy.address()).properties();
    let (world, health) = tokio::task::spawn_blocking(move || {
        succeeded(world.bpm_stop());
        host.wait();
        let keys = json!([{ "label": "key-2024", "passphrase": "wrong" }]);
        let world = world.set("encryption_keys", keys).set("sql", through);
        world.install();
        let health = world.address("health_addr");
        (world, health)
    })
    .await
    .expect("the host is stopped");
    proxy.stall();
    let mut host = world.begin();
    let mut answers = 0;
    let client = crate::harness::http_client();
    until_async(async || {
        if let Ok(answer) = client.get(format!("http://{health}/ping")).send().await {
            assert_eq!(answer.status().as_u16(), 503);
            answers += 1;
            proxy.resume();
        }
        host.has_ended()
    })
    .await;
    assert_eq!(host.wait().code(), Some(2));
    assert!(answers > 0, "the health port opens at once");
}

on_each_server!(errand_migrates_a_database_that_no_host_uses);
async fn errand_migrates_a_database_that_no_host_uses(kind: Kind) {
    let (world, mut host) = deployed(kind).await;
    tokio::task::spawn_blocking(move || {
        let errand = |properties: Value| {
            world.install_errand(&json!({ "bbs_migrate": properties }));
            world.run("/var/vcap/jobs/bbs-migrate/bin/run", &[])
        };
        let down = json!({ "action": "down", "to": VERSION });
        assert!(succeeded(errand(json!({}))).contains(&NEWEST.to_string()));
        assert!(
            !errand(down.clone()).status.success(),
            "the host has the lock"
        );
        succeeded(world.bpm_stop());
        host.wait();
        succeeded(errand(json!({ "action": "plan", "to": VERSION })));
        assert_eq!(version(&world), NEWEST);
        succeeded(errand(down));
        assert_eq!(version(&world), VERSION);
        let checked = succeeded(errand(json!({ "action": "plan", "check": true })));
        assert!(
            checked.contains("Checked") && checked.contains("in memory; nothing was written"),
            "{checked}"
        );
        let oldest = json!({ "action": "down", "to": UNSPLIT_TAGS });
        succeeded(errand(oldest));
        let part = errand(json!({ "action": "up", "max_count": 1 }));
        assert_eq!(part.status.code(), Some(3), "{part:?}");
        let given_up = succeeded(errand(json!({ "action": "abort" })));
        assert!(
            given_up.contains(&format!("the database stays at {UNSPLIT_TAGS}")),
            "{given_up}"
        );
        let history = succeeded(errand(json!({ "action": "history" })));
        let last = history
            .lines()
            .take_while(|line| !line.is_empty())
            .last()
            .unwrap();
        assert!(
            last.contains(&format!("up from {UNSPLIT_TAGS} to {NEWEST}: given-up")),
            "{history}"
        );
        succeeded(errand(
            json!({ "action": "up", "on_unreadable": "quarantine" }),
        ));
        assert_eq!(version(&world), NEWEST);
        assert_eq!(
            succeeded(errand(json!({ "action": "quarantine" }))),
            "No unit is in quarantine.\n"
        );
    })
    .await
    .expect("the errand runs");
}
