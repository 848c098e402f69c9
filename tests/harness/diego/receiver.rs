//! A receiver of task completion callbacks: records every callback, including those that it answers
//! with a fault.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;

use super::fault_switch::FaultSwitch;
use super::trust::{HttpServer, Trust};

pub struct Receiver {
    inner: Arc<Inner>,
    listening: HttpServer,
}

#[derive(Default)]
struct Inner {
    faults: FaultSwitch,
    /// Number of callbacks by task guid.
    callbacks: Mutex<BTreeMap<String, u64>>,
}

impl Receiver {
    pub fn start(trust: &Trust) -> Self {
        let inner = Arc::new(Inner::default());
        let router = Router::new()
            .route("/done/{guid}", post(receive))
            .with_state(Arc::clone(&inner));
        Self {
            inner,
            listening: trust.listen(router),
        }
    }

    /// The callback URL of a task.
    pub fn url(&self, guid: &str) -> String {
        format!("{}/done/{guid}", self.listening.url())
    }

    pub fn faults(&self) -> &FaultSwitch {
        &self.inner.faults
    }

    /// Number of callbacks by task guid.
    pub fn callbacks(&self) -> BTreeMap<String, u64> {
        self.inner
            .callbacks
            .lock()
            .expect("no request panics")
            .clone()
    }
}

async fn receive(
    State(inner): State<Arc<Inner>>,
    Path(guid): Path<String>,
    body: Bytes,
) -> Response {
    let callback: Value = serde_json::from_slice(&body).unwrap_or_default();
    if callback["task_guid"] != guid.as_str() || !callback["failed"].is_boolean() {
        return StatusCode::BAD_REQUEST.into_response();
    }
    *inner
        .callbacks
        .lock()
        .expect("no request panics")
        .entry(guid)
        .or_default() += 1;
    inner
        .faults
        .intercept()
        .await
        .unwrap_or_else(|| StatusCode::OK.into_response())
}
