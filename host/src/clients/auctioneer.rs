//! Client of the auctioneer, which places instances and tasks on cells.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use backon::Retryable;
use bbs_model::desired_lrp::{SchedulingInfo, volume_drivers};
use bbs_model::task::Task;
use bbs_model::{Text, TraceId, json};
use bbs_work::pauses;
use bytes::Bytes;
use reqwest::{Method, Url};
use serde::Serialize;
use tokio::time::Instant;

use super::pool::{Pool, RequestToSend};
use super::{ClientError, ClientsError};
use crate::config;

/// Without an address nothing is requested, and waiting instances and tasks stay pending.
#[derive(Debug, Clone, Default)]
pub struct Auctioneer(Option<Arc<AuctioneerConnection>>);

#[derive(Debug)]
struct AuctioneerConnection {
    pool: Pool,
    address: Url,
    require_tls: bool,
    timeout: Duration,
}

/// Waiting instances of one desired LRP, to be placed.
/// The fields are those of Diego's `LRPStartRequest`.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are Diego's")]
pub struct LrpStart {
    pub process_guid: Text,
    pub domain: Text,
    /// The instances to place.
    pub indices: Vec<i32>,
    pub placement_tags: Vec<Text>,
    pub volume_drivers: Vec<Text>,
    pub root_fs: Text,
    /// For one instance, in MiB.
    pub memory_mb: i32,
    /// For one instance, in MiB.
    pub disk_mb: i32,
    /// The most processes and threads of one instance.
    pub max_pids: i32,
}

impl LrpStart {
    /// A request for the instances at `indices`.
    pub fn of(info: &SchedulingInfo, indices: Vec<i32>) -> Self {
        Self {
            process_guid: info.process_guid.clone(),
            domain: info.domain.clone(),
            indices,
            placement_tags: info.placement_tags.clone(),
            volume_drivers: info.volume_drivers.clone(),
            root_fs: info.root_fs.clone(),
            memory_mb: info.memory_mb,
            disk_mb: info.disk_mb,
            max_pids: info.max_pids,
        }
    }
}

/// A waiting task, to be placed: a tenth of its record, since all that wait are due at once.
/// The fields are those of Diego's `TaskStartRequest`.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are Diego's")]
pub struct TaskStart {
    pub task_guid: Text,
    pub domain: Text,
    pub placement_tags: Vec<Text>,
    pub volume_drivers: Vec<Text>,
    pub root_fs: Text,
    /// In MiB.
    pub memory_mb: i32,
    /// In MiB.
    pub disk_mb: i32,
    /// The most processes and threads.
    pub max_pids: i32,
}

impl TaskStart {
    /// A request for a task.
    pub fn of(task: &Task) -> Self {
        let definition = &task.definition;
        Self {
            task_guid: task.guid.clone(),
            domain: task.domain.clone(),
            placement_tags: definition.placement_tags.clone(),
            volume_drivers: volume_drivers(&definition.volume_mounts),
            root_fs: definition.root_fs.clone(),
            memory_mb: definition.memory_mb,
            disk_mb: definition.disk_mb,
            max_pids: definition.max_pids,
        }
    }
}

impl Auctioneer {
    pub(super) fn new(
        auctioneer: &config::AuctioneerConfig,
        timeout: Duration,
    ) -> Result<Self, ClientsError> {
        let malformed = || ClientsError::Address {
            key: "auctioneer_address",
            address: auctioneer.address.clone(),
        };
        let address = Url::parse(&auctioneer.address).map_err(|_| malformed())?;
        if !address.has_host() {
            return Err(malformed());
        }
        let pool = Pool::new(auctioneer.tls.clone(), None, timeout).map_err(|source| {
            ClientsError::Pool {
                keys: "auctioneer_*",
                source: Box::new(source),
            }
        })?;
        Ok(Self(Some(Arc::new(AuctioneerConnection {
            pool,
            address,
            require_tls: auctioneer.require_tls,
            timeout,
        }))))
    }

    /// Requests the auction of instances, all in one request.
    ///
    /// # Errors
    /// The auctioneer cannot be reached or does not answer 202 Accepted.
    pub async fn request_lrps(
        &self,
        starts: &[LrpStart],
        trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        let starts: Vec<_> = starts.iter().map(LrpStartJson::of).collect();
        let what = "have the auctioneer place instances";
        self.request(what, "lrps", starts, trace_id).await
    }

    /// Requests the auction of tasks, all in one request.
    ///
    /// # Errors
    /// The auctioneer cannot be reached or does not answer 202 Accepted.
    pub async fn request_tasks(&self, starts: &[TaskStart]) -> Result<(), ClientError> {
        let starts: Vec<_> = starts.iter().map(TaskStartJson::of).collect();
        let what = "have the auctioneer place tasks";
        self.request(what, "tasks", starts, &TraceId::NONE).await
    }

    async fn request(
        &self,
        what: &'static str,
        kind: &str,
        items: Vec<impl Serialize>,
        trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        let Some(connection) = &self.0 else {
            return Ok(());
        };
        let mut url = connection.address.clone();
        url.path_segments_mut()
            .expect("it has a host")
            .pop_if_empty()
            .extend(["v1", kind]);
        let body = Bytes::from(serde_json::to_vec(&items).expect("text and numbers are JSON"));
        // Tens of megabytes, while the answer may take long.
        drop(items);
        let begin = Instant::now();
        let attempt = || connection.send(what, url.clone(), &body, trace_id);
        attempt
            .retry(pauses::of_requests())
            .when(|fault| fault.may_pass() && begin.elapsed() < connection.timeout)
            .notify(|fault, _| {
                tracing::info!(
                    error = fault as &dyn std::error::Error,
                    "the auctioneer gets the request again"
                );
            })
            .await
    }
}

impl AuctioneerConnection {
    /// Sends a request, again without TLS if that is allowed and the auctioneer has none.
    async fn send(
        &self,
        what: &'static str,
        url: Url,
        body: &Bytes,
        trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        let mut outgoing = RequestToSend {
            what,
            method: Method::POST,
            url,
            body: body.clone(),
            trace_id: Some(trace_id),
        };
        match self.pool.send_for_acceptance(&outgoing).await {
            Err(fault @ ClientError::Unreachable { .. })
                if !self.require_tls && outgoing.url.scheme() == "https" =>
            {
                tracing::debug!(
                    error = &fault as &dyn std::error::Error,
                    "trying the auctioneer again, without TLS"
                );
                outgoing
                    .url
                    .set_scheme("http")
                    .expect("https can be replaced by http");
                self.pool.send_for_acceptance(&outgoing).await
            }
            answered => answered,
        }
    }
}

/// The JSON of an [`LrpStart`], its members sorted by name.
/// Keys in two styles, as Diego's auctioneer reads them.
#[derive(Serialize)]
struct LrpStartJson<'a> {
    #[serde(rename = "DiskMB")]
    disk_mb: i32,
    #[serde(rename = "MaxPids")]
    max_pids: i32,
    #[serde(rename = "MemoryMB")]
    memory_mb: i32,
    #[serde(rename = "PlacementTags")]
    placement_tags: Vec<Cow<'a, str>>,
    #[serde(rename = "RootFs")]
    root_fs: Cow<'a, str>,
    #[serde(rename = "VolumeDrivers")]
    volume_drivers: Vec<Cow<'a, str>>,
    domain: Cow<'a, str>,
    indices: &'a [i32],
    process_guid: Cow<'a, str>,
}

impl<'a> LrpStartJson<'a> {
    fn of(start: &'a LrpStart) -> Self {
        Self {
            disk_mb: start.disk_mb,
            max_pids: start.max_pids,
            memory_mb: start.memory_mb,
            placement_tags: all_borrowed(&start.placement_tags),
            root_fs: borrowed(&start.root_fs),
            volume_drivers: all_borrowed(&start.volume_drivers),
            domain: borrowed(&start.domain),
            indices: &start.indices,
            process_guid: borrowed(&start.process_guid),
        }
    }
}

/// The JSON of a [`TaskStart`], its members sorted by name.
#[derive(Serialize)]
struct TaskStartJson<'a> {
    #[serde(rename = "DiskMB")]
    disk_mb: i32,
    #[serde(rename = "Domain")]
    domain: Cow<'a, str>,
    #[serde(rename = "MaxPids")]
    max_pids: i32,
    #[serde(rename = "MemoryMB")]
    memory_mb: i32,
    #[serde(rename = "PlacementTags")]
    placement_tags: Vec<Cow<'a, str>>,
    #[serde(rename = "RootFs")]
    root_fs: Cow<'a, str>,
    #[serde(rename = "TaskGuid")]
    task_guid: Cow<'a, str>,
    #[serde(rename = "VolumeDrivers")]
    volume_drivers: Vec<Cow<'a, str>>,
    failed: bool,
    state: &'static str,
}

impl<'a> TaskStartJson<'a> {
    fn of(start: &'a TaskStart) -> Self {
        Self {
            disk_mb: start.disk_mb,
            domain: borrowed(&start.domain),
            max_pids: start.max_pids,
            memory_mb: start.memory_mb,
            placement_tags: all_borrowed(&start.placement_tags),
            root_fs: borrowed(&start.root_fs),
            task_guid: borrowed(&start.task_guid),
            volume_drivers: all_borrowed(&start.volume_drivers),
            failed: false,
            state: "Invalid",
        }
    }
}

/// [`super::text`] that copies only invalid UTF-8.
fn borrowed(text: &[u8]) -> Cow<'_, str> {
    json::replace_invalid(text)
}

fn all_borrowed(texts: &[Text]) -> Vec<Cow<'_, str>> {
    texts.iter().map(|text| borrowed(text)).collect()
}

#[cfg(test)]
mod tests {
    use bbs_proto::models::{TaskDefinition, VolumeMount};

    use super::*;

    #[test]
    fn json_of_an_lrp_has_sorted_members() {
        let start = LrpStart {
            process_guid: b"guid".to_vec(),
            domain: b"do\"main".to_vec(),
            indices: vec![0, 2],
            placement_tags: vec![b"gpu".to_vec(), b"\xe2\x80".to_vec()],
            volume_drivers: Vec::new(),
            root_fs: b"preloaded:cflinuxfs4".to_vec(),
            memory_mb: 256,
            disk_mb: 1024,
            max_pids: -1,
        };
        let expected = [
            r#"{"DiskMB":1024,"MaxPids":-1,"MemoryMB":256,"PlacementTags":["gpu","��"],"#,
            r#""RootFs":"preloaded:cflinuxfs4","VolumeDrivers":[],"domain":"do\"main","#,
            r#""indices":[0,2],"process_guid":"guid"}"#,
        ];
        let json = serde_json::to_string(&LrpStartJson::of(&start)).unwrap();
        assert_eq!(json, expected.concat());
    }

    #[test]
    fn json_of_a_task_has_sorted_members_and_the_fields_of_a_start_request() {
        let mount = |driver: &[u8]| VolumeMount {
            driver: driver.to_vec(),
            ..VolumeMount::default()
        };
        let task = Task {
            guid: b"task".to_vec(),
            domain: b"domain".to_vec(),
            result: b"left out".to_vec(),
            definition: TaskDefinition {
                root_fs: b"docker:///a\n".to_vec(),
                memory_mb: 1,
                disk_mb: 2,
                max_pids: 3,
                placement_tags: vec![b"\xff".to_vec()],
                volume_mounts: vec![mount(b"nfs"), mount(b"smb")],
                ..TaskDefinition::default()
            },
            ..Task::default()
        };
        let expected = [
            r#"{"DiskMB":2,"Domain":"domain","MaxPids":3,"MemoryMB":1,"PlacementTags":["�"],"#,
            r#""RootFs":"docker:///a\n","TaskGuid":"task","VolumeDrivers":["nfs","smb"],"#,
            r#""failed":false,"state":"Invalid"}"#,
        ];
        let json = serde_json::to_string(&TaskStartJson::of(&TaskStart::of(&task))).unwrap();
        assert_eq!(json, expected.concat());
    }
}
