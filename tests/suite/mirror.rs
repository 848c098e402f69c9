//! What online mode hangs on to: every change is told to whoever follows along, within its own transaction, and how
//! the tables are got at changes only when nobody uses them.

use std::sync::{Arc, Mutex};

use bbs::database::{Transaction, sql};
use bbs::store::{Mirror, MirrorError};
use bbs_proto::models as proto;
use futures_util::future::BoxFuture;

use crate::api::{desire, get, lrp};
use crate::harness::database::{Kind, on_each_database};
use crate::harness::server::Server;

/// Writes down what it is told, in a table of the database and in memory.
#[derive(Debug, Clone, Default)]
struct Notes {
    told: Arc<Mutex<Vec<String>>>,
    /// Fails the next changes, and says whether they may be made again.
    faults: Arc<Mutex<Vec<bool>>>,
}

struct Held(Arc<Mutex<Vec<String>>>, String);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(format!("let go of {}", self.1));
    }
}

impl Notes {
    fn note(&self, told: String) {
        self.told.lock().unwrap().push(told);
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

impl Mirror for Notes {
    fn hold<'a>(&'a self, tables: Vec<&'a str>, key: &'a [u8]) -> BoxFuture<'a, Box<dyn Send + Sync>> {
        Box::pin(async move {
            let unit = format!("{}/{}", tables.join("+"), String::from_utf8_lossy(key));
            self.note(format!("hold {unit}"));
            Box::new(Held(Arc::clone(&self.told), unit)) as Box<dyn Send + Sync>
        })
    }

    fn changed<'a>(
        &'a self,
        tx: &'a mut Transaction,
        touched: &'a [(String, Vec<u8>)],
    ) -> BoxFuture<'a, Result<(), MirrorError>> {
        Box::pin(async move {
            for (table, key) in touched {
                let unit = format!("{table}/{}", String::from_utf8_lossy(key));
                tx.execute(sql("INSERT INTO notes (unit) VALUES (?)").bind(unit.clone())).await.unwrap();
                self.note(format!("changed {unit}"));
            }
            let fault = self.faults.lock().unwrap().pop();
            fault.map_or(Ok(()), |is_transient| Err(MirrorError { source: "as the test wants".into(), is_transient }))
        })
    }
}

async fn followed(kind: Kind) -> (Server, Notes) {
    let server = Server::empty(kind).await;
    server.sql("CREATE TABLE notes (unit VARCHAR(255))").await;
    let notes = Notes::default();
    let mut access = server.store.switch().await;
    let mirrored = std::mem::take(&mut *access).mirrored(Arc::new(notes.clone()));
    *access = mirrored;
    drop(access);
    (server, notes)
}

on_each_database!(each_change_is_told_within_its_own_transaction);
async fn each_change_is_told_within_its_own_transaction(kind: Kind) {
    let (server, notes) = followed(kind).await;
    desire(&server, lrp("a")).await;
    let units = "actual_lrps+desired_lrps+domains+tasks/a";
    let expected = [
        format!("hold {units}"),
        "changed desired_lrps/a".to_owned(),
        "changed actual_lrps/a".to_owned(),
        format!("let go of {units}"),
    ];
    assert_eq!(notes.taken(), expected);
    assert_eq!(server.texts("SELECT unit FROM notes ORDER BY unit").await, ["actual_lrps/a", "desired_lrps/a"]);
}

on_each_database!(a_change_that_cannot_be_followed_is_not_made);
async fn a_change_that_cannot_be_followed_is_not_made(kind: Kind) {
    let (server, notes) = followed(kind).await;
    notes.faults.lock().unwrap().push(false);
    let request = proto::DesireLrpRequest { desired_lrp: Some(lrp("a")) };
    let (_, said) = server.call("/v1/desired_lrp/desire.r2", &request).await.error();
    assert!(said.contains("cannot be carried over"), "{said}");
    assert_eq!(server.texts("SELECT process_guid FROM desired_lrps").await, Vec::<String>::new());
    assert_eq!(server.texts("SELECT unit FROM notes").await, Vec::<String>::new());
    // One that only lost to another is made again.
    notes.faults.lock().unwrap().push(true);
    desire(&server, lrp("b")).await;
    assert_eq!(get(&server, "b").await.instances, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_waits_for_who_reads_and_is_waited_for() {
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
