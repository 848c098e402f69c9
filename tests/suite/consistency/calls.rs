//! Calls: any of those that cells, the auctioneer and clients make, and what happens around them.

use bbs_proto::models as proto;
use bbs_proto::models::desired_lrp::UpdateStrategy;
use bbs_proto::models::error::Type;
use fastrand::Rng;

use super::{CELLS, DOMAINS, GUIDS, INDICES, Rows, World};
use crate::api::lrp;
use crate::harness::neighbours::Say;
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
    /// Of a cell or an operator, about a container that may not be there.
    Instance(About, Container),
    Task(OfTask, &'static str, &'static str),
    Wait {
        seconds: i64,
    },
    Cell {
        cell: &'static str,
        is_there: bool,
    },
    /// The auctioneer or the rep fails so often.
    Fault {
        of_rep: bool,
        times: usize,
    },
    Converge,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum About {
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

const ABOUT: [About; 16] = [
    About::Claim,
    About::Claim,
    About::Start,
    About::Start,
    About::Start,
    About::Crash,
    About::Crash,
    About::Fail,
    About::Remove,
    About::RemoveAny,
    About::Retire,
    About::EvacuateClaimed,
    About::EvacuateRunning,
    About::EvacuateCrashed,
    About::EvacuateStopped,
    About::RemoveEvacuating,
];

#[derive(Debug, Clone, Copy)]
pub(super) enum OfTask {
    Desire,
    Start,
    Complete,
    Cancel,
    Reject,
    Resolve,
    Delete,
}

const OF_TASK: [OfTask; 8] = [
    OfTask::Desire,
    OfTask::Desire,
    OfTask::Start,
    OfTask::Complete,
    OfTask::Cancel,
    OfTask::Reject,
    OfTask::Resolve,
    OfTask::Delete,
];

/// A container of a slot, named by its cell.
#[derive(Debug, Clone)]
pub(super) struct Container {
    pub(super) guid: String,
    pub(super) index: i32,
    pub(super) domain: String,
    pub(super) instance: String,
    pub(super) cell: String,
}

/// Of a desired LRP; what runs may claim to be of another.
fn domain_of(guid: &str) -> &'static str {
    if guid == "b" { "two" } else { "one" }
}

fn one_of<T: Copy>(random: &mut Rng, all: &[T]) -> T {
    *random.choice(all).expect("there are some")
}

impl Container {
    fn any(random: &mut Rng) -> Self {
        let (guid, cell) = (one_of(random, &GUIDS), one_of(random, &CELLS));
        let domain = if random.u8(..20) == 0 { one_of(random, &DOMAINS) } else { domain_of(guid) };
        let instance = format!("{cell}-{}", random.u8(..2));
        // Slots that are desired more often than not.
        let index = random.i32(0..INDICES).min(random.i32(0..INDICES));
        Self { guid: guid.to_owned(), index, domain: domain.to_owned(), instance, cell: cell.to_owned() }
    }

    fn key(&self) -> Option<proto::ActualLrpKey> {
        let (process_guid, domain) = (self.guid.clone().into(), self.domain.clone().into());
        Some(proto::ActualLrpKey { process_guid, index: self.index, domain })
    }

    fn instance_key(&self) -> Option<proto::ActualLrpInstanceKey> {
        let (instance_guid, cell_id) = (self.instance.clone().into(), self.cell.clone().into());
        Some(proto::ActualLrpInstanceKey { instance_guid, cell_id })
    }
}

impl Call {
    pub(super) fn any(random: &mut Rng) -> Self {
        let guid = one_of(random, &GUIDS);
        match random.u8(..40) {
            0 => Self::Domain { domain: one_of(random, &DOMAINS), ttl: one_of(random, &[0, 20]) },
            1..=3 => Self::Desire { guid, instances: random.i32(0..4), recreates: random.bool() },
            4..=5 => Self::Scale { guid, instances: random.i32(0..4) },
            6 => Self::Forget { guid },
            7..=22 => Self::Instance(one_of(random, &ABOUT), Container::any(random)),
            23..=29 => Self::Task(one_of(random, &OF_TASK), guid, one_of(random, &CELLS)),
            30..=32 => Self::Wait { seconds: one_of(random, &[1, 31, 130, 400, 2_000]) },
            33..=34 => Self::Cell { cell: one_of(random, &CELLS), is_there: random.u8(..3) > 0 },
            35 => Self::Fault { of_rep: random.bool(), times: random.usize(1..6) },
            _ => Self::Converge,
        }
    }

    /// Below which index there are fewer desired from now on, given what there was.
    pub(super) fn lowers(&self, before: &Rows) -> Option<(&'static str, i32)> {
        let left = match self {
            Self::Scale { guid, instances } => (*guid, *instances),
            Self::Forget { guid } => (*guid, 0),
            _ => return None,
        };
        let fell = before.desired(left.0.as_bytes()).is_some_and(|instances| left.1 < instances);
        (fell || matches!(self, Self::Forget { .. })).then_some(left)
    }

    /// The error, if it has one.
    pub(super) async fn make(&self, world: &mut World) -> Option<Type> {
        match self {
            Self::Domain { domain, ttl } => {
                let request = proto::UpsertDomainRequest { domain: (*domain).into(), ttl: *ttl };
                world.said("domains/upsert", &request, &[]).await
            }
            Self::Desire { guid, instances, recreates } => {
                let update_strategy = if *recreates { UpdateStrategy::Recreate } else { UpdateStrategy::Rolling };
                let lrp = proto::DesiredLrp {
                    instances: *instances,
                    domain: domain_of(guid).into(),
                    update_strategy: update_strategy.into(),
                    ..lrp(guid)
                };
                let request = proto::DesireLrpRequest { desired_lrp: Some(lrp) };
                world.said("desired_lrp/desire.r2", &request, &[Type::ResourceExists]).await
            }
            Self::Scale { guid, instances } => {
                let update = proto::DesiredLrpUpdate { instances: Some(*instances), ..Default::default() };
                let request = proto::UpdateDesiredLrpRequest { process_guid: (*guid).into(), update: Some(update) };
                world.said("desired_lrp/update", &request, &[Type::ResourceNotFound]).await
            }
            Self::Forget { guid } => {
                let request = proto::RemoveDesiredLrpRequest { process_guid: (*guid).into() };
                world.said("desired_lrp/remove", &request, &[Type::ResourceNotFound]).await
            }
            Self::Instance(about, container) => about.make(world, container).await,
            Self::Task(about, guid, cell) => about.make(world, guid, cell).await,
            Self::Wait { seconds } => {
                world.wait(*seconds);
                None
            }
            Self::Cell { cell, is_there } => {
                world.show(cell, *is_there);
                None
            }
            Self::Fault { of_rep, times } => {
                let who = if *of_rep { &world.neighbours.rep } else { &world.neighbours.auctioneer };
                who.say(&vec![Say::Status(500); *times]);
                None
            }
            Self::Converge => {
                world.converge().await;
                None
            }
        }
    }
}

impl About {
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
            Self::Crash | Self::EvacuateCrashed => &[Type::ResourceNotFound, Type::ActualLrpCannotBeCrashed],
            Self::Fail => &[Type::ActualLrpCannotBeFailed],
            Self::EvacuateClaimed => &[Type::ResourceNotFound, Type::ActualLrpCannotBeUnclaimed],
            // A rep may fail five times.
            Self::Retire => &[Type::ResourceNotFound, Type::UnknownError],
            Self::EvacuateRunning => &[],
            Self::Remove | Self::RemoveAny | Self::EvacuateStopped | Self::RemoveEvacuating => {
                &[Type::ResourceNotFound]
            }
        }
    }

    pub(super) async fn make(self, world: &World, container: &Container) -> Option<Type> {
        let (path, errors) = (self.path(), self.errors());
        let (actual_lrp_key, actual_lrp_instance_key) = (container.key(), container.instance_key());
        let (process_guid, index) = (container.guid.clone().into(), container.index);
        let error_message = b"why".to_vec();
        match self {
            Self::Claim => {
                let request = proto::ClaimActualLrpRequest { process_guid, index, actual_lrp_instance_key };
                world.said(path, &request, errors).await
            }
            Self::Start | Self::EvacuateRunning => {
                let address = format!("10.0.0.{index}").into();
                let request = proto::StartActualLrpRequest {
                    actual_lrp_key,
                    actual_lrp_instance_key,
                    actual_lrp_net_info: Some(proto::ActualLrpNetInfo { address, ..Default::default() }),
                    ..Default::default()
                };
                world.said(path, &request, errors).await
            }
            Self::Fail => {
                world.said(path, &proto::FailActualLrpRequest { actual_lrp_key, error_message }, errors).await
            }
            Self::Remove | Self::RemoveAny => {
                let actual_lrp_instance_key = actual_lrp_instance_key.filter(|_| matches!(self, Self::Remove));
                let request = proto::RemoveActualLrpRequest { process_guid, index, actual_lrp_instance_key };
                world.said(path, &request, errors).await
            }
            Self::Retire => world.said(path, &proto::RetireActualLrpRequest { actual_lrp_key }, errors).await,
            Self::Crash | Self::EvacuateCrashed => {
                let request = proto::CrashActualLrpRequest { actual_lrp_key, actual_lrp_instance_key, error_message };
                world.said(path, &request, errors).await
            }
            Self::EvacuateClaimed | Self::EvacuateStopped | Self::RemoveEvacuating => {
                let request = proto::EvacuateClaimedActualLrpRequest { actual_lrp_key, actual_lrp_instance_key };
                world.said(path, &request, errors).await
            }
        }
    }
}

impl OfTask {
    pub(super) async fn make(self, world: &World, guid: &str, cell: &str) -> Option<Type> {
        let (task_guid, cell_id): (Vec<u8>, Vec<u8>) = (guid.into(), cell.into());
        let by_guid = proto::TaskGuidRequest { task_guid: task_guid.clone() };
        let fits = [Type::ResourceNotFound, Type::InvalidStateTransition];
        match self {
            Self::Desire => {
                // Of two, nobody wants to know the end.
                let url = if guid == "c" { world.neighbours.receiver.url() } else { String::new() };
                let task_definition =
                    Some(proto::TaskDefinition { completion_callback_url: url.into(), ..definition() });
                let request = proto::DesireTaskRequest { task_definition, task_guid, domain: b"one".to_vec() };
                world.said("tasks/desire.r2", &request, &[Type::ResourceExists]).await
            }
            Self::Start => world.said("tasks/start", &proto::StartTaskRequest { task_guid, cell_id }, &fits).await,
            Self::Complete => {
                let (failed, failure_reason) = (cell == CELLS[0], if cell == CELLS[0] { "why" } else { "" });
                let (failure_reason, result) = (failure_reason.into(), b"result".to_vec());
                let request = proto::CompleteTaskRequest { task_guid, cell_id, failed, failure_reason, result };
                let errors = [fits[0], fits[1], Type::RunningOnDifferentCell];
                world.said("tasks/complete", &request, &errors).await
            }
            Self::Cancel => world.said("tasks/cancel", &by_guid, &fits).await,
            Self::Reject => {
                let request = proto::RejectTaskRequest { task_guid, rejection_reason: b"no room".to_vec() };
                world.said("tasks/reject", &request, &[Type::ResourceNotFound, Type::InvalidRequest]).await
            }
            Self::Resolve => world.said("tasks/resolving", &by_guid, &fits).await,
            Self::Delete => world.said("tasks/delete", &by_guid, &fits).await,
        }
    }
}
