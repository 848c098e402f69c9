//! Whoever wants to know how a task ended, at the address that came with the task.

use std::time::Duration;

use reqwest::{Method, Url};
use serde_json::json;

use super::pool::{Ask, Pool};
use super::{ClientError, ClientsError, files, text};
use crate::config::ClientTls;
use crate::model::task::Task;

/// Where nothing is configured, nobody is told.
#[derive(Debug, Clone, Default)]
pub struct Callbacks(Option<Pool>);

impl Callbacks {
    /// `identity` is what the API shows to its clients, too.
    pub(super) fn new(identity: Option<&ClientTls>, timeout: Duration) -> Result<Self, ClientsError> {
        let pool = Pool::new(identity.map(files), None, timeout);
        Ok(Self(Some(pool.map_err(|source| ClientsError::Pool { keys: "*_file", source: Box::new(source) })?)))
    }

    /// One attempt: the status that was answered.
    pub async fn post(&self, task: &Task) -> Result<u16, ClientError> {
        let Some(pool) = &self.0 else { return Ok(200) };
        let url = text(&task.definition.completion_callback_url);
        let Ok(url) = Url::parse(&url) else { return Err(ClientError::NoCallback { url }) };
        let ask = Ask {
            what: "say how a task ended",
            method: Method::POST,
            url,
            body: body(task).to_string().into_bytes(),
            trace_id: None,
        };
        let answer = pool.send(&ask).await?;
        let status = answer.status().as_u16();
        // To the end, so that the connection can be used again.
        let _ = answer.bytes().await;
        Ok(status)
    }
}

fn body(task: &Task) -> serde_json::Value {
    let mut body = json!({
        "task_guid": text(&task.guid),
        "failed": task.failed,
        "failure_reason": text(&task.failure_reason),
        "result": text(&task.result),
        "created_at": task.created_at_ns,
    });
    if !task.definition.annotation.is_empty() {
        body["annotation"] = text(&task.definition.annotation).into();
    }
    body
}
