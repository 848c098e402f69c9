//! Simulated cells for `bbs dev`: they claim and start instances and run tasks as reps do, but
//! without containers. They are clients of the API, and all that they know is in its records, so
//! they continue after a restart.

mod steps;
mod updates;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bbs_client::{CallError, Client, ConnectError, Options, Retries};
use bbs_proto::models as proto;
use uuid::Uuid;

use crate::cli::bbs::printable;
use crate::cli::output::announce;
use crate::clock::{Clock, SystemClock};
use steps::{FAILURE, InstanceStep, Load, TaskStep, fails};
use updates::SeenUpdates;

/// Pause between two rounds; longer after a round that took long.
const PAUSE: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(30);
/// The port of the cell's machine that leads to the first port of each container.
const FIRST_HOST_PORT: u32 = 61_001;

/// A desired LRP, as far as cells use it.
struct DesiredByCells {
    instances: i32,
    definition_id: Vec<u8>,
    /// Whether an update is under way.
    is_updated: bool,
}

pub(super) struct SimulatedCells {
    client: Client,
    cells: u16,
    /// The instances that run on the cells, by their guids.
    running: BTreeMap<Vec<u8>, String>,
    updates: SeenUpdates,
}

impl SimulatedCells {
    /// This number of cells for the host at an address.
    ///
    /// # Errors
    /// No connections can be made in this process.
    pub(super) fn new(host: SocketAddr, cells: u16) -> Result<Self, ConnectError> {
        // The next round is the next attempt.
        let options = Options {
            retries: Retries::NONE,
            timeout: Some(TIMEOUT),
            ..Options::default()
        };
        let client = Client::new(&format!("http://{host}"), options)?;
        Ok(Self {
            client,
            cells,
            running: BTreeMap::new(),
            updates: SeenUpdates::default(),
        })
    }

    /// Works until it is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let began = Instant::now();
            if let Err(error) = self.round().await {
                tracing::warn!(
                    error = &error as &(dyn std::error::Error + 'static),
                    "the simulated cells cannot reach the host; they try again"
                );
            }
            // A large database is not listed all the time.
            tokio::time::sleep(PAUSE.max(began.elapsed() * 9)).await;
        }
    }

    /// Makes the steps that are due for all instances and tasks.
    async fn round(&mut self) -> Result<(), CallError> {
        let instances = self
            .client
            .actual_lrps(&proto::ActualLrPsRequest::default())
            .await?;
        // Listed later than the instances, so that each of them is among these unless it is not
        // desired any more.
        let desired = self.desired_lrps().await?;
        let tasks = self.client.tasks(&proto::TasksRequest::default()).await?;
        self.print_stopped(&instances.actual_lrps);
        self.print_updates(&desired).await?;
        let mut load = Load::of(self.cells, &instances.actual_lrps, &tasks.tasks);
        let now_ns = SystemClock.now_ns();
        for row in &instances.actual_lrps {
            let key = row.actual_lrp_key.as_ref();
            let is_desired = key.is_some_and(|key| {
                desired
                    .get(&key.process_guid)
                    .is_some_and(|lrp| key.index < lrp.instances)
            });
            let Some(step) = InstanceStep::of(row, is_desired, self.cells, now_ns) else {
                continue;
            };
            self.advance(row, step, &mut load).await?;
        }
        for task in &tasks.tasks {
            match TaskStep::of(task, now_ns) {
                Some(TaskStep::Start) => self.start_task(task, load.place()).await?,
                Some(TaskStep::Complete) => self.complete_task(task).await?,
                None => {}
            }
        }
        Ok(())
    }

    /// The instances and definitions of each desired LRP.
    async fn desired_lrps(&self) -> Result<BTreeMap<Vec<u8>, DesiredByCells>, CallError> {
        let request = proto::DesiredLrPsRequest::default();
        let answer = self
            .client
            .desired_lrp_scheduling_infos_of_definitions(&request)
            .await?;
        let mut desired = BTreeMap::new();
        for info in answer.desired_lrp_scheduling_infos {
            let Some(key) = info.desired_lrp_key else {
                continue;
            };
            // The current definition comes first, and the previous one follows during an update.
            let of_first = DesiredByCells {
                instances: info.instances,
                definition_id: info.definition_id,
                is_updated: false,
            };
            desired
                .entry(key.process_guid)
                .and_modify(|lrp: &mut DesiredByCells| lrp.is_updated = true)
                .or_insert(of_first);
        }
        Ok(desired)
    }

    /// Prints which updates have begun, are halted or complete since the last round.
    async fn print_updates(
        &mut self,
        desired: &BTreeMap<Vec<u8>, DesiredByCells>,
    ) -> Result<(), CallError> {
        let mut now = BTreeMap::new();
        for (guid, lrp) in desired {
            let mut status = proto::DesiredLrpUpdateStatus {
                definition_id: lrp.definition_id.clone(),
                ..Default::default()
            };
            if lrp.is_updated {
                let request = proto::DesiredLrpUpdateStatusRequest {
                    process_guid: guid.clone(),
                };
                // Removed since it was listed.
                let Some(answer) = accepted(self.client.desired_lrp_update_status(&request).await)?
                else {
                    continue;
                };
                status = answer.status.unwrap_or_default();
            }
            now.insert(guid.clone(), status);
        }
        self.updates.changed(now).iter().for_each(announce);
        Ok(())
    }

    /// Prints which containers were stopped since the last round.
    fn print_stopped(&mut self, rows: &[proto::ActualLrp]) {
        let running = rows.iter().filter(|row| steps::runs_on(row, self.cells));
        let running = running.filter_map(|row| {
            Some((
                row.actual_lrp_instance_key.clone()?.instance_guid,
                label(row),
            ))
        });
        let before = std::mem::replace(&mut self.running, running.collect());
        for (_, label) in before
            .iter()
            .filter(|(guid, _)| !self.running.contains_key(*guid))
        {
            announce(format_args!("{label} stopped"));
        }
    }

    async fn advance(
        &self,
        row: &proto::ActualLrp,
        step: InstanceStep,
        load: &mut Load,
    ) -> Result<(), CallError> {
        match step {
            InstanceStep::Claim => self.claim(row, load.place()).await,
            InstanceStep::Start => self.start(row).await,
            InstanceStep::Stop => self.remove(row).await,
            InstanceStep::Lose => self.crash(row, "its cell does not run any more").await,
        }
    }

    async fn claim(&self, row: &proto::ActualLrp, cell_id: String) -> Result<(), CallError> {
        let instance = proto::ActualLrpInstanceKey {
            instance_guid: Uuid::new_v4().to_string().into(),
            cell_id: cell_id.into(),
        };
        let key = row.actual_lrp_key.clone().unwrap_or_default();
        let request = proto::ClaimActualLrpRequest {
            process_guid: key.process_guid,
            index: key.index,
            actual_lrp_instance_key: Some(instance),
        };
        accepted(self.client.claim_actual_lrp(&request).await)?;
        Ok(())
    }

    /// Runs an instance whose start time is over, or has it fail, as its desired LRP says.
    async fn start(&self, row: &proto::ActualLrp) -> Result<(), CallError> {
        let key = row.actual_lrp_key.clone().unwrap_or_default();
        let request = proto::DesiredLrpByProcessGuidRequest {
            process_guid: key.process_guid.clone(),
        };
        // Removed since it was listed; the next round stops the instance.
        let Some(answer) = accepted(self.client.desired_lrp(&request).await)? else {
            return Ok(());
        };
        let desired = answer.desired_lrp.unwrap_or_default();
        if fails(desired.action.as_ref()) {
            return self.crash(row, FAILURE).await;
        }
        let request = proto::StartActualLrpRequest {
            actual_lrp_key: Some(key),
            actual_lrp_instance_key: row.actual_lrp_instance_key.clone(),
            actual_lrp_net_info: Some(net_info(&desired.ports)),
            routable: Some(true),
            availability_zone: b"dev".to_vec(),
            ..Default::default()
        };
        if accepted(self.client.start_actual_lrp(&request).await)?.is_some() {
            announce(format_args!("{} runs", label(row)));
        }
        Ok(())
    }

    async fn crash(&self, row: &proto::ActualLrp, reason: &str) -> Result<(), CallError> {
        let request = proto::CrashActualLrpRequest {
            actual_lrp_key: row.actual_lrp_key.clone(),
            actual_lrp_instance_key: row.actual_lrp_instance_key.clone(),
            error_message: reason.into(),
        };
        if accepted(self.client.crash_actual_lrp(&request).await)?.is_some() {
            announce(format_args!("{} crashed: {reason}", label(row)));
        }
        Ok(())
    }

    async fn remove(&self, row: &proto::ActualLrp) -> Result<(), CallError> {
        let key = row.actual_lrp_key.clone().unwrap_or_default();
        let request = proto::RemoveActualLrpRequest {
            process_guid: key.process_guid,
            index: key.index,
            actual_lrp_instance_key: row.actual_lrp_instance_key.clone(),
        };
        accepted(self.client.remove_actual_lrp(&request).await)?;
        Ok(())
    }

    async fn start_task(&self, task: &proto::Task, cell_id: String) -> Result<(), CallError> {
        let what = format!("{cell_id}: task {}", printable(&task.task_guid));
        let request = proto::StartTaskRequest {
            task_guid: task.task_guid.clone(),
            cell_id: cell_id.into(),
        };
        if accepted(self.client.start_task(&request).await)?
            .is_some_and(|answer| answer.should_start)
        {
            announce(format_args!("{what} runs"));
        }
        Ok(())
    }

    async fn complete_task(&self, task: &proto::Task) -> Result<(), CallError> {
        let definition = task.task_definition.clone().unwrap_or_default();
        let failed = fails(definition.action.as_ref());
        let request = proto::CompleteTaskRequest {
            task_guid: task.task_guid.clone(),
            cell_id: task.cell_id.clone(),
            failed,
            failure_reason: if failed { FAILURE.into() } else { Vec::new() },
            result: if failed || definition.result_file.is_empty() {
                Vec::new()
            } else {
                b"simulated".to_vec()
            },
        };
        if accepted(self.client.complete_task(&request).await)?.is_some() {
            let result = if failed { "failed" } else { "completed" };
            announce(format_args!(
                "{}: task {} {result}",
                printable(&task.cell_id),
                printable(&task.task_guid)
            ));
        }
        Ok(())
    }
}

/// The answer of a call about a record; `None` if the host refuses it, because the record has
/// changed since it was listed.
fn accepted<A>(answer: Result<A, CallError>) -> Result<Option<A>, CallError> {
    match answer {
        Err(CallError::Refused(_)) => Ok(None),
        answer => answer.map(Some),
    }
}

fn net_info(container_ports: &[u32]) -> proto::ActualLrpNetInfo {
    let ports = container_ports.iter().zip(FIRST_HOST_PORT..);
    let ports = ports.map(|(port, host_port)| proto::PortMapping {
        container_port: *port,
        host_port,
        ..Default::default()
    });
    proto::ActualLrpNetInfo {
        address: b"127.0.0.1".to_vec(),
        instance_address: b"127.0.0.1".to_vec(),
        ports: ports.collect(),
        ..Default::default()
    }
}

/// An instance and its cell, for the terminal.
fn label(row: &proto::ActualLrp) -> String {
    let key = row.actual_lrp_key.as_ref();
    let instance = row.actual_lrp_instance_key.as_ref();
    let cell = instance.map_or_else(String::new, |instance| printable(&instance.cell_id));
    key.map_or_else(String::new, |key| {
        format!(
            "{cell}: instance {} of {}",
            key.index,
            printable(&key.process_guid)
        )
    })
}
