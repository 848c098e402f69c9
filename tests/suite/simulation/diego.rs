//! The host and everybody around it, and what can happen to them.

use std::sync::Arc;
use std::time::Duration;

use bbs_proto::models as proto;
use fastrand::Rng;
use futures_util::future::join_all;

use super::supervisor::{Supervisor, serve};
use crate::harness::database::{Kind, TestDatabase};
use crate::harness::diego::auctioneer::Auctioneer;
use crate::harness::diego::cell::Cell;
use crate::harness::diego::controller::{Controller, DOMAIN};
use crate::harness::diego::emitter::Emitter;
use crate::harness::diego::home::Home;
use crate::harness::diego::mood::{Behaviour, Mood};
use crate::harness::diego::receiver::Receiver;
use crate::harness::diego::trust::Trust;
use crate::harness::host::Installation;
use crate::harness::locket::Locket;
use crate::harness::proxy::Proxy;
use crate::harness::{modules, until};

const CELLS: usize = 6;
pub const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Reps look at all their rows this often, and more rarely where there are many.
const SYNC_INTERVAL: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy)]
pub enum Fault {
    Auctioneer(Behaviour),
    Reps(Behaviour),
    Receiver(Behaviour),
    /// Containers end by themselves.
    Crash,
    /// A cell loses everything, and comes back empty.
    Die,
    /// A cell cannot be reached and reaches nobody, and comes back with what it ran.
    GetLost,
    /// What a cell runs has to go elsewhere.
    Evacuate,
    /// The host is killed and started again.
    Kill,
    /// The host is told to end and started again.
    Restart,
    /// Another host waits for the lock while the first is killed.
    TakeOver,
    /// The connections to the database break, and come back.
    Cut,
    /// Locket is silent for longer than a lock lasts.
    LoseLock,
}

impl Fault {
    pub fn all() -> Vec<Self> {
        let each = |fault: fn(Behaviour) -> Self| Behaviour::FAULTS.map(fault);
        let whole = [Self::Crash, Self::Die, Self::GetLost, Self::Evacuate];
        let of_the_host = [Self::Kill, Self::Restart, Self::TakeOver, Self::LoseLock, Self::Cut];
        [each(Self::Auctioneer), each(Self::Reps), each(Self::Receiver)]
            .concat()
            .into_iter()
            .chain(whole)
            .chain(of_the_host)
            .collect()
    }

    pub fn is_possible_on(self, kind: Kind) -> bool {
        !matches!(self, Self::Cut) || kind != Kind::Sqlite
    }
}

pub struct Diego {
    pub home: Home,
    pub cells: Vec<Cell>,
    pub receiver: Receiver,
    pub emitter: Emitter,
    pub supervisor: Supervisor,
    auctioneer: Auctioneer,
    locket: Locket,
    proxy: Option<Proxy>,
    random: Rng,
    _trust: Trust,
}

impl Diego {
    pub async fn start(kind: Kind, lrps: u64, random: Rng) -> Self {
        let (trust, locket) = (Trust::new(), Locket::start());
        let auctioneer = Auctioneer::start(&trust);
        let database = TestDatabase::new(kind);
        let proxy = (kind != Kind::Sqlite).then(|| Proxy::to(kind.engine().address()));
        let database = proxy.as_ref().map_or_else(|| database.clone(), |proxy| database.through(proxy.address()));
        let installations = ["bbs-0", "bbs-1"]
            .map(|name| Arc::new(installation(&database, &trust, &auctioneer, &locket).set("uuid", name)));
        let host = serve(Arc::clone(&installations[0])).await;
        let home = Home::new(trust.client(), host.address);
        let freshness = proto::UpsertDomainRequest { domain: DOMAIN.to_vec(), ttl: 0 };
        let fresh = home.tell::<proto::UpsertDomainResponse>("/v1/domains/upsert", &freshness).await;
        assert_eq!(fresh, Ok(()));
        let sync_interval = SYNC_INTERVAL + Duration::from_millis(lrps);
        let cells = (0..CELLS).map(|number| Cell::start(number, &trust, &home, &locket, sync_interval));
        let cells: Vec<_> = cells.collect();
        auctioneer.auction_among(home.clone(), cells.clone());
        let supervisor = Supervisor::start(host, &home, installations);
        let (receiver, emitter) = (Receiver::start(&trust), Emitter::start(&home));
        Self { home, cells, receiver, emitter, supervisor, auctioneer, locket, proxy, random, _trust: trust }
    }

    /// One fault, from its beginning until it is over.
    pub async fn suffer(&mut self, fault: Fault, controller: &mut Controller) {
        let meanwhile = self.random.u64(20..100);
        match fault {
            Fault::Auctioneer(behaviour) => {
                while_in(&[self.auctioneer.mood()], behaviour, controller.operations(meanwhile)).await;
            }
            Fault::Reps(behaviour) => {
                let moods: Vec<_> = self.cells.iter().map(Cell::mood).collect();
                while_in(&moods, behaviour, controller.operations(meanwhile)).await;
            }
            Fault::Receiver(behaviour) => {
                while_in(&[self.receiver.mood()], behaviour, controller.operations(meanwhile)).await;
            }
            Fault::Crash => self.crash_some().await,
            Fault::Die => {
                let cell = self.any_cell();
                cell.die();
                self.given_up(&cell).await;
                cell.come_back();
            }
            Fault::GetLost => {
                let cell = self.any_cell();
                cell.get_lost();
                self.given_up(&cell).await;
                cell.come_back();
            }
            Fault::Evacuate => {
                let cell = self.any_cell();
                cell.evacuate();
                while cell.load() > 0 {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                cell.appear();
            }
            Fault::Kill => self.supervisor.kill().await,
            Fault::Restart => self.supervisor.restart().await,
            Fault::TakeOver => self.supervisor.take_over(controller.operations(meanwhile)).await,
            Fault::Cut => {
                let proxy = self.proxy.as_ref().expect("a server is reached through a proxy");
                proxy.cut();
                self.answers(false).await;
                proxy.heal();
                self.answers(true).await;
            }
            Fault::LoseLock => {
                let before = self.supervisor.ended();
                self.locket.be_silent(true);
                until(|| self.supervisor.ended() > before).await;
                self.locket.be_silent(false);
                self.answers(true).await;
            }
        }
    }

    fn any_cell(&mut self) -> Cell {
        self.random.choice(&self.cells).expect("there are cells").clone()
    }

    async fn crash_some(&mut self) {
        let random = &mut self.random;
        let running = self.cells.iter().flat_map(|cell| cell.running().into_iter().map(move |key| (cell, key)));
        let chosen: Vec<_> = running.filter(|_| random.u8(..4) == 0).collect();
        join_all(chosen.iter().map(|(cell, key)| cell.crash(key))).await;
    }

    /// Waits until the host counts on nothing that a cell ran.
    async fn given_up(&self, cell: &Cell) {
        let request = proto::ActualLrPsRequest { cell_id: cell.id().into(), ..Default::default() };
        loop {
            let (answer, _, _): (proto::ActualLrPsResponse, _, _) =
                self.home.call("/v1/actual_lrps/list", &request).await;
            let suspect = proto::actual_lrp::Presence::Suspect;
            if answer.actual_lrps.iter().all(|row| row.presence() == suspect) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn answers(&self, wanted: bool) {
        while self.home.answers().await != wanted {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Changes how somebody behaves, for some operations at least and until it was noticed.
async fn while_in(moods: &[&Mood], behaviour: Behaviour, operations: impl Future<Output = ()>) {
    let failed = || moods.iter().map(|mood| mood.failed()).sum::<u64>();
    let before = failed();
    moods.iter().for_each(|mood| mood.be(behaviour));
    operations.await;
    until(|| failed() > before).await;
    moods.iter().for_each(|mood| mood.be(Behaviour::Sound));
}

/// A host that believes everybody here, and is believed. It does everything soon.
fn installation(database: &TestDatabase, trust: &Trust, auctioneer: &Auctioneer, locket: &Locket) -> Installation {
    let mut installation = Installation::on(database.clone(), &modules::modules());
    let [ca_file, cert_file, key_file] = trust.files().map(|path| path.display().to_string());
    for (ca, cert, key) in [
        ("ca_file", "cert_file", "key_file"),
        ("auctioneer_ca_cert", "auctioneer_client_cert", "auctioneer_client_key"),
        ("rep_ca_cert", "rep_client_cert", "rep_client_key"),
    ] {
        installation = installation.set(ca, &*ca_file).set(cert, &*cert_file).set(key, &*key_file);
    }
    for (key, value) in locket.configuration().as_object().expect("an object of keys") {
        installation = installation.set(key, value.clone());
    }
    installation
        .set("auctioneer_address", auctioneer.url())
        .set("auctioneer_require_tls", true)
        .set("health_address", "127.0.0.1:0")
        .set("communication_timeout", "1s")
        .set("converge_repeat_interval", "1s")
        .set("kick_task_duration", "2s")
        .set("expire_completed_task_duration", "1h")
}
