//! A backup of a whole server, during which MySQL and MariaDB let no client change the definition
//! of a table: the changes of a host wait for its end.

use std::sync::Arc;

use bbs::testing::clock::SystemClock;
use bbs::testing::keys::{self, RotationContext, SealedScope};
use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::own_tables;
use bbs::testing::progress::Progress;
use bbs::testing::throttle::Throttle;
use bbs_encryption::Keyring;
use sqlx::MySqlConnection;

use super::{SHARE, newest};
use crate::harness::database::{Kind, TestDatabase};
use crate::harness::engine::Engine;
use crate::harness::fixture::{self, VERSION};
use crate::harness::mariadb::administrator;
use crate::harness::on_each::on_each_mysql;
use crate::harness::stored::Stored;
use crate::harness::{PATIENCE, until};

on_each_mysql!(lock_of_a_backup_only_delays_a_migration_and_a_key_rotation);
/// Method: on a server of its own, since a backup locks all databases. All tables of the host are
/// there before the migration, so that it waits with the first change that it tries.
async fn lock_of_a_backup_only_delays_a_migration_and_a_key_rotation(kind: Kind) {
    let engine = kind.own_engine();
    let database = TestDatabase::on(kind, engine.address());
    fixture::write_share_to(&database, SHARE).await;
    let stored = Stored::open(&database, fixture::migrations()).await;
    stored.up(newest(&stored)).await.unwrap();

    let backup = begin_backup(kind, &engine).await;
    let end = end_once_waited_for(backup, &stored.context.progress);
    let (migrated, ()) = tokio::join!(stored.down(VERSION), end);
    migrated.unwrap();
    stored.assert_layout(VERSION).await;

    let rotation = rotation_of(&stored).await;
    let fence = Fence::raise(&stored.context.database).await.unwrap();
    let backup = begin_backup(kind, &engine).await;
    let end = end_once_waited_for(backup, &rotation.progress);
    let (rotated, ()) = tokio::join!(keys::rotate(&rotation, &fence), end);
    assert!(rotated.unwrap().rewritten > 0);
    stored.context.database.close().await;
}

/// The session of a backup that has locked the server.
async fn begin_backup(kind: Kind, engine: &Engine) -> MySqlConnection {
    let statements: &[&'static str] = match kind {
        Kind::Mysql => &["LOCK INSTANCE FOR BACKUP"],
        _ => &["BACKUP STAGE START", "BACKUP STAGE BLOCK_DDL"],
    };
    let mut session = administrator(engine).await;
    for statement in statements {
        let statement = sqlx::raw_sql(*statement);
        statement.execute(&mut session).await.unwrap();
    }
    session
}

async fn end_once_waited_for(backup: MySqlConnection, progress: &Progress) {
    until(|| progress.snapshot().waiting.is_some()).await;
    // The server may be the first to close the connection.
    drop(backup);
}

/// A rotation to a key with which nothing is sealed yet.
async fn rotation_of(stored: &Stored) -> RotationContext {
    let known = ("key-2024", "correct horse battery staple");
    let keyring = Keyring::new([known, ("new", "another")], "new").unwrap();
    let database = &stored.context.database;
    let layout = stored.layout(VERSION);
    let scope = SealedScope::find(database, VERSION, &layout, &own_tables()).await;
    RotationContext {
        database: database.clone(),
        keyring: Arc::new(keyring),
        scope: scope.unwrap(),
        progress: Progress::default(),
        lock_timeout: PATIENCE,
        throttle: Throttle::default(),
        clock: Arc::new(SystemClock),
    }
}
