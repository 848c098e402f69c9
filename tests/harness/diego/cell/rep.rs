//! The rep's HTTP API for the host: stop a container, cancel a task, update the routes and tags of
//! a container.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{post, put};
use serde::Deserialize;

use super::{ContainerKey, Inner, Stage, Text};

type Rep = State<Arc<Inner>>;

#[derive(Deserialize)]
struct Update {
    instance_guid: String,
    process_guid: String,
    index: i32,
    #[serde(rename = "domain")]
    _domain: String,
    internal_routes: Option<Vec<InternalRoute>>,
    metric_tags: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct InternalRoute {
    hostname: String,
}

pub(super) fn router(inner: Arc<Inner>) -> Router {
    Router::new()
        .route(
            "/v1/lrps/{process_guid}/instances/{instance_guid}/stop",
            post(stop),
        )
        .route(
            "/v2/lrps/{process_guid}/instances/{instance_guid}",
            put(update),
        )
        .route("/v1/tasks/{task_guid}/cancel", post(cancel))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&inner),
            inject_faults,
        ))
        .with_state(inner)
}

async fn inject_faults(State(inner): Rep, request: Request, next: Next) -> Response {
    match inner.faults.intercept().await {
        Some(answer) => answer,
        None => next.run(request).await,
    }
}

async fn stop(
    State(inner): Rep,
    Path((process_guid, instance_guid)): Path<(String, String)>,
) -> StatusCode {
    let (process_guid, instance_guid) = (process_guid.into_bytes(), instance_guid.into_bytes());
    let found = inner
        .state()
        .containers
        .keys()
        .find(|key| matches_guids(key, &process_guid, &instance_guid))
        .cloned();
    let Some(key) = found else {
        return StatusCode::NOT_FOUND;
    };
    inner.trace.stop(&process_guid, &instance_guid);
    tokio::spawn(async move {
        if let Some(container) = inner.end(&key) {
            inner.report_stopped(&key, &container).await;
            inner.forget(&key);
        }
    });
    StatusCode::ACCEPTED
}

fn matches_guids(key: &ContainerKey, process_guid: &[u8], instance_guid: &[u8]) -> bool {
    key.process_guid == process_guid && key.instance_guid == instance_guid
}

async fn update(
    State(inner): Rep,
    Path((process_guid, instance_guid)): Path<(String, String)>,
    body: Bytes,
) -> StatusCode {
    let Ok(update) = serde_json::from_slice::<Update>(&body) else {
        return StatusCode::BAD_REQUEST;
    };
    if update.process_guid != process_guid || update.instance_guid != instance_guid {
        return StatusCode::BAD_REQUEST;
    }
    let key = ContainerKey {
        process_guid: process_guid.into(),
        index: update.index,
        instance_guid: instance_guid.into(),
    };
    {
        let mut state = inner.state();
        let Some(container) = state.containers.get_mut(&key) else {
            return StatusCode::NOT_FOUND;
        };
        if let Some(routes) = update.internal_routes {
            container.known_by.internal_routes = routes
                .into_iter()
                .map(|route| route.hostname.into_bytes())
                .collect();
        }
        if let Some(tags) = update.metric_tags {
            let text = |(key, value): (String, String)| (key.into_bytes(), value.into_bytes());
            container.known_by.metric_tags = tags.into_iter().map(text).collect();
        }
    }
    tokio::spawn(async move { inner.announce(&key, Stage::Running).await });
    StatusCode::ACCEPTED
}

async fn cancel(State(inner): Rep, Path(guid): Path<String>) -> StatusCode {
    let guid: Text = guid.into_bytes();
    match inner.state().tasks.remove(&guid) {
        Some(_) => StatusCode::ACCEPTED,
        None => StatusCode::NOT_FOUND,
    }
}
