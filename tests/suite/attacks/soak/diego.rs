//! The Diego around the host under attack: an auctioneer and cells that run what the load desires,
//! and a receiver of the callbacks of tasks. An attack makes some of them hostile for a while.

use std::sync::Arc;
use std::time::Duration;

use bbs_proto::models as proto;
use bbs_proto::models::error::Type;
use tokio::sync::Mutex;

use crate::harness::database::{Kind, TestDatabase};
use crate::harness::diego::auctioneer::{Auctioneer, ENDLESS};
use crate::harness::diego::bbs_client::BbsClient;
use crate::harness::diego::cell::Cell;
use crate::harness::diego::fault_switch::{Behaviour, FaultSwitch};
use crate::harness::diego::receiver::Receiver;
use crate::harness::diego::trace::Trace;
use crate::harness::diego::trust::Trust;
use crate::harness::diego::{controller, installation};
use crate::harness::host::{Host, Installation};
use crate::harness::load::model::DOMAIN;
use crate::harness::locket::Locket;
use crate::harness::modules;
use crate::harness::packages::Packages;

const CELLS: usize = 3;
/// Long enough for the cells to cost little beside the load.
const SYNC_INTERVAL: Duration = Duration::from_secs(2);

pub struct AttackedDiego {
    pub trust: Trust,
    pub home: BbsClient,
    pub installation: Installation,
    pub packages: Packages,
    /// Held by the attack that uses the folders of modules or the tasks that a migration meets.
    pub of_modules: Mutex<()>,
    auctioneer: Auctioneer,
    cells: Vec<Cell>,
    receiver: Receiver,
}

/// Components that the host calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    Auctioneer,
    Cells,
    Receiver,
}

impl AttackedDiego {
    pub async fn start(kind: Kind) -> (Arc<Self>, Host) {
        let trust = Trust::new();
        let locket = Locket::start();
        let trace = Trace::default();
        let auctioneer = Auctioneer::start(&trust);
        let packages = Packages::new();
        let installation = installation(&TestDatabase::new(kind), &trust, &auctioneer, &locket)
            .set("uuid", "bbs-0")
            .set("modules_dir", modules::modules_with_hostile().to_str())
            .set("converge_repeat_interval", "5s")
            // The Locket of this test shares the machine with the attacks.
            .set("lock_ttl", "60s")
            // A task whose callback was never accepted does not stay until the end.
            .set("expire_completed_task_duration", "20s");
        let installation = packages.beside(installation);
        let host = tokio::task::block_in_place(|| installation.serve());
        let home = BbsClient::new(trust.client(), host.address);
        for domain in [DOMAIN, controller::DOMAIN] {
            let freshness = proto::UpsertDomainRequest {
                domain: domain.to_vec(),
                ttl: 0,
            };
            let fresh = home
                .submit::<proto::UpsertDomainResponse>("/v1/domains/upsert", &freshness)
                .await;
            assert_eq!(fresh, Ok(()));
        }
        let cells = (0..CELLS)
            .map(|number| Cell::start(number, &trust, &home, &locket, SYNC_INTERVAL, &trace));
        let cells: Vec<_> = cells.collect();
        auctioneer.auction_among(home.clone(), cells.clone());
        let receiver = Receiver::start(&trust);
        let of_modules = Mutex::default();
        (
            Arc::new(Self {
                trust,
                home,
                installation,
                packages,
                of_modules,
                auctioneer,
                cells,
                receiver,
            }),
            host,
        )
    }

    /// Containers of all cells.
    pub fn containers(&self) -> usize {
        self.cells.iter().map(Cell::load).sum()
    }

    fn switches(&self, peer: Peer) -> Vec<&FaultSwitch> {
        match peer {
            Peer::Auctioneer => vec![self.auctioneer.faults()],
            Peer::Cells => self.cells.iter().map(Cell::faults).collect(),
            Peer::Receiver => vec![self.receiver.faults()],
        }
    }

    /// Makes a component hostile until the result is dropped.
    pub fn hostile(&self, peer: Peer, behaviour: Behaviour) -> Hostile<'_> {
        let switches = self.switches(peer);
        switches.iter().for_each(|switch| switch.set(behaviour));
        Hostile {
            before: counted(&switches, behaviour),
            switches,
            behaviour,
        }
    }

    /// Desires a task that a cell runs, or one that has to be cancelled. With a callback to the
    /// receiver unless it is such.
    pub async fn desire_task(&self, guid: &str, domain: &str, variable_bytes: usize) {
        let run = proto::RunAction {
            path: b"/task".to_vec(),
            user: b"vcap".to_vec(),
            ..Default::default()
        };
        let variable = proto::EnvironmentVariable {
            name: b"LARGE".to_vec(),
            value: vec![b'v'; variable_bytes],
        };
        let is_endless = guid.starts_with(ENDLESS);
        let definition = proto::TaskDefinition {
            root_fs: b"preloaded:cflinuxfs4".to_vec(),
            action: Some(proto::Action {
                run_action: Some(run),
                ..Default::default()
            }),
            memory_mb: 64,
            disk_mb: 64,
            environment_variables: vec![variable],
            completion_callback_url: if is_endless {
                Vec::new()
            } else {
                self.receiver.url(guid).into()
            },
            ..Default::default()
        };
        let request = proto::DesireTaskRequest {
            task_definition: Some(definition),
            task_guid: guid.into(),
            domain: domain.into(),
        };
        let desired = self
            .home
            .submit::<proto::TaskLifecycleResponse>("/v1/tasks/desire.r2", &request)
            .await;
        assert_eq!(desired, Ok(()), "{guid}");
    }

    /// Cancels a task, unless it has failed with its cell, and deletes it.
    pub async fn delete_task(&self, guid: &str) {
        let cancelled = self.change_task("/v1/tasks/cancel", guid).await;
        let kind = cancelled.as_ref().map_err(|error| error.r#type());
        assert!(
            matches!(kind, Ok(()) | Err(Type::InvalidStateTransition)),
            "{guid}: {cancelled:?}"
        );
        for path in ["/v1/tasks/resolving", "/v1/tasks/delete"] {
            assert_eq!(self.change_task(path, guid).await, Ok(()), "{path} {guid}");
        }
    }

    async fn change_task(&self, path: &str, guid: &str) -> Result<(), proto::Error> {
        let request = proto::TaskGuidRequest {
            task_guid: guid.into(),
        };
        self.home
            .submit::<proto::TaskLifecycleResponse>(path, &request)
            .await
    }
}

/// A component that is hostile until this is dropped.
pub struct Hostile<'a> {
    switches: Vec<&'a FaultSwitch>,
    behaviour: Behaviour,
    before: u64,
}

impl Hostile<'_> {
    /// Whether the host has given up a request.
    pub fn was_given_up(&self) -> bool {
        // A request is followed to ten redirects.
        let requests = if self.behaviour == Behaviour::Redirects {
            11
        } else {
            1
        };
        counted(&self.switches, self.behaviour) >= self.before + requests
    }
}

impl Drop for Hostile<'_> {
    fn drop(&mut self) {
        self.switches
            .iter()
            .for_each(|switch| switch.set(Behaviour::Sound));
    }
}

fn counted(switches: &[&FaultSwitch], behaviour: Behaviour) -> u64 {
    switches
        .iter()
        .map(|switch| match behaviour {
            Behaviour::Redirects => switch.failed(),
            _ => switch.given_up(),
        })
        .sum()
}
