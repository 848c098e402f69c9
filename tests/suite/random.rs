//! A randomised test of all faults together, from a seed: clients read and write while hosts are
//! killed, frozen and replaced, connections break, the server crashes, and the database migrates
//! down and up. Every read is compared with a model of all acknowledged writes.
//!
//! `BBS_RANDOM_RUNS` sets the number of runs on each database (1), `BBS_RANDOM_SEED` the first seed
//! (random). Every run prints its seed, which decides the faults, their order and details, after
//! how many calls each begins and ends, and the calls of each client. Hosts, server and clients run
//! side by side, and the seed does not repeat how their steps interleave.

use std::sync::Arc;

use bbs::testing::migrate::fault;
use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::block_in_place;

use crate::harness::database::{Kind, TestDatabase, on_each_database, texts};
use crate::harness::engine::Engine;
use crate::harness::fixture::{self, OLDEST, VERSION};
use crate::harness::host::{Host, Installation};
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::load::{Aim, Load, Settings};
use crate::harness::proxy::Proxy;
use crate::harness::seed::{OF_PROCESSES, number, seed};
use crate::harness::{modules, until_async};

const RUNS: u64 = 1;
const FAULTS: usize = 8;
/// Targets of a migration down.
const OLDER: [u64; 3] = [VERSION, 1_529_530_809, OLDEST];
const CALLS_BETWEEN_FAULTS: u64 = 60;

#[derive(Debug, Clone, Copy)]
enum RandomFault {
    /// The host is killed and started again.
    Kill,
    /// The host is terminated and started again.
    Restart,
    /// Another host waits for the lock while the first is killed.
    TakeOver,
    /// Migrations down and up, killed at random crash points of both.
    Migrate,
    /// The connections to the database break and are restored.
    Cut,
    /// The database server crashes and starts again.
    Crash,
    /// The host is stopped until its lock expires and another takes over, and then continued.
    Freeze,
}

const WITHOUT_SERVER: [RandomFault; 4] = [
    RandomFault::Kill,
    RandomFault::Restart,
    RandomFault::TakeOver,
    RandomFault::Migrate,
];
const WITH_SERVER: [RandomFault; 7] = [
    RandomFault::Kill,
    RandomFault::Restart,
    RandomFault::TakeOver,
    RandomFault::Migrate,
    RandomFault::Cut,
    RandomFault::Crash,
    RandomFault::Freeze,
];

on_each_database!(random_faults_lose_no_acknowledged_write);
async fn random_faults_lose_no_acknowledged_write(kind: Kind) {
    let first = seed("BBS_RANDOM_SEED");
    for seed in first..first + number("BBS_RANDOM_RUNS").unwrap_or(RUNS) {
        println!("BBS_RANDOM_SEED={seed} on {kind:?}; {OF_PROCESSES}");
        RandomRun::new(kind, seed).await.run().await;
    }
}

/// One run: a database, the proxy to it, and the host that serves it.
struct RandomRun {
    seed: u64,
    /// The draws of the current fault.
    random: Rng,
    server: Option<Engine>,
    proxy: Option<Arc<Proxy>>,
    /// The database through the proxy.
    database: TestDatabase,
    /// The folders of every host that was started.
    installations: Vec<Arc<Installation>>,
    host: Host,
    address: watch::Sender<String>,
}

impl RandomRun {
    async fn new(kind: Kind, seed: u64) -> Self {
        let server = (kind != Kind::Sqlite).then(|| kind.own_engine());
        let database = server.as_ref().map_or_else(
            || TestDatabase::new(Kind::Sqlite),
            |server| TestDatabase::on(kind, server.address()),
        );
        // More LRPs than the first batch of a migration, which has 100.
        fixture::write_share_to(&database, 2).await;
        let proxy = server
            .as_ref()
            .map(|server| Arc::new(Proxy::to(server.address())));
        let database = proxy.as_ref().map_or_else(
            || database.clone(),
            |proxy| database.through(proxy.address()),
        );
        let installation = Arc::new(Installation::on(database.clone(), &modules::modules()));
        let host = serve(&installation).await;
        let address = watch::channel(host.url("")).0;
        let installations = vec![installation];
        Self {
            seed,
            random: Rng::with_seed(seed),
            server,
            proxy,
            database,
            installations,
            host,
            address,
        }
    }

    async fn run(mut self) {
        let caller = Caller::new(self.address.subscribe());
        let model = Model::of(&caller).await.expect("the list succeeds");
        let settings = Settings {
            clients: 4,
            calls_per_second: 50.0,
            seed: self.seed,
        };
        let mut load = Load::start(&caller, model, &Aim::default(), settings);
        load.calls(CALLS_BETWEEN_FAULTS).await;
        let mut faults = Vec::new();
        let mut draws = self.random.clone();
        for number in 0..FAULTS {
            // One draw for each fault: how often a host is started again during one does not change
            // the next ones.
            self.random = draws.fork();
            let possible = if self.server.is_some() {
                &WITH_SERVER[..]
            } else {
                &WITHOUT_SERVER
            };
            let fault = possible[self.random.usize(..possible.len())];
            faults.push(fault);
            println!("step {number}: {fault:?} after {CALLS_BETWEEN_FAULTS} calls");
            self = self.inject(fault, &mut load).await;
            self.address.send_replace(self.host.url(""));
            load.calls(CALLS_BETWEEN_FAULTS).await;
        }
        self = self.wait_until_served().await;
        let (report, model) = load.stop().await;
        let case = format!("seed {}, {faults:?}", self.seed);
        assert_eq!(report.differences, 0, "{case}: {report}");
        let mut found = model.differences(&everything(&caller).await.expect("the list succeeds"));
        found.extend(
            model
                .differences_of_instances(&caller)
                .await
                .expect("the list succeeds"),
        );
        assert_eq!(found, Vec::<String>::new(), "{case}");
        assert!(self.host.terminate().success(), "{case}");
        self.installations[0].succeed(&["migrate", "up"]);
    }

    async fn inject(mut self, fault: RandomFault, load: &mut Load) -> Self {
        match fault {
            RandomFault::Kill => {
                let next = self.installation();
                self.host.kill();
                self.host = serve(&next).await;
            }
            RandomFault::Restart => {
                let next = self.installation();
                assert!(block_in_place(|| self.host.terminate()).success());
                self.host = serve(&next).await;
            }
            RandomFault::TakeOver => {
                let standby = tokio::spawn(serve_owned(self.installation()));
                load.calls(CALLS_BETWEEN_FAULTS / 2).await;
                self.host.kill();
                self.host = standby.await.expect("the standby serves");
            }
            RandomFault::Migrate => {
                let down_host = self.installation();
                let up_host = self.installation();
                assert!(block_in_place(|| self.host.terminate()).success());
                // Completes a migration that an earlier fault interrupted.
                block_in_place(|| down_host.succeed(&["migrate", "up"]));
                let version = OLDER[self.random.usize(..OLDER.len())].to_string();
                let down = ["migrate", "down", "--to", &version];
                // Killed up to twice.
                for _ in 0..self.random.usize(..3) {
                    let mut killed = down_host.command(&down);
                    killed.env("BBS_FAULT", point(&mut self.random));
                    block_in_place(|| killed.output()).expect("the executable starts");
                }
                block_in_place(|| down_host.succeed(&down));
                let mut up = up_host.command(&["serve"]);
                up.env("BBS_FAULT", point(&mut self.random));
                match start(up).await {
                    Ok(host) => {
                        self.host = host;
                        self.wait_until_migrated().await;
                    }
                    // Killed before it served. The migration is not waited for: the next fault may
                    // interrupt it.
                    Err(_) => self.host = serve(&up_host).await,
                }
            }
            RandomFault::Cut => {
                let proxy = Arc::clone(
                    self.proxy
                        .as_ref()
                        .expect("a server is reached through a proxy"),
                );
                proxy.cut();
                load.calls(CALLS_BETWEEN_FAULTS / 2).await;
                proxy.heal();
                self = self.wait_until_served().await;
            }
            RandomFault::Crash => {
                self.server.as_ref().expect("there is a server").restart();
                self = self.wait_until_served().await;
            }
            RandomFault::Freeze => {
                self.host.freeze().await;
                let another = self.installation();
                let successor = serve(&another).await;
                let frozen = std::mem::replace(&mut self.host, successor);
                self.address.send_replace(self.host.url(""));
                frozen.signal("CONT");
                let (status, log) = tokio::task::spawn_blocking(|| frozen.wait_for_end())
                    .await
                    .expect("the frozen host ends");
                assert!(
                    !status.success()
                        && (log.contains("serves no more") || log.contains("no longer the master")),
                    "seed {}: {log}",
                    self.seed
                );
            }
        }
        self
    }

    /// Waits until the migration is complete, or until the host has ended, which is then started
    /// again.
    async fn wait_until_migrated(&mut self) {
        self.address.send_replace(self.host.url(""));
        let opened = self.database.open().await;
        let mut has_ended = false;
        until_async(async || {
            let migrations = texts(&opened, "SELECT id FROM bbs_migration").await;
            has_ended = !migrations.is_empty() && self.host.has_ended();
            migrations.is_empty() || has_ended
        })
        .await;
        opened.close().await;
        if has_ended {
            let next = self.installation();
            self.host = serve(&next).await;
        }
    }

    /// Creates an installation for another host, with a random migration mode.
    fn installation(&mut self) -> Arc<Installation> {
        let mode = if self.random.bool() {
            "online"
        } else {
            "offline"
        };
        let installation = Installation::on(self.database.clone(), &modules::modules())
            .set("migration_mode", mode);
        self.installations.push(Arc::new(installation));
        Arc::clone(&self.installations[self.installations.len() - 1])
    }

    /// Waits until the host answers; starts it again if it has ended.
    async fn wait_until_served(mut self) -> Self {
        loop {
            let mut has_ended = false;
            until_async(async || {
                has_ended = self.host.has_ended();
                self.address.send_replace(self.host.url(""));
                let caller = Caller::new(self.address.subscribe());
                has_ended || caller.get(b"nothing").await.is_ok()
            })
            .await;
            if !has_ended {
                return self;
            }
            let next = self.installation();
            self.host = serve(&next).await;
        }
    }
}

fn point(random: &mut Rng) -> String {
    format!(
        "{}:{}",
        fault::POINTS[random.usize(..fault::POINTS.len())],
        random.u32(1..3)
    )
}

async fn serve_owned(installation: Arc<Installation>) -> Host {
    serve(&installation).await
}

async fn serve(installation: &Installation) -> Host {
    start(installation.command(&["serve"]))
        .await
        .unwrap_or_else(|output| panic!("the host ended: {output:#?}"))
}

async fn start(command: std::process::Command) -> Result<Host, Vec<String>> {
    tokio::task::spawn_blocking(|| Host::try_start(command, "serving"))
        .await
        .expect("no panic")
}
