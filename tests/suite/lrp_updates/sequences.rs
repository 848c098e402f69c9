//! Any sequence of calls of clients and cells, and of convergence, keeps the invariants of
//! definitions; and once the cells do what is asked of them, each container runs the definition
//! that its record names.
//!
//! `PROPTEST_CASES` sets the number of sequences on each database, `PROPTEST_RNG_SEED` the seed,
//! which is printed; `tests/run --all` has more sequences. The seed repeats them, but not how far
//! the host's work in the background is when each call is made.

use std::collections::{BTreeMap, BTreeSet};

use bbs::testing::domain::convergence;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use super::*;
use crate::api::actual_lrps::{REMOVE, instance, key, net_info, remove};
use crate::harness::database::on_each_database;
use crate::harness::seed::seed;
use crate::harness::server::NOW_NS;
use crate::harness::tests_all;

const CASES: u32 = 20;
const ALL_CASES: u32 = 60;
const DESIRED_INSTANCES: i32 = 2;
const MINUTE_NS: i64 = 60_000_000_000;

/// A call. A selector chooses from what there is.
#[derive(Debug, Clone)]
enum SequenceCall {
    /// With an id, or as Diego's clients do.
    Desire(bool),
    Update,
    Cancel,
    RollBack(usize),
    Scale(i32),
    RemoveLrp,
    /// A cell claims an index for a new container.
    Claim(i32),
    /// The cell of a container reads the desired LRP.
    Fetch(usize),
    Start(usize, bool),
    /// A container is started that has not claimed the index.
    StartUnclaimed(i32),
    Crash(usize),
    Stop(usize),
    Evacuate(usize),
    EvacuateClaimed(usize),
    EvacuateCrashed(usize),
    EvacuateStopped(usize),
    /// A cell loses a container and does not report it.
    Lose(usize),
    /// The record of a container is removed because its cell is missing. The container goes on.
    Disconnect(usize),
    Converge,
    /// Convergence finds the cell of a container missing. The container goes on.
    ConvergeWithout(usize),
}

fn calls() -> impl Strategy<Value = Vec<SequenceCall>> {
    let selector = || 0..8_usize;
    let index = || 0..4_i32;
    let call = prop_oneof![
        4 => Just(SequenceCall::Update),
        3 => Just(SequenceCall::Cancel),
        2 => selector().prop_map(SequenceCall::RollBack),
        2 => index().prop_map(SequenceCall::Scale),
        1 => Just(SequenceCall::RemoveLrp),
        2 => any::<bool>().prop_map(SequenceCall::Desire),
        8 => index().prop_map(SequenceCall::Claim),
        4 => selector().prop_map(SequenceCall::Fetch),
        8 => (selector(), prop::bool::weighted(0.8)).prop_map(|(selector, routable)| SequenceCall::Start(selector, routable)),
        1 => index().prop_map(SequenceCall::StartUnclaimed),
        3 => selector().prop_map(SequenceCall::Crash),
        1 => selector().prop_map(SequenceCall::Stop),
        3 => selector().prop_map(SequenceCall::Evacuate),
        1 => selector().prop_map(SequenceCall::EvacuateClaimed),
        1 => selector().prop_map(SequenceCall::EvacuateCrashed),
        1 => selector().prop_map(SequenceCall::EvacuateStopped),
        1 => selector().prop_map(SequenceCall::Lose),
        1 => selector().prop_map(SequenceCall::Disconnect),
        3 => Just(SequenceCall::Converge),
        2 => selector().prop_map(SequenceCall::ConvergeWithout),
    ];
    prop::collection::vec(call, 1..40)
}

on_each_database!(any_sequence_of_calls_keeps_the_invariants);
async fn any_sequence_of_calls_keeps_the_invariants(kind: Kind) {
    let server = running(kind, 0).await;
    // In a fresh domain, instances that are not desired are stopped.
    let fresh = proto::UpsertDomainRequest {
        domain: b"domain".to_vec(),
        ttl: 0,
    };
    server.call("/v1.2/domains/upsert", &fresh).await;
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(if tests_all() { ALL_CASES } else { CASES });
    let seed = seed("PROPTEST_RNG_SEED");
    println!(
        "PROPTEST_RNG_SEED={seed} on {kind:?}; repeats the sequences, not the host's work in the background"
    );
    let rng_seed = RngSeed::Fixed(seed);
    let mut runner = TestRunner::new(Config {
        cases,
        rng_seed,
        failure_persistence: None,
        ..Config::default()
    });
    let ran = block_in_place(|| {
        runner.run(&calls(), |calls| {
            Handle::current().block_on(Sequence::new(&server).run(&calls))
        })
    });
    if let Err(failure) = ran {
        panic!("PROPTEST_RNG_SEED={seed}: {failure}");
    }
}

/// The simulated cells of one sequence.
struct Sequence<'a> {
    server: &'a Server,
    /// By container: the index, and the definition that the container was started with. Those of a
    /// removed LRP are taken to run the first one of the next, as by Diego's BBS.
    containers: BTreeMap<String, (i32, Option<String>)>,
    /// Definitions and containers so far.
    made: usize,
    now_ns: i64,
}

impl<'a> Sequence<'a> {
    fn new(server: &'a Server) -> Self {
        Self {
            server,
            containers: BTreeMap::new(),
            made: 0,
            now_ns: NOW_NS,
        }
    }

    async fn run(mut self, calls: &[SequenceCall]) -> Result<(), TestCaseError> {
        for table in [
            "desired_lrps",
            "actual_lrps",
            "bbs_lrp_definitions",
            "bbs_lrp_updates",
        ] {
            self.server.sql(&format!("DELETE FROM {table}")).await;
        }
        self.server.clock.set(NOW_NS);
        self.apply(&SequenceCall::Desire(true)).await;
        for call in calls {
            self.apply(call).await;
            self.check_invariants().await?;
        }
        self.apply(&SequenceCall::Desire(true)).await;
        self.settle().await
    }

    async fn converge_after(&mut self, time_ns: i64) {
        self.now_ns += time_ns;
        self.server.clock.set(self.now_ns);
        convergence::run(&self.server.service)
            .await
            .expect("the database answers");
    }

    /// Convergence while the cells of the containers are present, except that of one.
    async fn converge_among_cells_after(&mut self, time_ns: i64, missing: Option<&str>) {
        self.now_ns += time_ns;
        self.server.clock.set(self.now_ns);
        let present = self
            .containers
            .keys()
            .filter(|name| missing != Some(name.as_str()));
        let cell = |name: &String| instance(name).unwrap_or_default().cell_id;
        let cells = present
            .map(|name| proto::CellPresence {
                cell_id: cell(name),
                ..Default::default()
            })
            .collect();
        let service = &self.server.service;
        convergence::run_among(service, Some(cells), service.store().now_ns())
            .await
            .expect("the database answers");
    }

    fn next(&mut self) -> usize {
        self.made += 1;
        self.made
    }

    fn new_definition(&mut self) -> proto::LrpDefinition {
        let number = self.next();
        proto::LrpDefinition {
            memory_mb: number as i32,
            ..definition(&format!("version-{number}"))
        }
    }

    fn chosen(&self, selector: usize) -> Option<String> {
        self.containers
            .keys()
            .nth(selector % self.containers.len().max(1))
            .cloned()
    }

    async fn apply(&mut self, call: &SequenceCall) {
        match call {
            SequenceCall::Desire(has_id) => {
                let definition_id = if *has_id {
                    self.new_definition().definition_id
                } else {
                    Vec::new()
                };
                let lrp = proto::DesiredLrp {
                    definition_id,
                    instances: DESIRED_INSTANCES,
                    ..version_1()
                };
                let request = proto::DesireLrpRequest {
                    desired_lrp: Some(lrp),
                };
                if error_of(self.server, "/v1.2/desired_lrp/desire.r2", &request)
                    .await
                    .is_none()
                {
                    let current = text(&status(self.server).await.definition_id);
                    self.containers
                        .values_mut()
                        .filter_map(|(_, runs)| runs.as_mut())
                        .for_each(|runs| runs.clone_from(&current));
                }
            }
            SequenceCall::Update => drop(update(self.server, to(self.new_definition())).await),
            SequenceCall::Cancel => drop(cancel(self.server).await),
            SequenceCall::RollBack(selector) => self.roll_back(*selector).await,
            SequenceCall::Scale(instances) => {
                let scaled = proto::DesiredLrpUpdate {
                    instances: Some(*instances),
                    ..Default::default()
                };
                update(self.server, scaled).await;
            }
            SequenceCall::RemoveLrp => {
                remove_lrp(self.server).await;
            }
            SequenceCall::Claim(index) => drop(self.claim(*index).await),
            SequenceCall::StartUnclaimed(index) => {
                let name = format!("container-{}", self.next());
                self.containers.insert(name.clone(), (*index, None));
                self.start(&name, true).await;
            }
            SequenceCall::Converge => {
                self.converge_after(MINUTE_NS).await;
            }
            SequenceCall::ConvergeWithout(selector) => {
                let missing = self.chosen(*selector);
                self.converge_among_cells_after(MINUTE_NS, missing.as_deref())
                    .await;
            }
            SequenceCall::Fetch(selector) => {
                if let Some(name) = self.chosen(*selector) {
                    self.fetch(&name).await;
                }
            }
            SequenceCall::Start(selector, routable) => {
                if let Some(name) = self.chosen(*selector) {
                    self.start(&name, *routable).await;
                }
            }
            SequenceCall::Crash(selector)
            | SequenceCall::Stop(selector)
            | SequenceCall::Evacuate(selector)
            | SequenceCall::EvacuateClaimed(selector)
            | SequenceCall::EvacuateCrashed(selector)
            | SequenceCall::EvacuateStopped(selector)
            | SequenceCall::Lose(selector)
            | SequenceCall::Disconnect(selector) => {
                if let Some(name) = self.chosen(*selector) {
                    self.end(&name, call).await;
                }
            }
        }
    }

    async fn roll_back(&self, selector: usize) {
        let request = proto::LrpDefinitionsRequest {
            process_guid: b"guid".to_vec(),
        };
        let answer: proto::LrpDefinitionsResponse = self
            .server
            .call("/v1.2/desired_lrp/definitions/list", &request)
            .await
            .message();
        let count = answer.definitions.len().max(1);
        if let Some(chosen) = answer.definitions.into_iter().nth(selector % count) {
            roll_back(
                self.server,
                &text(&chosen.definition.unwrap_or_default().definition_id),
            )
            .await;
        }
    }

    async fn claim(&mut self, index: i32) -> String {
        let name = format!("container-{}", self.next());
        if call_error(self.server, CLAIM, &claim(index, &name))
            .await
            .is_none()
        {
            self.containers.insert(name.clone(), (index, None));
        }
        name
    }

    /// A container is started with what its cell read first.
    async fn fetch(&mut self, name: &str) {
        let request = proto::DesiredLrpByProcessGuidRequest {
            process_guid: b"guid".to_vec(),
        };
        let answer: proto::DesiredLrpResponse = self
            .server
            .call("/v1.2/desired_lrps/get_by_process_guid.r3", &request)
            .await
            .message();
        match (answer.desired_lrp, self.containers.get_mut(name)) {
            (Some(lrp), Some((_, read))) => drop(read.get_or_insert(text(&lrp.definition_id))),
            _ => drop(self.containers.remove(name)),
        }
    }

    async fn start(&mut self, name: &str, routable: bool) {
        self.fetch(name).await;
        let Some((index, _)) = self.containers.get(name) else {
            return;
        };
        let request = proto::StartActualLrpRequest {
            routable: Some(routable),
            ..start(*index, name)
        };
        if call_error(self.server, START, &request).await.is_some() {
            self.containers.remove(name);
        }
    }

    async fn end(&mut self, name: &str, how: &SequenceCall) {
        if let SequenceCall::Evacuate(_) = how {
            // What runs was started.
            self.fetch(name).await;
        }
        let Some((index, _)) = self.containers.get(name) else {
            return;
        };
        let is_gone = match how {
            SequenceCall::Crash(_) => {
                call_error(self.server, CRASH, &crash(*index, name)).await;
                true
            }
            SequenceCall::Stop(_) => {
                call_error(self.server, REMOVE, &remove(*index, Some(name))).await;
                true
            }
            SequenceCall::Evacuate(_)
            | SequenceCall::EvacuateClaimed(_)
            | SequenceCall::EvacuateCrashed(_)
            | SequenceCall::EvacuateStopped(_) => !self.evacuate(*index, name, how).await,
            SequenceCall::Disconnect(_) => {
                call_error(self.server, REMOVE, &remove(*index, Some(name))).await;
                false
            }
            _ => true,
        };
        if is_gone {
            self.containers.remove(name);
        }
    }

    /// A cell that is drained reports a container; whether it keeps it.
    async fn evacuate(&self, index: i32, name: &str, how: &SequenceCall) -> bool {
        let actual_lrp_key = key(index);
        let actual_lrp_instance_key = instance(name);
        let (path, body) = match how {
            SequenceCall::EvacuateClaimed(_) => {
                let request = proto::EvacuateClaimedActualLrpRequest {
                    actual_lrp_key,
                    actual_lrp_instance_key,
                };
                ("evacuate_claimed", request.encode_to_vec())
            }
            SequenceCall::EvacuateCrashed(_) => {
                let error_message = b"it crashed".to_vec();
                let request = proto::EvacuateCrashedActualLrpRequest {
                    actual_lrp_key,
                    actual_lrp_instance_key,
                    error_message,
                };
                ("evacuate_crashed", request.encode_to_vec())
            }
            SequenceCall::EvacuateStopped(_) => {
                let request = proto::EvacuateStoppedActualLrpRequest {
                    actual_lrp_key,
                    actual_lrp_instance_key,
                };
                ("evacuate_stopped", request.encode_to_vec())
            }
            _ => {
                let request = proto::EvacuateRunningActualLrpRequest {
                    actual_lrp_key,
                    actual_lrp_instance_key,
                    actual_lrp_net_info: net_info(name),
                    routable: Some(true),
                    ..Default::default()
                };
                ("evacuate_running.r1", request.encode_to_vec())
            }
        };
        let reply = self
            .server
            .post(&format!("/v1.2/actual_lrps/{path}"), body)
            .await;
        reply.message::<proto::EvacuationResponse>().keep_container
    }

    /// Reads the desired LRP before the rows: the work in the background ends an update after its
    /// last row.
    async fn check_invariants(&self) -> Result<(), TestCaseError> {
        let request = proto::DesiredLrpUpdateStatusRequest {
            process_guid: b"guid".to_vec(),
        };
        let answer: proto::DesiredLrpUpdateStatusResponse = self
            .server
            .call("/v1.2/desired_lrp/update_status", &request)
            .await
            .message();
        let Some(status) = answer.status else {
            return Ok(());
        };
        let is_under_way = status.started_at != 0;
        prop_assert_eq!(
            is_under_way,
            !status.previous_definition_id.is_empty(),
            "{:?}",
            status
        );
        for row in images(self.server).await {
            let id = &row.desired_lrp_definition_id;
            let is_current = id.is_empty() || *id == status.definition_id;
            prop_assert!(
                is_current || is_under_way && *id == status.previous_definition_id,
                "{row:?} {status:?}"
            );
            let waits = [&b"UNCLAIMED"[..], b"CRASHED"].contains(&&row.state[..]);
            prop_assert!(is_current || !waits, "{row:?} {status:?}");
        }
        Ok(())
    }

    /// The cells start what waits, report what they run, and stop what they are asked to, until
    /// nothing changes.
    async fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..40 {
            // Longer than any delay of a restart, and than the time after which a crash counts as
            // the first one.
            self.converge_among_cells_after(20 * MINUTE_NS, None).await;
            for row in images(self.server).await {
                let index = row.actual_lrp_key.clone().unwrap_or_default().index;
                let name = container_of(&row);
                match &row.state[..] {
                    b"UNCLAIMED" => {
                        let name = self.claim(index).await;
                        self.start(&name, true).await;
                    }
                    _ if self.containers.contains_key(&name) => self.start(&name, true).await,
                    _ if row.presence == proto::actual_lrp::Presence::Evacuating as i32 => {
                        let request = proto::RemoveEvacuatingActualLrpRequest {
                            actual_lrp_key: key(index),
                            actual_lrp_instance_key: instance(&name),
                        };
                        self.server
                            .call("/v1.2/actual_lrps/remove_evacuating", &request)
                            .await;
                    }
                    _ => drop(call_error(self.server, REMOVE, &remove(index, Some(&name))).await),
                }
            }
            // No cell is present, so the row of a container is removed where its cell would be
            // asked to stop it.
            let listed: BTreeSet<_> = images(self.server).await.iter().map(container_of).collect();
            self.containers.retain(|name, _| listed.contains(name));
            self.check_invariants().await?;
            if self.is_settled().await {
                return Ok(());
            }
            settle(self.server).await;
        }
        let found = (
            status(self.server).await,
            rows(self.server).await,
            &self.containers,
        );
        Err(TestCaseError::fail(format!("not settled: {found:#?}")))
    }

    async fn is_settled(&self) -> bool {
        let status = status(self.server).await;
        let rows = images(self.server).await;
        status.started_at == 0
            && rows.len() == usize::try_from(status.instances).unwrap_or(0)
            && self.containers.len() == rows.len()
            && rows.iter().all(|row| {
                let runs = self
                    .containers
                    .get(&container_of(row))
                    .and_then(|(_, runs)| runs.clone());
                let is_named =
                    [&b""[..], &status.definition_id].contains(&&row.desired_lrp_definition_id[..]);
                is_named && runs == Some(text(&status.definition_id))
            })
    }
}

fn container_of(row: &proto::ActualLrp) -> String {
    text(
        &row.actual_lrp_instance_key
            .clone()
            .unwrap_or_default()
            .instance_guid,
    )
}
