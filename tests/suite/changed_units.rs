//! Units that clients change during an online migration: each is recorded in the transaction that
//! changes it, and copied again; and the store's access to the tables is switched only while no
//! reader or writer uses it.

use std::sync::Arc;

use bbs::testing::database::{Database, Dialect, SqlError, Transaction, sql};
use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::online::{self, Online, Start};
use bbs::testing::migrate::{self, Context, Intent, OnUnreadable};
use bbs::testing::store::{ChangeRecorder, TableAccess};
use bbs_proto::models as proto;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::api::actual_lrps::{CLAIM, CRASH, claim, crash};
use crate::api::evacuation::{RUNNING, running};
use crate::api::{desire, get, lrp};
use crate::harness::database::{Kind, on_each_database, texts};
use crate::harness::layouts::{self, Layout, NEWEST, SPLIT};
use crate::harness::server::Server;
use crate::harness::stored::{Rows, Stored};
use crate::harness::{PATIENCE, fixture, modules, pause};

/// A recorder with a table of the database, which a test may remove.
#[derive(Debug)]
struct NoteRecorder;

impl ChangeRecorder for NoteRecorder {
    fn record<'a>(
        &'a self,
        tx: &'a mut Transaction,
        touched: &'a [(String, Vec<u8>)],
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        Box::pin(async move {
            for (table, key) in touched {
                let unit = format!("{table}/{}", String::from_utf8_lossy(key));
                tx.execute(sql("INSERT INTO notes (unit) VALUES (?)").bind(unit))
                    .await?;
            }
            Ok(())
        })
    }
}

async fn server_with_recorder(kind: Kind) -> Server {
    let server = Server::empty(kind).await;
    server.sql("CREATE TABLE notes (unit VARCHAR(255))").await;
    let access = TableAccess::default().with_change_recorder(Arc::new(NoteRecorder));
    server.store.switch().await.open(access);
    server
}

on_each_database!(changed_units_are_recorded_in_the_transaction_that_changes_them);
async fn changed_units_are_recorded_in_the_transaction_that_changes_them(kind: Kind) {
    let server = server_with_recorder(kind).await;
    desire(&server, lrp("a")).await;
    let notes = "SELECT unit FROM notes ORDER BY unit";
    assert_eq!(
        server.texts(notes).await,
        ["actual_lrps/a", "desired_lrps/a"]
    );

    server.sql("DROP TABLE notes").await;
    let request = proto::DesireLrpRequest {
        desired_lrp: Some(lrp("b")),
    };
    server
        .call("/v1/desired_lrp/desire.r2", &request)
        .await
        .error();
    assert_eq!(
        server.texts("SELECT process_guid FROM desired_lrps").await,
        ["a"],
        "a change without a record is rolled back"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn switch_waits_for_readers_and_blocks_new_ones() {
    let server = Server::empty(Kind::Sqlite).await;
    let reader = server.store.reader().await.unwrap();
    let mut switch = Box::pin(server.store.switch());
    assert!(switch.as_mut().now_or_never().is_none());
    drop(reader);
    let access = switch.await;
    let store = server.store.clone();
    let reading = tokio::spawn(async move { store.reader().await.map(drop) });
    for _ in 0..10 {
        pause().await;
    }
    assert!(!reading.is_finished());
    drop(access);
    reading.await.unwrap().unwrap();
}

/// Goal: calls of Diego's components that find the store closed are not lost: its Go client repeats
/// a call only if it gets no message.
#[tokio::test(flavor = "multi_thread")]
async fn calls_are_refused_while_the_store_is_closed() {
    let server = Server::with_translators(Kind::Sqlite).await;
    let mut switch = server.store.switch().await;
    switch.close();
    drop(switch);
    let request = proto::DesireLrpRequest {
        desired_lrp: Some(lrp("a")),
    };
    let completed = proto::CompleteTaskRequest {
        task_guid: b"task".to_vec(),
        cell_id: b"cell".to_vec(),
        ..Default::default()
    };
    for refused in [
        server.call("/v1/desired_lrp/desire.r2", &request).await,
        server.call(CLAIM, &claim(0, "a")).await,
        server.call(CRASH, &crash(0, "a")).await,
        server.call("/v1/tasks/complete", &completed).await,
        server.call(RUNNING, &running(0, "a")).await,
        server.post("/v1/desired_lrps/list.r3", []).await,
        server.post("/v1/desired_lrps/list.r2", []).await,
    ] {
        let reason = refused.repeat_reason();
        assert!(reason.contains("is not known yet"), "{reason}");
    }
    assert!(server.store.reader().await.is_err());
    server.store.switch().await.reopen();
    desire(&server, lrp("a")).await;
}

/// A lasting reader waits for translators, and a writer for locks of other clients.
#[tokio::test(flavor = "multi_thread")]
async fn switch_waits_for_what_takes_long_while_others_go_on() {
    let server = Server::empty(Kind::Sqlite).await;
    let store = &server.store;
    let until = Instant::now() + PATIENCE;
    let lasting = store.lasting_reader(until).await.unwrap();
    let mut switch = Box::pin(store.switch());
    assert!((&mut switch).now_or_never().is_none());
    drop(store.reader().await.unwrap());
    let writer = store.writer().await.unwrap();
    let mut next = Box::pin(store.lasting_reader(until));
    assert!((&mut next).now_or_never().is_none());
    let refused = store.lasting_reader(Instant::now()).await.unwrap_err();
    assert!(refused.to_string().contains("repeat the call"), "{refused}");
    drop(lasting);
    assert!((&mut switch).now_or_never().is_none());
    drop(store.reader().await.unwrap());
    assert!(store.writer().now_or_never().is_none());
    drop(writer);
    drop(switch.await);
    drop(next.await.unwrap());
    drop(store.writer().await.unwrap());
}

/// The fixture at the version below a migration that splits its desired LRPs.
async fn before_the_split(kind: Kind) -> (Stored, Fence) {
    let migrations = fixture::migrations_in(&modules::modules_with_split());
    let stored = Stored::with_fixture(kind, migrations).await;
    stored.up(NEWEST).await.unwrap();
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    (stored, fence)
}

/// An online migration that splits the fixture's desired LRPs, after the copy and before the
/// cut-over.
async fn copied(kind: Kind) -> (Stored, Fence, Online) {
    let (stored, fence) = before_the_split(kind).await;
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

/// Updates the run info of a desired LRP, as a client does; returns the uncommitted transaction.
async fn write_run_info(fence: &Fence, online: &Online, guid: &str, run_info: &str) -> Transaction {
    let unit = [("desired_lrps".to_owned(), guid.as_bytes().to_vec())];
    let mut tx = write_without_record(fence, guid, run_info).await;
    let recorder = online.change_recorder();
    recorder.record(&mut tx, &unit).await.unwrap();
    tx
}

async fn write_without_record(fence: &Fence, guid: &str, run_info: &str) -> Transaction {
    let mut tx = fence.begin().await.unwrap();
    let update = sql("UPDATE desired_lrps SET run_info = ? WHERE process_guid = ?");
    assert_eq!(
        tx.execute(update.bind(run_info.to_owned()).bind(guid.to_owned()))
            .await
            .unwrap(),
        1
    );
    tx
}

/// The run info of a desired LRP in rows after the split.
fn run_info<'a>(rows: &'a Rows, guid: &str) -> &'a str {
    let mut rows = rows["immutable_desired_lrps"].iter();
    let row = rows.find(|row| row["process_guid"] == guid);
    &row.expect("each desired LRP has a row")["immutable_run_info"]
}

/// Asserts that the new tables have the run info of `other` for `written`, too, which a client has
/// copied there.
async fn assert_written(stored: &Stored, written: &str, other: &str) {
    let rows = stored.rows(SPLIT).await;
    assert!(
        run_info(&rows, written) == run_info(&rows, other),
        "the new tables lack a committed write"
    );
}

/// Commits once the migration waits for it, as a server does that goes on with a commit after its
/// connection is lost.
async fn commit_late(stored: &Stored, tx: Transaction) {
    if stored.context.database.dialect() == Dialect::Sqlite {
        pause().await;
    } else {
        stored.test_database().wait_for_lock_wait().await;
    }
    tx.commit().await.unwrap();
}

on_each_database!(cut_over_waits_for_a_commit_whose_connection_is_lost);
async fn cut_over_waits_for_a_commit_whose_connection_is_lost(kind: Kind) {
    let (stored, fence, online) = copied(kind).await;
    let [written, other] = some_guids();
    let wanted = column(&stored.context.database, "run_info", "desired_lrps", &other).await;
    let committing = write_run_info(&fence, &online, &written, &wanted).await;
    let cut_over = async {
        while let Err(fault) = online.cut_over(&stored.context, &fence, || {}).await {
            assert!(fault.is_transient(), "{fault}");
        }
    };
    tokio::join!(cut_over, commit_late(&stored, committing));
    migrate::clean_up(&stored.context, &fence).await.unwrap();
    assert_written(&stored, &written, &other).await;
}

on_each_database!(reload_waits_for_a_commit_without_a_record);
async fn reload_waits_for_a_commit_without_a_record(kind: Kind) {
    let (stored, fence) = before_the_split(kind).await;
    let online = start_online(&stored.context, &fence).await;
    let [written, other] = some_guids();
    let wanted = column(&stored.context.database, "run_info", "desired_lrps", &other).await;
    let committing = write_without_record(&fence, &written, &wanted).await;
    let reload = async {
        while let Err(fault) = online.forget_earlier_changes(&fence).await {
            assert!(fault.is_transient(), "{fault}");
        }
    };
    tokio::join!(reload, commit_late(&stored, committing));
    online.copy(&stored.context, &fence).await.unwrap();
    online
        .cut_over(&stored.context, &fence, || {})
        .await
        .unwrap();
    migrate::clean_up(&stored.context, &fence).await.unwrap();
    assert_written(&stored, &written, &other).await;
}

on_each_database!(migration_after_serving_waits_for_a_commit_whose_connection_is_lost);
/// Goal: a migration that follows the service of the same host, as at a drain, contains the write.
async fn migration_after_serving_waits_for_a_commit_whose_connection_is_lost(kind: Kind) {
    let (stored, fence) = before_the_split(kind).await;
    let [written, other] = some_guids();
    let wanted = column(&stored.context.database, "run_info", "desired_lrps", &other).await;
    let committing = write_without_record(&fence, &written, &wanted).await;
    let migrating = migrate::run(&stored.context, &fence, Intent::Up { wanted: SPLIT });
    let (migrated, ()) = tokio::join!(migrating, commit_late(&stored, committing));
    migrated.unwrap();
    assert_written(&stored, &written, &other).await;
}

on_each_database!(committed_writes_alone_survive_a_crash_before_they_are_copied_again);
/// Method: a write is rolled back, another one is committed; the process ends, and the next start
/// resumes the migration.
async fn committed_writes_alone_survive_a_crash_before_they_are_copied_again(kind: Kind) {
    let (stored, fence, online) = copied(kind).await;
    let database = &stored.context.database;
    let [untouched, written, other] = some_guids();
    let wanted = column(database, "run_info", "desired_lrps", &other).await;
    assert_ne!(
        wanted,
        column(database, "run_info", "desired_lrps", &written).await
    );
    drop(write_run_info(&fence, &online, &untouched, &wanted).await);
    let committed = write_run_info(&fence, &online, &written, &wanted).await;
    committed.commit().await.unwrap();
    drop(online);

    let fence = Fence::raise(database).await.unwrap();
    let online = start_online(&stored.context, &fence).await;
    online.copy(&stored.context, &fence).await.unwrap();
    online
        .cut_over(&stored.context, &fence, || {})
        .await
        .unwrap();
    migrate::clean_up(&stored.context, &fence).await.unwrap();
    let rows = stored.rows(SPLIT).await;
    assert!(
        run_info(&rows, &written) == run_info(&rows, &other),
        "the new tables lack an acknowledged write"
    );
    assert!(
        run_info(&rows, &untouched) != run_info(&rows, &other),
        "the new tables have a write that was rolled back"
    );
    assert_eq!(
        texts(database, "SELECT unit_key FROM bbs_changed_unit").await,
        Vec::<String>::new()
    );
}

on_each_database!(unit_that_a_client_makes_unreadable_stops_the_migration_until_it_is_repaired);
async fn unit_that_a_client_makes_unreadable_stops_the_migration_until_it_is_repaired(kind: Kind) {
    let (stored, fence, online) = copied(kind).await;
    let database = &stored.context.database;
    let [poison] = some_guids();
    let intact = column(database, "run_info", "desired_lrps", &poison).await;
    write_run_info(&fence, &online, &poison, "02 decrypts with no key")
        .await
        .commit()
        .await
        .unwrap();
    for attempt in ["first", "second"] {
        let fault = modules::chain(
            &online
                .cut_over(&stored.context, &fence, || {})
                .await
                .unwrap_err(),
        );
        assert!(
            fault.contains(&format!(
                "cannot open column run_info of table desired_lrps in unit {poison:?}"
            )),
            "{attempt}: {fault}"
        );
        let entries = texts(database, "SELECT unit FROM bbs_quarantine").await;
        assert_eq!(entries, [poison.as_str()], "{attempt}");
    }
    write_run_info(&fence, &online, &poison, &intact)
        .await
        .commit()
        .await
        .unwrap();
    online
        .cut_over(&stored.context, &fence, || {})
        .await
        .unwrap();
    migrate::clean_up(&stored.context, &fence).await.unwrap();
    assert_eq!(stored.version().await, SPLIT);
    let entries = texts(database, "SELECT unit FROM bbs_quarantine").await;
    assert_eq!(entries, Vec::<String>::new());
}

on_each_database!(guid_in_another_case_does_not_end_a_migration);
/// Goal: a request whose guid differs from that of a record only in case has the same effect as
/// without a migration, and the migration continues. Only MySQL and MariaDB, whose collation
/// ignores case, find the record. Another record is changed beside it in the same way, so that both
/// are copied again together.
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
        desire(&server, lrp("Other-2b")).await;
        server
            .call("/v1/desired_lrp/update", &annotated("OTHER-2B"))
            .await;
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
        // The copier has to find the unit and its residue under the record's own guid.
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

on_each_database!(removed_unit_leaves_quarantine_whatever_the_case_of_the_guid);
/// Goal: a record that an online migration has left out is not in quarantine once a client has
/// removed it, on MySQL and MariaDB also under a guid in another case.
async fn removed_unit_leaves_quarantine_whatever_the_case_of_the_guid(kind: Kind) {
    let (mut stored, fence) = before_the_split(kind).await;
    stored.context.tuning.on_unreadable = OnUnreadable::Quarantine;
    let database = &stored.context.database;
    let guid = "Guid-1a";
    let [renamed] = some_guids();
    let mut tx = fence.begin().await.unwrap();
    let spoil = sql(
        "UPDATE desired_lrps SET process_guid = ?, run_info = '02 decrypts with no key' WHERE process_guid = ?",
    );
    tx.execute(spoil.bind(guid).bind(renamed)).await.unwrap();
    tx.commit().await.unwrap();
    let online = start_online(&stored.context, &fence).await;
    online.copy(&stored.context, &fence).await.unwrap();
    let left_out = "SELECT unit FROM bbs_quarantine";
    assert_eq!(texts(database, left_out).await, [guid]);

    let spelling = match kind.dialect() {
        Dialect::Mysql => "gUID-1A",
        Dialect::Postgres | Dialect::Sqlite => guid,
    };
    let mut tx = fence.begin().await.unwrap();
    let remove = sql("DELETE FROM desired_lrps WHERE process_guid = ?").bind(spelling);
    assert_eq!(tx.execute(remove).await.unwrap(), 1);
    let unit = [("desired_lrps".to_owned(), spelling.as_bytes().to_vec())];
    let recorder = online.change_recorder();
    recorder.record(&mut tx, &unit).await.unwrap();
    tx.commit().await.unwrap();
    online
        .cut_over(&stored.context, &fence, || {})
        .await
        .unwrap();
    migrate::clean_up(&stored.context, &fence).await.unwrap();
    assert_eq!(texts(database, left_out).await, Vec::<String>::new());
}
