//! The state after the last fault: the database is at the version of the installed modules, and the
//! desired LRPs, the store, the containers of the cells and the emitter's routing table agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bbs_proto::models as proto;

use super::diego::Diego;
use crate::harness::diego::cell::{KnownBy, Text};
use crate::harness::diego::controller::Wanted;
use crate::harness::diego::emitter::{InstanceRow, row};

/// Longer than any restart delay after a crash, and than the interval after which a lost auction is
/// repeated.
const PATIENCE: Duration = Duration::from_secs(400);
const ORDINARY: i32 = proto::actual_lrp::Presence::Ordinary as i32;
/// Differences of a kind that are printed.
const PRINTED: usize = 5;

/// A container: its cell, process guid, index and instance guid.
type Running = (Text, Text, i32, Text);

impl Diego {
    /// Waits until the last migration has ended and there are no differences, and asserts that
    /// there are none after two more runs of convergence.
    pub async fn wait_until_settled(
        &self,
        wanted: &BTreeMap<Text, Wanted>,
        with_callback: &[String],
    ) {
        self.supervisor.wait_until_migrated().await;
        let began = Instant::now();
        loop {
            let differences = self.differences(wanted, with_callback).await;
            if differences.is_empty() {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "not settled: {differences:#?}");
            self.supervisor.wait_for_line(is_of_convergence).await;
        }
        println!("settled after {} s", began.elapsed().as_secs());
        for _ in 0..2 {
            self.supervisor.wait_for_line(is_of_convergence).await;
        }
        assert_eq!(
            self.differences(wanted, with_callback).await,
            Vec::<String>::new(),
            "convergence changes the settled state"
        );
        assert_eq!(self.emitter.backward(), Vec::<String>::new());
        let ended = self.supervisor.ended();
        let explained = self.explained_ends.load(Ordering::Relaxed);
        assert!(
            ended <= explained,
            "the host ended by itself {ended} times, of which faults explain {explained}"
        );
    }

    async fn differences(
        &self,
        wanted: &BTreeMap<Text, Wanted>,
        with_callback: &[String],
    ) -> Vec<String> {
        let rows: proto::ActualLrPsResponse = self
            .list(
                "/v1.2/actual_lrps/list",
                &proto::ActualLrPsRequest::default(),
            )
            .await;
        let mut found = self.differences_of_rows(&rows.actual_lrps, wanted);
        let path = "/v1/desired_lrp_scheduling_infos/list";
        let infos: proto::DesiredLrpSchedulingInfosResponse =
            self.list(path, &proto::DesiredLrPsRequest::default()).await;
        let infos = infos.desired_lrp_scheduling_infos.into_iter();
        let stored: BTreeSet<_> = infos
            .map(|info| {
                (
                    info.desired_lrp_key.unwrap_or_default().process_guid,
                    info.instances,
                )
            })
            .collect();
        let desired = wanted
            .iter()
            .map(|(guid, wanted)| (guid.clone(), wanted.instances))
            .collect();
        compare(&mut found, "desired", &desired, "stored", &stored);
        compare(
            &mut found,
            "stored",
            &stored,
            "known to the emitter",
            &self.emitter.desired().into_iter().collect(),
        );
        let tasks: proto::TasksResponse = self
            .list("/v1/tasks/list.r3", &proto::TasksRequest::default())
            .await;
        found.extend(
            tasks
                .tasks
                .first()
                .map(|task| format!("a task is left: {task:?}")),
        );
        found.extend(
            self.cells
                .iter()
                .filter(|cell| cell.tasks() > 0)
                .map(|cell| format!("{} runs tasks", cell.id())),
        );
        let received: BTreeSet<_> = self.receiver.callbacks().into_keys().collect();
        compare(
            &mut found,
            "with a callback",
            &with_callback.iter().cloned().collect(),
            "called back",
            &received,
        );
        found
    }

    fn differences_of_rows(
        &self,
        lrps: &[proto::ActualLrp],
        wanted: &BTreeMap<Text, Wanted>,
    ) -> Vec<String> {
        let mut found = Vec::new();
        let rows: BTreeSet<InstanceRow> = lrps.iter().map(row).collect();
        compare_instances(&mut found, &rows, wanted);
        compare_definitions(&mut found, lrps, wanted);
        self.compare_containers(&mut found, &rows, wanted);

        let table = self.emitter.rows();
        let retired = self.emitter.retired();
        let routed: BTreeSet<_> = rows.difference(&retired).cloned().collect();
        let table: BTreeSet<_> = table.difference(&retired).cloned().collect();
        compare(&mut found, "rows", &routed, "rows of the emitter", &table);
        found
    }

    /// Compares the containers of the cells with the running rows, and their routes and tags with
    /// the desired ones.
    fn compare_containers(
        &self,
        found: &mut Vec<String>,
        rows: &BTreeSet<InstanceRow>,
        wanted: &BTreeMap<Text, Wanted>,
    ) {
        let mut containers: BTreeMap<Running, KnownBy> = BTreeMap::new();
        for cell in &self.cells {
            for (key, known) in cell.containers() {
                let container = (
                    cell.id().into(),
                    key.process_guid,
                    key.index,
                    key.instance_guid,
                );
                containers.insert(container, known);
            }
        }
        let running = rows
            .iter()
            .map(|row| {
                (
                    row.cell_id.clone(),
                    row.place.0.clone(),
                    row.place.1,
                    row.instance_guid.clone(),
                )
            })
            .collect();
        let names: BTreeSet<_> = containers.keys().cloned().collect();
        compare(found, "containers", &names, "running rows", &running);

        let expected = names
            .into_iter()
            .filter_map(|(_, guid, ..)| {
                let known_by = wanted.get(&guid)?.known_by();
                Some((guid, known_by))
            })
            .collect();
        let known = containers
            .into_iter()
            .map(|((_, guid, ..), known)| {
                let definition = compared_definition(wanted, &guid, known.definition);
                let known = KnownBy {
                    definition,
                    ..known
                };
                (guid, known)
            })
            .collect();
        compare(
            found,
            "routes and tags desired",
            &expected,
            "of containers",
            &known,
        );
    }

    async fn list<A: bbs_client::Answer>(
        &self,
        path: &str,
        request: &impl bbs_proto::prost::Message,
    ) -> A {
        let (answer, refusal, _) = self.home.call(path, request).await;
        assert_eq!(refusal, None, "{path}");
        answer
    }
}

/// Compares the places of the desired instances with those of the rows.
fn compare_instances(
    found: &mut Vec<String>,
    rows: &BTreeSet<InstanceRow>,
    wanted: &BTreeMap<Text, Wanted>,
) {
    let desired = wanted
        .iter()
        .flat_map(|(guid, wanted)| {
            (0..wanted.instances)
                .map(move |index| (guid.clone(), index, ORDINARY, b"RUNNING".to_vec()))
        })
        .collect();
    let places = rows
        .iter()
        .map(|row| {
            let (guid, index, presence) = row.place.clone();
            (guid, index, presence, row.state.clone())
        })
        .collect();
    compare(found, "desired instances", &desired, "rows", &places);
}

/// Compares the current definitions with those of the instances.
fn compare_definitions(
    found: &mut Vec<String>,
    lrps: &[proto::ActualLrp],
    wanted: &BTreeMap<Text, Wanted>,
) {
    let defined = wanted
        .iter()
        .filter(|(_, wanted)| wanted.instances > 0)
        .map(|(guid, wanted)| (guid.clone(), wanted.definition.clone()))
        .collect();
    let named = lrps
        .iter()
        .map(|lrp| {
            let guid = lrp.actual_lrp_key.clone().unwrap_or_default().process_guid;
            let definition =
                compared_definition(wanted, &guid, lrp.desired_lrp_definition_id.clone());
            (guid, definition)
        })
        .collect();
    compare(
        found,
        "current definitions",
        &defined,
        "definitions of instances",
        &named,
    );
}

/// The definition, or an empty one of an LRP that has none in the model, which is not compared.
fn compared_definition(wanted: &BTreeMap<Text, Wanted>, guid: &Text, definition: Text) -> Text {
    let is_compared = wanted
        .get(guid)
        .is_some_and(|wanted| !wanted.definition.is_empty());
    if is_compared { definition } else { Text::new() }
}

/// Whether a run of convergence logs this line at its end.
fn is_of_convergence(line: &str) -> bool {
    line.contains("converged unclaimed=")
}

fn compare<T: Ord + Debug>(
    found: &mut Vec<String>,
    name: &str,
    values: &BTreeSet<T>,
    other_name: &str,
    other_values: &BTreeSet<T>,
) {
    for (more, less, only, but) in [
        (values, other_values, name, other_name),
        (other_values, values, other_name, name),
    ] {
        let differing: Vec<_> = more.difference(less).collect();
        if !differing.is_empty() {
            let printed = &differing[..differing.len().min(PRINTED)];
            found.push(format!(
                "{only}, but not {but}: {}: {printed:?}",
                differing.len()
            ));
        }
    }
}
