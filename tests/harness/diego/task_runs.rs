//! Clients that desire tasks and follow each of them to its deletion, in three ways: a completion
//! callback, polling, and cancellation of an endless task.

use std::time::Duration;

use bbs_proto::models as proto;
use proto::error::Type;
use proto::task;
use tokio::task::JoinSet;

use super::auctioneer::ENDLESS;
use super::bbs_client::BbsClient;
use super::controller::DOMAIN;
use super::receiver::Receiver;

const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
struct TaskRun {
    guid: String,
    completion: Completion,
}

#[derive(Debug, Clone)]
enum Completion {
    /// The URL of the completion callback.
    Callback(String),
    Polled,
    Cancelled,
}

/// Tasks under way. Their clients stop when it is dropped; the tasks stay.
#[derive(Default)]
pub struct TaskRuns {
    running: JoinSet<()>,
    /// Guids of the tasks with a completion callback.
    with_callback: Vec<String>,
    /// Number of tasks begun so far.
    begun: u64,
}

impl TaskRuns {
    /// Desires `tasks` further tasks, a third of them in each way.
    pub fn begin(&mut self, bbs: &BbsClient, receiver: &Receiver, tasks: u64) {
        for number in self.begun..self.begun + tasks {
            let (name, completion) = match number % 3 {
                0 => (
                    "callback",
                    Completion::Callback(receiver.url(&format!("callback-{number}"))),
                ),
                1 => ("polled", Completion::Polled),
                _ => (ENDLESS, Completion::Cancelled),
            };
            let task = TaskRun {
                guid: format!("{name}-{number}"),
                completion,
            };
            let bbs = bbs.clone();
            if matches!(task.completion, Completion::Callback(_)) {
                self.with_callback.push(task.guid.clone());
            }
            self.running.spawn(async move { task.run(&bbs).await });
        }
        self.begun += tasks;
    }

    /// Waits until every task is deleted. Returns the guids of those with a completion callback.
    pub async fn end(mut self) -> Vec<String> {
        while let Some(task) = self.running.join_next().await {
            task.expect("no client panics");
        }
        self.with_callback
    }
}

impl TaskRun {
    async fn run(&self, bbs: &BbsClient) {
        self.desire(bbs).await;
        while let Some(task) = self.fetch(bbs).await {
            match (task.state(), &self.completion) {
                (task::State::Running, Completion::Cancelled) => {
                    self.submit(bbs, "/v1/tasks/cancel").await
                }
                (task::State::Completed, Completion::Polled | Completion::Cancelled) => {
                    self.submit(bbs, "/v1/tasks/resolving").await;
                }
                (task::State::Resolving, Completion::Polled | Completion::Cancelled) => {
                    self.submit(bbs, "/v1/tasks/delete").await;
                }
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn desire(&self, bbs: &BbsClient) {
        let run = proto::RunAction {
            path: b"/task".to_vec(),
            user: b"vcap".to_vec(),
            ..Default::default()
        };
        let url = if let Completion::Callback(url) = &self.completion {
            url.clone()
        } else {
            String::new()
        };
        let definition = proto::TaskDefinition {
            root_fs: b"preloaded:cflinuxfs4".to_vec(),
            action: Some(proto::Action {
                run_action: Some(run),
                ..Default::default()
            }),
            memory_mb: 64,
            disk_mb: 64,
            completion_callback_url: url.into(),
            ..Default::default()
        };
        let request = proto::DesireTaskRequest {
            task_definition: Some(definition),
            task_guid: self.guid.clone().into(),
            domain: DOMAIN.to_vec(),
        };
        let (_, refusal, retried): (proto::TaskLifecycleResponse, _, _) =
            bbs.call("/v1/tasks/desire.r2", &request).await;
        let is_expected = refusal
            .as_ref()
            .is_none_or(|refusal| retried && refusal.r#type() == Type::ResourceExists);
        assert!(is_expected, "{}: {refusal:?}", self.guid);
    }

    async fn fetch(&self, bbs: &BbsClient) -> Option<proto::Task> {
        let request = proto::TaskByGuidRequest {
            task_guid: self.guid.clone().into(),
        };
        let (answer, refusal, _): (proto::TaskResponse, _, _) =
            bbs.call("/v1/tasks/get_by_task_guid.r3", &request).await;
        if let Some(refusal) = &refusal {
            assert_eq!(
                refusal.r#type(),
                Type::ResourceNotFound,
                "{}: {refusal:?}",
                self.guid
            );
        }
        answer.task
    }

    /// Makes a state transition. Refused if the task is past that state by now, which is not an
    /// error.
    async fn submit(&self, bbs: &BbsClient, path: &str) {
        let request = proto::TaskGuidRequest {
            task_guid: self.guid.clone().into(),
        };
        let _ = bbs
            .submit::<proto::TaskLifecycleResponse>(path, &request)
            .await;
    }
}
