//! A host that serves while it migrates: under a load that is aimed at what is being copied, no call fails, nobody
//! reads anything but what was written, and nothing that was acknowledged is lost.

use tokio::sync::watch;

use crate::harness::database::Kind;
use crate::harness::database::on_each_database;
use crate::harness::fixture;
use crate::harness::host::Installation;
use crate::harness::load::Settings;
use crate::harness::load::across::migration;
use crate::harness::load::calls::Caller;
use crate::harness::load::model::Model;
use crate::harness::modules;
use crate::harness::stored::Stored;

/// From before every desired LRP is decoded, split and sealed again.
const FROM: u64 = 1_698_182_853;
/// Slow enough that most calls come while rows are copied.
const UNITS_PER_SECOND: u64 = 100;

on_each_database!(clients_do_not_notice_a_migration);
async fn clients_do_not_notice_a_migration(kind: Kind) {
    let installation = Installation::new(&modules::modules(), kind);
    fixture::write_to(&installation.database).await;
    let host = installation.serve();
    let before = Model::of(&Caller::new(watch::channel(host.url("")).1)).await.unwrap();
    assert!(host.terminate().success());
    let stored = Stored::open(&installation.database, fixture::migrations()).await;
    let newest = stored.context.migrations.last().unwrap().manifest().version;
    stored.down(FROM).await.unwrap();
    stored.context.database.close().await;

    let installation = installation.set("migration_mode", "online").set("migration_units_per_second", UNITS_PER_SECOND);
    let mut host = installation.serve();
    let settings = Settings { clients: 8, calls_per_second: 100.0, seed: 7 };
    let outcome = migration(&installation, &mut host, before, newest, settings).await;
    let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}: {:#?}", host.said()));
    let report = &outcome.report;
    assert_eq!((report.failures, report.differences), (0, 0), "{report}\n{:#?}", host.said());
    assert_eq!(outcome.differences, Vec::<String>::new());
    assert!(outcome.began_at.is_some(), "the calls came too late to meet the copy");
    assert!(host.terminate().success());
}
