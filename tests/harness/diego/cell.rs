//! A cell: its rep, with the containers and the tasks that it has, and its presence in Locket. Owns what a rep does of its
//! own; when a cell fails is for the test to say.

mod rep;
mod sync;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bbs_proto::models as proto;
use serde_json::json;
use tokio::sync::watch;

use super::home::{Answer, Home, Refusal};
use super::mood::{Behaviour, Mood};
use super::trust::{Listening, Trust};
use crate::harness::locket::Locket;

pub type Text = Vec<u8>;

/// One container: of which instance, and its own name.
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
}

/// What others know a container by.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownBy {
    pub internal_routes: BTreeSet<Text>,
    pub metric_tags: BTreeMap<Text, Text>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not yet told to the host.
    Starting,
    Running,
    /// Gone as soon as the host knows.
    Ending,
}

#[derive(Debug, Default)]
struct State {
    containers: BTreeMap<ContainerKey, Container>,
    tasks: BTreeMap<Text, Stage>,
    is_present: bool,
    is_evacuating: bool,
    /// Containers so far, ever.
    made: u64,
}

struct Inner {
    id: String,
    home: Home,
    locket: Locket,
    mood: Mood,
    state: Mutex<State>,
    /// From one comparison with the host's rows to the next.
    sync_interval: Duration,
    /// Whether the host can be reached.
    linked: watch::Sender<bool>,
}

/// Clones are the same cell.
#[derive(Clone)]
pub struct Cell {
    inner: Arc<Inner>,
    listening: Arc<Listening>,
}

/// What an auction places.
#[derive(Debug, Clone)]
pub struct Placed {
    pub process_guid: Text,
    pub index: i32,
    pub domain: Text,
}

impl Cell {
    /// A cell that is there, and empty.
    pub fn start(number: usize, trust: &Trust, home: &Home, locket: &Locket, sync_interval: Duration) -> Self {
        let inner = Arc::new(Inner {
            id: format!("cell-{number}"),
            home: home.clone(),
            locket: locket.clone(),
            mood: Mood::default(),
            state: Mutex::default(),
            sync_interval,
            linked: watch::Sender::new(true),
        });
        let listening = Arc::new(trust.listen(rep::router(Arc::clone(&inner))));
        let cell = Self { inner: Arc::clone(&inner), listening };
        cell.appear();
        tokio::spawn(sync::keep(inner));
        cell
    }

    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Is known to Locket, empty or with what it had, and takes work.
    pub fn appear(&self) {
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
        self.inner.locket.show(&self.inner.id, &presence.to_string());
        self.inner.linked.send_replace(true);
    }

    /// Can reach nobody and be reached by nobody, while what it has goes on.
    pub fn get_lost(&self) {
        self.inner.state().is_present = false;
        self.inner.linked.send_replace(false);
        self.inner.mood.be(Behaviour::Slow);
        self.inner.locket.hide(&self.inner.id);
    }

    /// Loses all it has.
    pub fn die(&self) {
        self.get_lost();
        let mut state = self.inner.state();
        state.containers.clear();
        state.tasks.clear();
    }

    /// Is back, with what it had.
    pub fn come_back(&self) {
        self.inner.mood.be(Behaviour::Sound);
        self.appear();
    }

    pub fn mood(&self) -> &Mood {
        &self.inner.mood
    }

    /// From now on everything it has goes elsewhere.
    pub fn evacuate(&self) {
        self.inner.state().is_evacuating = true;
    }

    pub fn is_empty(&self) -> bool {
        let state = self.inner.state();
        state.containers.is_empty() && state.tasks.is_empty()
    }

    pub fn takes_work(&self) -> bool {
        let state = self.inner.state();
        state.is_present && !state.is_evacuating
    }

    pub fn load(&self) -> usize {
        self.inner.state().containers.len()
    }

    pub fn tasks(&self) -> usize {
        self.inner.state().tasks.len()
    }

    /// What runs here and means to go on running.
    pub fn running(&self) -> Vec<ContainerKey> {
        self.inner.running()
    }

    /// Everything that is here, and what each is known by.
    pub fn containers(&self) -> BTreeMap<ContainerKey, KnownBy> {
        let state = self.inner.state();
        state.containers.iter().map(|(key, container)| (key.clone(), container.known_by.clone())).collect()
    }

    /// Begins to run an instance; the host is told as it goes.
    pub fn place(&self, placed: Placed) {
        let mut state = self.inner.state();
        state.made += 1;
        let instance_guid = format!("{}-instance-{}", self.inner.id, state.made).into_bytes();
        let key = ContainerKey { process_guid: placed.process_guid, index: placed.index, instance_guid };
        let container = Container { domain: placed.domain, stage: Stage::Starting, known_by: KnownBy::default() };
        state.containers.insert(key.clone(), container);
        tokio::spawn(Inner::run(Arc::clone(&self.inner), key));
    }

    /// Begins a task. One that is `endless` runs until it is cancelled.
    pub fn place_task(&self, guid: Text, endless: bool) {
        self.inner.state().tasks.insert(guid.clone(), Stage::Starting);
        tokio::spawn(Inner::run_task(Arc::clone(&self.inner), guid, endless));
    }

    /// Has a container end as if by itself. Nothing where it is not running any more.
    pub async fn crash(&self, key: &ContainerKey) {
        if let Some(container) = self.inner.end(key) {
            self.inner.tell_crashed(key, &container).await;
            self.inner.forget(key);
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics meanwhile")
    }

    fn running(&self) -> Vec<ContainerKey> {
        let state = self.state();
        let running = state.containers.iter().filter(|(_, container)| container.stage == Stage::Running);
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

    /// Marks one that runs as ending; from then on nobody else touches it.
    fn end(&self, key: &ContainerKey) -> Option<Container> {
        let mut state = self.state();
        let container = state.containers.get_mut(key).filter(|container| container.stage == Stage::Running)?;
        container.stage = Stage::Ending;
        Some(container.clone())
    }

    async fn tell<A: Answer>(&self, path: &str, request: &impl bbs_proto::prost::Message) -> Result<(), Refusal> {
        self.wait_for_link().await;
        self.home.tell::<A>(path, request).await
    }

    async fn wait_for_link(&self) {
        // The sender is this cell's own.
        let _ = self.linked.subscribe().wait_for(|linked| *linked).await;
    }

    fn instance(&self, key: &ContainerKey) -> Option<proto::ActualLrpInstanceKey> {
        let cell_id = self.id.clone().into_bytes();
        Some(proto::ActualLrpInstanceKey { instance_guid: key.instance_guid.clone(), cell_id })
    }

    /// From a reservation to a running container, or to none.
    async fn run(self: Arc<Self>, key: ContainerKey) {
        let claim = proto::ClaimActualLrpRequest {
            process_guid: key.process_guid.clone(),
            index: key.index,
            actual_lrp_instance_key: self.instance(&key),
        };
        let claimed = self.tell::<proto::ActualLrpLifecycleResponse>("/v1/actual_lrps/claim", &claim).await;
        let Some(container) = self.container(&key).filter(|_| claimed.is_ok()) else { return self.forget(&key) };
        if self.is_evacuating() {
            let request = proto::EvacuateClaimedActualLrpRequest {
                actual_lrp_key: Some(lrp_key(&key, &container)),
                actual_lrp_instance_key: self.instance(&key),
            };
            // Whatever the answer is, nothing runs here.
            let _ = self.tell::<proto::EvacuationResponse>("/v1/actual_lrps/evacuate_claimed", &request).await;
            return self.forget(&key);
        }
        self.learn_of(&key).await;
        self.announce(&key, Stage::Starting).await;
    }

    /// Tells the host that a container runs. One that it wants no more is gone after that. What is being evacuated is
    /// spoken of otherwise.
    async fn announce(&self, key: &ContainerKey, from: Stage) {
        if from == Stage::Running && self.is_evacuating() {
            return;
        }
        let Some(container) = self.container(key).filter(|container| container.stage == from) else { return };
        let request = self.start_request(key, &container);
        let started = self.tell::<proto::ActualLrpLifecycleResponse>("/v1/actual_lrps/start.r1", &request).await;
        let mut state = self.state();
        let Some(container) = state.containers.get_mut(key).filter(|container| container.stage == from) else { return };
        if started.is_ok() {
            container.stage = Stage::Running;
        } else {
            state.containers.remove(key);
        }
    }

    fn start_request(&self, key: &ContainerKey, container: &Container) -> proto::StartActualLrpRequest {
        proto::StartActualLrpRequest {
            actual_lrp_key: Some(lrp_key(key, container)),
            actual_lrp_instance_key: self.instance(key),
            actual_lrp_net_info: Some(net_info(&self.id)),
            actual_lrp_internal_routes: routes(container),
            metric_tags: tags(container),
            routable: Some(true),
            availability_zone: b"z1".to_vec(),
        }
    }

    async fn run_task(self: Arc<Self>, guid: Text, endless: bool) {
        let cell_id = self.id.clone().into_bytes();
        let request = proto::StartTaskRequest { task_guid: guid.clone(), cell_id: cell_id.clone() };
        self.wait_for_link().await;
        let (answer, refusal, again): (proto::StartTaskResponse, _, _) =
            self.home.call("/v1/tasks/start", &request).await;
        // Where an answer was lost, what was started then is not started again now.
        let starts = refusal.is_none() && (answer.should_start || again);
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
            // A refusal says that it ended otherwise.
            let _ = self.tell::<proto::TaskLifecycleResponse>("/v1/tasks/complete", &done).await;
            self.state().tasks.remove(&guid);
        }
    }
}

fn lrp_key(key: &ContainerKey, container: &Container) -> proto::ActualLrpKey {
    proto::ActualLrpKey { process_guid: key.process_guid.clone(), index: key.index, domain: container.domain.clone() }
}

fn net_info(cell_id: &str) -> proto::ActualLrpNetInfo {
    let port = proto::PortMapping { container_port: 8080, host_port: 61_000, ..Default::default() };
    proto::ActualLrpNetInfo { address: cell_id.into(), ports: vec![port], ..Default::default() }
}

fn routes(container: &Container) -> Vec<proto::ActualLrpInternalRoute> {
    let hostname = |hostname: &Text| proto::ActualLrpInternalRoute { hostname: hostname.clone() };
    container.known_by.internal_routes.iter().map(hostname).collect()
}

fn tags(container: &Container) -> Vec<proto::TextEntry> {
    let entry = |(key, value): (&Text, &Text)| proto::TextEntry { key: key.clone(), value: value.clone() };
    container.known_by.metric_tags.iter().map(entry).collect()
}
