//! Rollback on drain: the first host that ends migrates the database down, and the others serve
//! that version until a host without the setting migrates it up.

use bbs::testing::migrate::fault::AFTER_BEGIN;
use bbs_proto::models as proto;

use crate::api::answers::answers_as_diego_did;
use crate::harness::database::{TestDatabase, execute, on_each_database, texts};
use crate::harness::fixture::{DIEGOS_NEWEST, VERSION};
use crate::harness::host::Host;
use crate::harness::neighbours::{StubReply, StubServer};
use crate::lock::standby;

use super::*;

/// A host with a lease long enough not to expire on a busy machine. A host that ends releases its
/// lease, and a holder that was killed is detected.
fn host(database: &TestDatabase, name: &str) -> Installation {
    crate::lock::host(database, name).set("lock_ttl", "60s")
}

fn rolling_back(database: &TestDatabase, name: &str) -> Installation {
    host(database, name).set("rollback_on_drain_to_version", VERSION)
}

async fn end(host: Host) {
    let ended = tokio::task::spawn_blocking(move || host.terminate())
        .await
        .unwrap();
    assert!(ended.success(), "{ended}");
}

on_each_database!(host_that_ends_because_a_table_is_gone_takes_nothing_back);
async fn host_that_ends_because_a_table_is_gone_takes_nothing_back(kind: Kind) {
    let database = TestDatabase::new(kind);
    fixture::write_small_to(&database).await;
    let installation = rolling_back(&database, "one");
    let host = installation.serve();
    let opened = database.open().await;
    execute(&opened, "DROP TABLE domains").await;
    opened.close().await;
    let answer: proto::DomainsResponse = host.call("/v1/domains/list", &()).await;
    let error = answer.error.expect("there is no such table");
    assert_eq!(error.r#type(), proto::error::Type::Unrecoverable);
    let (status, output) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    assert!(status.success(), "{output}");
    assert_eq!(installation.data_version(), NEWEST);
}

on_each_database!(drain_of_an_empty_database_has_nothing_to_take_back);
/// Method: the first start is stopped once it has recorded its migration, and gets SIGTERM there.
async fn drain_of_an_empty_database_has_nothing_to_take_back(kind: Kind) {
    let database = TestDatabase::new(kind);
    let installation = rolling_back(&database, "one");
    let mut command = installation.command(&["serve"]);
    command.env("BBS_FAULT", format!("stop:{AFTER_BEGIN}"));
    let host = Host::begin(command);
    host.until_stopped().await;
    host.signal("TERM");
    host.signal("CONT");
    let (status, output) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    assert!(
        status.success() && output.contains("there is nothing to take back"),
        "{output}"
    );
    end(installation.serve()).await;
    assert_eq!(installation.data_version(), VERSION);
}

on_each_database!(standby_with_the_same_setting_serves_the_rolled_back_version);
async fn standby_with_the_same_setting_serves_the_rolled_back_version(kind: Kind) {
    let database = TestDatabase::new(kind);
    fixture::write_to(&database).await;
    let one = rolling_back(&database, "one");
    let other = rolling_back(&database, "other");
    // Before the first drain the hosts migrate up from the rollback version.
    let first = one.serve();
    assert_eq!(one.data_version(), NEWEST);
    let waiting = standby(&other);
    end(first).await;
    let second = waiting.await.unwrap();
    assert_eq!(
        other.data_version(),
        VERSION,
        "the second host migrated up again"
    );
    answers_as_diego_did(second.address).await;
    end(second).await;
    assert_eq!(other.data_version(), VERSION);

    // The version stays after a restart and after a kill.
    let again = one.serve();
    answers_as_diego_did(again.address).await;
    again.kill();
    assert_eq!(one.data_version(), VERSION);
    let text = one.succeed(&["migrate", "status"]);
    assert!(
        text.contains(&format!("`bbs serve` serves {VERSION} through a lens")),
        "{text}"
    );
    let text = one.succeed(&["migrate", "plan"]);
    assert!(
        text.contains(&format!(
            "Start      `bbs serve` serves {VERSION} through a lens"
        )),
        "{text}"
    );

    // A host without the setting migrates up.
    let other = other.set("rollback_on_drain_to_version", Value::Null);
    end(other.serve()).await;
    assert_eq!(other.data_version(), NEWEST);
    end(one.serve()).await;
    assert_eq!(
        one.data_version(),
        VERSION,
        "a host with the setting migrates up and, on drain, down"
    );
    one.succeed(&["migrate", "up"]);
    assert_eq!(one.data_version(), NEWEST);
}

on_each_database!(older_host_serving_in_between_does_not_end_the_rollback);
async fn older_host_serving_in_between_does_not_end_the_rollback(kind: Kind) {
    let database = TestDatabase::new(kind);
    fixture::write_to(&database).await;
    let newer = rolling_back(&database, "one");
    end(newer.serve()).await;
    assert_eq!(newer.data_version(), VERSION);
    end(host(&database, "older")
        .set("pin_data_version", VERSION)
        .serve())
    .await;
    let again = newer.serve();
    assert_eq!(newer.data_version(), VERSION);
    answers_as_diego_did(again.address).await;
}

on_each_database!(record_written_under_newer_modules_migrates_down_with_older_ones);
async fn record_written_under_newer_modules_migrates_down_with_older_ones(kind: Kind) {
    let database = TestDatabase::new(kind);
    let newer = Installation::on(database.clone(), &modules::modules_with_split());
    let host = newer.serve();
    let task = crate::tasks::desire_request("task");
    let body = bbs_proto::prost::Message::encode_to_vec(&task);
    let client = crate::harness::http_client();
    let response = client
        .post(host.url("/v1/tasks/desire.r2"))
        .body(body)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    end(host).await;
    newer.succeed(&["migrate", "down", "--to", &NEWEST.to_string()]);
    let older = Installation::on(database, &modules::modules());
    older.succeed(&["migrate", "down", "--to", &DIEGOS_NEWEST.to_string()]);
    assert_eq!(older.data_version(), DIEGOS_NEWEST);
    assert_eq!(
        older.status()["rows"][3]["rows"],
        1,
        "the task was migrated"
    );
}

on_each_database!(nothing_is_written_beside_a_rollback);
/// Method: a callback is answered while records are copied, and then its task is deleted by the
/// host that goes back.
async fn nothing_is_written_beside_a_rollback(kind: Kind) {
    let database = TestDatabase::new(kind);
    fixture::write_small_to(&database).await;
    let receiver = StubServer::start_plain();
    receiver.reply_next(&[StubReply::OnceReleased]);
    let installation = rolling_back(&database, "one").set("communication_timeout", "10m");
    let mut host = installation.serve();
    let desire = proto::DesireTaskRequest {
        task_definition: Some(proto::TaskDefinition {
            completion_callback_url: receiver.url().into(),
            ..crate::tasks::definition()
        }),
        ..crate::tasks::desire_request("task")
    };
    let start = proto::StartTaskRequest {
        task_guid: b"task".to_vec(),
        cell_id: b"cell".to_vec(),
    };
    let complete = proto::CompleteTaskRequest {
        task_guid: b"task".to_vec(),
        cell_id: b"cell".to_vec(),
        ..Default::default()
    };
    for answer in [
        host.call::<proto::TaskLifecycleResponse>("/v1/tasks/desire.r2", &desire)
            .await,
        host.call("/v1/tasks/start", &start).await,
        host.call("/v1/tasks/complete", &complete).await,
    ] {
        assert_eq!(answer.error, None);
    }
    receiver.wait_for_requests(1).await;
    installation.succeed(&["migrate", "rate", "1/s"]);
    host.signal("TERM");
    host.wait_for_line(|line| line.contains("taking the database back"));
    receiver.release();
    host.wait_for_line(|line| line.contains("a task callback failed"));
    installation.succeed(&["migrate", "rate", "none"]);
    let (status, output) = tokio::task::spawn_blocking(move || host.wait_for_end())
        .await
        .unwrap();
    assert!(status.success(), "{output}");
    assert_eq!(installation.data_version(), VERSION);
    let opened = database.open().await;
    let task = "SELECT guid FROM tasks WHERE guid = 'task'";
    assert_eq!(texts(&opened, task).await, ["task"]);
    opened.close().await;
}
