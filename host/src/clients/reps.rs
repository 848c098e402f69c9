//! Client of the reps, one per cell: stops and updates the containers of a cell, and cancels its
//! tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use bbs_model::TraceId;
use bbs_model::actual_lrp::{InstanceKey, LrpKey};
use bbs_model::convergence::Push;
use bbs_proto::models::CellPresence;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use super::pool::{Pool, RequestToSend};
use super::{ClientError, ClientsError, text};
use crate::config;

const NOT_FOUND: u16 = 404;

/// Not configured, every request counts as done.
#[derive(Debug, Clone, Default)]
pub struct Reps(Option<RepConnections>);

#[derive(Debug, Clone)]
struct RepConnections {
    pool: Pool,
    require_tls: bool,
}

impl Reps {
    pub(super) fn new(rep: &config::RepConfig, timeout: Duration) -> Result<Self, ClientsError> {
        let pool = Pool::new("rep_*", rep.tls.clone(), rep.session_cache_size, timeout)?;
        Ok(Self(Some(RepConnections {
            pool,
            require_tls: rep.require_tls,
        })))
    }

    /// Has a cell stop a container. The rep removes the instance when it has stopped.
    ///
    /// # Errors
    /// The cell has no https address although that is required, cannot be reached, or does not
    /// answer 202 Accepted.
    pub async fn stop(
        &self,
        cell: &CellPresence,
        key: &LrpKey,
        instance: &InstanceKey,
        trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        let what = "have a cell stop an instance";
        let process_guid = text(&key.process_guid);
        let instance_guid = text(&instance.instance_guid);
        let path = [
            "v1",
            "lrps",
            &process_guid,
            "instances",
            &instance_guid,
            "stop",
        ];
        self.send(what, Method::POST, cell, &path, Vec::new(), trace_id)
            .await
    }

    /// Updates a container. Reps that do not support metric tags get only the routes; older ones
    /// get nothing.
    ///
    /// # Errors
    /// As of [`Reps::stop`].
    pub async fn update(
        &self,
        cell: &CellPresence,
        push: &Push,
        trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        let what = "have a cell update an instance";
        let process_guid = text(&push.key.process_guid);
        let instance_guid = text(&push.instance.instance_guid);
        let routes = Push {
            key: push.key.clone(),
            instance: push.instance.clone(),
            internal_routes: push.internal_routes.clone(),
            metric_tags: None,
        };
        // An older rep supports routes only. One that does not support them either has nothing to
        // update.
        let older = Some(&routes).filter(|routes| routes.internal_routes.is_some());
        for (version, push) in [("v2", Some(push)), ("v1", older)] {
            let Some(push) = push else { break };
            let path = [version, "lrps", &process_guid, "instances", &instance_guid];
            let body = update_json(push).to_string().into_bytes();
            let sent = self.send(what, Method::PUT, cell, &path, body, trace_id);
            match sent.await {
                Err(ClientError::Status { status, .. }) if status == NOT_FOUND => {}
                answer => return answer,
            }
        }
        Ok(())
    }

    /// Has a cell cancel a task.
    ///
    /// # Errors
    /// As of [`Reps::stop`].
    pub async fn cancel_task(
        &self,
        cell: &CellPresence,
        task_guid: &[u8],
        trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        let what = "have a cell cancel a task";
        let task_guid = text(task_guid);
        let path = ["v1", "tasks", &task_guid, "cancel"];
        self.send(what, Method::POST, cell, &path, Vec::new(), trace_id)
            .await
    }

    /// Sends a request to a path of a cell's rep. `what` is that of [`RequestToSend`].
    async fn send(
        &self,
        what: &'static str,
        method: Method,
        cell: &CellPresence,
        path: &[&str],
        body: Vec<u8>,
        trace_id: &TraceId,
    ) -> Result<(), ClientError> {
        let Some(connections) = &self.0 else {
            return Ok(());
        };
        let outgoing = RequestToSend {
            what,
            method,
            url: connections.url(cell, path)?,
            body: body.into(),
            trace_id: Some(trace_id).filter(|TraceId(id)| !id.is_empty()),
        };
        connections.pool.send_for_acceptance(&outgoing).await
    }
}

impl RepConnections {
    /// The URL of a path of the rep. Each element is one segment, because guids may hold any
    /// characters. A rep without TLS may have nothing but the older `rep_address`.
    fn url(&self, cell: &CellPresence, path: &[&str]) -> Result<Url, ClientError> {
        let cell_id = || text(&cell.cell_id);
        let address = if cell.rep_url.is_empty() {
            text(&cell.rep_address)
        } else {
            text(&cell.rep_url)
        };
        let parsed = Url::parse(&address).ok().filter(Url::has_host);
        let is_secure = parsed.as_ref().is_some_and(|url| url.scheme() == "https");
        if self.require_tls && !is_secure {
            return Err(ClientError::NoSecureAddress { cell_id: cell_id() });
        }
        let mut url = parsed
            .filter(|url| is_secure || url.scheme() == "http")
            .ok_or_else(|| ClientError::MalformedAddress {
                cell_id: cell_id(),
                address,
            })?;
        url.path_segments_mut()
            .expect("it has a host")
            .pop_if_empty()
            .extend(path);
        Ok(url)
    }
}

fn update_json(push: &Push) -> Value {
    let routes = push.internal_routes.as_ref().map(|routes| {
        routes
            .iter()
            .map(|route| json!({ "hostname": text(route) }))
            .collect::<Vec<_>>()
    });
    let tags = push.metric_tags.as_ref().map(|tags| {
        tags.iter()
            .map(|(name, value)| (text(name), text(value)))
            .collect::<BTreeMap<_, _>>()
    });
    json!({
        "instance_guid": text(&push.instance.instance_guid),
        "process_guid": text(&push.key.process_guid),
        "index": push.key.index,
        "domain": text(&push.key.domain),
        "internal_routes": routes,
        "metric_tags": tags,
    })
}
