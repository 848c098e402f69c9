//! What a test of a route runs on, whatever the test says: tables as the handlers know them, tables that modules split
//! in two behind a lens, and tables that are being migrated while the test runs. Owns how each comes about, and that a
//! migration which a test went through ends with what the test wrote.

use std::sync::{Arc, Mutex};

use bbs::api::{Answer, Api, NATIVE, Request};
use bbs::lens::transform::Transform;
use bbs::lock::fence::Fence;
use bbs::migrate::online::{self, Online, Start};
use bbs::migrate::{self, Context, Intent, MigrateError};
use bbs::model::TraceId;
use bbs::rows::RecordVersions;
use bbs::store::{Access, Lenses, Store};
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use tokio::task::JoinHandle;

use super::database::TestDatabase;
use super::server::Server;
use super::stored::Stored;
use super::{fixture, modules};

/// The newest version of the default catalog.
pub const NEWEST: u64 = 1_795_000_000;
/// Where the modules that split `desired_lrps` end.
pub const SPLIT: u64 = 1_795_000_200;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Layout {
    /// No lens.
    #[default]
    Native,
    /// `desired_lrps` is two tables.
    Split,
    /// On the way from the one to the other, with every write going to both.
    Migrating,
}

#[derive(Default, Clone)]
struct Ground {
    layout: Layout,
    migrations: Arc<Mutex<Vec<Underway>>>,
}

tokio::task_local! {
    static GROUND: Ground;
}

/// Makes nine tests of an `async fn name(kind: Kind)`: what `on_each_database` makes, and `name::split` and
/// `name::migrating` for each database. For whatever looks at a route, and not at the tables of desired LRPs.
#[allow(unused_macros, reason = "benchmarks use the harness without it")]
macro_rules! on_each_layout {
    ($name:ident) => {
        mod $name {
            use crate::harness::layouts::{Layout, each};

            each!($name, Layout::Native);

            mod split {
                use crate::harness::layouts::{Layout, each};

                use super::super::$name;

                each!($name, Layout::Split);
            }

            mod migrating {
                use crate::harness::layouts::{Layout, each};

                use super::super::$name;

                each!($name, Layout::Migrating);
            }

            use super::$name;
        }
    };
}
#[allow(unused_imports, reason = "benchmarks use the harness without it")]
pub(crate) use on_each_layout;

#[allow(unused_macros, reason = "benchmarks use the harness without it")]
macro_rules! each {
    ($name:ident, $layout:expr) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn sqlite() {
            crate::harness::layouts::run($layout, $name(crate::harness::database::Kind::Sqlite)).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn postgres() {
            crate::harness::layouts::run($layout, $name(crate::harness::database::Kind::Postgres)).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn mysql() {
            crate::harness::layouts::run($layout, $name(crate::harness::database::Kind::Mysql)).await;
        }
    };
}
#[allow(unused_imports, reason = "benchmarks use the harness without it")]
pub(crate) use each;

/// Every server that the test's own task starts is on this layout.
pub async fn run(layout: Layout, test: impl Future<Output = ()>) {
    let ground = Ground { layout, ..Ground::default() };
    GROUND.scope(ground.clone(), test).await;
    let migrations = std::mem::take(&mut *ground.migrations.lock().unwrap());
    for migration in migrations {
        migration.finish().await;
    }
}

/// Native where nothing else was asked for.
pub(super) fn current() -> Layout {
    GROUND.try_with(|ground| ground.layout).unwrap_or_default()
}

/// A database at a version of the split catalog, and how the store gets at it.
pub(super) struct Prepared {
    pub(super) context: Context,
    pub(super) fence: Fence,
    pub(super) access: Access,
    /// To be followed.
    pub(super) online: Option<Online>,
}

impl Prepared {
    pub(super) async fn new(kept: &TestDatabase, layout: Layout, with_fixture: bool) -> Self {
        if with_fixture {
            fixture::write_to(kept).await;
        }
        let migrations = fixture::migrations_in(&modules::modules_with_split());
        let version = if layout == Layout::Split { SPLIT } else { NEWEST };
        let stored = Stored::open(kept, migrations).await;
        stored.up(version).await.expect("the database comes to the version");
        let fence = Fence::raise(&stored.context.database).await.unwrap();
        let access = access(&stored.context, &fence, version).await;
        let context = stored.context.clone();
        if layout != Layout::Migrating {
            return Self { context, fence, access, online: None };
        }
        let Start::Follow(online) = online::start(&context, &fence, Intent::Up { wanted: SPLIT }).await.unwrap() else {
            panic!("the split is a migration to follow");
        };
        let access = access.writing_also(online.dual_write());
        Self { context, fence, access, online: Some(online) }
    }
}

/// Copies beside the test, for the test's end to look at.
pub(super) fn follow(online: Online, context: Context, server: &Server, kept: TestDatabase) {
    let (online, fence) = (Arc::new(online), server.fence.clone());
    let copied = tokio::spawn({
        let (online, context, fence) = (Arc::clone(&online), context.clone(), fence.clone());
        async move { online.copy(&context, &fence).await }
    });
    let (store, api) = (server.store.clone(), Arc::clone(&server.api));
    let underway = Underway { online, copied, context, fence, store, api, _kept: kept };
    GROUND.with(|ground| ground.migrations.lock().unwrap().push(underway));
}

async fn access(context: &Context, fence: &Fence, version: u64) -> Access {
    let (migrations, dialect): (&[Arc<dyn Transform>], _) = (&context.migrations, context.database.dialect());
    let line = migrate::line(migrations).unwrap();
    let record_versions = RecordVersions::at(migrations.iter().map(|module| module.manifest()), version);
    if Lenses::are_needed(&line, migrations, version) {
        let arguments = migrate::arguments(context, fence, Lenses::versions(version)).await.unwrap();
        return Access::through(Lenses::new(&line, migrations, version, record_versions, arguments), dialect);
    }
    Access::direct(line.at(version).unwrap(), dialect, &record_versions)
}

/// A migration that a test's server follows.
struct Underway {
    online: Arc<Online>,
    copied: JoinHandle<Result<(), MigrateError>>,
    context: Context,
    fence: Fence,
    store: Store,
    api: Arc<Api>,
    /// The database outlives the test's server.
    _kept: TestDatabase,
}

impl Underway {
    /// What is served after the cut-over is what was served before it.
    async fn finish(self) {
        self.copied.await.unwrap().expect("everything is copied");
        let before = records(&self.api).await;
        let next = access(&self.context, &self.fence, SPLIT).await;
        let mut access = self.store.switch().await;
        self.online.cut_over(&self.context, &self.fence).await.expect("the copies are made real");
        *access = next;
        drop(access);
        self.online.clean_up(&self.context, &self.fence).await.expect("what was replaced is removed");
        assert_eq!(records(&self.api).await, before, "the split tables hold something else");
    }
}

/// Every record, in an order of its own.
async fn records(api: &Arc<Api>) -> Vec<String> {
    let desired: proto::DesiredLrPsResponse = listed(api, "desired_lrps/list.r3").await;
    let actual: proto::ActualLrPsResponse = listed(api, "actual_lrps/list").await;
    let tasks: proto::TasksResponse = listed(api, "tasks/list.r3").await;
    assert_eq!((&desired.error, &actual.error, &tasks.error), (&None, &None, &None));
    let mut records: Vec<_> = desired.desired_lrps.iter().map(|lrp| format!("{lrp:?}")).collect();
    records.extend(actual.actual_lrps.iter().map(|lrp| format!("{lrp:?}")));
    records.extend(tasks.tasks.iter().map(|task| format!("{task:?}")));
    records.sort();
    records
}

async fn listed<M: Message + Default>(api: &Arc<Api>, path: &str) -> M {
    let target = api.find(NATIVE, path).expect("a list of this release");
    let request = Request { body: Vec::new().into(), trace_id: TraceId::NONE };
    let answer = match api.call(target, request).await {
        Answer::Whole(answer) => answer,
        Answer::Pages(mut pages) => {
            let mut all = Vec::new();
            while let Some(page) = pages.next().await {
                all.extend(page);
            }
            all
        }
        Answer::NotHeld(reason) => panic!("{path}: {reason}"),
    };
    M::decode(&answer[..]).expect("a list is a message")
}
