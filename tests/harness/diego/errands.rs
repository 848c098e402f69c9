//! Whoever wants tasks run, and sees each of them to its end: those that say how they ended to a receiver, those that are
//! asked for, and those that run until they are cancelled.

use std::time::Duration;

use bbs_proto::models as proto;
use proto::error::Type;
use proto::task;
use tokio::task::JoinSet;

use super::auctioneer::ENDLESS;
use super::controller::DOMAIN;
use super::home::Home;
use super::receiver::Receiver;

const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
struct Errand {
    guid: String,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    /// With the URL to be told.
    ToldOf(String),
    AskedFor,
    Cancelled,
}

/// Tasks on their way. Dropping it leaves them.
#[derive(Default)]
pub struct Errands {
    underway: JoinSet<()>,
    told_of: Vec<String>,
    /// So far, ever.
    begun: u64,
}

impl Errands {
    /// Has so many more tasks run.
    pub fn begin(&mut self, home: &Home, receiver: &Receiver, tasks: u64) {
        for number in self.begun..self.begun + tasks {
            let (name, kind) = match number % 3 {
                0 => ("told", Kind::ToldOf(receiver.url(&format!("told-{number}")))),
                1 => ("asked", Kind::AskedFor),
                _ => (ENDLESS, Kind::Cancelled),
            };
            let (errand, home) = (Errand { guid: format!("{name}-{number}"), kind }, home.clone());
            if matches!(errand.kind, Kind::ToldOf(_)) {
                self.told_of.push(errand.guid.clone());
            }
            self.underway.spawn(async move { errand.run(&home).await });
        }
        self.begun += tasks;
    }

    /// Waits until every task is over and gone. Gives those that the receiver was to be told of.
    pub async fn end(mut self) -> Vec<String> {
        while let Some(errand) = self.underway.join_next().await {
            errand.expect("nobody panics meanwhile");
        }
        self.told_of
    }
}

impl Errand {
    async fn run(&self, home: &Home) {
        self.desire(home).await;
        while let Some(task) = self.look(home).await {
            match (task.state(), &self.kind) {
                (task::State::Running, Kind::Cancelled) => self.say(home, "/v1/tasks/cancel").await,
                (task::State::Completed, Kind::AskedFor | Kind::Cancelled) => {
                    self.say(home, "/v1/tasks/resolving").await;
                }
                (task::State::Resolving, Kind::AskedFor | Kind::Cancelled) => self.say(home, "/v1/tasks/delete").await,
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn desire(&self, home: &Home) {
        let run = proto::RunAction { path: b"/task".to_vec(), user: b"vcap".to_vec(), ..Default::default() };
        let url = if let Kind::ToldOf(url) = &self.kind { url.clone() } else { String::new() };
        let definition = proto::TaskDefinition {
            root_fs: b"preloaded:cflinuxfs4".to_vec(),
            action: Some(proto::Action { run_action: Some(run), ..Default::default() }),
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
        let (_, refusal, again): (proto::TaskLifecycleResponse, _, _) =
            home.call("/v1/tasks/desire.r2", &request).await;
        let is_expected = refusal.as_ref().is_none_or(|refusal| again && refusal.r#type() == Type::ResourceExists);
        assert!(is_expected, "{}: {refusal:?}", self.guid);
    }

    async fn look(&self, home: &Home) -> Option<proto::Task> {
        let request = proto::TaskByGuidRequest { task_guid: self.guid.clone().into() };
        let (answer, refusal, _): (proto::TaskResponse, _, _) =
            home.call("/v1/tasks/get_by_task_guid.r3", &request).await;
        if let Some(refusal) = &refusal {
            assert_eq!(refusal.r#type(), Type::ResourceNotFound, "{}: {refusal:?}", self.guid);
        }
        answer.task
    }

    /// A refusal says that the task is further than it was thought to be.
    async fn say(&self, home: &Home, path: &str) {
        let request = proto::TaskGuidRequest { task_guid: self.guid.clone().into() };
        let _ = home.tell::<proto::TaskLifecycleResponse>(path, &request).await;
    }
}
