//! A host that serves while its database changes: the server goes away and returns, a column gets
//! another type, a schema cannot hold the characters of a text. And a server that allows few
//! sessions.

use std::time::{Duration, Instant};

use bbs::testing::database::{Address, Database, Transaction};
use bbs_proto::models as proto;
use futures_util::future::{join_all, try_join_all};
use sqlx::AssertSqlSafe;

use crate::api::actual_lrps::{CRASH, START, crash, start};
use crate::api::lrp;
use crate::harness::database::{Kind, TestDatabase, execute, on_each_server, texts};
use crate::harness::engine::PASSWORD;
use crate::harness::fixture::VERSION;
use crate::harness::host::{Host, Installation};
use crate::harness::mariadb::administrator;
use crate::harness::modules::{self, chain};
use crate::harness::on_each::{on_each_mysql, on_one_server};
use crate::harness::output::refused;
use crate::harness::proxy::Proxy;
use crate::harness::{pause, until_async};
use crate::tasks::desire_request;

type Lifecycle = proto::DesiredLrpLifecycleResponse;

/// Calls at once: more than the host has connections.
const CALLS: usize = 40;
const CONNECTIONS: u32 = 10;
/// The time in which a server that cannot be reached has to come back.
const SERVER_RETURNS: Duration = Duration::from_secs(5);

/// A host with one desired LRP.
struct Serving {
    host: Host,
    database: TestDatabase,
    installation: Installation,
}

impl Serving {
    async fn on(database: TestDatabase) -> Self {
        Self::pinned(database, None).await
    }

    /// With a pin, the host serves through a lens.
    async fn pinned(database: TestDatabase, pin: Option<u64>) -> Self {
        let installation = Installation::on(database.clone(), &modules::modules())
            .set("max_open_database_connections", CONNECTIONS)
            .set("db_connection_timeout", "10s")
            .set("lock_ttl", "600s")
            .set("pin_data_version", pin);
        let host = installation.serve();
        let serving = Self {
            host,
            database,
            installation,
        };
        let desired = proto::DesireLrpRequest {
            desired_lrp: Some(lrp("guid")),
        };
        serving.succeed("/v1/desired_lrp/desire.r2", &desired).await;
        serving
    }

    /// The host restarted with another character set of its tables, and no session from before.
    async fn restarted_with(self, characters: &str) -> Self {
        assert!(self.host.terminate().success());
        let database = self.database.open().await;
        for table in ["actual_lrps", "tasks"] {
            execute(
                &database,
                &format!("ALTER TABLE {table} CONVERT TO CHARACTER SET {characters}"),
            )
            .await;
        }
        let host = self.installation.serve();
        Self { host, ..self }
    }

    /// The error of an answer. Every answer of a change has it in the same field.
    async fn error(&self, path: &str, request: &impl bbs_proto::prost::Message) -> Option<String> {
        let answer: Lifecycle = self.host.call(path, request).await;
        answer
            .error
            .map(|error| String::from_utf8(error.message).expect("the error is a text"))
    }

    async fn succeed(&self, path: &str, request: &impl bbs_proto::prost::Message) {
        assert_eq!(self.error(path, request).await, None, "{path}");
    }

    async fn annotate(&self, text: &str) -> Option<String> {
        let update = proto::DesiredLrpUpdate {
            annotation: Some(text.into()),
            ..Default::default()
        };
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: b"guid".to_vec(),
            update: Some(update),
        };
        self.error("/v1/desired_lrp/update", &request).await
    }

    /// Asserts that an instance that crashes and a task that fails with `text` get their next
    /// states, and have `stored` as their texts.
    async fn assert_stored(&self, text: &str, stored: &str) {
        self.succeed(START, &start(0, "a")).await;
        let crashed = proto::CrashActualLrpRequest {
            error_message: text.into(),
            ..crash(0, "a")
        };
        self.succeed(CRASH, &crashed).await;
        let crashed =
            "SELECT concat(state, ' ', crash_reason) FROM actual_lrps WHERE instance_index = 0";
        let database = self.database.open().await;
        let found = texts(&database, crashed).await;
        assert_eq!(found, [format!("UNCLAIMED {stored}")]);
        database.close().await;

        let task_guid = b"task".to_vec();
        let cell_id = b"cell".to_vec();
        self.succeed("/v1/tasks/desire.r2", &desire_request("task"))
            .await;
        let started = proto::StartTaskRequest { task_guid, cell_id };
        self.succeed("/v1/tasks/start", &started).await;
        let completed = proto::CompleteTaskRequest {
            task_guid: started.task_guid.clone(),
            cell_id: started.cell_id,
            failed: true,
            failure_reason: text.into(),
            result: text.into(),
        };
        self.succeed("/v1/tasks/complete", &completed).await;
        let task = proto::TaskByGuidRequest {
            task_guid: started.task_guid,
        };
        let path = "/v1/tasks/get_by_task_guid.r3";
        let task = self.host.call::<proto::TaskResponse>(path, &task).await;
        let task = task.task.unwrap();
        let found = (task.failure_reason, task.result);
        assert_eq!(found, (stored.into(), stored.into()));
    }

    /// Removes the texts of [`Self::assert_stored`], which other characters may not include.
    async fn remove_texts(&self) {
        let database = self.database.open().await;
        for table in ["actual_lrps", "tasks"] {
            execute(&database, &format!("DELETE FROM {table}")).await;
        }
        database.close().await;
    }

    async fn listed(&self) -> proto::DesiredLrPsResponse {
        self.host
            .call(
                "/v1/desired_lrps/list.r3",
                &proto::DesiredLrPsRequest::default(),
            )
            .await
    }
}

on_each_server!(calls_without_a_server_name_the_reason_and_succeed_when_it_is_back);
async fn calls_without_a_server_name_the_reason_and_succeed_when_it_is_back(kind: Kind) {
    let engine = kind.own_engine();
    let serving = Serving::on(TestDatabase::on(kind, engine.address())).await;
    engine.crash();
    for error in join_all((0..CALLS).map(|_| serving.annotate("away"))).await {
        let error = error.expect("the server is away");
        assert!(
            error.contains("refused") || error.contains("reset"),
            "{error}"
        );
    }
    let status = serving.installation.run(&["migrate", "status"]);
    refused(status, "refused");
    engine.restart();
    // A server that has just started may take longer for the first sessions than a call waits.
    until_async(async || serving.annotate("back").await.is_none()).await;
    for error in join_all((0..CALLS).map(|_| serving.annotate("back"))).await {
        assert_eq!(error, None);
    }
}

/// A database all of whose sessions but one are open, over a proxy to a server that begins no
/// other.
async fn with_stalled_log_ins(
    proxy: &Proxy,
    database: &TestDatabase,
    connect_timeout: Duration,
) -> (Database, Vec<Transaction>) {
    let database = database
        .open_limited(|limits| {
            limits.max_connections = CONNECTIONS;
            limits.connect_timeout = connect_timeout;
        })
        .await;
    let open = try_join_all((1..CONNECTIONS).map(|_| database.read())).await;
    proxy.stall_new();
    (database, open.unwrap())
}

on_each_server!(new_session_waits_longer_for_a_server_that_answers_others);
/// Method: callers read again and again, for longer than a server has to come back. There is one
/// more than there are open sessions, so that one waits for a new one.
async fn new_session_waits_longer_for_a_server_that_answers_others(kind: Kind) {
    let proxy = Proxy::to(kind.engine().address());
    let test = TestDatabase::new(kind).through(proxy.address());
    let (database, open) = with_stalled_log_ins(&proxy, &test, SERVER_RETURNS * 6).await;
    let began = Instant::now();
    let reads = async || {
        while began.elapsed() < SERVER_RETURNS + Duration::from_secs(1) {
            database.read().await.unwrap();
            pause().await;
        }
        proxy.resume();
    };
    let callers = join_all((0..CONNECTIONS).map(|_| reads()));
    tokio::join!(callers, async { drop(open) });
    database.close().await;
}

on_one_server!(
    session_that_does_not_begin_is_no_outage_of_a_server_that_answers_others,
    mariadb
);
/// Method: as above, but the new session never begins.
async fn session_that_does_not_begin_is_no_outage_of_a_server_that_answers_others() {
    let proxy = Proxy::to(Kind::Mariadb.engine().address());
    let test = TestDatabase::new(Kind::Mariadb).through(proxy.address());
    let (database, open) = with_stalled_log_ins(&proxy, &test, SERVER_RETURNS).await;
    let began = Instant::now();
    let reads = async || {
        while began.elapsed() < SERVER_RETURNS + Duration::from_secs(1) {
            if let Err(error) = database.read().await {
                return Some(chain(&error));
            }
            pause().await;
        }
        None
    };
    let callers = join_all((0..CONNECTIONS).map(|_| reads()));
    let (errors, ()) = tokio::join!(callers, async { drop(open) });
    let errors: Vec<_> = errors.into_iter().flatten().collect();
    let is_expected = |error: &String| error.contains("the server began no session within 5s");
    assert!(errors.iter().any(is_expected), "{errors:?}");
    proxy.resume();
    database.close().await;
}

on_each_server!(callers_share_the_sessions_that_a_server_allows);
/// Method: the server allows fewer sessions than the pool, which has as many callers as places.
async fn callers_share_the_sessions_that_a_server_allows(kind: Kind) {
    const ALLOWED: u32 = 3;
    const READS: u32 = 20;
    let test = TestDatabase::on(kind, kind.engine().address());
    let Address::Server(mut server) = test.address() else {
        panic!("{kind:?} has no server")
    };
    if kind == Kind::Postgres {
        let opened = test.open().await;
        let limit = format!("ALTER DATABASE {} CONNECTION LIMIT {ALLOWED}", test.name());
        execute(&opened, &limit).await;
        opened.close().await;
    } else {
        let mut administrator = administrator(kind.engine()).await;
        let limit = format!("MAX_USER_CONNECTIONS {ALLOWED}");
        for statement in [
            format!("CREATE USER few@'%' IDENTIFIED BY '{PASSWORD}' WITH {limit}"),
            format!("GRANT ALL ON {}.* TO few@'%'", test.name()),
        ] {
            let statement = sqlx::raw_sql(AssertSqlSafe(statement));
            statement.execute(&mut administrator).await.unwrap();
        }
        server.user = "few".to_owned();
    }
    server.limits.max_connections = CONNECTIONS;
    let database = Database::open(&Address::Server(server)).await.unwrap();
    let reads = async || {
        for _ in 0..READS {
            database.read().await.unwrap();
        }
    };
    join_all((0..CONNECTIONS).map(|_| reads())).await;
    database.close().await;
}

on_one_server!(column_that_changes_its_type_fails_no_call, postgres);
/// Method: all sessions have prepared their statements before the column has another type, and more
/// calls wait for one.
async fn column_that_changes_its_type_fails_no_call() {
    let serving = Serving::on(TestDatabase::new(Kind::Postgres)).await;
    let database = serving.database.open().await;
    for kind in ["TEXT", "VARCHAR(4000)", "TEXT"] {
        execute(
            &database,
            &format!("ALTER TABLE desired_lrps ALTER COLUMN annotation TYPE {kind}"),
        )
        .await;
        for _ in 0..8 {
            for listed in join_all((0..CALLS).map(|_| serving.listed())).await {
                assert_eq!(
                    (listed.error, listed.desired_lrps.len()),
                    (None, 1),
                    "{kind}"
                );
            }
            assert_eq!(serving.annotate(kind).await, None, "{kind}");
        }
    }
}

on_each_mysql!(characters_that_a_schema_cannot_hold_keep_no_record_from_its_next_state);
async fn characters_that_a_schema_cannot_hold_keep_no_record_from_its_next_state(kind: Kind) {
    // New databases have utf8mb4.
    let mut serving = Serving::on(TestDatabase::new(kind)).await;
    serving.assert_stored("no \u{1f600}", "no \u{1f600}").await;
    let outside_utf8mb3 = ["no \u{1f600}, größe", "no ?, gr??e"];
    let outside_latin1 = ["no \u{2028}", "no ?"];
    for (characters, [text, stored]) in [("utf8mb3", outside_utf8mb3), ("latin1", outside_latin1)] {
        serving.remove_texts().await;
        serving = serving.restarted_with(characters).await;
        serving.assert_stored(text, stored).await;
    }

    let pinned = Serving::pinned(TestDatabase::new(kind), Some(VERSION)).await;
    let pinned = pinned.restarted_with("utf8mb3").await;
    let [text, stored] = outside_utf8mb3;
    pinned.assert_stored(text, stored).await;
}
