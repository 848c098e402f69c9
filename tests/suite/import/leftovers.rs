//! Records of an import that the rest of the database contradicts: one that has begun, beside the
//! tables of another BBS; one without its tables; and rows that appear before there is a record. No
//! table is dropped that the import did not fill, and no import is taken for complete that is not.

use std::process::Stdio;

use bbs_proto::models as proto;
use serde_json::{Value, json};

use super::refusals::{kill, stopped};
use super::stores::{self, StoreLayout};
use super::{import, importing, served};
use crate::harness::database::{Kind, execute, on_each_database, tables, texts};
use crate::harness::etcd::Etcd;
use crate::harness::proxy::Proxy;
use crate::harness::until;

/// The record of an import that has begun.
const BEGUN: &str = r#"INSERT INTO bbs_import
    (id, phase, cluster_id, etcd_index, version_index, fingerprint, report)
    VALUES (1, 'copying', 'c1', 7, 5, '0-0',
        '{"version":null,"index":0,"bytes":0,"kinds":{},"labels":{},"quarantined":[],"foreign":[],"permanent_domains":[]}')"#;

on_each_database!(database_that_another_bbs_has_used_since_is_not_dropped);
/// The import writes the version in the transaction that ends its first phase, so one beside that
/// phase is of another BBS.
async fn database_that_another_bbs_has_used_since_is_not_dropped(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let before = etcd.everything().await;
    let without = || Value::Array(Vec::new());
    let installation = importing(kind, &etcd).set("etcd_cluster_urls", without());
    let host = installation.serve();
    let upsert = proto::UpsertDomainRequest {
        domain: b"live".to_vec(),
        ttl: 0,
    };
    let answer: proto::UpsertDomainResponse = host.call("/v1/domains/upsert", &upsert).await;
    assert_eq!(answer.error, None);
    host.stop();
    let database = installation.database.open().await;
    execute(&database, BEGUN).await;
    database.close().await;

    let installation = installation.set("etcd_cluster_urls", json!(etcd.urls()));
    for arguments in [
        &["import", "etcd"][..],
        &["import", "etcd", "--check"],
        &["migrate", "up"],
        &["serve"],
    ] {
        let text = installation.fail(arguments);
        for part in [
            "another BBS has used the database since",
            "drop its tables, `bbs_import` too",
        ] {
            assert!(text.contains(part), "{arguments:?}: {text}");
        }
    }
    assert_eq!(etcd.everything().await, before);
    // As the message says.
    let installation = installation.set("etcd_cluster_urls", without());
    assert_eq!(served(&installation).await.domains, ["live"]);
}

on_each_database!(rows_that_appear_while_the_store_is_read_are_not_dropped);
/// Method: etcd answers once another program has made a table and written a row into it.
async fn rows_that_appear_while_the_store_is_read_are_not_dropped(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let proxy = Proxy::to(etcd.address(0));
    let through = json!([format!("http://{}", proxy.address())]);
    let installation = importing(kind, &etcd).set("etcd_cluster_urls", through);
    proxy.stall();
    let mut command = installation.command(&["import", "etcd"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the executable starts");
    until(|| proxy.held() > 0).await;
    let database = installation.database.open().await;
    execute(
        &database,
        "CREATE TABLE tasks (guid VARCHAR(255) PRIMARY KEY)",
    )
    .await;
    execute(&database, "INSERT INTO tasks (guid) VALUES ('a')").await;
    proxy.resume();
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("tasks"), "{text}");

    // Nor does the next attempt take the row for one of an earlier import.
    let text = installation.fail(&["import", "etcd"]);
    assert!(text.contains("the database is in use"), "{text}");
    assert_eq!(texts(&database, "SELECT guid FROM tasks").await, ["a"]);
    database.close().await;
}

on_each_database!(record_of_an_import_without_its_tables_is_no_import);
async fn record_of_an_import_without_its_tables_is_no_import(kind: Kind) {
    let etcd = Etcd::start().await;
    stores::write(&etcd, StoreLayout::Milliseconds).await;
    let installation = importing(kind, &etcd);
    kill(stopped(&installation, "after-import"));
    let database = installation.database.open().await;
    for table in tables(&database).await {
        if !table.starts_with("bbs_") && !table.starts_with("sqlite_") {
            execute(&database, &format!("DROP TABLE {table}")).await;
        }
    }
    database.close().await;
    for arguments in [&["import", "etcd"][..], &["migrate", "up"], &["serve"]] {
        let text = installation.fail(arguments);
        assert!(
            text.contains("are not in this database any more")
                && text.contains("Drop `bbs_import` too"),
            "{arguments:?}: {text}"
        );
    }

    let database = installation.database.open().await;
    execute(&database, "DROP TABLE bbs_import").await;
    database.close().await;
    import(&installation);
    assert_eq!(served(&installation).await.desired.len(), 2);
}
