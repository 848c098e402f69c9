//! Everything at once, from a seed: clients read and write while hosts are killed, frozen and replaced, the network
//! and the server go, and the database migrates down and up. A model says what every acknowledged write left; what a
//! client reads has to be that, and nothing else, whatever has happened meanwhile.
//!
//! `BBS_RANDOM_RUNS` sets the number of runs on each database, `BBS_RANDOM_SEED` the first seed. A failure tells its seed.

use std::sync::Arc;
use std::time::Duration;

use bbs::migrate::fault;
use fastrand::Rng;
use tokio::sync::watch;
use tokio::task::block_in_place;

use crate::harness::database::{Kind, TestDatabase, on_each_database, texts};
use crate::harness::engine::Engine;
use crate::harness::fixture::{self, VERSION};
use crate::harness::host::{Host, Installation};
use crate::harness::load::calls::Caller;
use crate::harness::load::listing::everything;
use crate::harness::load::model::Model;
use crate::harness::load::{Aim, Load, Settings};
use crate::harness::modules;
use crate::harness::proxy::Proxy;

const RUNS: u64 = 1;
const EVENTS: usize = 8;
/// Where a migration down may end.
const OLDER: [u64; 3] = [VERSION, 1_529_530_809, 1_471_030_898];
const CALLS_BETWEEN_EVENTS: u64 = 60;
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The host is killed and started again.
    Kill,
    /// The host is told to end and started again.
    Restart,
    /// Another host waits for the lock while the first is killed.
    TakeOver,
    /// Down and up again, killed at any crash point in either direction.
    Migrate,
    /// The connections to the database break, and come back.
    Cut,
    /// The database server crashes and starts again.
    Crash,
    /// The host stops for longer than it holds the lock, another takes over, and the first wakes up.
    Freeze,
}

const EVERYWHERE: [Event; 4] = [Event::Kill, Event::Restart, Event::TakeOver, Event::Migrate];
const ON_SERVERS: [Event; 7] =
    [Event::Kill, Event::Restart, Event::TakeOver, Event::Migrate, Event::Cut, Event::Crash, Event::Freeze];

on_each_database!(nothing_acknowledged_is_lost_and_nothing_half_done_is_seen);
async fn nothing_acknowledged_is_lost_and_nothing_half_done_is_seen(kind: Kind) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("BBS_RANDOM_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    for seed in first..first + number("BBS_RANDOM_RUNS").unwrap_or(RUNS) {
        println!("BBS_RANDOM_SEED={seed} on {kind:?}");
        World::new(kind, seed).await.run().await;
    }
}

/// One database, the way to it, and the host that serves it.
struct World {
    seed: u64,
    random: Rng,
    server: Option<Engine>,
    proxy: Option<Arc<Proxy>>,
    /// As hosts reach it.
    database: TestDatabase,
    /// The folders of every host that was started.
    installations: Vec<Arc<Installation>>,
    host: Host,
    address: watch::Sender<String>,
}

impl World {
    async fn new(kind: Kind, seed: u64) -> Self {
        let server = (kind != Kind::Sqlite).then(|| kind.own_engine());
        let database = server
            .as_ref()
            .map_or_else(|| TestDatabase::new(Kind::Sqlite), |server| TestDatabase::on(kind, server.address()));
        fixture::write_to(&database).await;
        let proxy = server.as_ref().map(|server| Arc::new(Proxy::to(server.address())));
        let database = proxy.as_ref().map_or_else(|| database.clone(), |proxy| database.through(proxy.address()));
        let installation = Arc::new(Installation::on(database.clone(), &modules::modules()));
        let host = serve(&installation).await;
        let address = watch::channel(host.url("")).0;
        let installations = vec![installation];
        Self { seed, random: Rng::with_seed(seed), server, proxy, database, installations, host, address }
    }

    async fn run(mut self) {
        let caller = Caller::new(self.address.subscribe());
        let model = Model::of(&caller).await.expect("a host at rest lists everything");
        let settings = Settings { clients: 4, calls_per_second: 100.0, seed: self.seed };
        let mut load = Load::start(&caller, model, &Aim::default(), settings);
        load.calls(CALLS_BETWEEN_EVENTS).await;
        let mut told = Vec::new();
        for _ in 0..EVENTS {
            let events = if self.server.is_some() { &ON_SERVERS[..] } else { &EVERYWHERE };
            let event = events[self.random.usize(..events.len())];
            told.push(event);
            println!("{event:?}");
            self = self.happen(event, &mut load).await;
            self.address.send_replace(self.host.url(""));
            load.calls(CALLS_BETWEEN_EVENTS).await;
        }
        self = self.served_again().await;
        let (report, model) = load.stop().await;
        let case = format!("seed {}, {told:?}", self.seed);
        assert_eq!(report.differences, 0, "{case}: {report}");
        let mut found = model.differences(&everything(&caller).await.expect("a host at rest lists everything"));
        found.extend(model.differences_of_instances(&caller).await.expect("and every instance"));
        assert_eq!(found, Vec::<String>::new(), "{case}");
        assert!(self.host.terminate().success(), "{case}");
        self.installations[0].succeed(&["migrate", "up"]);
    }

    async fn happen(mut self, event: Event, load: &mut Load) -> Self {
        match event {
            Event::Kill => {
                let next = self.installation();
                self.host.kill();
                self.host = serve(&next).await;
            }
            Event::Restart => {
                let next = self.installation();
                assert!(block_in_place(|| self.host.terminate()).success());
                self.host = serve(&next).await;
            }
            Event::TakeOver => {
                let standby = tokio::spawn(serve_owned(self.installation()));
                load.calls(CALLS_BETWEEN_EVENTS / 2).await;
                self.host.kill();
                self.host = standby.await.expect("the standby serves");
            }
            Event::Migrate => {
                let (there, back) = (self.installation(), self.installation());
                assert!(block_in_place(|| self.host.terminate()).success());
                // What an earlier event left halfway.
                block_in_place(|| there.succeed(&["migrate", "up"]));
                let version = OLDER[self.random.usize(..OLDER.len())].to_string();
                let down = ["migrate", "down", "--to", &version];
                // Killed once or twice, or not at all.
                for _ in 0..self.random.usize(..3) {
                    let mut killed = there.command(&down);
                    killed.env("BBS_FAULT", point(&mut self.random));
                    block_in_place(|| killed.output()).expect("the executable starts");
                }
                block_in_place(|| there.succeed(&down));
                let mut up = back.command(&["serve"]);
                up.env("BBS_FAULT", point(&mut self.random));
                match start(up).await {
                    Ok(host) => {
                        self.host = host;
                        self.arrival().await;
                    }
                    // Whatever comes next finds it at work again.
                    Err(_) => self.host = serve(&back).await,
                }
            }
            Event::Cut => {
                let proxy = Arc::clone(self.proxy.as_ref().expect("a server is reached through a proxy"));
                proxy.cut();
                load.calls(CALLS_BETWEEN_EVENTS / 2).await;
                proxy.heal();
                self = self.served_again().await;
            }
            Event::Crash => {
                self.server.as_ref().expect("there is a server").restart();
                self = self.served_again().await;
            }
            Event::Freeze => {
                self.host.signal("STOP");
                let elsewhere = self.installation();
                let successor = serve(&elsewhere).await;
                let frozen = std::mem::replace(&mut self.host, successor);
                self.address.send_replace(self.host.url(""));
                frozen.signal("CONT");
                let (_, said) = tokio::task::spawn_blocking(|| frozen.wait_for_end()).await.expect("it ends by itself");
                assert!(said.contains("lock"), "seed {}: {said}", self.seed);
            }
        }
        self
    }

    /// Waits until the migration has arrived, or until the host has ended; then it is started again.
    async fn arrival(&mut self) {
        self.address.send_replace(self.host.url(""));
        let opened = self.database.open().await;
        while texts(&opened, "SELECT id FROM bbs_migration").await != Vec::<String>::new() {
            if self.host.has_ended() {
                let next = self.installation();
                self.host = serve(&next).await;
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        opened.close().await;
    }

    /// For one more host, that migrates before it serves or while it does.
    fn installation(&mut self) -> Arc<Installation> {
        let mode = if self.random.bool() { "online" } else { "offline" };
        let installation = Installation::on(self.database.clone(), &modules::modules()).set("migration_mode", mode);
        self.installations.push(Arc::new(installation));
        Arc::clone(&self.installations[self.installations.len() - 1])
    }

    /// After whatever happened, a host serves again, or has ended and is started again.
    async fn served_again(mut self) -> Self {
        loop {
            if self.host.has_ended() {
                let next = self.installation();
                self.host = serve(&next).await;
            }
            self.address.send_replace(self.host.url(""));
            let caller = Caller::new(self.address.subscribe());
            if caller.get(b"nothing").await.is_ok() {
                return self;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn point(random: &mut Rng) -> String {
    format!("{}:{}", fault::POINTS[random.usize(..fault::POINTS.len())], random.u32(1..3))
}

async fn serve_owned(installation: Arc<Installation>) -> Host {
    serve(&installation).await
}

async fn serve(installation: &Installation) -> Host {
    start(installation.command(&["serve"])).await.unwrap_or_else(|said| panic!("the host ended: {said:#?}"))
}

async fn start(command: std::process::Command) -> Result<Host, Vec<String>> {
    tokio::task::spawn_blocking(|| Host::try_start(command, "serving")).await.expect("the host is waited for")
}
