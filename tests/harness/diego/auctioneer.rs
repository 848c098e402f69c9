//! The auctioneer: places each requested instance and task on the least loaded cell, and reports to
//! the host what no cell can take.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bbs_proto::models as proto;
use serde::Deserialize;

use super::bbs_client::BbsClient;
use super::cell::{Cell, Placed};
use super::fault_switch::FaultSwitch;
use super::trust::{HttpServer, Trust};

/// Containers, or tasks, per cell.
const CAPACITY: usize = 10_000;
/// Prefix of the guid of a task that runs until it is cancelled.
pub const ENDLESS: &str = "endless";

pub struct Auctioneer {
    auction: Arc<Auction>,
    listening: HttpServer,
}

#[derive(Default)]
struct Auction {
    faults: FaultSwitch,
    /// Set after the start: cells need the host's address, and the host needs this server's.
    bidders: OnceLock<(BbsClient, Vec<Cell>)>,
}

#[derive(Deserialize)]
struct LrpStart {
    process_guid: String,
    domain: String,
    indices: Vec<i32>,
    #[serde(rename = "RootFs")]
    root_fs: String,
    #[serde(rename = "MemoryMB")]
    memory_mb: i32,
}

#[derive(Deserialize)]
struct TaskStart {
    #[serde(rename = "TaskGuid")]
    guid: String,
    #[serde(rename = "RootFs")]
    root_fs: String,
}

impl Auctioneer {
    pub fn start(trust: &Trust) -> Self {
        let auction = Arc::new(Auction::default());
        let router = Router::new()
            .route("/v1/lrps", post(place_lrps))
            .route("/v1/tasks", post(place_tasks))
            .with_state(Arc::clone(&auction));
        Self {
            auction,
            listening: trust.listen(router),
        }
    }

    pub fn url(&self) -> String {
        self.listening.url()
    }

    pub fn faults(&self) -> &FaultSwitch {
        &self.auction.faults
    }

    /// Sets the cells that auctions place work on. Callable once.
    pub fn auction_among(&self, bbs: BbsClient, cells: Vec<Cell>) {
        let first = self.auction.bidders.set((bbs, cells)).is_ok();
        assert!(first, "the cells are set once");
    }
}

impl Auction {
    fn best(&self, load: fn(&Cell) -> usize) -> Option<&Cell> {
        let (_, cells) = self.bidders.get()?;
        let able = cells
            .iter()
            .filter(|cell| cell.takes_work() && load(cell) < CAPACITY);
        able.min_by_key(|cell| load(cell))
    }

    async fn place(&self, start: LrpStart) {
        for index in start.indices {
            let process_guid = start.process_guid.clone().into_bytes();
            let domain = start.domain.clone().into_bytes();
            if let Some(cell) = self.best(Cell::load) {
                cell.place(Placed {
                    process_guid,
                    index,
                    domain,
                });
            } else if let Some((bbs, _)) = self.bidders.get() {
                let request = proto::FailActualLrpRequest {
                    actual_lrp_key: Some(proto::ActualLrpKey {
                        process_guid,
                        index,
                        domain,
                    }),
                    error_message: b"no cell has room".to_vec(),
                };
                // Refused where it no longer waits for an auction.
                let _ = bbs
                    .submit::<proto::ActualLrpLifecycleResponse>("/v1/actual_lrps/fail", &request)
                    .await;
            }
        }
    }

    async fn place_task(&self, guid: String) {
        if let Some(cell) = self.best(Cell::tasks) {
            cell.place_task(guid.clone().into_bytes(), guid.starts_with(ENDLESS));
        } else if let Some((bbs, _)) = self.bidders.get() {
            let request = proto::RejectTaskRequest {
                task_guid: guid.into_bytes(),
                rejection_reason: b"no cell has room".to_vec(),
            };
            // Refused where it no longer waits for an auction.
            let _ = bbs
                .submit::<proto::TaskLifecycleResponse>("/v1/tasks/reject", &request)
                .await;
        }
    }
}

async fn place_lrps(State(auction): State<Arc<Auction>>, body: Bytes) -> Response {
    if let Some(answer) = auction.faults.intercept().await {
        return answer;
    }
    let Ok(starts) = serde_json::from_slice::<Vec<LrpStart>>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    if starts
        .iter()
        .any(|start| start.root_fs.is_empty() || start.memory_mb == 0)
    {
        return StatusCode::BAD_REQUEST.into_response();
    }
    tokio::spawn(async move {
        for start in starts {
            auction.place(start).await;
        }
    });
    StatusCode::ACCEPTED.into_response()
}

async fn place_tasks(State(auction): State<Arc<Auction>>, body: Bytes) -> Response {
    if let Some(answer) = auction.faults.intercept().await {
        return answer;
    }
    let Ok(starts) = serde_json::from_slice::<Vec<TaskStart>>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    if starts.iter().any(|start| start.root_fs.is_empty()) {
        return StatusCode::BAD_REQUEST.into_response();
    }
    tokio::spawn(async move {
        for start in starts {
            auction.place_task(start.guid).await;
        }
    });
    StatusCode::ACCEPTED.into_response()
}
