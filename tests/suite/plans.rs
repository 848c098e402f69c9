//! The plans of lists and look-ups: no statement examines more rows than it returns, whatever the
//! statistics of a table say and whatever it had when a statement was prepared. Measured by the
//! server's own log of statements.

use std::collections::BTreeMap;

use bbs::testing::database::Dialect;
use bbs_proto::models as proto;
use bbs_proto::prost::Message;

use crate::api::actual_lrps::{instance, net_info};
use crate::harness::database::{Kind, TestDatabase, execute, on_each_server, texts};
use crate::harness::engine::Engine;
use crate::harness::host::{Host, Installation};
use crate::harness::{fixture, http_client, modules, tests_all};

/// Rows of each table: several pages of each list.
const ROWS: u64 = 1100;
/// Executions of each call in each state of the tables. PostgreSQL may replace the plan of a
/// prepared statement after five; the others plan each execution.
fn executions(kind: Kind) -> usize {
    if kind == Kind::Postgres || tests_all() {
        7
    } else {
        3
    }
}

/// Rows that a statement may examine beside those that it returns: those of the unit that a page
/// ends before, and small tables.
const BESIDE: u64 = 60;

/// Makes the server log each statement with the rows that it examined.
fn logging(kind: Kind) -> &'static [&'static str] {
    match kind.dialect() {
        Dialect::Postgres => &[
            "-csession_preload_libraries=auto_explain",
            "-cauto_explain.log_min_duration=0",
            "-cauto_explain.log_analyze=on",
            "-cauto_explain.log_timing=off",
            "-cauto_explain.log_format=json",
            // Statistics are as the test leaves them.
            "-cautovacuum=off",
        ],
        _ => &[
            "--slow-query-log=ON",
            "--long-query-time=0",
            "--slow-query-log-file=statements",
        ],
    }
}

/// One execution of a statement.
#[derive(Debug)]
struct Executed {
    statement: String,
    examined: u64,
    returned: u64,
}

impl Executed {
    /// Statements of clients on Diego's tables, without values.
    fn is_counted(&self) -> bool {
        self.statement.starts_with("SELECT")
            && TABLES.into_iter().any(|table| {
                self.statement.contains(&format!("FROM \"{table}\""))
                    || self.statement.contains(&format!("FROM `{table}`"))
            })
    }

    /// Whether the rows were found by an index.
    fn is_by_key(&self) -> bool {
        self.examined <= 2 * self.returned + BESIDE
    }

    /// Whether a condition on columns with few values leaves rows out, so that all have to be
    /// examined once.
    fn is_filtered(&self) -> bool {
        let condition = self
            .statement
            .split_once("WHERE")
            .map_or("", |(_, condition)| condition);
        let columns = ["domain", "previous_definition_id"];
        columns.iter().any(|column| condition.contains(column))
    }
}

/// The server's log of statements, read on from where it was read before.
struct StatementLog<'a> {
    kind: Kind,
    engine: &'a Engine,
    read: usize,
}

impl StatementLog<'_> {
    /// The statements that the server has logged since the last call.
    fn next(&mut self) -> Vec<Executed> {
        let file = match self.kind.dialect() {
            Dialect::Postgres => self.engine.folder().join("log"),
            _ => self.engine.folder().join("data/statements"),
        };
        let log = std::fs::read(file).expect("the log of statements");
        let new = String::from_utf8_lossy(&log[self.read..]).into_owned();
        self.read = log.len();
        match self.kind.dialect() {
            Dialect::Postgres => new.split("plan:\n").skip(1).filter_map(explained).collect(),
            _ => new
                .split("# Query_time: ")
                .skip(1)
                .filter_map(timed)
                .collect(),
        }
    }
}

/// An entry of PostgreSQL's `auto_explain`.
fn explained(entry: &str) -> Option<Executed> {
    let mut entries = serde_json::Deserializer::from_str(entry).into_iter::<serde_json::Value>();
    let entry = entries.next()?.ok()?;
    let plan = &entry["Plan"];
    let statement = entry["Query Text"].as_str()?.to_owned();
    Some(Executed {
        statement,
        examined: examined(plan),
        returned: plan["Actual Rows"].as_f64()? as u64,
    })
}

/// The rows that the scans of a plan have read.
fn examined(plan: &serde_json::Value) -> u64 {
    let number = |name: &str| plan[name].as_f64().unwrap_or_default();
    let removed = ["Rows Removed by Filter", "Rows Removed by Index Recheck"].map(number);
    let is_scan = plan["Node Type"]
        .as_str()
        .is_some_and(|node| node.contains("Scan") && !node.contains("Bitmap Index"));
    let own = if is_scan {
        (number("Actual Rows") + removed[0] + removed[1]) * number("Actual Loops")
    } else {
        0.0
    };
    let parts = plan["Plans"].as_array().into_iter().flatten().map(examined);
    own as u64 + parts.sum::<u64>()
}

/// An entry of the log of slow statements of MySQL and MariaDB, after its first words.
fn timed(entry: &str) -> Option<Executed> {
    let number = |name: &str| {
        let (_, after) = entry.split_once(name)?;
        after.split_whitespace().next()?.parse().ok()
    };
    let at = entry.find("SELECT")?;
    let statement = entry[at..].split("\n# ").next()?.to_owned();
    Some(Executed {
        statement,
        examined: number("Rows_examined: ")?,
        returned: number("Rows_sent: ")?,
    })
}

/// A call, by its path and body.
type CallMade = (&'static str, Vec<u8>);

/// Records that are there, by which the calls look records up.
struct PresentRecords {
    process_guid: Vec<u8>,
    index: i32,
    desired_guid: Vec<u8>,
    task_guid: Vec<u8>,
    domain: Vec<u8>,
    cell_id: Vec<u8>,
}

impl PresentRecords {
    async fn read(database: &TestDatabase) -> Self {
        let opened = database.open().await;
        let one = async |query: &str| texts(&opened, query).await.remove(0).into_bytes();
        let index = one("SELECT max(instance_index) FROM spare_actual_lrps WHERE process_guid = (SELECT max(process_guid) FROM spare_actual_lrps)").await;
        let named = Self {
            process_guid: one("SELECT max(process_guid) FROM spare_actual_lrps").await,
            index: String::from_utf8(index).unwrap().parse().unwrap(),
            desired_guid: one("SELECT max(process_guid) FROM spare_desired_lrps").await,
            task_guid: one("SELECT max(guid) FROM spare_tasks").await,
            domain: one("SELECT max(domain) FROM spare_desired_lrps").await,
            cell_id: one("SELECT max(cell_id) FROM spare_actual_lrps").await,
        };
        opened.close().await;
        named
    }
}

/// Every list, with and without filters, and every look-up, of records that are there.
async fn calls(database: &TestDatabase) -> Vec<CallMade> {
    let named = PresentRecords::read(database).await;
    let mut calls = lists(&named);
    calls.extend(look_ups(named));
    calls
}

fn lists(named: &PresentRecords) -> Vec<CallMade> {
    let mut calls = Vec::new();
    for path in [
        "/v1/desired_lrps/list.r3",
        "/v1/desired_lrp_scheduling_infos/list",
        "/v1/desired_lrp_routing_infos/list",
    ] {
        for filter in [
            proto::DesiredLrPsRequest::default(),
            proto::DesiredLrPsRequest {
                domain: named.domain.clone(),
                ..Default::default()
            },
            proto::DesiredLrPsRequest {
                process_guids: vec![
                    named.desired_guid.clone(),
                    named.process_guid.clone(),
                    b"absent".to_vec(),
                ],
                ..Default::default()
            },
        ] {
            calls.push((path, filter.encode_to_vec()));
        }
    }
    for filter in [
        proto::ActualLrPsRequest::default(),
        proto::ActualLrPsRequest {
            domain: named.domain.clone(),
            ..Default::default()
        },
        proto::ActualLrPsRequest {
            cell_id: named.cell_id.clone(),
            ..Default::default()
        },
        proto::ActualLrPsRequest {
            process_guid: named.process_guid.clone(),
            ..Default::default()
        },
    ] {
        calls.push(("/v1/actual_lrps/list", filter.encode_to_vec()));
    }
    calls.push((
        "/v1/actual_lrp_groups/list",
        proto::ActualLrpGroupsRequest::default().encode_to_vec(),
    ));
    for filter in [
        proto::TasksRequest::default(),
        proto::TasksRequest {
            cell_id: named.cell_id.clone(),
            ..Default::default()
        },
    ] {
        calls.push(("/v1/tasks/list.r3", filter.encode_to_vec()));
    }
    calls
}

fn look_ups(named: PresentRecords) -> Vec<CallMade> {
    let PresentRecords {
        process_guid,
        index,
        desired_guid,
        task_guid,
        domain,
        ..
    } = named;
    let by_guid = proto::DesiredLrpByProcessGuidRequest {
        process_guid: desired_guid.clone(),
    };
    let task_by_guid = proto::TaskByGuidRequest {
        task_guid: task_guid.clone(),
    };
    let start = proto::StartActualLrpRequest {
        actual_lrp_key: Some(proto::ActualLrpKey {
            process_guid,
            index,
            domain,
        }),
        actual_lrp_instance_key: instance("plans"),
        actual_lrp_net_info: net_info("plans"),
        ..Default::default()
    };
    let update = proto::UpdateDesiredLrpRequest {
        process_guid: desired_guid,
        update: Some(proto::DesiredLrpUpdate {
            annotation: Some(b"plans".to_vec()),
            ..Default::default()
        }),
    };
    let cancel = proto::TaskGuidRequest { task_guid };
    vec![
        (
            "/v1/desired_lrps/get_by_process_guid.r3",
            by_guid.encode_to_vec(),
        ),
        (
            "/v1/desired_lrp_scheduling_infos/get_by_process_guid",
            by_guid.encode_to_vec(),
        ),
        (
            "/v1/tasks/get_by_task_guid.r3",
            task_by_guid.encode_to_vec(),
        ),
        ("/v1/actual_lrps/start.r1", start.encode_to_vec()),
        ("/v1/desired_lrp/update", update.encode_to_vec()),
        ("/v1/tasks/cancel", cancel.encode_to_vec()),
    ]
}

async fn make(host: &Host, calls: &[CallMade], executions: usize) {
    let client = http_client();
    for _ in 0..executions {
        for (path, body) in calls {
            let call = client.post(host.url(path)).body(body.clone());
            let answer = call.send().await.unwrap();
            assert_eq!(answer.status().as_u16(), 200, "{path}");
        }
    }
}

/// In the order in which they are filled: a desired LRP without instances would get some.
const TABLES: [&str; 3] = ["actual_lrps", "tasks", "desired_lrps"];

/// Removes all rows.
async fn empty(database: &TestDatabase) {
    on_all(database, TABLES.into_iter().rev(), |table| {
        format!("DELETE FROM {table}")
    })
    .await;
}

/// Adds the rows.
async fn fill(database: &TestDatabase) {
    on_all(database, TABLES, |table| {
        format!("INSERT INTO {table} SELECT * FROM spare_{table}")
    })
    .await;
}

async fn on_all(
    database: &TestDatabase,
    tables: impl IntoIterator<Item = &str>,
    statement: impl Fn(&str) -> String,
) {
    let opened = database.open().await;
    for table in tables {
        execute(&opened, &statement(table)).await;
    }
    opened.close().await;
}

/// A database of the newest version with empty tables, and the rows for them in spare ones.
async fn with_spare_rows(database: &TestDatabase, installation: &Installation) {
    fixture::write_to(database).await;
    installation.succeed(&["migrate", "up"]);
    let opened = database.open().await;
    for table in TABLES {
        execute(
            &opened,
            &format!("CREATE TABLE spare_{table} AS SELECT * FROM {table}"),
        )
        .await;
        let key = if table == "tasks" {
            "guid"
        } else {
            "process_guid"
        };
        let guid = match opened.dialect() {
            Dialect::Postgres => format!("md5({key} || clock_timestamp()::text)"),
            _ => format!("LEFT(SHA2(CONCAT({key}, RAND()), 256), 32)"),
        };
        loop {
            let count = texts(&opened, &format!("SELECT count(*) FROM spare_{table}")).await;
            let missing = ROWS - count[0].parse::<u64>().unwrap();
            if missing == 0 {
                break;
            }
            execute(
                &opened,
                &format!("CREATE TABLE more AS SELECT * FROM spare_{table} LIMIT {missing}"),
            )
            .await;
            execute(&opened, &format!("UPDATE more SET {key} = {guid}")).await;
            execute(
                &opened,
                &format!("INSERT INTO spare_{table} SELECT * FROM more"),
            )
            .await;
            execute(&opened, "DROP TABLE more").await;
        }
    }
    opened.close().await;
    empty(database).await;
}

#[track_caller]
fn assert_examines_what_it_returns(executed: &[Executed], executions: usize, state: &str) {
    let mut filtered = BTreeMap::<&str, (u64, u64)>::new();
    let mut counted = 0;
    for one in executed.iter().filter(|executed| executed.is_counted()) {
        counted += 1;
        if one.is_filtered() {
            let sum = filtered.entry(&one.statement).or_default();
            *sum = (sum.0 + one.examined, sum.1 + 1);
            continue;
        }
        assert!(one.is_by_key(), "{state}: {one:#?}");
    }
    assert!(counted > 14 * executions, "{state}: {counted} statements");
    // A filtered list examines each row once, in pages or at once.
    for (statement, (examined, times)) in filtered {
        let most = executions as u64 * 4 * ROWS + times * BESIDE;
        assert!(
            examined <= most,
            "{state}: {examined} rows in {times} executions of {statement}"
        );
    }
}

on_each_server!(no_list_and_no_look_up_examines_more_than_it_returns);
/// Method: the tables are filled without statistics, updated twice, emptied and analysed, and
/// filled again, while a host makes every call, each more often than PostgreSQL keeps the first
/// plan of a statement.
async fn no_list_and_no_look_up_examines_more_than_it_returns(kind: Kind) {
    let executions = executions(kind);
    let engine = kind.own_engine_with(logging(kind));
    let database = TestDatabase::on(kind, engine.address());
    let installation = Installation::on(database.clone(), &modules::modules())
        // Few sessions, each of which prepares every statement.
        .set("max_open_database_connections", 3)
        .set("converge_repeat_interval", "2s");
    with_spare_rows(&database, &installation).await;
    fill(&database).await;
    let calls = calls(&database).await;
    let host = installation.serve();
    let mut log = StatementLog {
        kind,
        engine: &engine,
        read: 0,
    };
    log.next();
    make(&host, &calls, executions).await;
    assert_examines_what_it_returns(&log.next(), executions, "filled without statistics");
    for _ in 0..2 {
        on_all(&database, TABLES, |table| {
            format!("UPDATE {table} SET domain = concat(domain, 'x')")
        })
        .await;
    }
    make(&host, &calls, executions).await;
    assert_examines_what_it_returns(&log.next(), executions, "updated twice");
    empty(&database).await;
    let analyse = if kind.dialect() == Dialect::Postgres {
        "ANALYZE"
    } else {
        "ANALYZE TABLE"
    };
    on_all(&database, TABLES, |table| format!("{analyse} {table}")).await;
    make(&host, &calls, executions).await;
    // A start makes an instance.
    empty(&database).await;
    fill(&database).await;
    log.next();
    make(&host, &calls, executions).await;
    let executed = log.next();
    assert_examines_what_it_returns(&executed, executions, "emptied, analysed and filled again");
    host.stop();
}

on_each_server!(convergence_reads_the_definitions_of_tasks_that_wait_for_an_auction_alone);
/// Method: three tasks of several pages wait, and cells run the others.
async fn convergence_reads_the_definitions_of_tasks_that_wait_for_an_auction_alone(kind: Kind) {
    let engine = kind.own_engine_with(logging(kind));
    let database = TestDatabase::on(kind, engine.address());
    let installation = Installation::on(database.clone(), &modules::modules())
        .set("converge_repeat_interval", "500ms");
    with_spare_rows(&database, &installation).await;
    let opened = database.open().await;
    execute(&opened, "INSERT INTO tasks SELECT * FROM spare_tasks").await;
    execute(&opened, "UPDATE tasks SET state = 2").await;
    let three = "SELECT guid FROM (SELECT guid FROM spare_tasks ORDER BY guid LIMIT 3) AS three";
    let never = i64::MAX;
    let wait = format!("UPDATE tasks SET state = 1, created_at = {never} WHERE guid IN ({three})");
    execute(&opened, &wait).await;
    opened.close().await;
    let mut host = installation.serve();
    let mut log = StatementLog {
        kind,
        engine: &engine,
        read: 0,
    };
    log.next();
    // A line is of the beginning of a run: between the two there is a whole one.
    for _ in 0..2 {
        host.wait_for_new_line(|line| line.contains("converging tasks"));
    }
    let is_of_convergence =
        |one: &Executed| one.is_counted() && one.statement.contains("first_completed_at");
    let executed = log.next().into_iter().filter(is_of_convergence);
    let (whole, parts): (Vec<_>, Vec<_>) =
        executed.partition(|one| one.statement.contains("task_definition"));
    assert!(parts.len() > 3, "several pages: {parts:#?}");
    for one in parts {
        assert!(!one.statement.contains("result"), "{one:#?}");
        assert!(one.is_by_key(), "{one:#?}");
    }
    assert!(!whole.is_empty(), "they are auctioned");
    for one in whole {
        assert!(one.returned == 3 && one.is_by_key(), "{one:#?}");
    }
    host.stop();
}
