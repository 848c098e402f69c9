//! Who wants to know how its tasks ended: it writes down every callback, even of those that it does not answer well.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;

use super::mood::Mood;
use super::trust::{Listening, Trust};

pub struct Receiver {
    inner: Arc<Inner>,
    listening: Listening,
}

#[derive(Default)]
struct Inner {
    mood: Mood,
    /// How often each task was told of.
    told: Mutex<BTreeMap<String, u64>>,
}

impl Receiver {
    pub fn start(trust: &Trust) -> Self {
        let inner = Arc::new(Inner::default());
        let router = Router::new().route("/done/{guid}", post(hear)).with_state(Arc::clone(&inner));
        Self { inner, listening: trust.listen(router) }
    }

    /// Where to tell of a task.
    pub fn url(&self, guid: &str) -> String {
        format!("{}/done/{guid}", self.listening.url())
    }

    pub fn mood(&self) -> &Mood {
        &self.inner.mood
    }

    pub fn told(&self) -> BTreeMap<String, u64> {
        self.inner.told.lock().expect("no request panics").clone()
    }
}

async fn hear(State(inner): State<Arc<Inner>>, Path(guid): Path<String>, body: Bytes) -> Response {
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    if said["task_guid"] != guid.as_str() || !said["failed"].is_boolean() {
        return StatusCode::BAD_REQUEST.into_response();
    }
    *inner.told.lock().expect("no request panics").entry(guid).or_default() += 1;
    inner.mood.meet().await.unwrap_or_else(|| StatusCode::OK.into_response())
}
