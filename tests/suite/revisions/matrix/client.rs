//! A client of one version of the API over HTTP. Its records are in Diego's current messages, with
//! the values in the units of its version.

use super::*;
use crate::harness::event_stream::EventStream;
use crate::harness::server::Reply;

/// Ordered from the oldest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientVersion {
    V0_9,
    V0_10,
    V0_11,
    V0_12,
    V1_0,
    V1_1,
    V1_2,
}

use ClientVersion::{V0_9, V0_10, V0_11, V0_12, V1_0, V1_1, V1_2};

impl ClientVersion {
    pub(super) const ALL: [Self; 7] = [V0_9, V0_10, V0_11, V0_12, V1_0, V1_1, V1_2];

    pub(super) fn number(self) -> &'static str {
        match self {
            V0_9 => "0.9",
            V0_10 => "0.10",
            V0_11 => "0.11",
            V0_12 => "0.12",
            V1_0 => "1.0",
            V1_1 => "1.1",
            V1_2 => "1.2",
        }
    }

    /// The root of its paths. Diego's clients name a revision in the path instead of a version.
    pub(super) fn root(self) -> &'static str {
        match self {
            V0_9 => "/v0.9",
            V0_10 => "/v0.10",
            V0_11 | V0_12 | V1_0 | V1_1 => "/v1",
            V1_2 => "/v1.2",
        }
    }

    fn revision_of_reads(self) -> &'static str {
        match self {
            V0_9 | V0_10 | V0_11 => "",
            V0_12 => ".r1",
            V1_0 => ".r2",
            V1_1 | V1_2 => ".r3",
        }
    }

    fn revision_of_desire(self) -> &'static str {
        match self {
            V0_9 | V0_10 | V0_11 => "",
            V0_12 => ".r1",
            V1_0 | V1_1 | V1_2 => ".r2",
        }
    }

    fn desire(self) -> String {
        match self {
            V0_9 | V0_10 => "desired_lrps/create".to_owned(),
            _ => format!("desired_lrp/desire{}", self.revision_of_desire()),
        }
    }

    /// The path of the list, and of a second one of a version that lists a desired LRP in two
    /// messages.
    fn lists(self) -> Vec<String> {
        match self {
            V0_10 => ["mutable", "immutable"]
                .map(|part| format!("{part}_desired_lrps/list"))
                .to_vec(),
            _ => vec![format!("desired_lrps/list{}", self.revision_of_reads())],
        }
    }

    /// `None` in versions that only list.
    fn get(self) -> Option<String> {
        (self >= V0_11).then(|| {
            format!(
                "desired_lrps/get_by_process_guid{}",
                self.revision_of_reads()
            )
        })
    }

    fn get_task(self) -> (&'static str, String) {
        let revision = self.revision_of_reads();
        (
            if revision.is_empty() { "GET" } else { "POST" },
            format!("tasks/get_by_task_guid{revision}"),
        )
    }

    /// The path of the list of scheduling infos; only Diego's current API and newer ones are tested
    /// with it.
    pub(super) fn scheduling_infos(self) -> Option<&'static str> {
        match self {
            V0_9 | V0_10 | V0_11 | V0_12 | V1_0 => None,
            V1_1 => Some("desired_lrp_scheduling_infos/list"),
            V1_2 => Some("desired_lrp_scheduling_infos/list.r1"),
        }
    }

    /// Whether its stream of LRPs has events of groups of instances.
    pub(super) fn has_group_events(self) -> bool {
        !self.streams()[0].1.contains("lrp_instances")
    }

    /// The streams of LRPs and of tasks, each with its verb. The two oldest versions have those of
    /// Diego.
    fn streams(self) -> [(&'static str, String); 2] {
        match self {
            V0_9 | V0_10 | V0_11 => [
                ("GET", "/v1/events".to_owned()),
                ("POST", "/v1/events/tasks".to_owned()),
            ],
            V0_12 => {
                ["lrp_instances", "tasks"].map(|stream| ("POST", format!("/v1/events/{stream}")))
            }
            V1_0 => [
                ("GET", "/v1/events.r1".to_owned()),
                ("POST", "/v1/events/tasks".to_owned()),
            ],
            V1_1 | V1_2 => ["lrp_instances.r1", "tasks.r1"]
                .map(|stream| ("POST", format!("{}/events/{stream}", self.root()))),
        }
    }

    /// Verbs and paths below the root of the calls whose form depends on the version.
    pub(super) fn calls(self) -> Vec<(&'static str, String)> {
        let tasks = [
            format!("tasks/desire{}", self.revision_of_desire()),
            format!("tasks/list{}", self.revision_of_reads()),
        ];
        let infos = self.scheduling_infos().filter(|_| self == V1_2);
        let posts = [
            vec![self.desire()],
            self.lists(),
            self.get().into_iter().collect(),
            tasks.to_vec(),
        ];
        let posts = posts.concat().into_iter().chain(infos.map(str::to_owned));
        posts
            .map(|path| ("POST", path))
            .chain([self.get_task()])
            .collect()
    }
}

pub(super) struct VersionedClient {
    pub(super) version: ClientVersion,
    http: reqwest::Client,
    /// The URL of the host, without a path.
    url: String,
}

impl VersionedClient {
    /// A client of each version.
    pub(super) fn all(url: &str) -> [Self; 7] {
        let http = crate::harness::http_client();
        ClientVersion::ALL.map(|version| Self {
            version,
            http: http.clone(),
            url: url.to_owned(),
        })
    }

    /// Sends a request to a path below the root of the version.
    pub(super) async fn send(&self, verb: &str, path: &str, body: Vec<u8>) -> Reply {
        let url = format!("{}{}/{path}", self.url, self.version.root());
        let response = self
            .http
            .request(verb.parse().unwrap(), url)
            .body(body)
            .send()
            .await
            .unwrap();
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        Reply {
            status,
            headers,
            body: response.bytes().await.unwrap().to_vec(),
        }
    }

    async fn post<M: Message + Default>(&self, path: &str, request: &impl Message) -> M {
        self.send("POST", path, request.encode_to_vec())
            .await
            .message()
    }

    /// Makes a call whose answer has nothing but an error, and asserts that it has none.
    async fn change(&self, path: &str, request: &impl Message) {
        let answer: proto::DesiredLrpLifecycleResponse = self.post(path, request).await;
        assert_eq!(answer.error, None, "{:?} {path}", self.version);
    }

    pub(super) async fn create(&self, lrp: &proto::DesiredLrp) {
        let path = self.version.desire();
        // The older messages have the same field numbers, without those of newer fields.
        let encoded = lrp.encode_to_vec();
        match self.version {
            V0_9 => {
                let desired_lrp = Some(v0_9::DesiredLrp::decode(&encoded[..]).unwrap());
                self.change(&path, &v0_9::CreateDesiredLrpRequest { desired_lrp })
                    .await;
            }
            V0_10 => {
                let mutable = v0_10::MutableDesiredLrp {
                    process_guid: lrp.process_guid.clone(),
                    instances: lrp.instances,
                    routes: lrp.routes.clone(),
                    annotation: lrp.annotation.clone(),
                };
                let immutable = v0_10::ImmutableDesiredLrp::decode(&encoded[..]).unwrap();
                let request = v0_10::CreateDesiredLrpRequest {
                    mutable_desired_lrp: Some(mutable),
                    immutable_desired_lrp: Some(immutable),
                };
                self.change(&path, &request).await;
            }
            _ => {
                self.change(
                    &path,
                    &proto::DesireLrpRequest {
                        desired_lrp: Some(lrp.clone()),
                    },
                )
                .await
            }
        }
    }

    /// The desired LRPs of a domain, or all if it is empty.
    pub(super) async fn list(&self, domain: &str) -> Vec<proto::DesiredLrp> {
        let request = v0_9::ListDesiredLrPsRequest {
            domain: domain.into(),
        };
        let paths = self.version.lists();
        match self.version {
            V0_9 => {
                let list: v0_9::ListDesiredLrPsResponse = self.post(&paths[0], &request).await;
                assert_eq!(list.error, None);
                list.desired_lrps
                    .into_iter()
                    .map(|lrp| proto::DesiredLrp::decode(&lrp.encode_to_vec()[..]).unwrap())
                    .collect()
            }
            V0_10 => {
                let mutable: v0_10::ListMutableDesiredLrPsResponse =
                    self.post(&paths[0], &request).await;
                let immutable: v0_10::ListImmutableDesiredLrPsResponse =
                    self.post(&paths[1], &request).await;
                assert_eq!((mutable.error, immutable.error), (None, None));
                let mutable = mutable.mutable_desired_lrps;
                let immutable = immutable.immutable_desired_lrps;
                assert_eq!(mutable.len(), immutable.len());
                mutable
                    .into_iter()
                    .zip(immutable)
                    .map(|(mutable, immutable)| joined(mutable, &immutable))
                    .collect()
            }
            _ => {
                let request = proto::DesiredLrPsRequest {
                    domain: domain.into(),
                    ..Default::default()
                };
                let list: proto::DesiredLrPsResponse = self.post(&paths[0], &request).await;
                assert_eq!(list.error, None);
                list.desired_lrps
            }
        }
    }

    /// Reads one desired LRP; a version that only lists has it in its list.
    pub(super) async fn get(&self, process_guid: &[u8]) -> Option<proto::DesiredLrp> {
        let Some(path) = self.version.get() else {
            return self
                .list("")
                .await
                .into_iter()
                .find(|lrp| lrp.process_guid == process_guid);
        };
        let request = proto::DesiredLrpByProcessGuidRequest {
            process_guid: process_guid.to_vec(),
        };
        self.post::<proto::DesiredLrpResponse>(&path, &request)
            .await
            .desired_lrp
    }

    /// The unclaimed first instances of the desired LRPs of a domain, in order: their process guids
    /// and definitions. Clients up to 1.0 read groups.
    pub(super) async fn instances(&self, domain: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let domain = domain.as_bytes().to_vec();
        let instances = if self.version <= V1_0 {
            let request = proto::ActualLrpGroupsRequest {
                domain,
                ..Default::default()
            };
            let path = format!("{}/v1/actual_lrp_groups/list", self.url);
            let response = self
                .http
                .post(path)
                .body(request.encode_to_vec())
                .send()
                .await
                .unwrap();
            let list =
                proto::ActualLrpGroupsResponse::decode(response.bytes().await.unwrap()).unwrap();
            assert_eq!(list.error, None);
            let groups = list.actual_lrp_groups.into_iter();
            groups
                .map(|group| group.instance.expect("no instance is being evacuated"))
                .collect()
        } else {
            let request = proto::ActualLrPsRequest {
                domain,
                ..Default::default()
            };
            let list: proto::ActualLrPsResponse = self.post("actual_lrps/list", &request).await;
            assert_eq!(list.error, None);
            list.actual_lrps
        };
        let mut found: Vec<_> = instances
            .into_iter()
            .map(|lrp| {
                let key = lrp.actual_lrp_key.expect("each instance has a key");
                assert_eq!(
                    (key.index, &lrp.state[..]),
                    (0, &b"UNCLAIMED"[..]),
                    "{:?}",
                    self.version
                );
                (key.process_guid, lrp.desired_lrp_definition_id)
            })
            .collect();
        found.sort();
        found
    }

    /// The process guids and definitions in the scheduling infos of a domain, in order; `None` if
    /// the version's are not tested.
    pub(super) async fn scheduling_infos(&self, domain: &str) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let request = proto::DesiredLrPsRequest {
            domain: domain.into(),
            ..Default::default()
        };
        let list: proto::DesiredLrpSchedulingInfosResponse =
            self.post(self.version.scheduling_infos()?, &request).await;
        assert_eq!(list.error, None);
        let infos = list.desired_lrp_scheduling_infos.into_iter();
        let mut found: Vec<_> = infos
            .map(|info| {
                (
                    info.desired_lrp_key
                        .expect("each info has a key")
                        .process_guid,
                    info.definition_id,
                )
            })
            .collect();
        found.sort();
        Some(found)
    }

    /// Subscribes to the events of LRPs and of tasks.
    pub(super) async fn subscribe(&self) -> [EventStream; 2] {
        let [lrps, tasks] = self.version.streams().map(|(verb, path)| {
            let url = format!("{}{path}", self.url);
            async move {
                match verb {
                    "GET" => EventStream::get(url, "").await,
                    _ => EventStream::open(url, "").await,
                }
            }
        });
        [lrps.await, tasks.await]
    }

    pub(super) async fn remove(&self, process_guid: &[u8]) {
        let request = proto::RemoveDesiredLrpRequest {
            process_guid: process_guid.to_vec(),
        };
        self.change("desired_lrp/remove", &request).await;
    }

    pub(super) async fn create_task(
        &self,
        task_guid: &[u8],
        domain: &str,
        definition: &proto::TaskDefinition,
    ) {
        let task_guid = task_guid.to_vec();
        let task_definition = Some(definition.clone());
        let request = proto::DesireTaskRequest {
            task_definition,
            task_guid,
            domain: domain.into(),
        };
        self.change(
            &format!("tasks/desire{}", self.version.revision_of_desire()),
            &request,
        )
        .await;
    }

    pub(super) async fn list_tasks(&self, domain: &str) -> Vec<proto::Task> {
        let request = proto::TasksRequest {
            domain: domain.into(),
            ..Default::default()
        };
        let path = format!("tasks/list{}", self.version.revision_of_reads());
        let list: proto::TasksResponse = self.post(&path, &request).await;
        assert_eq!(list.error, None);
        list.tasks
    }

    pub(super) async fn get_task(&self, task_guid: &[u8]) -> Option<proto::Task> {
        let (verb, path) = self.version.get_task();
        let request = proto::TaskByGuidRequest {
            task_guid: task_guid.to_vec(),
        };
        self.send(verb, &path, request.encode_to_vec())
            .await
            .message::<proto::TaskResponse>()
            .task
    }

    pub(super) async fn remove_task(&self, task_guid: &[u8]) {
        for call in ["cancel", "resolving", "delete"] {
            let request = proto::TaskGuidRequest {
                task_guid: task_guid.to_vec(),
            };
            self.change(&format!("tasks/{call}"), &request).await;
        }
    }
}

fn joined(
    mutable: v0_10::MutableDesiredLrp,
    immutable: &v0_10::ImmutableDesiredLrp,
) -> proto::DesiredLrp {
    assert_eq!(mutable.process_guid, immutable.process_guid);
    let v0_10::MutableDesiredLrp {
        instances,
        routes,
        annotation,
        ..
    } = mutable;
    let lrp = proto::DesiredLrp::decode(&immutable.encode_to_vec()[..]).unwrap();
    proto::DesiredLrp {
        instances,
        routes,
        annotation,
        ..lrp
    }
}
