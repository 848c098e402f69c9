//! A cell: a rep with its containers and tasks, and its presence in Locket. Owns the rep's
//! behaviour; the test decides when a cell fails.

mod rep;
mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bbs_proto::models as proto;
use serde_json::json;
use tokio::sync::watch;

use super::bbs_client::{BbsClient, Refusal};
use super::fault_switch::{Behaviour, FaultSwitch};
use super::trace::{Step, Trace};
use super::trust::{HttpServer, Trust};
use crate::harness::locket::Locket;

pub type Text = Vec<u8>;

/// One container: the instance that it runs and its instance guid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerKey {
    pub process_guid: Text,
    pub index: i32,
    pub instance_guid: Text,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Container {
    domain: Text,
    stage: Stage,
    known_by: KnownBy,
    program: Text,
}

/// Programs, which are the paths of run actions. One that runs until it is stopped:
pub const RUNS: &[u8] = b"/app";
/// One that crashes before it is routable.
pub const CRASHES: &[u8] = b"/crashes";
/// One that runs and is never routable.
pub const UNROUTABLE: &[u8] = b"/unroutable";

/// The routes and tags under which other components know a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownBy {
    pub internal_routes: BTreeSet<Text>,
    pub metric_tags: BTreeMap<Text, Text>,
    /// The definition that the container was started with.
    pub definition: Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not reported to the host yet.
    Starting,
    Running,
    /// Removed once the host has been notified.
    Ending,
}

#[derive(Debug, Default)]
struct CellState {
    containers: BTreeMap<ContainerKey, Container>,
    tasks: BTreeMap<Text, Stage>,
    is_present: bool,
    is_evacuating: bool,
    /// How often each container of the evacuating cell was offered to the host.
    evacuation_rounds: u64,
    /// Number of containers created so far, for unique instance guids.
    created: u64,
}

struct Inner {
    id: String,
    bbs: BbsClient,
    locket: Locket,
    faults: FaultSwitch,
    trace: Trace,
    state: Mutex<CellState>,
    /// Interval between comparisons with the host's rows.
    sync_interval: Duration,
    /// Whether the cell can reach the host.
    linked: watch::Sender<bool>,
}

/// A shared handle.
#[derive(Clone)]
pub struct Cell {
    inner: Arc<Inner>,
    listening: Arc<HttpServer>,
}

/// An instance that an auction placed on a cell.
#[derive(Debug, Clone)]
pub struct Placed {
    pub process_guid: Text,
    pub index: i32,
    pub domain: Text,
}

impl Cell {
    /// Starts an empty cell and registers it.
    pub fn start(
        number: usize,
        trust: &Trust,
        bbs: &BbsClient,
        locket: &Locket,
        sync_interval: Duration,
        trace: &Trace,
    ) -> Self {
        let inner = Arc::new(Inner {
            id: format!("cell-{number}"),
            bbs: bbs.clone(),
            locket: locket.clone(),
            faults: FaultSwitch::default(),
            trace: trace.clone(),
            state: Mutex::default(),
            sync_interval,
            linked: watch::Sender::new(true),
        });
        let listening = Arc::new(trust.listen(rep::router(Arc::clone(&inner))));
        let cell = Self {
            inner: Arc::clone(&inner),
            listening,
        };
        cell.register();
        tokio::spawn(sync::run(inner));
        cell
    }

    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Sets the presence in Locket and accepts work. Containers and tasks are kept.
    pub fn register(&self) {
        let mut state = self.inner.state();
        (state.is_present, state.is_evacuating) = (true, false);
        let presence = json!({
            "cell_id": self.inner.id,
            "rep_address": "http://127.0.0.1:1",
            "zone": "z1",
            "capacity": { "memory_mb": 65536, "disk_mb": 65536, "containers": 10_000 },
            "rootfs_provider_list": [{ "name": "preloaded", "properties": ["cflinuxfs4"] }],
            "rep_url": self.listening.url(),
        });
        self.inner
            .locket
            .add_presence(&self.inner.id, &presence.to_string());
        self.inner.linked.send_replace(true);
    }

    /// Cuts the cell off: it reaches no other component, none reaches it, its containers continue
    /// to run.
    pub fn disconnect(&self) {
        {
            let mut state = self.inner.state();
            state.is_present = false;
            let affected = state
                .containers
                .keys()
                .map(|key| key.instance_guid.clone())
                .collect();
            self.inner.trace.record(Step::Fault(affected));
        }
        self.inner.linked.send_replace(false);
        self.inner.faults.set(Behaviour::Slow);
        self.inner.locket.remove_presence(&self.inner.id);
    }

    /// Disconnects the cell and removes its containers and tasks.
    pub fn fail(&self) {
        self.disconnect();
        let mut state = self.inner.state();
        state.containers.clear();
        state.tasks.clear();
    }

    /// Ends a disconnection.
    pub fn reconnect(&self) {
        self.inner.faults.set(Behaviour::Sound);
        self.register();
    }

    pub fn faults(&self) -> &FaultSwitch {
        &self.inner.faults
    }

    /// Begins to evacuate all containers to other cells.
    pub fn evacuate(&self) {
        let mut state = self.inner.state();
        (state.is_evacuating, state.evacuation_rounds) = (true, 0);
    }

    /// How often each container was offered to the host since the evacuation began.
    pub fn evacuation_rounds(&self) -> u64 {
        self.inner.state().evacuation_rounds
    }

    pub fn is_empty(&self) -> bool {
        let state = self.inner.state();
        state.containers.is_empty() && state.tasks.is_empty()
    }

    pub fn takes_work(&self) -> bool {
        let state = self.inner.state();
        state.is_present && !state.is_evacuating
    }

    /// Number of containers.
    pub fn load(&self) -> usize {
        self.inner.state().containers.len()
    }

    /// Number of tasks.
    pub fn tasks(&self) -> usize {
        self.inner.state().tasks.len()
    }

    /// The containers that run and are not ending.
    pub fn running(&self) -> Vec<ContainerKey> {
        self.inner.running()
    }

    /// All containers with their routes and tags.
    pub fn containers(&self) -> BTreeMap<ContainerKey, KnownBy> {
        let state = self.inner.state();
        state
            .containers
            .iter()
            .map(|(key, container)| (key.clone(), container.known_by.clone()))
            .collect()
    }

    /// Creates a container for an instance and reports its progress to the host.
    pub fn place(&self, placed: Placed) {
        let mut state = self.inner.state();
        state.created += 1;
        let instance_guid = format!("{}-instance-{}", self.inner.id, state.created).into_bytes();
        let key = ContainerKey {
            process_guid: placed.process_guid,
            index: placed.index,
            instance_guid,
        };
        let container = Container {
            domain: placed.domain,
            stage: Stage::Starting,
            known_by: KnownBy::default(),
            program: Text::new(),
        };
        state.containers.insert(key.clone(), container);
        tokio::spawn(Inner::run(Arc::clone(&self.inner), key));
    }

    /// Begins a task. An `endless` one runs until it is cancelled.
    pub fn place_task(&self, guid: Text, endless: bool) {
        self.inner
            .state()
            .tasks
            .insert(guid.clone(), Stage::Starting);
        tokio::spawn(Inner::run_task(Arc::clone(&self.inner), guid, endless));
    }

    /// Crashes a container. Does nothing if it no longer runs.
    pub async fn crash(&self, key: &ContainerKey) {
        self.inner.crash(key).await;
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, CellState> {
        self.state.lock().expect("no lock holder panics")
    }

    fn running(&self) -> Vec<ContainerKey> {
        let state = self.state();
        let running = state
            .containers
            .iter()
            .filter(|(_, container)| container.stage == Stage::Running);
        running.map(|(key, _)| key.clone()).collect()
    }

    fn is_evacuating(&self) -> bool {
        self.state().is_evacuating
    }

    fn container(&self, key: &ContainerKey) -> Option<Container> {
        self.state().containers.get(key).cloned()
    }

    fn forget(&self, key: &ContainerKey) {
        self.state().containers.remove(key);
    }

    /// Marks a running container as ending, which excludes all other transitions.
    fn end(&self, key: &ContainerKey) -> Option<Container> {
        let mut state = self.state();
        let container = state
            .containers
            .get_mut(key)
            .filter(|container| container.stage == Stage::Running)?;
        container.stage = Stage::Ending;
        Some(container.clone())
    }

    async fn submit<A: bbs_client::Answer>(
        &self,
        path: &str,
        request: &impl bbs_proto::prost::Message,
    ) -> Result<(), Refusal> {
        self.wait_for_link().await;
        self.bbs.submit::<A>(path, request).await
    }

    async fn wait_for_link(&self) {
        // The sender is this cell's own.
        let _ = self.linked.subscribe().wait_for(|linked| *linked).await;
    }

    fn instance(&self, key: &ContainerKey) -> Option<proto::ActualLrpInstanceKey> {
        let cell_id = self.id.clone().into_bytes();
        Some(proto::ActualLrpInstanceKey {
            instance_guid: key.instance_guid.clone(),
            cell_id,
        })
    }

    /// Claims the instance, then starts it; removes the container if the host refuses either.
    async fn run(self: Arc<Self>, key: ContainerKey) {
        let claim = proto::ClaimActualLrpRequest {
            process_guid: key.process_guid.clone(),
            index: key.index,
            actual_lrp_instance_key: self.instance(&key),
        };
        let claimed = self
            .submit::<proto::ActualLrpLifecycleResponse>("/v1/actual_lrps/claim", &claim)
            .await;
        let Some(container) = self.container(&key).filter(|_| claimed.is_ok()) else {
            return self.forget(&key);
        };
        if self.is_evacuating() {
            let request = proto::EvacuateClaimedActualLrpRequest {
                actual_lrp_key: Some(lrp_key(&key, &container)),
                actual_lrp_instance_key: self.instance(&key),
            };
            // The container is removed whatever the answer.
            let _ = self
                .submit::<proto::EvacuationResponse>("/v1/actual_lrps/evacuate_claimed", &request)
                .await;
            return self.forget(&key);
        }
        if !self.load_routes_and_tags(&key).await {
            // Its desired LRP was removed. The row is reported as gone by `sync`.
            return self.forget(&key);
        }
        self.announce(&key, Stage::Starting).await;
        if self
            .container(&key)
            .is_some_and(|container| container.program == CRASHES)
        {
            self.crash(&key).await;
        }
    }

    async fn crash(&self, key: &ContainerKey) {
        let Some(container) = self.end(key) else {
            return;
        };
        self.trace
            .record(Step::Fault([key.instance_guid.clone()].into()));
        self.report_crashed(key, &container).await;
        self.forget(key);
    }

    /// Reports to the host that a container runs, and removes the container if the host refuses it.
    /// A running container of an evacuating cell is reported by `sync` instead.
    async fn announce(&self, key: &ContainerKey, from: Stage) {
        if from == Stage::Running && self.is_evacuating() {
            return;
        }
        let Some(container) = self
            .container(key)
            .filter(|container| container.stage == from)
        else {
            return;
        };
        let request = self.start_request(key, &container);
        let started = self
            .submit::<proto::ActualLrpLifecycleResponse>("/v1/actual_lrps/start.r1", &request)
            .await;
        let mut state = self.state();
        let Some(container) = state
            .containers
            .get_mut(key)
            .filter(|container| container.stage == from)
        else {
            return;
        };
        if started.is_ok() {
            container.stage = Stage::Running;
        } else {
            state.containers.remove(key);
        }
    }

    fn start_request(
        &self,
        key: &ContainerKey,
        container: &Container,
    ) -> proto::StartActualLrpRequest {
        proto::StartActualLrpRequest {
            actual_lrp_key: Some(lrp_key(key, container)),
            actual_lrp_instance_key: self.instance(key),
            actual_lrp_net_info: Some(net_info(&self.id)),
            actual_lrp_internal_routes: routes(container),
            metric_tags: tags(container),
            routable: Some(container.program == RUNS),
            availability_zone: b"z1".to_vec(),
        }
    }

    async fn run_task(self: Arc<Self>, guid: Text, endless: bool) {
        let cell_id = self.id.clone().into_bytes();
        let request = proto::StartTaskRequest {
            task_guid: guid.clone(),
            cell_id: cell_id.clone(),
        };
        self.wait_for_link().await;
        let (answer, refusal, retried): (proto::StartTaskResponse, _, _) =
            self.bbs.call("/v1/tasks/start", &request).await;
        // After a lost answer `should_start` is false although the first call succeeded.
        let starts = refusal.is_none() && (answer.should_start || retried);
        if !starts {
            self.state().tasks.remove(&guid);
            return;
        }
        match self.state().tasks.get_mut(&guid) {
            Some(stage) => *stage = Stage::Running,
            None => return,
        }
        if !endless {
            let done = proto::CompleteTaskRequest {
                task_guid: guid.clone(),
                cell_id,
                result: b"done".to_vec(),
                ..Default::default()
            };
            // Refused if the task ended in another way.
            let _ = self
                .submit::<proto::TaskLifecycleResponse>("/v1/tasks/complete", &done)
                .await;
            self.state().tasks.remove(&guid);
        }
    }
}

fn lrp_key(key: &ContainerKey, container: &Container) -> proto::ActualLrpKey {
    proto::ActualLrpKey {
        process_guid: key.process_guid.clone(),
        index: key.index,
        domain: container.domain.clone(),
    }
}

fn net_info(cell_id: &str) -> proto::ActualLrpNetInfo {
    let port = proto::PortMapping {
        container_port: 8080,
        host_port: 61_000,
        ..Default::default()
    };
    proto::ActualLrpNetInfo {
        address: cell_id.into(),
        ports: vec![port],
        ..Default::default()
    }
}

fn routes(container: &Container) -> Vec<proto::ActualLrpInternalRoute> {
    let hostname = |hostname: &Text| proto::ActualLrpInternalRoute {
        hostname: hostname.clone(),
    };
    container
        .known_by
        .internal_routes
        .iter()
        .map(hostname)
        .collect()
}

fn tags(container: &Container) -> Vec<proto::TextEntry> {
    let entry = |(key, value): (&Text, &Text)| proto::TextEntry {
        key: key.clone(),
        value: value.clone(),
    };
    container.known_by.metric_tags.iter().map(entry).collect()
}
