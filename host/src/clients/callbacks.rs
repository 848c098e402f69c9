//! Client of task completion callbacks, at the URL of each task.

use std::time::Duration;

use bbs_model::task::Task;
use reqwest::{Method, Url};
use serde_json::json;

use super::pool::{Pool, RequestToSend, drain};
use super::{ClientError, ClientsError, text};
use crate::config::CertificateFiles;

/// Not configured, every callback counts as delivered.
#[derive(Debug, Clone, Default)]
pub struct Callbacks(Option<Pool>);

impl Callbacks {
    /// `identity` is the certificate that the API presents to its clients, too.
    pub(super) fn new(
        identity: Option<&CertificateFiles>,
        timeout: Duration,
    ) -> Result<Self, ClientsError> {
        let pool = Pool::new("*_file", identity.cloned(), None, timeout)?;
        Ok(Self(Some(pool)))
    }

    /// Posts the result of a task once; returns the status of the answer.
    ///
    /// # Errors
    /// The URL is malformed, or its host cannot be reached.
    pub async fn post(&self, task: &Task) -> Result<u16, ClientError> {
        let Some(pool) = &self.0 else { return Ok(200) };
        let url = text(&task.definition.completion_callback_url);
        let Ok(url) = Url::parse(&url) else {
            return Err(ClientError::NoCallback { url });
        };
        let outgoing = RequestToSend {
            what: "call the completion callback of a task",
            method: Method::POST,
            url,
            body: body(task).to_string().into(),
            trace_id: None,
        };
        let answer = pool.send(&outgoing).await?;
        let status = answer.status().as_u16();
        drain(answer).await;
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
