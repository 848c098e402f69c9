//! Faults of the database and of hosts in random rounds, while clients make calls and a second host stands by. After each round
//! exactly one host serves, no call has been blocked, and at the end every acknowledged write is there.
//!
//! `BBS_FAULT_ROUNDS` sets the number of rounds on each server (6), `BBS_FAULT_SEED` the seed (random).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bbs::testing::database::{Database, Dialect, Transaction, is_transient, sql};
use bbs_proto::models as proto;
use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::{JoinHandle, block_in_place};

use crate::api::actual_lrps::{instance, net_info};
use crate::harness::database::{Kind, TestDatabase, on_each_server, texts};
use crate::harness::engine::Engine;
use crate::harness::fixture;
use crate::harness::host::{Host, Installation};
use crate::harness::load::calls::{Caller, Failure};
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::load::{Aim, Load, Settings};
use crate::harness::ports::free_address;
use crate::harness::proxy::Proxy;
use crate::harness::seed::{OF_PROCESSES, number, seed};
use crate::harness::{http_client, modules, pause};

const ROUNDS: u64 = 6;
const CALLS: u64 = 20;
/// After a fault, exactly one host serves within this time: the lifetime of the lock, which is 5 s here, and a start.
const LONGEST_GAP: Duration = Duration::from_secs(10);
/// The longest that an acknowledged call may have taken: three attempts that wait for half of the lifetime of the lock, and for the
/// server to come back between them.
const LONGEST_CALL: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy)]
enum RoundFault {
    /// All sessions of the database are ended.
    EndedSessions,
    /// The server is killed and started again.
    RestartedServer,
    /// The server answers nothing, and is then killed and started again.
    FrozenServer,
    /// Another client has a lock on the rows of an LRP.
    LockedRow,
    /// Another client has a lock on a table.
    LockedTable,
    /// The host that serves is killed.
    KilledHost,
    /// The host that serves is terminated.
    TerminatedHost,
    /// The host that serves is killed while another client has a lock on a row that a call waits for.
    KilledHostBesideLock,
}

const FAULTS: [RoundFault; 8] = [
    RoundFault::EndedSessions,
    RoundFault::RestartedServer,
    RoundFault::FrozenServer,
    RoundFault::LockedRow,
    RoundFault::LockedTable,
    RoundFault::KilledHost,
    RoundFault::TerminatedHost,
    RoundFault::KilledHostBesideLock,
];

on_each_server!(rounds_of_faults_block_no_call_and_lose_no_acknowledged_write);
async fn rounds_of_faults_block_no_call_and_lose_no_acknowledged_write(kind: Kind) {
    let seed = seed("BBS_FAULT_SEED");
    let rounds = number("BBS_FAULT_ROUNDS").unwrap_or(ROUNDS);
    println!("BBS_FAULT_SEED={seed} BBS_FAULT_ROUNDS={rounds} on {kind:?}; {OF_PROCESSES}");
    let mut pair = HostPair::new(kind).await;
    let caller = Caller::new(pair.address.subscribe());
    let model = Model::of(&caller).await.expect("the list succeeds");
    let settings = Settings { clients: 4, calls_per_second: 100.0, seed };
    let mut load = Load::start(&caller, model, &Aim::default(), settings);
    let beside = Beside::start(caller.clone());
    load.calls(CALLS).await;
    let mut random = Rng::with_seed(seed);
    // Every fault once, and then at random.
    let mut faults = FAULTS.to_vec();
    random.shuffle(&mut faults);
    for round in 0..rounds {
        let fault = faults.pop().unwrap_or_else(|| FAULTS[random.usize(..FAULTS.len())]);
        println!("round {round}: {fault:?}");
        pair.inject(fault, &mut load).await;
        pair.until_one_serves(fault).await;
        load.calls(CALLS).await;
    }
    let acknowledged = beside.stop().await;
    let (report, model) = load.stop().await;
    println!("{report}\nbeside: {acknowledged}");
    assert_eq!(report.differences, 0, "{report}");
    let longest = report.reads_from_send.max().max(report.writes_from_send.max());
    assert!(Duration::from_micros(longest).max(acknowledged.longest) < LONGEST_CALL, "{report}");
    acknowledged.assert_are_there(&caller).await;
    let mut found = model.differences(&everything(&caller).await.expect("the list succeeds"));
    found.extend(model.differences_of_instances(&caller).await.expect("the list succeeds"));
    assert_eq!(found, Vec::<String>::new());
}

/// Calls about instances and tasks, beside those of the load about desired LRPs.
struct Beside {
    stop: watch::Sender<bool>,
    caller: JoinHandle<Acknowledged>,
}

/// What calls about instances and tasks have acknowledged.
#[derive(Default)]
struct Acknowledged {
    /// The tasks that were desired, and whether they were cancelled.
    tasks: BTreeMap<Vec<u8>, bool>,
    /// The number of the last report of the instance.
    report: u64,
    longest: Duration,
    failed: u64,
}

impl Beside {
    fn start(caller: Caller) -> Self {
        let (stop, stopped) = watch::channel(false);
        let caller = tokio::spawn(async move {
            let mut acknowledged = Acknowledged::default();
            for number in 1.. {
                if *stopped.borrow() {
                    break;
                }
                acknowledged.make_all(&caller, number).await;
            }
            acknowledged
        });
        Self { stop, caller }
    }

    async fn stop(self) -> Acknowledged {
        self.stop.send_replace(true);
        self.caller.await.expect("it does not panic")
    }
}

impl std::fmt::Display for Acknowledged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tasks, report, longest, failed } = self;
        write!(f, "{} tasks, report {report}, longest call {longest:?}, {failed} failures", tasks.len())
    }
}

impl Acknowledged {
    async fn make_all(&mut self, caller: &Caller, number: u64) {
        let fresh = proto::UpsertDomainRequest { domain: b"beside".to_vec(), ttl: 0 };
        self.made(caller.change("domains/upsert", &fresh)).await;
        if self.made(caller.change("actual_lrps/start.r1", &report_of(number))).await {
            self.report = number;
        }
        let task_guid = format!("beside-{number}").into_bytes();
        let task = proto::DesireTaskRequest {
            task_definition: Some(crate::tasks::definition()),
            task_guid: task_guid.clone(),
            domain: b"beside".to_vec(),
        };
        if self.made(caller.change("tasks/desire.r2", &task)).await {
            let cancel = proto::TaskGuidRequest { task_guid: task_guid.clone() };
            let is_cancelled = number.is_multiple_of(2) && self.made(caller.change("tasks/cancel", &cancel)).await;
            self.tasks.insert(task_guid, is_cancelled);
        }
        pause().await;
    }

    /// Whether a call succeeded.
    async fn made(&mut self, call: impl Future<Output = Result<(), Failure>>) -> bool {
        let began = Instant::now();
        let done = call.await;
        match &done {
            Ok(()) => self.longest = self.longest.max(began.elapsed()),
            Err(_) => self.failed += 1,
        }
        done.is_ok()
    }

    async fn assert_are_there(&self, caller: &Caller) {
        let tasks: proto::TasksResponse = caller.call("tasks/list.r3", &proto::TasksRequest::default()).await.unwrap();
        let states: BTreeMap<_, _> = tasks.tasks.into_iter().map(|task| (task.task_guid.clone(), task.state)).collect();
        for (guid, is_cancelled) in &self.tasks {
            let name = String::from_utf8_lossy(guid);
            let state = *states.get(guid).unwrap_or_else(|| panic!("the task {name} is lost"));
            assert!(!is_cancelled || state == proto::task::State::Completed as i32, "{name} is not cancelled");
        }
        let filter = proto::ActualLrPsRequest { process_guid: b"beside".to_vec(), ..Default::default() };
        let found: proto::ActualLrPsResponse = caller.call("actual_lrps/list", &filter).await.unwrap();
        let tag = String::from_utf8(found.actual_lrps[0].metric_tags[0].value.clone()).unwrap();
        assert!(tag.parse::<u64>().unwrap() >= self.report, "report {tag} is there, {} was acknowledged", self.report);
    }
}

/// A cell reports an instance that it runs.
fn report_of(number: u64) -> proto::StartActualLrpRequest {
    let key = proto::ActualLrpKey { process_guid: b"beside".to_vec(), index: 0, domain: b"beside".to_vec() };
    proto::StartActualLrpRequest {
        actual_lrp_key: Some(key),
        actual_lrp_instance_key: instance("beside"),
        actual_lrp_net_info: net_info("beside"),
        metric_tags: vec![proto::TextEntry { key: b"report".to_vec(), value: number.to_string().into_bytes() }],
        ..Default::default()
    }
}

on_each_server!(restart_of_the_server_fails_no_call_but_those_being_committed);
async fn restart_of_the_server_fails_no_call_but_those_being_committed(kind: Kind) {
    let engine = kind.own_engine();
    let database = TestDatabase::on(kind, engine.address());
    fixture::write_to(&database).await;
    let installation = Installation::on(database.clone(), &modules::modules()).set("lock_ttl", "60s");
    let host = installation.serve();
    let caller = Caller::new(watch::channel(host.url("")).1);
    let model = Model::of(&caller).await.expect("the list succeeds");
    let settings = Settings { clients: 8, calls_per_second: 200.0, seed: 1 };
    let mut load = Load::start(&caller, model, &Aim::default(), settings);
    load.calls(CALLS).await;
    for _ in 0..3 {
        block_in_place(|| database.end_sessions());
        load.calls(CALLS).await;
    }
    block_in_place(|| engine.restart());
    load.calls(5 * CALLS).await;
    let (report, model) = load.stop().await;
    let unexplained = report.notes.iter().find(|note| !note.contains("unknown whether the change was committed"));
    assert_eq!((unexplained, report.differences), (None, 0), "{report}");
    assert_eq!(model.differences(&everything(&caller).await.expect("the list succeeds")), Vec::<String>::new());
    assert!(host.terminate().success());
}

/// Two hosts of one database, each of which is started again when it ends, as by a supervisor.
struct HostPair {
    kind: Kind,
    engine: Engine,
    proxy: Arc<Proxy>,
    /// Not through the proxy.
    database: TestDatabase,
    places: [(Installation, SocketAddr); 2],
    hosts: [Host; 2],
    /// That of the host that serves.
    address: watch::Sender<String>,
}

impl HostPair {
    async fn new(kind: Kind) -> Self {
        let engine = kind.own_engine();
        let database = TestDatabase::on(kind, engine.address());
        fixture::write_to(&database).await;
        let proxy = Arc::new(Proxy::to(engine.address()));
        let places = [(); 2].map(|()| {
            let address = free_address();
            let installation = Installation::on(database.through(proxy.address()), &modules::modules());
            (installation.set("listen_address", address.to_string()), address)
        });
        let first = Host::start(places[0].0.command(&["serve"]), "serving");
        let hosts = [first, standby(&places[1].0)];
        let address = watch::channel(format!("http://{}", places[0].1)).0;
        Self { kind, engine, proxy, database, places, hosts, address }
    }

    async fn inject(&mut self, fault: RoundFault, load: &mut Load) {
        match fault {
            RoundFault::EndedSessions => {
                for _ in 0..3 {
                    block_in_place(|| self.database.end_sessions());
                    load.calls(CALLS / 4).await;
                }
            }
            RoundFault::RestartedServer => block_in_place(|| self.engine.restart()),
            RoundFault::FrozenServer => {
                self.proxy.stall();
                load.calls(CALLS / 4).await;
                block_in_place(|| self.engine.restart());
                self.proxy.cut();
                self.proxy.heal();
            }
            RoundFault::LockedRow => {
                let locked = Locked::rows(&self.database).await;
                load.calls(CALLS).await;
                locked.release().await;
            }
            RoundFault::LockedTable => {
                let locked = Locked::table(&self.database).await;
                self.until_a_call_waits(&locked.database).await;
                locked.release().await;
            }
            RoundFault::KilledHost => {
                let serving = self.serving().await.expect("a host serves");
                self.hosts[serving].signal("KILL");
            }
            RoundFault::TerminatedHost => {
                let serving = self.serving().await.expect("a host serves");
                self.hosts[serving].signal("TERM");
            }
            RoundFault::KilledHostBesideLock => {
                let locked = Locked::rows(&self.database).await;
                self.until_a_call_waits(&locked.database).await;
                let serving = self.serving().await.expect("a host serves");
                self.hosts[serving].signal("KILL");
                self.until_one_serves(fault).await;
                locked.release().await;
            }
        }
    }

    /// The only host that answers calls.
    async fn serving(&self) -> Option<usize> {
        let mut serving = None;
        for (number, (_, address)) in self.places.iter().enumerate() {
            let answer = http_client().post(format!("http://{address}/v1/ping")).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) && serving.replace(number).is_some() {
                return None;
            }
        }
        serving
    }

    /// Starts hosts again that have ended, until exactly one serves.
    async fn until_one_serves(&mut self, fault: RoundFault) {
        let began = Instant::now();
        loop {
            for (host, (installation, _)) in self.hosts.iter_mut().zip(&self.places) {
                if host.has_ended() {
                    *host = standby(installation);
                }
            }
            if let Some(serving) = self.serving().await {
                self.address.send_replace(format!("http://{}", self.places[serving].1));
                println!("{fault:?}: a host serves after {:?}", began.elapsed());
                return;
            }
            assert!(began.elapsed() < LONGEST_GAP, "{fault:?}: no host serves");
            pause().await;
        }
    }

    async fn until_a_call_waits(&self, database: &Database) {
        let waiting = match self.kind.dialect() {
            Dialect::Postgres => "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
            _ => {
                "SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%lock' \
                 OR (command IN ('Execute', 'Query') AND info LIKE '%desired_lrps%' AND info NOT LIKE '%processlist%')"
            }
        };
        while texts(database, waiting).await[0] == "0" {
            pause().await;
        }
    }
}

/// Starts a host that serves once it has the lock.
fn standby(installation: &Installation) -> Host {
    Host::begin(installation.command(&["serve"]))
}

/// Locks of another client.
struct Locked {
    database: Database,
    tx: Transaction,
}

impl Locked {
    /// On all desired LRPs.
    async fn rows(database: &TestDatabase) -> Self {
        let database = database.open_with_idle_limit(crate::harness::PATIENCE).await;
        loop {
            let mut tx = database.write().await.unwrap();
            match tx.fetch(sql("SELECT process_guid FROM desired_lrps FOR UPDATE")).await {
                Ok(_) => return Self { database, tx },
                // A deadlock with a call.
                Err(fault) => assert!(is_transient(&fault), "{fault}"),
            }
        }
    }

    async fn table(database: &TestDatabase) -> Self {
        let database = database.open_with_idle_limit(crate::harness::PATIENCE).await;
        let mut tx = database.write().await.unwrap();
        let lock = match tx.dialect() {
            Dialect::Postgres => "LOCK TABLE desired_lrps IN ACCESS EXCLUSIVE MODE",
            _ => "LOCK TABLES desired_lrps WRITE",
        };
        tx.execute(sql(lock)).await.unwrap();
        Self { database, tx }
    }

    /// The session ends, and its locks with it.
    async fn release(self) {
        drop(self.tx);
        self.database.close().await;
    }
}
