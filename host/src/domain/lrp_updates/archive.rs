//! The archive of definitions: listed for one desired LRP, and pruned at each update of it; by age
//! and number also for all of them, a batch in each run of convergence.

use std::collections::BTreeMap;

use bbs_model::Text;
use bbs_model::bounds::ARCHIVE_BYTES;
use bbs_model::desired_lrp::{ArchivedDefinition, DesiredLrp};
use bbs_work::causes::with_causes;

use crate::domain::{DomainError, Policy, Service};
use crate::store::{DefinitionAge, Key, Range, Reader, Writer};

/// The definitions of a desired LRP.
#[derive(Debug, Clone, PartialEq)]
pub struct DefinitionList {
    /// Has the current definition.
    pub lrp: DesiredLrp,
    /// The previous one, if an update is under way, and archived ones; the last active ones first.
    pub others: Vec<ArchivedDefinition>,
}

/// Reads the definitions of a desired LRP.
///
/// # Errors
/// `NotFound` if there is no such desired LRP; errors of the store.
pub async fn definitions(
    reader: &mut Reader,
    process_guid: &[u8],
) -> Result<DefinitionList, DomainError> {
    let lrp = reader
        .desired_lrp(process_guid)
        .await?
        .ok_or(DomainError::NotFound)?;
    let mut others = reader.definitions(process_guid).await?;
    others.sort_by_key(|archived| std::cmp::Reverse(archived.last_active_ns.unwrap_or(i64::MAX)));
    Ok(DefinitionList { lrp, others })
}

/// Prunes the archives of the next process guids, after those that the last call examined. A
/// failure is only logged.
pub(in crate::domain) async fn prune(service: &Service) {
    match prune_after(service, service.update_hints().last_pruned()).await {
        Ok(last) => service.update_hints().set_last_pruned(last),
        Err(fault) => {
            tracing::warn!(reason = %with_causes(&fault), "archived definitions were not pruned; the next run retries")
        }
    }
}

/// Prunes a batch after a key; returns the key after which the next one starts.
async fn prune_after(service: &Service, after: Option<Key>) -> Result<Option<Key>, DomainError> {
    let range = Range {
        after,
        most: Some(service.policy().archives_per_run),
        ..Range::default()
    };
    let listed = service
        .store()
        .reader()
        .await?
        .definition_ages(&range)
        .await?;
    let mut by_guid = BTreeMap::<Text, Vec<DefinitionAge>>::new();
    for age in listed.records {
        by_guid
            .entry(age.process_guid.clone())
            .or_default()
            .push(age);
    }
    let now_ns = service.store().now_ns();
    for (process_guid, ages) in by_guid {
        if !surplus(ages, service.policy(), now_ns).is_empty() {
            // Otherwise a rollback to one of them and its cancellation, between the look and the
            // deletion, would make it the previous one, which would be deleted. An LRP that is busy
            // for long is pruned in the next round.
            let Ok(_lock) = service.lock_key(&process_guid).await else {
                continue;
            };
            let mut writer = service.store().writer().await?;
            prune_definitions(&mut writer, &process_guid, service.policy()).await?;
            writer.commit().await?;
        }
    }
    Ok(listed.last)
}

/// Deletes the definitions of a desired LRP that are too many or too old, and then those that were
/// last active longest ago while the others are too large together. The previous one is kept.
pub(super) async fn prune_definitions(
    writer: &mut Writer,
    process_guid: &[u8],
    policy: &Policy,
) -> Result<(), DomainError> {
    let mut archived = writer.definition_ages(process_guid).await?;
    archived.retain(|age| age.last_active_ns.is_some());
    for id in surplus(archived.clone(), policy, writer.now_ns()) {
        writer.delete_definition(process_guid, &id).await?;
        archived.retain(|age| age.id != id);
    }
    archived.sort_by_key(|age| age.last_active_ns);
    for age in archived {
        if writer.definition_bytes(process_guid).await? <= ARCHIVE_BYTES {
            break;
        }
        writer.delete_definition(process_guid, &age.id).await?;
    }
    Ok(())
}

/// The ids of the definitions that are too many or too old. The previous one is kept.
fn surplus(mut ages: Vec<DefinitionAge>, policy: &Policy, now_ns: i64) -> Vec<Text> {
    let oldest_ns = now_ns
        .saturating_sub(i64::try_from(policy.definitions_max_age.as_nanos()).unwrap_or(i64::MAX));
    ages.retain(|age| age.last_active_ns.is_some());
    ages.sort_by_key(|age| std::cmp::Reverse(age.last_active_ns));
    let is_kept = |(at, age): &(usize, DefinitionAge)| {
        *at < policy.definitions_kept && age.last_active_ns >= Some(oldest_ns)
    };
    ages.into_iter()
        .enumerate()
        .filter(|aged| !is_kept(aged))
        .map(|(_, age)| age.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ages(times: &[Option<i64>]) -> Vec<DefinitionAge> {
        times
            .iter()
            .map(|last_active_ns| DefinitionAge {
                process_guid: b"app".to_vec(),
                id: format!("{last_active_ns:?}").into(),
                last_active_ns: *last_active_ns,
            })
            .collect()
    }

    #[test]
    fn last_definitions_are_kept_until_they_are_too_old() {
        let policy = Policy {
            definitions_kept: 2,
            definitions_max_age: Duration::from_nanos(50),
            ..Policy::default()
        };
        assert_eq!(
            surplus(ages(&[Some(70), Some(90), None, Some(80)]), &policy, 100),
            [b"Some(70)".to_vec()]
        );
        assert_eq!(
            surplus(ages(&[Some(40), Some(50)]), &policy, 100),
            [b"Some(40)".to_vec()]
        );
        assert_eq!(
            surplus(ages(&[None]), &policy, 100),
            [b""; 0],
            "the previous one"
        );
    }
}
