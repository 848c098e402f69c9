//! Reads at 0.11 against an oracle: cached dependencies as downloads.

use super::generated::{first_alternative, lrps_agree, tasks_agree};
use super::*;
use proto::{Action, CachedDependency, DownloadAction, ParallelAction, SerialAction};

fn fold(dependencies: &mut Vec<CachedDependency>, user: &[u8], action: &mut Option<Action>) {
    if dependencies.is_empty() {
        return;
    }
    let downloads = std::mem::take(dependencies)
        .into_iter()
        .map(|dependency| {
            let CachedDependency {
                name: artifact,
                from,
                to,
                cache_key,
                log_source,
                ..
            } = dependency;
            let user = user.to_vec();
            let download = DownloadAction {
                artifact,
                from,
                to,
                cache_key,
                log_source,
                user,
                ..Default::default()
            };
            Action {
                download_action: Some(download),
                ..Default::default()
            }
        })
        .collect();
    let parallel = ParallelAction {
        actions: downloads,
        log_source: Vec::new(),
    };
    let mut actions = vec![Action {
        parallel_action: Some(parallel),
        ..Default::default()
    }];
    actions.extend(action.take().map(first_alternative));
    let serial = SerialAction {
        actions,
        log_source: Vec::new(),
    };
    *action = Some(Action {
        serial_action: Some(serial),
        ..Default::default()
    });
}

pub(super) fn fold_lrp(lrp: &mut proto::DesiredLrp) {
    fold(
        &mut lrp.cached_dependencies,
        &lrp.legacy_download_user,
        &mut lrp.setup,
    );
}

pub(super) fn fold_definition(definition: &mut proto::TaskDefinition) {
    fold(
        &mut definition.cached_dependencies,
        &definition.legacy_download_user,
        &mut definition.action,
    );
}

#[test]
fn generated_desired_lrps_download_their_dependencies() {
    lrps_agree("0.11", "DesiredLRPs", fold_lrp);
}

#[test]
fn generated_tasks_download_their_dependencies() {
    tasks_agree("0.11", "Tasks", fold_definition);
}
