//! A cloud controller: concurrent clients that desire, scale, change and remove LRPs until stopped.
//! Each client owns disjoint process guids. Owns the expected final state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bbs_proto::models as proto;
use fastrand::Rng;
use proto::error::Type;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::bbs_client::BbsClient;
use super::cell::{CRASHES, KnownBy, RUNS, Text, UNROUTABLE};
use super::trace::Trace;
use crate::harness::pause;

const CLIENTS: u64 = 6;
/// Pauses of a client before an operation that the test does not wait for.
const PAUSES_OF_REST: usize = 5;
pub const DOMAIN: &[u8] = b"cf-apps";
const METRIC_TAG: &[u8] = b"build";
/// Far above the time in which an LRP gets a definition that runs.
const LONGEST_REPAIR: Duration = Duration::from_secs(180);

/// The work of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Desire, scale, change, redefine and remove LRPs of 0 to 3 instances: without pauses while
    /// the test waits for operations, and else slowly, since a fault that waits for the host and
    /// the components needs the processors.
    Lifecycle,
    /// Desire LRPs of 1 to 8 instances and redefine them, at a pace at which updates advance.
    Updates,
}

/// The desired state of one process guid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub instances: i32,
    hostnames: BTreeSet<Text>,
    metric_tag: Text,
    /// The current definition. Empty if an LRP of this process guid was removed before: its
    /// containers that still run belong to the next one, as in Diego, whatever they run.
    pub definition: Text,
}

/// Running clients. They end when it is dropped.
pub struct Controller {
    stop: watch::Sender<bool>,
    operations: watch::Receiver<u64>,
    /// The value of `operations` that the test waits for.
    awaited: watch::Sender<u64>,
    clients: JoinSet<ControllerClient>,
}

struct ControllerClient {
    bbs: BbsClient,
    workload: Workload,
    trace: Trace,
    /// One draw for each operation, so that what an operation draws, which depends on answers, does
    /// not change later ones.
    operations: Rng,
    /// The draws of the current operation.
    random: Rng,
    /// Guids that were never desired.
    unused: Vec<String>,
    removed: Vec<String>,
    /// All guids that were ever removed.
    reused: BTreeSet<String>,
    wanted: BTreeMap<String, Wanted>,
}

impl Controller {
    /// Starts clients that desire `lrps` LRPs in all over time.
    pub fn start(bbs: &BbsClient, workload: Workload, lrps: u64, seed: u64, trace: &Trace) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (count, operations) = watch::channel(0);
        let awaited = watch::Sender::new(0);
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let mine = (0..lrps).filter(|lrp| lrp % CLIENTS == number);
            let client = ControllerClient {
                bbs: bbs.clone(),
                workload,
                trace: trace.clone(),
                operations: Rng::with_seed(seed ^ (number << 32)),
                random: Rng::with_seed(0),
                unused: mine.map(|lrp| format!("process-{lrp}")).collect(),
                removed: Vec::new(),
                reused: BTreeSet::new(),
                wanted: BTreeMap::new(),
            };
            clients.spawn(client.run(stopped.clone(), count.clone(), awaited.subscribe()));
        }
        Self {
            stop,
            operations,
            awaited,
            clients,
        }
    }

    /// Waits until `more` further operations have been answered.
    pub async fn operations(&mut self, more: u64) {
        let wanted = *self.operations.borrow() + more;
        self.awaited.send_replace(wanted);
        self.operations
            .wait_for(|operations| *operations >= wanted)
            .await
            .expect("the clients run");
    }

    /// Stops the clients once every LRP was desired at least once. Returns the expected state and
    /// the number of operations.
    pub async fn stop(mut self) -> (BTreeMap<Text, Wanted>, u64) {
        self.stop.send_replace(true);
        self.awaited.send_replace(u64::MAX);
        let mut wanted = BTreeMap::new();
        while let Some(client) = self.clients.join_next().await {
            let client = client.expect("a client does not panic");
            wanted.extend(
                client
                    .wanted
                    .into_iter()
                    .map(|(guid, wanted)| (guid.into_bytes(), wanted)),
            );
        }
        let operations = *self.operations.borrow();
        (wanted, operations)
    }
}

impl ControllerClient {
    async fn run(
        mut self,
        stopped: watch::Receiver<bool>,
        count: watch::Sender<u64>,
        awaited: watch::Receiver<u64>,
    ) -> Self {
        while !self.unused.is_empty() || !*stopped.borrow() {
            let is_awaited = *count.borrow() < *awaited.borrow();
            if !is_awaited && self.workload == Workload::Lifecycle {
                rest().await;
            }
            self.operate().await;
            count.send_modify(|count| *count += 1);
        }
        self.repair().await;
        self
    }

    async fn operate(&mut self) {
        self.random = self.operations.fork();
        match self.workload {
            Workload::Lifecycle => self.operate_lifecycle().await,
            Workload::Updates => self.operate_updates().await,
        }
    }

    async fn operate_updates(&mut self) {
        pause().await;
        if let Some(guid) = self.unused.pop() {
            return self.desire(guid).await;
        }
        if let Some(guid) = self
            .random
            .choice(self.wanted.keys().cloned().collect::<Vec<_>>())
        {
            self.redefine(guid).await;
        }
    }

    async fn operate_lifecycle(&mut self) {
        let known: Vec<_> = self.wanted.keys().cloned().collect();
        let unknown = if self.unused.is_empty() {
            &mut self.removed
        } else {
            &mut self.unused
        };
        match (self.random.choice(known), self.random.u8(..10)) {
            (Some(guid), 0) => self.remove(guid).await,
            (Some(guid), 1..=3) => self.scale(guid).await,
            (Some(guid), 4) => self.change(guid).await,
            (Some(guid), 5..=6) => self.redefine(guid).await,
            (_, _) => match unknown.pop() {
                Some(guid) => self.desire(guid).await,
                // All LRPs are desired, or this client has none because there are fewer LRPs than
                // clients.
                None => pause().await,
            },
        }
    }

    fn random_instances(&mut self) -> i32 {
        match self.workload {
            Workload::Lifecycle => self.random.i32(0..=3),
            Workload::Updates => self.random.i32(1..=8),
        }
    }

    fn random_wanted(&mut self) -> Wanted {
        let hostnames = (0..self.random.usize(..3))
            .map(|_| format!("host-{}.internal", self.random.u8(..)).into());
        Wanted {
            hostnames: hostnames.collect(),
            instances: self.random_instances(),
            metric_tag: self.random.u32(..).to_string().into(),
            definition: Text::new(),
        }
    }

    async fn desire(&mut self, guid: String) {
        let wanted = self.random_wanted();
        let run = proto::RunAction {
            path: RUNS.to_vec(),
            user: b"vcap".to_vec(),
            ..Default::default()
        };
        let lrp = proto::DesiredLrp {
            process_guid: guid.clone().into(),
            domain: DOMAIN.to_vec(),
            root_fs: b"preloaded:cflinuxfs4".to_vec(),
            instances: wanted.instances,
            memory_mb: 64,
            disk_mb: 64,
            action: Some(proto::Action {
                run_action: Some(run),
                ..Default::default()
            }),
            routes: Some(wanted.routes()),
            metric_tags: wanted.metric_tags(),
            ..Default::default()
        };
        let request = proto::DesireLrpRequest {
            desired_lrp: Some(lrp),
        };
        self.submit("/v1/desired_lrp/desire.r2", &request, Type::ResourceExists)
            .await;
        self.wanted.insert(guid.clone(), wanted);
        self.read_definition(&guid).await;
    }

    /// Updates an LRP to another definition, cancels, or rolls back. Some definitions crash or are
    /// never routable.
    async fn redefine(&mut self, guid: String) {
        match self.random.u8(..4) {
            0 => {
                self.trace.decide_about(&guid, "cancel".into());
                self.cancel(&guid).await;
            }
            1 => {
                self.trace.decide_about(&guid, "roll back".into());
                self.roll_back(&guid).await;
            }
            _ => {
                let program = self
                    .random
                    .choice([RUNS, RUNS, CRASHES, UNROUTABLE])
                    .expect("programs");
                self.trace.decide_about(
                    &guid,
                    format!("update to {}", String::from_utf8_lossy(program)),
                );
                self.update_definition(&guid, program).await;
            }
        }
        self.read_definition(&guid).await;
    }

    async fn update_definition(&mut self, guid: &str, program: &[u8]) {
        let run = proto::RunAction {
            path: program.to_vec(),
            user: b"vcap".to_vec(),
            ..Default::default()
        };
        let definition = proto::LrpDefinition {
            root_fs: b"preloaded:cflinuxfs4".to_vec(),
            memory_mb: 64,
            disk_mb: 64,
            action: Some(proto::Action {
                run_action: Some(run),
                ..Default::default()
            }),
            metric_tags: self.wanted[guid].metric_tags(),
            ..Default::default()
        };
        let update = proto::DesiredLrpUpdate {
            lrp_definition: Some(definition),
            ..Default::default()
        };
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: guid.into(),
            update: Some(update),
        };
        self.allowed(
            "/v1.2/desired_lrp/update",
            &request,
            &[Type::UpdateInProgress],
        )
        .await;
    }

    async fn cancel(&mut self, guid: &str) {
        let request = proto::CancelUpdateDesiredLrpRequest {
            process_guid: guid.into(),
        };
        self.allowed(
            "/v1.2/desired_lrp/cancel_update",
            &request,
            &[Type::NoUpdateInProgress],
        )
        .await;
    }

    /// Rolls back to any of the definitions.
    async fn roll_back(&mut self, guid: &str) {
        let request = proto::LrpDefinitionsRequest {
            process_guid: guid.into(),
        };
        let (answer, refusal, _): (proto::LrpDefinitionsResponse, _, _) = self
            .bbs
            .call("/v1.2/desired_lrp/definitions/list", &request)
            .await;
        assert_eq!(refusal, None, "{guid} is desired");
        let definitions: Vec<_> = answer
            .definitions
            .into_iter()
            .filter_map(|archived| archived.definition)
            .collect();
        let Some(proto::LrpDefinition { definition_id, .. }) = self.random.choice(definitions)
        else {
            return;
        };
        let request = proto::RollbackDesiredLrpRequest {
            process_guid: guid.into(),
            definition_id,
        };
        self.allowed(
            "/v1.2/desired_lrp/rollback",
            &request,
            &[Type::UpdateInProgress, Type::DefinitionNotFound],
        )
        .await;
    }

    async fn allowed(
        &self,
        path: &str,
        request: &impl bbs_proto::prost::Message,
        refusals: &[Type],
    ) {
        let answer = self
            .bbs
            .submit::<proto::DesiredLrpLifecycleResponse>(path, request)
            .await;
        let is_allowed = answer
            .as_ref()
            .err()
            .is_none_or(|refusal| refusals.contains(&refusal.r#type()));
        assert!(is_allowed, "{path}: {answer:?}");
    }

    /// The desired LRP. Only this client changes it.
    async fn read(&self, guid: &str) -> proto::DesiredLrp {
        let request = proto::DesiredLrpByProcessGuidRequest {
            process_guid: guid.into(),
        };
        let (answer, refusal, _): (proto::DesiredLrpResponse, _, _) = self
            .bbs
            .call("/v1.2/desired_lrps/get_by_process_guid.r3", &request)
            .await;
        assert_eq!(refusal, None, "{guid} is desired");
        answer
            .desired_lrp
            .expect("an answer without an error has the LRP")
    }

    async fn update_status(&self, guid: &str) -> proto::DesiredLrpUpdateStatusResponse {
        let request = proto::DesiredLrpUpdateStatusRequest {
            process_guid: guid.into(),
        };
        let path = "/v1.2/desired_lrp/update_status";
        self.bbs.call(path, &request).await.0
    }

    async fn read_definition(&mut self, guid: &str) {
        let lrp = self.read(guid).await;
        let tag = lrp
            .metric_tags
            .into_iter()
            .find(|entry| entry.key == METRIC_TAG);
        let wanted = self.wanted.get_mut(guid).expect("it is wanted");
        if !self.reused.contains(guid) {
            wanted.definition = lrp.definition_id;
        }
        wanted.metric_tag = tag.and_then(|tag| tag.value).unwrap_or_default().r#static;
    }

    /// Leads every LRP to a definition that runs.
    async fn repair(&mut self) {
        for guid in self.wanted.keys().cloned().collect::<Vec<_>>() {
            let began = Instant::now();
            loop {
                let lrp = self.read(&guid).await;
                if runs(&program(lrp.action.as_ref())) {
                    break;
                }
                self.cancel(&guid).await;
                // Before the way back ends, which it does not if the definition from before fails.
                self.update_definition(&guid, RUNS).await;
                if began.elapsed() > LONGEST_REPAIR {
                    let status = self.update_status(&guid).await;
                    panic!("{guid} gets no definition that runs: {status:?}, {lrp:?}");
                }
                pause().await;
            }
            self.read_definition(&guid).await;
        }
    }

    async fn scale(&mut self, guid: String) {
        let instances = self.random_instances();
        let update = proto::DesiredLrpUpdate {
            instances: Some(instances),
            ..Default::default()
        };
        self.update(&guid, update).await;
        self.wanted.get_mut(&guid).expect("it is wanted").instances = instances;
    }

    async fn change(&mut self, guid: String) {
        let instances = self.wanted[&guid].instances;
        let definition = self.wanted[&guid].definition.clone();
        let wanted = Wanted {
            instances,
            definition,
            ..self.random_wanted()
        };
        let update = proto::DesiredLrpUpdate {
            routes: Some(wanted.routes()),
            metric_tags: wanted.metric_tags(),
            ..Default::default()
        };
        self.update(&guid, update).await;
        self.wanted.insert(guid, wanted);
    }

    async fn update(&self, guid: &str, update: proto::DesiredLrpUpdate) {
        let request = proto::UpdateDesiredLrpRequest {
            process_guid: guid.into(),
            update: Some(update),
        };
        let answer = self
            .bbs
            .submit::<proto::DesiredLrpLifecycleResponse>("/v1.2/desired_lrp/update", &request)
            .await;
        assert_eq!(answer, Ok(()), "{guid} is desired");
    }

    async fn remove(&mut self, guid: String) {
        let request = proto::RemoveDesiredLrpRequest {
            process_guid: guid.clone().into(),
        };
        self.submit("/v1/desired_lrp/remove", &request, Type::ResourceNotFound)
            .await;
        self.wanted.remove(&guid);
        // Desired again later: a new LRP under the same guid.
        self.reused.insert(guid.clone());
        self.removed.push(guid);
    }

    /// Makes a call that must succeed. After a lost answer the retry may fail with `repeated`.
    async fn submit(&self, path: &str, request: &impl bbs_proto::prost::Message, repeated: Type) {
        let (_, refusal, retried): (proto::DesiredLrpLifecycleResponse, _, _) =
            self.bbs.call(path, request).await;
        let is_expected = refusal
            .as_ref()
            .is_none_or(|refusal| retried && refusal.r#type() == repeated);
        assert!(is_expected, "{path}: {refusal:?}, retried: {retried}");
    }
}

impl Wanted {
    /// The expected routes and tags of each of its containers.
    pub fn known_by(&self) -> KnownBy {
        let metric_tags = BTreeMap::from([(METRIC_TAG.to_vec(), self.metric_tag.clone())]);
        let definition = self.definition.clone();
        KnownBy {
            internal_routes: self.hostnames.clone(),
            metric_tags,
            definition,
        }
    }

    fn routes(&self) -> proto::ProtoRoutes {
        let hostnames = self
            .hostnames
            .iter()
            .map(|hostname| String::from_utf8_lossy(hostname));
        let entries: Vec<_> = hostnames
            .map(|hostname| serde_json::json!({ "hostname": hostname }))
            .collect();
        let value = serde_json::Value::from(entries).to_string().into_bytes();
        proto::ProtoRoutes {
            routes: vec![proto::RouteEntry {
                key: b"internal-router".to_vec(),
                value,
            }],
        }
    }

    fn metric_tags(&self) -> Vec<proto::MetricTagEntry> {
        let value = proto::MetricTagValue {
            r#static: self.metric_tag.clone(),
            ..Default::default()
        };
        vec![proto::MetricTagEntry {
            key: METRIC_TAG.to_vec(),
            value: Some(value),
        }]
    }
}

async fn rest() {
    for _ in 0..PAUSES_OF_REST {
        pause().await;
    }
}

/// The program of the containers of a definition.
fn program(action: Option<&proto::Action>) -> Text {
    action
        .and_then(|action| action.run_action.clone())
        .unwrap_or_default()
        .path
}

fn runs(program: &[u8]) -> bool {
    program != CRASHES && program != UNROUTABLE
}
