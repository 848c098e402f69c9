//! Updates of desired LRPs to another definition: begun by a client, cancelled, rolled back, and
//! carried out instance by instance. The decisions about instances are the model's. Everything is
//! derived from the records, so that another host continues after this one; only a hint of where
//! there is work is kept in memory.

mod advance;
mod archive;
mod switch;

pub use archive::{DefinitionList, definitions};
pub use switch::{DefinitionChange, change_definition};

pub(super) use archive::prune;
pub(super) use switch::{
    SwitchCause, Switched, announce_all, finish, put_credentials, switch, to_switch_to,
};

use std::collections::BTreeMap;

use bbs_model::Text;
use bbs_model::actual_lrp::ActualLrpFilter;
use bbs_model::lrp_update::{Pace, UpdateRecord, UpdateStatus, UpdateTarget};
use bbs_model::slot::Slot;
use bbs_work::causes::with_causes;
use bbs_work::lossy;

use super::update_hints::StepEnd;
use super::{DomainError, Service};
use crate::store::{Range, Reader};

/// Reads how far the update of a desired LRP is.
///
/// # Errors
/// `NotFound` if there is no such desired LRP; errors of the store.
pub async fn status(
    reader: &mut Reader,
    pace: &Pace,
    process_guid: &[u8],
) -> Result<UpdateStatus, DomainError> {
    let UpdateRecords {
        target,
        record,
        slots,
    } = UpdateRecords::read(reader, process_guid, None)
        .await?
        .ok_or(DomainError::NotFound)?;
    Ok(UpdateStatus::of(
        target,
        record,
        &slots,
        pace,
        reader.now_ns(),
    ))
}

/// The records on which the update of a desired LRP depends. Not for changes: the instances are
/// incomplete.
#[derive(Debug)]
struct UpdateRecords {
    target: UpdateTarget,
    /// `None` if no update is under way.
    record: Option<UpdateRecord>,
    slots: BTreeMap<i32, Box<Slot>>,
}

impl UpdateRecords {
    /// Reads the records, with one slot or all of them; `None` if there is no such desired LRP.
    async fn read(
        reader: &mut Reader,
        process_guid: &[u8],
        index: Option<i32>,
    ) -> Result<Option<Self>, DomainError> {
        let Some(target) = reader.update_target(process_guid).await? else {
            return Ok(None);
        };
        let record = reader.lrp_update(process_guid).await?;
        let slots = plain_slots(reader, process_guid, index).await?;
        Ok(Some(Self {
            target,
            record,
            slots,
        }))
    }
}

/// The incomplete slots of a process guid; only that at an index, if one is given.
pub(super) async fn plain_slots(
    reader: &mut Reader,
    process_guid: &[u8],
    index: Option<i32>,
) -> Result<BTreeMap<i32, Box<Slot>>, DomainError> {
    let filter = ActualLrpFilter {
        process_guids: vec![process_guid.to_vec()],
        index,
        ..ActualLrpFilter::default()
    };
    Ok(Slot::by_index(reader.plain_instances(&filter).await?))
}

/// Starts a task that brings the instances of a desired LRP to its current definition.
pub(super) fn spawn(service: Service, process_guid: Text) {
    tokio::spawn(async move {
        let step = |process_guid| step(service.clone(), process_guid);
        let hints = service.update_hints();
        loop {
            let end = run_step(&process_guid, &step).await;
            let continues = hints.continues(&process_guid, end);
            // Those behind a failed step must not wait for the next ones.
            if !continues || end == StepEnd::Failed {
                hints.give_places(&service);
            }
            if !continues {
                break;
            }
        }
    });
}

/// Works on all updates under way, which may be those that an earlier host began.
pub(super) async fn find_all(service: &Service) -> Result<(), DomainError> {
    let updates = service
        .store()
        .look()
        .await?
        .updates(&Range::default())
        .await?
        .records;
    let process_guids = updates.into_iter().map(|update| update.process_guid);
    service.update_hints().find_all(service, process_guids);
    Ok(())
}

/// Runs one step of a desired LRP. A failure is only logged: convergence repeats the step.
async fn run_step<F>(process_guid: &Text, step: impl FnOnce(Text) -> F) -> StepEnd
where
    F: Future<Output = Result<bool, DomainError>> + Send + 'static,
{
    // In a task of its own: after a panic here, the work would count as running for good.
    let step = tokio::spawn(step(process_guid.clone()));
    let reason = match step.await {
        Ok(Ok(is_done)) if is_done => return StepEnd::Done,
        Ok(Ok(_)) => return StepEnd::Waits,
        Ok(Err(fault)) => with_causes(&fault).to_string(),
        Err(panic) => panic.to_string(),
    };
    tracing::warn!(process_guid = %lossy(process_guid), %reason, "the update of a desired LRP did not advance; convergence continues it");
    StepEnd::Failed
}

/// One step; whether all instances run the current definition.
async fn step(service: Service, process_guid: Text) -> Result<bool, DomainError> {
    let _permit = service.update_hints().permit().await;
    // Before any place is taken.
    service
        .update_hints()
        .recover(|| find_all(&service))
        .await?;
    advance::advance(&service, &process_guid).await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn test_step(process_guid: Text) -> Result<bool, DomainError> {
        assert_ne!(process_guid, b"panics");
        Ok(process_guid == b"done")
    }

    #[tokio::test]
    async fn step_that_panics_has_failed_and_others_are_run() {
        for (process_guid, end) in [
            ("panics", StepEnd::Failed),
            ("done", StepEnd::Done),
            ("waits", StepEnd::Waits),
        ] {
            let process_guid = Text::from(process_guid);
            assert_eq!(run_step(&process_guid, test_step).await, end);
        }
    }
}
