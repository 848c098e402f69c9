//! Reps, of which each cell has one: what runs there is theirs to stop and to change.

use std::collections::BTreeMap;
use std::time::Duration;

use bbs_proto::models::CellPresence;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::pool::{Ask, Pool};
use super::{ClientError, ClientsError, files, text};
use crate::config;
use crate::model::actual_lrp::{InstanceKey, LrpKey};
use crate::model::{Text, TraceId};

const NOT_FOUND: u16 = 404;

/// Where nothing is configured, nothing runs anywhere.
#[derive(Debug, Clone, Default)]
pub struct Reps(Option<Pool>);

/// What is to change in a running container. What is absent stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InstanceUpdate {
    /// The host names of the internal routes.
    pub internal_routes: Option<Vec<Text>>,
    pub metric_tags: Option<BTreeMap<Text, Text>>,
}

impl Reps {
    pub(super) fn new(rep: &config::Rep, timeout: Duration) -> Result<Self, ClientsError> {
        let pool = Pool::new(rep.tls.as_ref().map(files), rep.session_cache_size, timeout);
        Ok(Self(Some(pool.map_err(|source| ClientsError::Pool { keys: "rep_*", source: Box::new(source) })?)))
    }

    /// Asks for the end of a container. It is gone once the rep has removed the instance.
    pub async fn stop(
        &self,
        cell: &CellPresence,
        key: &LrpKey,
        instance: &InstanceKey,
        trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        let Some(pool) = &self.0 else { return Ok(()) };
        let (process_guid, instance_guid) = (text(&key.process_guid), text(&instance.instance_guid));
        let path = ["v1", "lrps", &process_guid, "instances", &instance_guid, "stop"];
        let url = below(cell, &path)?;
        pool.ask(&ask("have a cell stop an instance", Method::POST, url, Vec::new(), trace_id)).await
    }

    pub async fn update(
        &self,
        cell: &CellPresence,
        key: &LrpKey,
        instance: &InstanceKey,
        update: &InstanceUpdate,
        trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        let Some(pool) = &self.0 else { return Ok(()) };
        match put(pool, "v2", cell, key, instance, update, trace_id).await {
            Err(ClientError::Status { status: NOT_FOUND, .. }) if update.internal_routes.is_some() => {}
            Err(ClientError::Status { status: NOT_FOUND, .. }) => return Ok(()),
            answered => return answered,
        }
        // An older rep, which knows of routes only. One that does not know even them has nothing to change.
        let routes = InstanceUpdate { internal_routes: update.internal_routes.clone(), metric_tags: None };
        match put(pool, "v1", cell, key, instance, &routes, trace_id).await {
            Err(ClientError::Status { status: NOT_FOUND, .. }) => Ok(()),
            answered => answered,
        }
    }

    pub async fn cancel_task(
        &self,
        cell: &CellPresence,
        task_guid: &[u8],
        trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        let Some(pool) = &self.0 else { return Ok(()) };
        let url = below(cell, &["v1", "tasks", &text(task_guid), "cancel"])?;
        pool.ask(&ask("have a cell cancel a task", Method::POST, url, Vec::new(), trace_id)).await
    }
}

async fn put(
    pool: &Pool,
    version: &str,
    cell: &CellPresence,
    key: &LrpKey,
    instance: &InstanceKey,
    update: &InstanceUpdate,
    trace_id: &TraceId,
) -> Result<(), ClientError> {
    let (process_guid, instance_guid) = (text(&key.process_guid), text(&instance.instance_guid));
    let url = below(cell, &[version, "lrps", &process_guid, "instances", &instance_guid])?;
    let body = update_json(key, instance, update).to_string().into_bytes();
    pool.ask(&ask("have a cell update an instance", Method::PUT, url, body, trace_id)).await
}

fn ask<'a>(what: &'static str, method: Method, url: Url, body: Vec<u8>, trace_id: &'a TraceId) -> Ask<'a> {
    Ask { what, method, url, body, trace_id: Some(trace_id).filter(|TraceId(id)| !id.is_empty()) }
}

/// A path of a rep's. Guids are whatever clients make up, so each is one segment whatever is in it.
fn below(cell: &CellPresence, path: &[&str]) -> Result<Url, ClientError> {
    let refused = || ClientError::NoSecureAddress { cell_id: text(&cell.cell_id) };
    let mut url = Url::parse(&text(&cell.rep_url)).map_err(|_| refused())?;
    if url.scheme() != "https" {
        return Err(refused());
    }
    url.path_segments_mut().map_err(|()| refused())?.pop_if_empty().extend(path);
    Ok(url)
}

fn update_json(key: &LrpKey, instance: &InstanceKey, update: &InstanceUpdate) -> Value {
    let hostname = |route: &Text| json!({ "hostname": text(route) });
    let routes = update.internal_routes.as_ref().map(|routes| routes.iter().map(hostname).collect::<Vec<_>>());
    let tag = |(name, value): (&Text, &Text)| (text(name), text(value));
    let tags = update.metric_tags.as_ref().map(|tags| tags.iter().map(tag).collect::<BTreeMap<_, _>>());
    json!({
        "instance_guid": text(&instance.instance_guid),
        "process_guid": text(&key.process_guid),
        "index": key.index,
        "domain": text(&key.domain),
        "internal_routes": routes,
        "metric_tags": tags,
    })
}
