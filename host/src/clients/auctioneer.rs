//! Client of the auctioneer, which places instances and tasks on cells.

use std::sync::Arc;
use std::time::Duration;

use backon::Retryable;
use bbs_model::desired_lrp::{SchedulingInfo, volume_drivers};
use bbs_model::task::Task;
use bbs_model::{Text, TraceId};
use bbs_work::pauses;
use reqwest::{Method, Url};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::pool::{Pool, RequestToSend};
use super::{ClientError, ClientsError, text};
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
        let starts: Vec<_> = starts.iter().map(lrp_json).collect();
        let what = "have the auctioneer place instances";
        self.request(what, "lrps", &starts, trace_id).await
    }

    /// Requests the auction of tasks, all in one request.
    ///
    /// # Errors
    /// The auctioneer cannot be reached or does not answer 202 Accepted.
    pub async fn request_tasks(&self, tasks: &[Task]) -> Result<(), ClientError> {
        let what = "have the auctioneer place tasks";
        let tasks: Vec<_> = tasks.iter().map(task_json).collect();
        self.request(what, "tasks", &tasks, &TraceId::NONE).await
    }

    async fn request(
        &self,
        what: &'static str,
        kind: &str,
        items: &impl Serialize,
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
        let body = serde_json::to_vec(items).expect("text and numbers are JSON");
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
        body: &[u8],
        trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        let mut outgoing = RequestToSend {
            what,
            method: Method::POST,
            url,
            body: body.to_vec(),
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

/// Keys in two styles, as Diego's auctioneer reads them.
fn lrp_json(start: &LrpStart) -> serde_json::Value {
    json!({
        "process_guid": text(&start.process_guid),
        "domain": text(&start.domain),
        "indices": start.indices,
        "PlacementTags": texts(&start.placement_tags),
        "VolumeDrivers": texts(&start.volume_drivers),
        "RootFs": text(&start.root_fs),
        "MemoryMB": start.memory_mb,
        "DiskMB": start.disk_mb,
        "MaxPids": start.max_pids,
    })
}

fn task_json(task: &Task) -> serde_json::Value {
    let definition = &task.definition;
    json!({
        "TaskGuid": text(&task.guid),
        "Domain": text(&task.domain),
        "PlacementTags": texts(&definition.placement_tags),
        "VolumeDrivers": texts(&volume_drivers(&definition.volume_mounts)),
        "RootFs": text(&definition.root_fs),
        "MemoryMB": definition.memory_mb,
        "DiskMB": definition.disk_mb,
        "MaxPids": definition.max_pids,
        "state": "Invalid",
        "failed": false,
    })
}

fn texts(texts: &[Text]) -> Vec<String> {
    texts.iter().map(|found| text(found)).collect()
}
