//! The layouts that a test of a route runs on: the native tables, tables split in two that are
//! served through a lens, and tables that an online migration copies while the test runs. Owns
//! their preparation, and the check that a migration preserves what the test wrote.

use std::sync::{Arc, Mutex};

use bbs::testing::api::{Answer, Api, LONGEST_WAIT, NATIVE, Request};
use bbs::testing::database::{Database, Dialect};
use bbs::testing::lock::fence::Fence;
use bbs::testing::migrate::online::{self, Online, Start};
use bbs::testing::migrate::{self, Context, Intent, MigrateError};
use bbs::testing::modules::translate::Verb;
use bbs::testing::rows::RecordVersions;
use bbs::testing::store::{Lenses, Store, TableAccess};
use bbs_lens::transform::Transform;
use bbs_model::TraceId;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::database::{Kind, TestDatabase};
use super::on_each::TestFuture;
use super::server::Server;
use super::stored::Stored;
use super::{fixture, modules, on_each, templates};

/// The newest version of the default catalog.
pub const NEWEST: u64 = 1_795_000_010;
/// The version of the last module that splits `desired_lrps`.
pub const SPLIT: u64 = 1_795_000_200;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Layout {
    /// The newest version of the default catalog, without a lens.
    #[default]
    Native,
    /// `desired_lrps` is two tables, served through a lens.
    Split,
    /// An online migration from native to split, with dual writes.
    Migrating,
}

#[derive(Default, Clone)]
struct LayoutScope {
    layout: Layout,
    migrations: Arc<Mutex<Vec<RunningMigration>>>,
}

tokio::task_local! {
    static SCOPE: LayoutScope;
}

/// Generates ten tests from an `async fn name(kind: Kind)`: those of `on_each_database`, and
/// `name::split` and `name::migrating` for each database but MySQL, which has the dialect of
/// MariaDB. For tests of calls about desired LRPs, which do not read their tables.
macro_rules! on_each_layout {
    ($name:ident $(, $on_servers:meta)?) => {
        mod $name {
            use crate::harness::database::Kind;
            use crate::harness::layouts::{Layout, each, run_test};

            each!($name, Layout::Native);

            #[test]
            #[ignore = "needs a MySQL server: tests/run fetches one"]
            fn mysql() {
                run_test(Layout::Native, Box::pin($name(Kind::Mysql)));
            }

            mod split {
                use crate::harness::layouts::{Layout, each};

                use super::super::$name;

                each!($name, Layout::Split $(, $on_servers)?);
            }

            mod migrating {
                use crate::harness::layouts::{Layout, each};

                use super::super::$name;

                each!($name, Layout::Migrating $(, $on_servers)?);
            }

            use super::$name;
        }
    };
}
pub(crate) use on_each_layout;

/// Generates the tests of `on_each_layout`, of which `split` and `migrating` run on SQLite for each
/// change, and on the servers in `tests/run --all`. For tests of calls that use no table of desired
/// LRPs, or only get and create them.
macro_rules! on_layouts_of_sqlite {
    ($name:ident) => {
        crate::harness::layouts::on_each_layout!($name, ignore = "runs in tests/run --all");
    };
}
pub(crate) use on_layouts_of_sqlite;

macro_rules! each {
    ($name:ident, $layout:expr $(, $on_servers:meta)?) => {
        #[test]
        fn sqlite() {
            crate::harness::layouts::run_test($layout, Box::pin($name(crate::harness::database::Kind::Sqlite)));
        }

        #[test]
        $(#[$on_servers])?
        fn postgres() {
            crate::harness::layouts::run_test($layout, Box::pin($name(crate::harness::database::Kind::Postgres)));
        }

        #[test]
        $(#[$on_servers])?
        fn mariadb() {
            crate::harness::layouts::run_test($layout, Box::pin($name(crate::harness::database::Kind::Mariadb)));
        }
    };
}
pub(crate) use each;

/// Runs a generated test with [`run`] on a runtime of its own.
pub fn run_test(layout: Layout, test: TestFuture) {
    on_each::run(Box::pin(run(layout, test)));
}

/// Runs a test whose servers, if started in its own task, have this layout. Then completes their
/// migrations.
pub async fn run(layout: Layout, test: impl Future<Output = ()>) {
    let scope = LayoutScope {
        layout,
        ..LayoutScope::default()
    };
    SCOPE.scope(scope.clone(), test).await;
    let migrations = std::mem::take(&mut *scope.migrations.lock().unwrap());
    for migration in migrations {
        migration.finish().await;
    }
}

/// The layout of the current test; native outside of [`run`].
pub(super) fn current() -> Layout {
    SCOPE.try_with(|scope| scope.layout).unwrap_or_default()
}

/// A database at a version of the split catalog, and the store's access to it.
pub(super) struct Prepared {
    pub(super) test_database: TestDatabase,
    pub(super) context: Context,
    pub(super) fence: Fence,
    pub(super) access: TableAccess,
    /// The online migration of [`Layout::Migrating`], whose copy [`spawn_copy`] starts.
    pub(super) online: Option<Online>,
}

impl Prepared {
    pub(super) async fn new(kind: Kind, layout: Layout, with_fixture: bool) -> Self {
        let version = if layout == Layout::Split {
            SPLIT
        } else {
            NEWEST
        };
        let (test_database, stored) = at_version(kind, version, with_fixture).await;
        let fence = Fence::raise(&stored.context.database).await.unwrap();
        let access = access(&stored.context, &fence, version).await;
        let context = stored.context.clone();
        if layout != Layout::Migrating {
            return Self {
                test_database,
                context,
                fence,
                access,
                online: None,
            };
        }
        let Start::Follow(online) = online::start(&context, &fence, Intent::Up { wanted: SPLIT })
            .await
            .unwrap()
        else {
            panic!("the split is an online migration");
        };
        let access = access.with_change_recorder(online.change_recorder());
        Self {
            test_database,
            context,
            fence,
            access,
            online: Some(online),
        }
    }
}

/// A new database at a version of the split catalog, with or without the fixture's rows.
async fn at_version(kind: Kind, version: u64, with_fixture: bool) -> (TestDatabase, Stored) {
    if kind.dialect() == Dialect::Mysql {
        // These servers copy each table with two statements, which take as long as the migrations.
        let test_database = TestDatabase::new(kind);
        let stored = migrate_up(test_database.open().await, version, with_fixture).await;
        return (test_database, stored);
    }
    let name = format!("split catalog at {version}, rows: {with_fixture}");
    let test_database = templates::copy(kind, &name, move |empty| {
        Box::pin(async move {
            migrate_up(empty, version, with_fixture).await;
        })
    });
    let stored = Stored::over(test_database.open().await, migrations());
    (test_database, stored)
}

/// Migrates an empty database, or the fixture in it, to a version.
async fn migrate_up(database: Database, version: u64, with_fixture: bool) -> Stored {
    if with_fixture {
        fixture::write_tables_to(&database).await;
        fixture::write_rows_to(&database, 1).await;
    }
    let stored = Stored::over(database, migrations());
    stored.up(version).await.expect("the migration succeeds");
    stored
}

fn migrations() -> Vec<Arc<dyn Transform>> {
    fixture::migrations_in(&modules::modules_with_split())
}

/// Spawns the copy of an online migration; [`run`] completes the migration after the test.
pub(super) fn spawn_copy(
    online: Online,
    context: Context,
    server: &Server,
    database: TestDatabase,
) {
    let online = Arc::new(online);
    let fence = server.fence.clone();
    let copied = tokio::spawn({
        let online = Arc::clone(&online);
        let context = context.clone();
        let fence = fence.clone();
        async move { online.copy(&context, &fence).await }
    });
    let store = server.store.clone();
    let api = Arc::clone(&server.api);
    let migration = RunningMigration {
        online,
        copied,
        context,
        fence,
        store,
        api,
        _database: database,
    };
    SCOPE.with(|scope| scope.migrations.lock().unwrap().push(migration));
}

async fn access(context: &Context, fence: &Fence, version: u64) -> TableAccess {
    let (migrations, dialect): (&[Arc<dyn Transform>], _) =
        (&context.migrations, context.database.dialect());
    let history = migrate::layout_history(migrations).unwrap();
    let record_versions =
        RecordVersions::at(migrations.iter().map(|module| module.manifest()), version);
    if Lenses::are_needed(&history, migrations, version).unwrap() {
        let arguments = migrate::arguments(context, fence, Lenses::versions(version))
            .await
            .unwrap();
        return TableAccess::through_lenses(
            Lenses::new(&history, migrations, version, record_versions, arguments).unwrap(),
            dialect,
        );
    }
    TableAccess::direct(history.at(version).unwrap(), dialect, &record_versions)
}

/// An online migration that runs while a test uses its server.
struct RunningMigration {
    online: Arc<Online>,
    copied: JoinHandle<Result<(), MigrateError>>,
    context: Context,
    fence: Fence,
    store: Store,
    api: Arc<Api>,
    /// Keeps the database alive after the test's server is dropped.
    _database: TestDatabase,
}

impl RunningMigration {
    /// Completes the copy and the cut-over, and checks that the API returns the same records before
    /// and after it.
    async fn finish(self) {
        self.copied.await.unwrap().expect("the copy succeeds");
        let before = records(&self.api).await;
        let next = access(&self.context, &self.fence, SPLIT).await;
        let switch = self.store.switch().await;
        self.online
            .cut_over(&self.context, &self.fence, || {})
            .await
            .expect("the cut-over succeeds");
        switch.open(next);
        migrate::clean_up(&self.context, &self.fence)
            .await
            .expect("the clean-up succeeds");
        assert_eq!(
            records(&self.api).await,
            before,
            "the cut-over changed records"
        );
    }
}

/// All records as text, sorted.
async fn records(api: &Arc<Api>) -> Vec<String> {
    let desired: proto::DesiredLrPsResponse = listed(api, "desired_lrps/list.r3").await;
    let actual: proto::ActualLrPsResponse = listed(api, "actual_lrps/list").await;
    let tasks: proto::TasksResponse = listed(api, "tasks/list.r3").await;
    assert_eq!(
        (&desired.error, &actual.error, &tasks.error),
        (&None, &None, &None)
    );
    let mut records: Vec<_> = desired
        .desired_lrps
        .iter()
        .map(|lrp| format!("{lrp:?}"))
        .collect();
    records.extend(actual.actual_lrps.iter().map(|lrp| format!("{lrp:?}")));
    records.extend(tasks.tasks.iter().map(|task| format!("{task:?}")));
    records.sort();
    records
}

async fn listed<M: Message + Default>(api: &Arc<Api>, path: &str) -> M {
    let (_, target) = api
        .find(Some(NATIVE), Verb::Post, path)
        .expect("a list of this release");
    let request = Request {
        body: Vec::new().into(),
        trace_id: TraceId::NONE,
        abandoned: Default::default(),
        waits_until: Instant::now() + LONGEST_WAIT,
    };
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
        Answer::Unavailable(reason) => panic!("{path}: {reason}"),
        Answer::Busy => panic!("{path}: the host is busy"),
    };
    M::decode(&answer[..]).expect("a list is a message")
}
