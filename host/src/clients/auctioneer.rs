//! Client of the auctioneer, which places instances and tasks on cells.

use std::sync::Arc;
use std::time::Duration;

use backon::Retryable;
use bbs_model::desired_lrp::{SchedulingInfo, volume_drivers};
use bbs_model::task::Task;
use bbs_model::{Text, TraceId, json};
use bbs_work::pauses;
use bytes::Bytes;
use reqwest::{Method, Url};
use serde::{Serialize, Serializer};
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

/// Waiting instances of one desired LRP, to be placed. The fields are those of Diego's
/// `LRPStartRequest`; in its JSON they are sorted by name, with keys in two styles, as the
/// auctioneer reads them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the fields are Diego's")]
pub struct LrpStart {
    /// For one instance, in MiB.
    #[serde(rename = "DiskMB")]
    pub disk_mb: i32,
    /// The most processes and threads of one instance.
    #[serde(rename = "MaxPids")]
    pub max_pids: i32,
    /// For one instance, in MiB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i32,
    #[serde(rename = "PlacementTags", serialize_with = "texts")]
    pub placement_tags: Vec<Text>,
    #[serde(rename = "RootFs", serialize_with = "text")]
    pub root_fs: Text,
    #[serde(rename = "VolumeDrivers", serialize_with = "texts")]
    pub volume_drivers: Vec<Text>,
    #[serde(serialize_with = "text")]
    pub domain: Text,
    /// The instances to place.
    pub indices: Vec<i32>,
    #[serde(serialize_with = "text")]
    pub process_guid: Text,
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
/// The fields are those of Diego's `TaskStartRequest`, sorted by name as in its JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the fields are Diego's")]
pub struct TaskStart {
    /// In MiB.
    #[serde(rename = "DiskMB")]
    pub disk_mb: i32,
    #[serde(rename = "Domain", serialize_with = "text")]
    pub domain: Text,
    /// The most processes and threads.
    #[serde(rename = "MaxPids")]
    pub max_pids: i32,
    /// In MiB.
    #[serde(rename = "MemoryMB")]
    pub memory_mb: i32,
    #[serde(rename = "PlacementTags", serialize_with = "texts")]
    pub placement_tags: Vec<Text>,
    #[serde(rename = "RootFs", serialize_with = "text")]
    pub root_fs: Text,
    #[serde(rename = "TaskGuid", serialize_with = "text")]
    pub task_guid: Text,
    #[serde(rename = "VolumeDrivers", serialize_with = "texts")]
    pub volume_drivers: Vec<Text>,
    failed: bool,
    state: &'static str,
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
            failed: false,
            state: "Invalid",
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
        let pool = Pool::new("auctioneer_*", auctioneer.tls.clone(), None, timeout)?;
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
        let what = "have the auctioneer place instances";
        self.request(what, "lrps", starts, trace_id).await
    }

    /// Requests the auction of tasks, all in one request.
    ///
    /// # Errors
    /// The auctioneer cannot be reached or does not answer 202 Accepted.
    pub async fn request_tasks(&self, starts: &[TaskStart]) -> Result<(), ClientError> {
        let what = "have the auctioneer place tasks";
        self.request(what, "tasks", starts, &TraceId::NONE).await
    }

    async fn request(
        &self,
        what: &'static str,
        kind: &str,
        items: &[impl Serialize],
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
        let body = Bytes::from(serde_json::to_vec(items).expect("text and numbers are JSON"));
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

/// Replaces invalid UTF-8, as [`super::text`] does.
fn text<S: Serializer>(text: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&json::replace_invalid(text))
}

fn texts<S: Serializer>(texts: &[Text], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(texts.iter().map(|text| json::replace_invalid(text)))
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
        let json = serde_json::to_string(&start).unwrap();
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
        let json = serde_json::to_string(&TaskStart::of(&task)).unwrap();
        assert_eq!(json, expected.concat());
    }
}
