//! The simulated Diego: the host and the components around it, and the faults that can be injected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bbs_proto::models as proto;
use futures_util::future::join_all;

use super::plan::PlannedFault;
use super::supervisor::{InstalledModules, Supervisor, serve};
use crate::harness::database::{Kind, TestDatabase};
use crate::harness::diego::auctioneer::Auctioneer;
use crate::harness::diego::bbs_client::BbsClient;
use crate::harness::diego::cell::Cell;
use crate::harness::diego::controller::{Controller, DOMAIN};
use crate::harness::diego::emitter::Emitter;
use crate::harness::diego::fault_switch::{Behaviour, FaultSwitch};
use crate::harness::diego::installation;
use crate::harness::diego::receiver::Receiver;
use crate::harness::diego::trace::Trace;
use crate::harness::diego::trust::Trust;
use crate::harness::locket::Locket;
use crate::harness::proxy::Proxy;
use crate::harness::{pause, until};

pub const CELLS: usize = 6;
/// Base interval at which reps read all their rows; longer with many LRPs.
const SYNC_INTERVAL: Duration = Duration::from_millis(300);
/// A rep that has offered its containers to the host so often ends with those that it still has.
const EVACUATION_ROUNDS: u64 = 100;
/// Far above the time in which the containers of a cell are replaced or evacuated.
const LONGEST_CHANGE: Duration = Duration::from_secs(180);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Auctioneer(Behaviour),
    Reps(Behaviour),
    Receiver(Behaviour),
    /// Containers crash.
    Crash,
    /// A cell loses its containers and its connection, and returns empty.
    LoseCell,
    /// A cell is disconnected in both directions, and returns with its containers.
    DisconnectCell,
    /// A cell is evacuated. It fails if that takes too long.
    Evacuate,
    /// The host is killed and started again.
    Kill,
    /// The host is terminated and started again.
    Restart,
    /// Another host waits for the lock while the first is killed.
    TakeOver,
    /// The connections to the database break and are restored.
    CutDatabase,
    /// Locket is unavailable for longer than the lock's TTL.
    LoseLock,
    /// The host loads newer modules, and begins an online migration, which may go on during the
    /// next faults.
    MigrateUp,
    /// The database is taken down without a host, and the newer modules are removed.
    MigrateDown,
}

impl Fault {
    pub fn all() -> Vec<Self> {
        let each = |fault: fn(Behaviour) -> Self| Behaviour::FAULTS.map(fault);
        let of_cells = [
            Self::Crash,
            Self::LoseCell,
            Self::DisconnectCell,
            Self::Evacuate,
        ];
        let of_the_host = [
            Self::Kill,
            Self::Restart,
            Self::TakeOver,
            Self::LoseLock,
            Self::CutDatabase,
            Self::MigrateUp,
            Self::MigrateDown,
        ];
        [
            each(Self::Auctioneer),
            each(Self::Reps),
            each(Self::Receiver),
        ]
        .concat()
        .into_iter()
        .chain(of_cells)
        .chain(of_the_host)
        .collect()
    }

    pub fn is_possible_on(self, kind: Kind) -> bool {
        !matches!(self, Self::CutDatabase) || kind != Kind::Sqlite
    }

    /// Whether the host may end by itself.
    fn may_end_the_host(self) -> bool {
        matches!(self, Self::LoseLock | Self::CutDatabase)
    }
}

pub struct Diego {
    pub home: BbsClient,
    pub cells: Vec<Cell>,
    pub receiver: Receiver,
    pub emitter: Emitter,
    pub supervisor: Supervisor,
    pub trace: Trace,
    /// The faults by which the host may have ended by itself.
    pub explained_ends: AtomicU64,
    auctioneer: Auctioneer,
    locket: Locket,
    proxy: Option<Proxy>,
    _trust: Trust,
}

impl Diego {
    /// Starts with a database and modules of a version, `NEWEST` or `SPLIT` of `harness::layouts`.
    pub async fn start(kind: Kind, lrps: u64, version: u64) -> Self {
        let trust = Trust::new();
        let locket = Locket::start();
        let trace = Trace::default();
        let auctioneer = Auctioneer::start(&trust);
        let database = TestDatabase::new(kind);
        let proxy = (kind != Kind::Sqlite).then(|| Proxy::to(kind.engine().address()));
        let database = proxy.as_ref().map_or_else(
            || database.clone(),
            |proxy| database.through(proxy.address()),
        );
        let modules = InstalledModules::up_to(version);
        let installations = ["bbs-0", "bbs-1"].map(|name| {
            let installation = installation(&database, &trust, &auctioneer, &locket)
                .set("uuid", name)
                .set("modules_dir", modules.path().display().to_string())
                .set("migration_mode", "online")
                // A copy takes most of a second, so that the next fault meets it.
                .set("migration_units_per_second", lrps);
            Arc::new(installation)
        });
        let host = serve(Arc::clone(&installations[0])).await;
        let home = BbsClient::new(trust.client(), host.address);
        let freshness = proto::UpsertDomainRequest {
            domain: DOMAIN.to_vec(),
            ttl: 0,
        };
        let fresh = home
            .submit::<proto::UpsertDomainResponse>("/v1/domains/upsert", &freshness)
            .await;
        assert_eq!(fresh, Ok(()));
        let sync_interval = SYNC_INTERVAL + Duration::from_millis(lrps);
        let cells = (0..CELLS)
            .map(|number| Cell::start(number, &trust, &home, &locket, sync_interval, &trace));
        let cells: Vec<_> = cells.collect();
        auctioneer.auction_among(home.clone(), cells.clone());
        let supervisor = Supervisor::start(host, &home, installations, modules);
        let receiver = Receiver::start(&trust);
        let emitter = Emitter::start(&home, &trace);
        Self {
            home,
            cells,
            receiver,
            emitter,
            supervisor,
            trace,
            explained_ends: AtomicU64::new(0),
            auctioneer,
            locket,
            proxy,
            _trust: trust,
        }
    }

    /// Injects one fault and waits until it is over. An online migration goes on.
    pub async fn inject(&self, planned: &PlannedFault, controller: &mut Controller) {
        self.trace.decide(&planned.to_string());
        if planned.fault.may_end_the_host() {
            self.explained_ends.fetch_add(1, Ordering::Relaxed);
        }
        let operations = planned.operations;
        let cell = &self.cells[planned.cell];
        match planned.fault {
            Fault::Auctioneer(behaviour) => {
                while_behaving(
                    &[self.auctioneer.faults()],
                    behaviour,
                    controller.operations(operations),
                )
                .await;
            }
            Fault::Reps(behaviour) => {
                let switches: Vec<_> = self.cells.iter().map(Cell::faults).collect();
                while_behaving(&switches, behaviour, controller.operations(operations)).await;
            }
            Fault::Receiver(behaviour) => {
                while_behaving(
                    &[self.receiver.faults()],
                    behaviour,
                    controller.operations(operations),
                )
                .await;
            }
            Fault::Crash => self.crash_some(planned).await,
            Fault::LoseCell => {
                cell.fail();
                self.wait_until_replaced(cell).await;
                cell.reconnect();
            }
            Fault::DisconnectCell => {
                cell.disconnect();
                self.wait_until_replaced(cell).await;
                cell.reconnect();
            }
            Fault::Evacuate => self.evacuate(cell).await,
            Fault::Kill => self.supervisor.kill().await,
            Fault::Restart => self.supervisor.restart().await,
            Fault::TakeOver => {
                self.supervisor
                    .take_over(controller.operations(operations))
                    .await
            }
            Fault::CutDatabase => {
                let proxy = self
                    .proxy
                    .as_ref()
                    .expect("a server is reached through a proxy");
                proxy.cut();
                self.wait_until_answering(false).await;
                proxy.heal();
                self.wait_until_answering(true).await;
            }
            Fault::LoseLock => {
                let before = self.supervisor.ended();
                self.locket.set_unavailable(true);
                until(|| self.supervisor.ended() > before).await;
                self.locket.set_unavailable(false);
                self.wait_until_answering(true).await;
            }
            Fault::MigrateUp => self.supervisor.migrate_up().await,
            Fault::MigrateDown => self.supervisor.migrate_down().await,
        }
    }

    /// Evacuates a cell. It fails if that takes too many rounds.
    async fn evacuate(&self, cell: &Cell) {
        cell.evacuate();
        let began = Instant::now();
        while cell.load() > 0 && cell.evacuation_rounds() < EVACUATION_ROUNDS {
            assert!(
                began.elapsed() < LONGEST_CHANGE,
                "{} evacuates without an end",
                cell.id()
            );
            pause().await;
        }
        if cell.load() > 0 {
            self.trace.decide(&format!(
                "{} fails after {EVACUATION_ROUNDS} rounds of its evacuation",
                cell.id()
            ));
            cell.fail();
            self.wait_until_replaced(cell).await;
            cell.reconnect();
        }
        cell.register();
    }

    async fn crash_some(&self, planned: &PlannedFault) {
        let running = self
            .cells
            .iter()
            .flat_map(|cell| cell.running().into_iter().map(move |key| (cell, key)));
        let mut at_index = BTreeMap::new();
        let mut chosen = Vec::new();
        for (cell, key) in running {
            let nth = at_index
                .entry((key.process_guid.clone(), key.index))
                .or_insert(0_usize);
            if planned.crashes(&key, *nth) {
                chosen.push((cell, key));
            }
            *nth += 1;
        }
        join_all(chosen.iter().map(|(cell, key)| cell.crash(key))).await;
    }

    /// Waits until the host regards all containers of a cell as suspect or has removed them.
    async fn wait_until_replaced(&self, cell: &Cell) {
        let request = proto::ActualLrPsRequest {
            cell_id: cell.id().into(),
            ..Default::default()
        };
        let began = Instant::now();
        loop {
            let (answer, _, _): (proto::ActualLrPsResponse, _, _) =
                self.home.call("/v1/actual_lrps/list", &request).await;
            let suspect = proto::actual_lrp::Presence::Suspect;
            let other = answer
                .actual_lrps
                .into_iter()
                .find(|row| row.presence() != suspect);
            let Some(other) = other else { return };
            assert!(
                began.elapsed() < LONGEST_CHANGE,
                "{} is gone, and still has {other:?}",
                cell.id()
            );
            pause().await;
        }
    }

    async fn wait_until_answering(&self, wanted: bool) {
        while self.home.answers().await != wanted {
            pause().await;
        }
    }
}

/// Sets the behaviour of components until `operations` are complete and a request has failed.
async fn while_behaving(
    switches: &[&FaultSwitch],
    behaviour: Behaviour,
    operations: impl Future<Output = ()>,
) {
    let failed = || switches.iter().map(|switch| switch.failed()).sum::<u64>();
    let before = failed();
    switches.iter().for_each(|switch| switch.set(behaviour));
    operations.await;
    until(|| failed() > before).await;
    switches
        .iter()
        .for_each(|switch| switch.set(Behaviour::Sound));
}
