//! Random steps: the calls of cells, the auctioneer and clients, and events such as faults and
//! passing time.

use bbs_proto::models as proto;
use bbs_proto::models::desired_lrp::UpdateStrategy;
use bbs_proto::models::error::Type;
use fastrand::Rng;

use super::{CELLS, ConsistencyTest, DOMAINS, GUIDS, INDICES, Snapshot};
use crate::api::lrp;
use crate::harness::neighbours::StubReply;
use crate::tasks::definition;

#[derive(Debug, Clone)]
pub(super) enum Call {
    Domain {
        domain: &'static str,
        ttl: u32,
    },
    Desire {
        guid: &'static str,
        instances: i32,
        recreates: bool,
    },
    Scale {
        guid: &'static str,
        instances: i32,
    },
    Forget {
        guid: &'static str,
    },
    /// A call of a cell or an operator about a container that may not exist.
    Instance(InstanceCall, ContainerRef),
    /// Starts and crashes until the restart is delayed.
    Loop(ContainerRef),
    Task(TaskCall, &'static str, &'static str),
    Wait {
        seconds: i64,
    },
    Cell {
        cell: &'static str,
        present: bool,
    },
    /// The next requests to the auctioneer or the rep fail.
    Fault {
        of_rep: bool,
        times: usize,
    },
    Converge,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum InstanceCall {
    Claim,
    Start,
    Crash,
    Fail,
    Remove,
    RemoveAny,
    Retire,
    EvacuateClaimed,
    EvacuateRunning,
    EvacuateCrashed,
    EvacuateStopped,
    RemoveEvacuating,
}

const INSTANCE_CALLS: [InstanceCall; 18] = [
    InstanceCall::Claim,
    InstanceCall::Claim,
    InstanceCall::Start,
    InstanceCall::Start,
    InstanceCall::Start,
    InstanceCall::Crash,
    InstanceCall::Crash,
    InstanceCall::Crash,
    InstanceCall::Fail,
    InstanceCall::Remove,
    InstanceCall::RemoveAny,
    InstanceCall::Retire,
    InstanceCall::EvacuateClaimed,
    InstanceCall::EvacuateRunning,
    InstanceCall::EvacuateRunning,
    InstanceCall::EvacuateCrashed,
    InstanceCall::EvacuateStopped,
    InstanceCall::RemoveEvacuating,
];

#[derive(Debug, Clone, Copy)]
pub(super) enum TaskCall {
    Desire,
    Start,
    Complete,
    Cancel,
    Reject,
    Resolve,
    Delete,
}

const TASK_CALLS: [TaskCall; 8] = [
    TaskCall::Desire,
    TaskCall::Desire,
    TaskCall::Start,
    TaskCall::Complete,
    TaskCall::Cancel,
    TaskCall::Reject,
    TaskCall::Resolve,
    TaskCall::Delete,
];

/// A container, by its instance guid and cell, and its slot.
#[derive(Debug, Clone)]
pub(super) struct ContainerRef {
    pub(super) guid: String,
    pub(super) index: i32,
    pub(super) domain: String,
    pub(super) instance: String,
    pub(super) cell: String,
}

/// The domain of a desired LRP; a container may be started in the other one.
fn domain_of(guid: &str) -> &'static str {
    if guid == "b" { "two" } else { "one" }
}

fn one_of<T: Copy>(random: &mut Rng, all: &[T]) -> T {
    *random.choice(all).expect("there are some")
}

impl ContainerRef {
    /// Mostly an existing container, or one for an unclaimed slot.
    fn any(random: &mut Rng, rows: &Snapshot) -> Self {
        let cell = one_of(random, &CELLS);
        let instance = format!("{cell}-{}", random.u8(..2));
        let row = random.choice(&rows.actual).filter(|_| random.u8(..5) > 0);
        if let Some(row) = row {
            let known = Self::of(row);
            let is_named = !known.instance.is_empty() && random.u8(..5) > 0;
            return if is_named {
                known
            } else {
                Self {
                    instance,
                    cell: cell.to_owned(),
                    ..known
                }
            };
        }
        let guid = one_of(random, &GUIDS);
        let domain = if random.u8(..20) == 0 {
            one_of(random, &DOMAINS)
        } else {
            domain_of(guid)
        };
        // Mostly slots that are desired.
        let index = random.i32(0..INDICES).min(random.i32(0..INDICES));
        Self {
            guid: guid.to_owned(),
            index,
            domain: domain.to_owned(),
            instance,
            cell: cell.to_owned(),
        }
    }

    /// The container of a row; its names are empty in an unclaimed or crashed row.
    pub(super) fn of(row: &proto::ActualLrp) -> Self {
        let text = |text: &[u8]| String::from_utf8(text.to_vec()).expect("text");
        let key = row.actual_lrp_key.as_ref().expect("every row has a key");
        let instance = row.actual_lrp_instance_key.clone().unwrap_or_default();
        Self {
            guid: text(&key.process_guid),
            index: key.index,
            domain: text(&key.domain),
            instance: text(&instance.instance_guid),
            cell: text(&instance.cell_id),
        }
    }

    fn key(&self) -> Option<proto::ActualLrpKey> {
        let process_guid = self.guid.clone().into();
        let domain = self.domain.clone().into();
        Some(proto::ActualLrpKey {
            process_guid,
            index: self.index,
            domain,
        })
    }

    fn instance_key(&self) -> Option<proto::ActualLrpInstanceKey> {
        let instance_guid = self.instance.clone().into();
        let cell_id = self.cell.clone().into();
        Some(proto::ActualLrpInstanceKey {
            instance_guid,
            cell_id,
        })
    }
}

impl Call {
    pub(super) fn any(random: &mut Rng, rows: &Snapshot) -> Self {
        let guid = one_of(random, &GUIDS);
        match random.u8(..40) {
            0 => Self::Domain {
                domain: one_of(random, &DOMAINS),
                ttl: one_of(random, &[0, 20]),
            },
            1..=3 => Self::Desire {
                guid,
                instances: random.i32(0..4),
                recreates: random.bool(),
            },
            4..=5 => Self::Scale {
                guid,
                instances: random.i32(0..4),
            },
            6 => Self::Forget { guid },
            7 => Self::Loop(ContainerRef::any(random, rows)),
            8..=22 => Self::Instance(
                one_of(random, &INSTANCE_CALLS),
                ContainerRef::any(random, rows),
            ),
            23..=29 => Self::Task(one_of(random, &TASK_CALLS), guid, one_of(random, &CELLS)),
            30..=32 => Self::Wait {
                seconds: one_of(random, &[1, 31, 130, 400, 2_000]),
            },
            33..=34 => Self::Cell {
                cell: one_of(random, &CELLS),
                present: random.u8(..3) > 0,
            },
            35 => Self::Fault {
                of_rep: random.bool(),
                times: random.usize(1..6),
            },
            _ => Self::Converge,
        }
    }

    /// The new number of instances of a guid, if the call lowers it.
    pub(super) fn scales_down(&self, before: &Snapshot) -> Option<(&'static str, i32)> {
        let left = match self {
            Self::Scale { guid, instances } => (*guid, *instances),
            Self::Forget { guid } => (*guid, 0),
            _ => return None,
        };
        let fell = before
            .desired(left.0.as_bytes())
            .is_some_and(|instances| left.1 < instances);
        (fell || matches!(self, Self::Forget { .. })).then_some(left)
    }

    /// Makes the call and returns its error.
    pub(super) async fn make(&self, test: &mut ConsistencyTest) -> Option<Type> {
        match self {
            Self::Domain { domain, ttl } => {
                let request = proto::UpsertDomainRequest {
                    domain: (*domain).into(),
                    ttl: *ttl,
                };
                test.call_error("domains/upsert", &request, &[]).await
            }
            Self::Desire {
                guid,
                instances,
                recreates,
            } => {
                let update_strategy = if *recreates {
                    UpdateStrategy::Recreate
                } else {
                    UpdateStrategy::Rolling
                };
                let lrp = proto::DesiredLrp {
                    instances: *instances,
                    domain: domain_of(guid).into(),
                    update_strategy: update_strategy.into(),
                    ..lrp(guid)
                };
                let request = proto::DesireLrpRequest {
                    desired_lrp: Some(lrp),
                };
                test.call_error("desired_lrp/desire.r2", &request, &[Type::ResourceExists])
                    .await
            }
            Self::Scale { guid, instances } => {
                let update = proto::DesiredLrpUpdate {
                    instances: Some(*instances),
                    ..Default::default()
                };
                let request = proto::UpdateDesiredLrpRequest {
                    process_guid: (*guid).into(),
                    update: Some(update),
                };
                test.call_error("desired_lrp/update", &request, &[Type::ResourceNotFound])
                    .await
            }
            Self::Forget { guid } => {
                let request = proto::RemoveDesiredLrpRequest {
                    process_guid: (*guid).into(),
                };
                test.call_error("desired_lrp/remove", &request, &[Type::ResourceNotFound])
                    .await
            }
            Self::Instance(call, container) => call.make(test, container).await,
            Self::Loop(container) => {
                for call in [InstanceCall::Start, InstanceCall::Crash].repeat(3) {
                    call.make(test, container).await;
                }
                None
            }
            Self::Task(call, guid, cell) => call.make(test, guid, cell).await,
            Self::Wait { seconds } => {
                test.advance_clock(*seconds);
                None
            }
            Self::Cell { cell, present } => {
                test.set_present(cell, *present);
                None
            }
            Self::Fault { of_rep, times } => {
                let server = if *of_rep {
                    &test.neighbours.rep
                } else {
                    &test.neighbours.auctioneer
                };
                server.reply_next(&vec![StubReply::Status(500); *times]);
                None
            }
            Self::Converge => {
                test.converge().await;
                None
            }
        }
    }
}

impl InstanceCall {
    const fn path(self) -> &'static str {
        match self {
            Self::Claim => "actual_lrps/claim",
            Self::Start => "actual_lrps/start.r1",
            Self::Crash => "actual_lrps/crash",
            Self::Fail => "actual_lrps/fail",
            Self::Remove | Self::RemoveAny => "actual_lrps/remove",
            Self::Retire => "actual_lrps/retire",
            Self::EvacuateClaimed => "actual_lrps/evacuate_claimed",
            Self::EvacuateRunning => "actual_lrps/evacuate_running.r1",
            Self::EvacuateCrashed => "actual_lrps/evacuate_crashed",
            Self::EvacuateStopped => "actual_lrps/evacuate_stopped",
            Self::RemoveEvacuating => "actual_lrps/remove_evacuating",
        }
    }

    const fn errors(self) -> &'static [Type] {
        match self {
            Self::Claim => &[Type::ResourceNotFound, Type::ActualLrpCannotBeClaimed],
            Self::Start => &[Type::ActualLrpCannotBeStarted],
            Self::Crash | Self::EvacuateCrashed => {
                &[Type::ResourceNotFound, Type::ActualLrpCannotBeCrashed]
            }
            Self::Fail => &[Type::ActualLrpCannotBeFailed],
            Self::EvacuateClaimed => &[Type::ResourceNotFound, Type::ActualLrpCannotBeUnclaimed],
            // `UnknownError` after five failed requests to the rep.
            Self::Retire => &[Type::ResourceNotFound, Type::UnknownError],
            Self::EvacuateRunning => &[],
            Self::Remove | Self::RemoveAny | Self::EvacuateStopped | Self::RemoveEvacuating => {
                &[Type::ResourceNotFound]
            }
        }
    }

    pub(super) async fn make(
        self,
        test: &ConsistencyTest,
        container: &ContainerRef,
    ) -> Option<Type> {
        let path = self.path();
        let errors = self.errors();
        let actual_lrp_key = container.key();
        let actual_lrp_instance_key = container.instance_key();
        let process_guid = container.guid.clone().into();
        let index = container.index;
        let error_message = b"why".to_vec();
        match self {
            Self::Claim => {
                let request = proto::ClaimActualLrpRequest {
                    process_guid,
                    index,
                    actual_lrp_instance_key,
                };
                test.call_error(path, &request, errors).await
            }
            Self::Start | Self::EvacuateRunning => {
                let address = format!("10.0.0.{index}").into();
                let request = proto::StartActualLrpRequest {
                    actual_lrp_key,
                    actual_lrp_instance_key,
                    actual_lrp_net_info: Some(proto::ActualLrpNetInfo {
                        address,
                        ..Default::default()
                    }),
                    ..Default::default()
                };
                test.call_error(path, &request, errors).await
            }
            Self::Fail => {
                test.call_error(
                    path,
                    &proto::FailActualLrpRequest {
                        actual_lrp_key,
                        error_message,
                    },
                    errors,
                )
                .await
            }
            Self::Remove | Self::RemoveAny => {
                let actual_lrp_instance_key =
                    actual_lrp_instance_key.filter(|_| matches!(self, Self::Remove));
                let request = proto::RemoveActualLrpRequest {
                    process_guid,
                    index,
                    actual_lrp_instance_key,
                };
                test.call_error(path, &request, errors).await
            }
            Self::Retire => {
                test.call_error(
                    path,
                    &proto::RetireActualLrpRequest { actual_lrp_key },
                    errors,
                )
                .await
            }
            Self::Crash | Self::EvacuateCrashed => {
                let request = proto::CrashActualLrpRequest {
                    actual_lrp_key,
                    actual_lrp_instance_key,
                    error_message,
                };
                test.call_error(path, &request, errors).await
            }
            Self::EvacuateClaimed | Self::EvacuateStopped | Self::RemoveEvacuating => {
                let request = proto::EvacuateClaimedActualLrpRequest {
                    actual_lrp_key,
                    actual_lrp_instance_key,
                };
                test.call_error(path, &request, errors).await
            }
        }
    }
}

impl TaskCall {
    pub(super) async fn make(self, test: &ConsistencyTest, guid: &str, cell: &str) -> Option<Type> {
        let (task_guid, cell_id): (Vec<u8>, Vec<u8>) = (guid.into(), cell.into());
        let by_guid = proto::TaskGuidRequest {
            task_guid: task_guid.clone(),
        };
        let fits = [Type::ResourceNotFound, Type::InvalidStateTransition];
        match self {
            Self::Desire => {
                // Two of the three tasks have no callback.
                let url = if guid == "c" {
                    test.neighbours.receiver.url()
                } else {
                    String::new()
                };
                let task_definition = Some(proto::TaskDefinition {
                    completion_callback_url: url.into(),
                    ..definition()
                });
                let request = proto::DesireTaskRequest {
                    task_definition,
                    task_guid,
                    domain: b"one".to_vec(),
                };
                test.call_error("tasks/desire.r2", &request, &[Type::ResourceExists])
                    .await
            }
            Self::Start => {
                test.call_error(
                    "tasks/start",
                    &proto::StartTaskRequest { task_guid, cell_id },
                    &fits,
                )
                .await
            }
            Self::Complete => {
                let (failed, failure_reason) =
                    (cell == CELLS[0], if cell == CELLS[0] { "why" } else { "" });
                let failure_reason = failure_reason.into();
                let result = b"result".to_vec();
                let request = proto::CompleteTaskRequest {
                    task_guid,
                    cell_id,
                    failed,
                    failure_reason,
                    result,
                };
                let errors = [fits[0], fits[1], Type::RunningOnDifferentCell];
                test.call_error("tasks/complete", &request, &errors).await
            }
            Self::Cancel => test.call_error("tasks/cancel", &by_guid, &fits).await,
            Self::Reject => {
                let request = proto::RejectTaskRequest {
                    task_guid,
                    rejection_reason: b"no room".to_vec(),
                };
                // The second is that of a failure, once the task was rejected too often.
                let errors = [fits[0], fits[1], Type::InvalidRequest];
                test.call_error("tasks/reject", &request, &errors).await
            }
            Self::Resolve => test.call_error("tasks/resolving", &by_guid, &fits).await,
            Self::Delete => test.call_error("tasks/delete", &by_guid, &fits).await,
        }
    }
}
