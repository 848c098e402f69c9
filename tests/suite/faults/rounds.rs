//! Faults of the database and of hosts in random rounds, while clients make calls and a second host
//! stands by. After each round exactly one host serves, no call has been blocked, and at the end
//! every acknowledged write is there.
//!
//! `BBS_FAULT_ROUNDS` sets the number of rounds on each server (6), `BBS_FAULT_SEED` the seed
//! (random).

mod beside;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bbs::testing::database::{Database, Dialect, Transaction, is_transient, sql};
use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::block_in_place;

use crate::harness::database::{Kind, TestDatabase, on_each_server, texts};
use crate::harness::engine::Engine;
use crate::harness::fixture;
use crate::harness::host::{Host, Installation};
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::load::{Aim, Load, Settings};
use crate::harness::ports::free_address;
use crate::harness::proxy::Proxy;
use crate::harness::seed::{OF_PROCESSES, number, seed};
use crate::harness::{PATIENCE, http_client, modules, pause, until, until_async};
use beside::{Beside, DEFINED, RUNNING, assert_changes_are_published};

const ROUNDS: u64 = 6;
const CALLS: u64 = 20;
/// The lifetime of the lock, which passes in each round in which a host is killed.
const LOCK_TTL: &str = "5s";

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
    /// The host that serves is killed while another client has a lock on a row that a call waits
    /// for.
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
    let settings = Settings {
        clients: 4,
        calls_per_second: 50.0,
        seed,
    };
    let mut load = Load::start(&caller, model, &Aim::default(), settings);
    let beside = Beside::start(caller.clone()).await;
    load.calls(CALLS).await;
    let mut random = Rng::with_seed(seed);
    // Every fault once, and then at random.
    let mut faults = FAULTS.to_vec();
    random.shuffle(&mut faults);
    for round in 0..rounds {
        let fault = faults
            .pop()
            .unwrap_or_else(|| FAULTS[random.usize(..FAULTS.len())]);
        println!("round {round}: {fault:?}");
        pair.inject(fault, &mut load).await;
        pair.until_one_serves(fault).await;
        load.calls(CALLS).await;
    }
    let acknowledged = beside.stop().await;
    let (report, model) = load.stop().await;
    println!("{report}\nbeside: {acknowledged}");
    assert_eq!(report.differences, 0, "{report}");
    let longest = report
        .reads_from_send
        .max()
        .max(report.writes_from_send.max());
    assert!(
        Duration::from_micros(longest).max(acknowledged.longest) < PATIENCE,
        "a call was blocked: {report}"
    );
    acknowledged.assert_is_there(&caller).await;
    assert_changes_are_published(&caller).await;
    let mut listing = everything(&caller).await.expect("the list succeeds");
    for beside in [RUNNING, DEFINED] {
        assert!(
            listing.records.remove(beside.as_bytes()).is_some(),
            "{beside} is there"
        );
    }
    let mut found = model.differences(&listing);
    found.extend(
        model
            .differences_of_instances(&caller)
            .await
            .expect("the list succeeds"),
    );
    assert_eq!(found, Vec::<String>::new());
}

on_each_server!(restart_of_the_server_fails_no_call_but_those_being_committed);
async fn restart_of_the_server_fails_no_call_but_those_being_committed(kind: Kind) {
    let engine = kind.own_engine();
    let database = TestDatabase::on(kind, engine.address());
    fixture::write_small_to(&database).await;
    let installation =
        Installation::on(database.clone(), &modules::modules()).set("lock_ttl", "60s");
    let mut host = installation.serve();
    let caller = Caller::new(watch::channel(host.url("")).1);
    let model = Model::of(&caller).await.expect("the list succeeds");
    let settings = Settings {
        clients: 8,
        calls_per_second: 200.0,
        seed: 1,
    };
    let mut load = Load::start(&caller, model, &Aim::default(), settings);
    load.calls(CALLS).await;
    // Fewer losses than attempts of a call, since one call may meet all of them.
    block_in_place(|| database.end_sessions());
    load.calls(CALLS).await;
    block_in_place(|| engine.restart());
    load.calls(5 * CALLS).await;
    let (report, model) = load.stop().await;
    // The host counts calls that end because the server is away for longer than they wait for it.
    let given_up: usize = host
        .output()
        .iter()
        .filter_map(|line| count_given_up(line))
        .sum();
    let unknown = "unknown whether the change was committed";
    let others = report.notes.iter().filter(|note| !note.contains(unknown));
    assert_eq!(report.differences, 0, "{report}");
    assert!(
        others.count() <= given_up,
        "{given_up} were given up: {report}"
    );
    assert_eq!(
        model.differences(&everything(&caller).await.expect("the list succeeds")),
        Vec::<String>::new()
    );
    assert!(host.terminate().success());
}

/// The callers that got no session during an outage, of the log line at its end.
fn count_given_up(line: &str) -> Option<usize> {
    let (_, count) = line.split_once("given_up=")?;
    let end = count.find(|next: char| !next.is_ascii_digit());
    count[..end.unwrap_or(count.len())].parse().ok()
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
        fixture::write_small_to(&database).await;
        let proxy = Arc::new(Proxy::to(engine.address()));
        // Under a lease that lasts as long as a migration takes.
        Installation::on(database.clone(), &modules::modules()).succeed(&["migrate", "up"]);
        let places = [(); 2].map(|()| {
            let address = free_address();
            let installation =
                Installation::on(database.through(proxy.address()), &modules::modules())
                    .set("lock_ttl", LOCK_TTL);
            (
                installation.set("listen_address", address.to_string()),
                address,
            )
        });
        let first = Host::start(places[0].0.command(&["serve"]), "serving");
        let hosts = [first, standby(&places[1].0)];
        let address = watch::channel(format!("http://{}", places[0].1)).0;
        Self {
            kind,
            engine,
            proxy,
            database,
            places,
            hosts,
            address,
        }
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
            RoundFault::KilledHost => self.end_serving(fault, "KILL").await,
            RoundFault::TerminatedHost => self.end_serving(fault, "TERM").await,
            RoundFault::KilledHostBesideLock => {
                let locked = Locked::rows(&self.database).await;
                self.until_a_call_waits(&locked.database).await;
                self.end_serving(fault, "KILL").await;
                self.until_one_serves(fault).await;
                locked.release().await;
            }
        }
    }

    /// Sends a signal to the host that serves, and waits for its end: until then it may answer
    /// calls.
    async fn end_serving(&mut self, fault: RoundFault, signal: &str) {
        let serving = self.until_one_serves(fault).await;
        self.hosts[serving].signal(signal);
        until(|| self.hosts[serving].has_ended()).await;
    }

    /// The only host that answers calls.
    async fn serving(&self) -> Option<usize> {
        let mut serving = None;
        for (number, (_, address)) in self.places.iter().enumerate() {
            let answer = http_client()
                .post(format!("http://{address}/v1/ping"))
                .send()
                .await;
            if answer.is_ok_and(|answer| answer.status().is_success())
                && serving.replace(number).is_some()
            {
                return None;
            }
        }
        serving
    }

    /// Starts hosts again that have ended, until exactly one serves; returns it.
    async fn until_one_serves(&mut self, fault: RoundFault) -> usize {
        let began = Instant::now();
        loop {
            for (host, (installation, _)) in self.hosts.iter_mut().zip(&self.places) {
                if host.has_ended() {
                    *host = standby(installation);
                }
            }
            if let Some(serving) = self.serving().await {
                self.address
                    .send_replace(format!("http://{}", self.places[serving].1));
                println!("{fault:?}: a host serves after {:?}", began.elapsed());
                return serving;
            }
            assert!(began.elapsed() < PATIENCE, "{fault:?}: no host serves");
            pause().await;
        }
    }

    async fn until_a_call_waits(&self, database: &Database) {
        let waiting = match self.kind.dialect() {
            Dialect::Postgres => {
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            }
            _ => {
                "SELECT count(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%lock' \
                 OR (command IN ('Execute', 'Query') AND info LIKE '%desired_lrps%' AND info NOT LIKE '%processlist%')"
            }
        };
        until_async(async || texts(database, waiting).await[0] != "0").await;
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
        let database = database.open_with_idle_limit(PATIENCE).await;
        loop {
            let mut tx = database.write().await.unwrap();
            match tx
                .fetch(sql("SELECT process_guid FROM desired_lrps FOR UPDATE"))
                .await
            {
                Ok(_) => return Self { database, tx },
                // A deadlock with a call.
                Err(fault) => assert!(is_transient(&fault), "{fault}"),
            }
        }
    }

    async fn table(database: &TestDatabase) -> Self {
        let database = database.open_with_idle_limit(PATIENCE).await;
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
