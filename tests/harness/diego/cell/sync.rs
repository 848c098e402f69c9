//! A rep's periodic work: reconciles its containers and tasks with the host's rows in both
//! directions, and evacuates its containers while the cell is evacuating.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bbs_proto::models as proto;
use futures_util::future::join_all;
use proto::actual_lrp::Presence;
use proto::error::Type;
use proto::task;
use serde::Deserialize;

use super::{Container, ContainerKey, Inner, RUNS, Stage, Text, lrp_key, net_info, routes, tags};

#[derive(Deserialize)]
struct Hostname {
    hostname: String,
}

/// Runs until the test's runtime ends.
pub(super) async fn run(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(inner.sync_interval).await;
        inner.wait_for_link().await;
        if inner.state().is_present {
            inner.reconcile().await;
            inner.reconcile_tasks().await;
        }
        if inner.is_evacuating() {
            join_all(inner.running().into_iter().map(|key| inner.evacuate(key))).await;
            inner.state().evacuation_rounds += 1;
        }
    }
}

impl Inner {
    async fn reconcile(&self) {
        let request = proto::ActualLrPsRequest {
            cell_id: self.id.clone().into(),
            ..Default::default()
        };
        let (answer, refusal, _): (proto::ActualLrPsResponse, _, _) =
            self.bbs.call("/v1/actual_lrps/list", &request).await;
        assert_eq!(refusal, None, "a list is not refused");
        let mut listed = BTreeSet::new();
        for row in answer.actual_lrps {
            let presence = row.presence();
            let (Some(key), Some(instance)) = (row.actual_lrp_key, row.actual_lrp_instance_key)
            else {
                continue;
            };
            let container = ContainerKey {
                process_guid: key.process_guid.clone(),
                index: key.index,
                instance_guid: instance.instance_guid.clone(),
            };
            if self.container(&container).is_none() && self.state().is_present {
                self.report_gone(key, instance, presence).await;
            }
            // A cell reports all of its containers, which changes nothing for most of them. One in
            // an evacuating row may have to become the managed one again.
            if presence != Presence::Evacuating {
                listed.insert(container);
            }
        }
        let unlisted = self
            .running()
            .into_iter()
            .filter(|key| !listed.contains(key));
        if !self.is_evacuating() {
            join_all(unlisted.map(|key| async move { self.announce(&key, Stage::Running).await }))
                .await;
        }
    }

    /// Removes a row that has no container. Refused if the row changed meanwhile.
    async fn report_gone(
        &self,
        key: proto::ActualLrpKey,
        instance: proto::ActualLrpInstanceKey,
        presence: Presence,
    ) {
        if presence == Presence::Evacuating {
            let request = proto::RemoveEvacuatingActualLrpRequest {
                actual_lrp_key: Some(key),
                actual_lrp_instance_key: Some(instance),
            };
            let _ = self
                .submit::<proto::RemoveEvacuatingActualLrpResponse>(
                    "/v1/actual_lrps/remove_evacuating",
                    &request,
                )
                .await;
        } else {
            let request = proto::RemoveActualLrpRequest {
                process_guid: key.process_guid,
                index: key.index,
                actual_lrp_instance_key: Some(instance),
            };
            let _ = self
                .submit::<proto::ActualLrpLifecycleResponse>("/v1/actual_lrps/remove", &request)
                .await;
        }
    }

    async fn reconcile_tasks(&self) {
        let request = proto::TasksRequest {
            cell_id: self.id.clone().into(),
            ..Default::default()
        };
        // Read before the list: a task that begins after the list was taken would be missing from
        // it.
        let running: Vec<Text> = {
            let state = self.state();
            let running = state
                .tasks
                .iter()
                .filter(|(_, stage)| **stage == Stage::Running);
            running.map(|(guid, _)| guid.clone()).collect()
        };
        let (answer, refusal, _): (proto::TasksResponse, _, _) =
            self.bbs.call("/v1/tasks/list.r3", &request).await;
        assert_eq!(refusal, None, "a list is not refused");
        let rows = answer
            .tasks
            .into_iter()
            .filter(|row| row.state() == task::State::Running);
        let rows: BTreeSet<Text> = rows.map(|row| row.task_guid).collect();
        for guid in running.iter().filter(|guid| !rows.contains(*guid)) {
            self.state().tasks.remove(guid);
        }
        for guid in rows {
            if self.state().tasks.contains_key(&guid) || !self.state().is_present {
                continue;
            }
            let lost = proto::CompleteTaskRequest {
                task_guid: guid,
                cell_id: self.id.clone().into(),
                failed: true,
                failure_reason: b"its container is gone".to_vec(),
                ..Default::default()
            };
            // Refused if the task ended in another way.
            let _ = self
                .submit::<proto::TaskLifecycleResponse>("/v1/tasks/complete", &lost)
                .await;
        }
    }

    /// Queries the host whether a container has to keep running here, and removes it if not.
    async fn evacuate(&self, key: ContainerKey) {
        let Some(container) = self.container(&key) else {
            return;
        };
        let request = proto::EvacuateRunningActualLrpRequest {
            actual_lrp_key: Some(lrp_key(&key, &container)),
            actual_lrp_instance_key: self.instance(&key),
            actual_lrp_net_info: Some(net_info(&self.id)),
            actual_lrp_internal_routes: routes(&container),
            metric_tags: tags(&container),
            routable: Some(container.program == RUNS),
            availability_zone: b"z1".to_vec(),
        };
        let (answer, _, _): (proto::EvacuationResponse, _, _) = self
            .bbs
            .call("/v1/actual_lrps/evacuate_running.r1", &request)
            .await;
        if !answer.keep_container {
            self.trace.stop(&key.process_guid, &key.instance_guid);
            self.forget(&key);
        }
    }

    pub(super) async fn report_crashed(&self, key: &ContainerKey, container: &Container) {
        let (lrp, instance) = (Some(lrp_key(key, container)), self.instance(key));
        let error_message = b"it ended by itself".to_vec();
        if self.is_evacuating() {
            let request = proto::EvacuateCrashedActualLrpRequest {
                actual_lrp_key: lrp,
                actual_lrp_instance_key: instance,
                error_message,
            };
            let _ = self
                .submit::<proto::EvacuationResponse>("/v1/actual_lrps/evacuate_crashed", &request)
                .await;
        } else {
            let request = proto::CrashActualLrpRequest {
                actual_lrp_key: lrp,
                actual_lrp_instance_key: instance,
                error_message,
            };
            let _ = self
                .submit::<proto::ActualLrpLifecycleResponse>("/v1/actual_lrps/crash", &request)
                .await;
        }
    }

    pub(super) async fn report_stopped(&self, key: &ContainerKey, container: &Container) {
        let (lrp, instance) = (lrp_key(key, container), self.instance(key));
        if self.is_evacuating() {
            let request = proto::EvacuateStoppedActualLrpRequest {
                actual_lrp_key: Some(lrp),
                actual_lrp_instance_key: instance,
            };
            let _ = self
                .submit::<proto::EvacuationResponse>("/v1/actual_lrps/evacuate_stopped", &request)
                .await;
        } else {
            self.report_gone(
                lrp,
                instance.expect("an instance has a key"),
                Presence::Ordinary,
            )
            .await;
        }
    }

    /// Loads a container's routes and metric tags from its desired LRP. `false` if there is none.
    pub(super) async fn load_routes_and_tags(&self, key: &ContainerKey) -> bool {
        self.wait_for_link().await;
        let request = proto::DesiredLrpByProcessGuidRequest {
            process_guid: key.process_guid.clone(),
        };
        // A cell of Diego speaks an older version; this one records the definition for the test.
        let path = "/v1.2/desired_lrps/get_by_process_guid.r3";
        let (answer, refusal, _): (proto::DesiredLrpResponse, _, _) =
            self.bbs.call(path, &request).await;
        if let Some(refusal) = refusal {
            assert_eq!(refusal.r#type(), Type::ResourceNotFound, "{refusal:?}");
            return false;
        }
        let desired = answer.desired_lrp.unwrap_or_default();
        let entries = desired.routes.unwrap_or_default().routes;
        let internal = entries.iter().find(|entry| entry.key == b"internal-router");
        let hostnames: Vec<Hostname> = internal.map_or(Vec::new(), |entry| {
            serde_json::from_slice(&entry.value).expect("the simulation's own routes")
        });
        let known: BTreeMap<Text, Text> = desired
            .metric_tags
            .into_iter()
            .filter_map(|entry| Some((entry.key, entry.value?.r#static)))
            .collect();
        if let Some(container) = self.state().containers.get_mut(key) {
            container.known_by.internal_routes = hostnames
                .into_iter()
                .map(|found| found.hostname.into_bytes())
                .collect();
            container.known_by.metric_tags = known;
            container.known_by.definition = desired.definition_id;
            container.program = desired
                .action
                .and_then(|action| action.run_action)
                .unwrap_or_default()
                .path;
        }
        true
    }
}
