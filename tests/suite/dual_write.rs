//! The dual write of online migrations: every change is passed to the dual write inside its own
//! transaction, and the store's access to the tables is switched only while no reader or writer
//! uses it.

use std::sync::{Arc, Mutex};

use bbs::testing::database::{Database, Dialect, Transaction, sql};
use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::online::{self, Online, Start};
use bbs::testing::migrate::{self, Context, Intent};
use bbs::testing::store::{DualWrite, DualWriteError};
use bbs_proto::models as proto;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::api::{desire, get, lrp};
use crate::harness::database::{Kind, TestDatabase, on_each_database, texts};
use crate::harness::layouts::{self, Layout, NEWEST, SPLIT};
use crate::harness::server::Server;
use crate::harness::stored::Stored;
use crate::harness::{fixture, modules};

/// A dual write that records its calls in memory, and changes in a table of the database.
#[derive(Debug, Clone, Default)]
struct CallRecorder {
    calls: Arc<Mutex<Vec<String>>>,
    /// Fails the next changes; the value says whether as a transient error.
    faults: Arc<Mutex<Vec<bool>>>,
}

/// Records its release.
struct RecordedHold(Arc<Mutex<Vec<String>>>, String);

impl Drop for RecordedHold {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(format!("release {}", self.1));
    }
}

impl CallRecorder {
    fn record(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }

    fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

impl DualWrite for CallRecorder {
    fn hold<'a>(
        &'a self,
        tables: Vec<&'a str>,
        key: &'a [u8],
    ) -> BoxFuture<'a, Box<dyn Send + Sync>> {
        Box::pin(async move {
            let unit = format!("{}/{}", tables.join("+"), String::from_utf8_lossy(key));
            self.record(format!("hold {unit}"));
            Box::new(RecordedHold(Arc::clone(&self.calls), unit)) as Box<dyn Send + Sync>
        })
    }

    fn changed<'a>(
        &'a self,
        tx: &'a mut Transaction,
        touched: &'a [(String, Vec<u8>)],
    ) -> BoxFuture<'a, Result<(), DualWriteError>> {
        Box::pin(async move {
            for (table, key) in touched {
                let unit = format!("{table}/{}", String::from_utf8_lossy(key));
                tx.execute(sql("INSERT INTO notes (unit) VALUES (?)").bind(unit.clone()))
                    .await
                    .unwrap();
                self.record(format!("changed {unit}"));
            }
            let fault = self.faults.lock().unwrap().pop();
            fault.map_or(Ok(()), |is_transient| {
                Err(DualWriteError {
                    source: "injected".into(),
                    is_transient,
                })
            })
        })
    }
}

async fn server_with_recorder(kind: Kind) -> (Server, CallRecorder) {
    let server = Server::empty(kind).await;
    server.sql("CREATE TABLE notes (unit VARCHAR(255))").await;
    let recorder = CallRecorder::default();
    let mut access = server.store.switch().await;
    let access_with_recorder =
        std::mem::take(&mut *access).with_dual_write(Arc::new(recorder.clone()));
    *access = access_with_recorder;
    drop(access);
    (server, recorder)
}

on_each_database!(each_change_is_dual_written_in_its_own_transaction);
async fn each_change_is_dual_written_in_its_own_transaction(kind: Kind) {
    let (server, recorder) = server_with_recorder(kind).await;
    desire(&server, lrp("a")).await;
    let units = "actual_lrps+bbs_lrp_definitions+bbs_lrp_updates+desired_lrps+domains+tasks/a";
    let expected = [
        format!("hold {units}"),
        "changed desired_lrps/a".to_owned(),
        "changed actual_lrps/a".to_owned(),
        format!("release {units}"),
    ];
    assert_eq!(recorder.take_calls(), expected);
    assert_eq!(
        server.texts("SELECT unit FROM notes ORDER BY unit").await,
        ["actual_lrps/a", "desired_lrps/a"]
    );
}

on_each_database!(change_that_the_dual_write_refuses_is_rolled_back);
async fn change_that_the_dual_write_refuses_is_rolled_back(kind: Kind) {
    let (server, recorder) = server_with_recorder(kind).await;
    recorder.faults.lock().unwrap().push(false);
    let request = proto::DesireLrpRequest {
        desired_lrp: Some(lrp("a")),
    };
    let (_, message) = server
        .call("/v1/desired_lrp/desire.r2", &request)
        .await
        .error();
    assert!(message.contains("cannot be carried over"), "{message}");
    assert_eq!(
        server.texts("SELECT process_guid FROM desired_lrps").await,
        Vec::<String>::new()
    );
    assert_eq!(
        server.texts("SELECT unit FROM notes").await,
        Vec::<String>::new()
    );
    // A change with a transient error is retried.
    recorder.faults.lock().unwrap().push(true);
    desire(&server, lrp("b")).await;
    assert_eq!(get(&server, "b").await.instances, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn switch_waits_for_readers_and_blocks_new_ones() {
    let server = Server::empty(Kind::Sqlite).await;
    let reader = server.store.reader().await.unwrap();
    let store = server.store.clone();
    let switch = tokio::spawn(async move { store.switch().await });
    tokio::task::yield_now().await;
    assert!(!switch.is_finished());
    drop(reader);
    let access = switch.await.unwrap();
    let store = server.store.clone();
    let reading = tokio::spawn(async move { store.reader().await.map(drop) });
    tokio::task::yield_now().await;
    assert!(!reading.is_finished());
    drop(access);
    reading.await.unwrap().unwrap();
}

/// A lasting reader waits for translators, and a writer, in a dual write, for modules of migrations.
#[tokio::test(flavor = "multi_thread")]
async fn switch_waits_for_what_takes_long_while_others_go_on() {
    let server = Server::empty(Kind::Sqlite).await;
    let store = &server.store;
    let lasting = store.lasting_reader().await.unwrap();
    let mut switch = Box::pin(store.switch());
    assert!((&mut switch).now_or_never().is_none());
    drop(store.reader().await.unwrap());
    let writer = store.writer(b"one").await.unwrap();
    let mut next = Box::pin(store.lasting_reader());
    assert!((&mut next).now_or_never().is_none());
    drop(lasting);
    assert!((&mut switch).now_or_never().is_none());
    drop(store.reader().await.unwrap());
    assert!(store.writer(b"other").now_or_never().is_none());
    drop(writer);
    drop(switch.await);
    drop(next.await.unwrap());
    drop(store.writer(b"other").await.unwrap());
}

/// An online migration that splits the fixture's desired LRPs, after the copy and before the
/// cut-over.
async fn copied(kind: Kind) -> (Stored, Fence, Online) {
    let database = TestDatabase::new(kind);
    fixture::write_to(&database).await;
    let stored = Stored::open(
        &database,
        fixture::migrations_in(&modules::modules_with_split()),
    )
    .await;
    stored.up(NEWEST).await.unwrap();
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let online = start_online(&stored.context, &fence).await;
    online.copy(&stored.context, &fence).await.unwrap();
    (stored, fence, online)
}

async fn start_online(context: &Context, fence: &Fence) -> Online {
    match online::start(context, fence, Intent::Up { wanted: SPLIT })
        .await
        .unwrap()
    {
        Start::Follow(online) => online,
        Start::Done(decision) => panic!("{decision:?}"),
    }
}

/// Process guids of the fixture that differ not only in case.
fn some_guids<const N: usize>() -> [String; N] {
    let rows = fixture::rows("desired_lrps");
    std::array::from_fn(|at| {
        rows[at]["process_guid"]
            .as_str()
            .expect("a guid is text")
            .to_owned()
    })
}

async fn column(database: &Database, name: &str, table: &str, guid: &str) -> String {
    texts(
        database,
        &format!("SELECT {name} FROM {table} WHERE process_guid = '{guid}'"),
    )
    .await
    .remove(0)
}

/// Updates the run info of a desired LRP with a dual write; returns the uncommitted transaction.
async fn write_run_info(fence: &Fence, online: &Online, guid: &str, run_info: &str) -> Transaction {
    let unit = [("desired_lrps".to_owned(), guid.as_bytes().to_vec())];
    let mut tx = fence.begin().await.unwrap();
    let update = sql("UPDATE desired_lrps SET run_info = ? WHERE process_guid = ?");
    assert_eq!(
        tx.execute(update.bind(run_info.to_owned()).bind(guid.to_owned()))
            .await
            .unwrap(),
        1
    );
    online.dual_write().changed(&mut tx, &unit).await.unwrap();
    tx
}

on_each_database!(write_after_a_rolled_back_abandonment_survives_the_next_start);
/// Goal: a host never resumes a copy that lacks a committed write, whatever ended the dual write.
/// Method: a write that cannot be copied abandons the migration in a transaction that is rolled
/// back, as by a failed commit or a crash; another write is committed; the process ends, and the
/// next start migrates.
async fn write_after_a_rolled_back_abandonment_survives_the_next_start(kind: Kind) {
    let (stored, fence, online) = copied(kind).await;
    let database = &stored.context.database;
    let [poison, written, other] = some_guids();
    let intact = column(database, "run_info", "desired_lrps", &poison).await;
    let wanted = column(database, "run_info", "desired_lrps", &other).await;
    assert_ne!(
        wanted,
        column(database, "run_info", "desired_lrps", &written).await
    );

    let held = online
        .dual_write()
        .hold(vec!["desired_lrps"], poison.as_bytes())
        .await;
    drop(write_run_info(&fence, &online, &poison, "02 decrypts with no key").await);
    drop(held);
    let held = online
        .dual_write()
        .hold(vec!["desired_lrps"], written.as_bytes())
        .await;
    write_run_info(&fence, &online, &written, &wanted)
        .await
        .commit()
        .await
        .unwrap();
    drop((held, online));
    assert_eq!(
        column(database, "run_info", "desired_lrps", &poison).await,
        intact
    );

    let fence = Fence::raise(database).await.unwrap();
    let online = start_online(&stored.context, &fence).await;
    online.copy(&stored.context, &fence).await.unwrap();
    online.cut_over(&stored.context, &fence).await.unwrap();
    migrate::clean_up(&stored.context, &fence).await.unwrap();
    let rows = stored.rows(SPLIT).await;
    let of = |guid: &str| {
        let row = rows["immutable_desired_lrps"]
            .iter()
            .find(|row| row["process_guid"] == guid);
        row.expect("each desired LRP has a row")["immutable_run_info"].clone()
    };
    assert!(
        of(&written) == of(&other),
        "the new tables lack an acknowledged write"
    );
    assert!(
        of(&poison) != of(&other),
        "the new tables have a write that was rolled back"
    );
}

on_each_database!(abandoned_migration_reports_its_cause_every_time_and_is_not_resumed);
async fn abandoned_migration_reports_its_cause_every_time_and_is_not_resumed(kind: Kind) {
    let (stored, fence, online) = copied(kind).await;
    let [poison] = some_guids();
    let held = online
        .dual_write()
        .hold(vec!["desired_lrps"], poison.as_bytes())
        .await;
    write_run_info(&fence, &online, &poison, "02 decrypts with no key")
        .await
        .commit()
        .await
        .unwrap();
    drop(held);
    for attempt in ["first", "second"] {
        let fault = modules::chain(&online.cut_over(&stored.context, &fence).await.unwrap_err());
        assert!(
            fault.contains(&format!(
                "cannot open column run_info of table desired_lrps in unit {poison:?}"
            )),
            "{attempt}: {fault}"
        );
    }
    let phase = texts(&stored.context.database, "SELECT phase FROM bbs_migration").await;
    assert_eq!(phase, ["begun"]);
}

on_each_database!(guid_in_another_case_does_not_end_a_migration);
/// Goal: a request whose guid differs from that of a record only in case has the same effect as
/// without a migration, and the migration continues. Only MySQL and MariaDB, whose collation
/// ignores case, find the record.
async fn guid_in_another_case_does_not_end_a_migration(kind: Kind) {
    let test = async {
        let server = Server::with_fixture(kind).await;
        desire(&server, lrp("Guid-1a")).await;
        let annotated = |guid: &str| proto::UpdateDesiredLrpRequest {
            process_guid: guid.into(),
            update: Some(proto::DesiredLrpUpdate {
                annotation: Some(b"again".to_vec()),
                ..Default::default()
            }),
        };
        let reply = server
            .call("/v1/desired_lrp/update", &annotated("gUID-1A"))
            .await;
        let is_known = reply
            .message::<proto::DesiredLrpLifecycleResponse>()
            .error
            .is_none();
        assert_eq!(is_known, kind.dialect() == Dialect::Mysql);
        assert_eq!(
            get(&server, "Guid-1a").await.annotation == b"again",
            is_known
        );
        // The dual write has to find the unit and its residue under the record's own guid.
        let claim = proto::ClaimActualLrpRequest {
            process_guid: b"GUID-1A".to_vec(),
            index: 1,
            actual_lrp_instance_key: crate::api::actual_lrps::instance("cell"),
        };
        server.call("/v1/actual_lrps/claim", &claim).await;
        let remove = proto::RemoveDesiredLrpRequest {
            process_guid: b"guid-1A".to_vec(),
        };
        server.call("/v1/desired_lrp/remove", &remove).await;
    };
    layouts::run(Layout::Migrating, test).await;
}
