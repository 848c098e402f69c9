//! Settling: every component does what is requested of it, and a few runs of convergence leave
//! nothing to do.

use std::collections::BTreeSet;

use bbs_proto::models as proto;
use bbs_proto::models::actual_lrp::Presence;
use bbs_proto::models::task::State;

use super::calls::{ContainerRef, InstanceCall, TaskCall};
use super::{CELLS, ConsistencyTest, DOMAINS, checks};
use crate::harness::neighbours::{ReceivedRequest, StubReply};

/// Runs of convergence after which the state is settled.
const RUNS: usize = 8;
/// Longer than every delay and timeout.
const HOUR_S: i64 = 3_600;

pub(super) async fn until_converged(test: &mut ConsistencyTest) {
    prepare(test).await;
    for run in 0..RUNS {
        test.advance_clock(HOUR_S);
        test.converge().await;
        let asked = (
            test.neighbours.auctioneer.take_requests(),
            test.neighbours.rep.take_requests(),
        );
        test.read_and_check().await;
        place(test, run, &asked.0).await;
        stop(test, &asked.1).await;
        advance_containers(test).await;
        test.read_and_check().await;
    }
    assert_settled(test).await;
}

/// Ends all faults, adds a cell, and makes all domains fresh.
async fn prepare(test: &mut ConsistencyTest) {
    for server in [&test.neighbours.auctioneer, &test.neighbours.rep] {
        server.clear_replies();
        server.take_requests();
        server.reply_always(StubReply::Status(202));
    }
    test.set_present(CELLS[0], true);
    for domain in DOMAINS {
        let request = proto::UpsertDomainRequest {
            domain: domain.into(),
            ttl: 0,
        };
        assert_eq!(test.call_error("domains/upsert", &request, &[]).await, None);
    }
}

/// Starts every instance and task of the requested auctions on a present cell.
async fn place(test: &mut ConsistencyTest, run: usize, asked: &[ReceivedRequest]) {
    let cells: Vec<_> = test.present_cells.iter().copied().collect();
    for request in asked {
        for start in request.body.as_array().expect("a list") {
            let cell = cells[test.random.usize(..cells.len())];
            if request.path == "/v1/tasks" {
                TaskCall::Start
                    .make(test, start["TaskGuid"].as_str().expect("text"), cell)
                    .await;
                continue;
            }
            let text = |name: &str| start[name].as_str().expect("text").to_owned();
            for index in start["indices"].as_array().expect("indices") {
                let index = i32::try_from(index.as_i64().expect("a number")).expect("an index");
                let guid = text("process_guid");
                let domain = text("domain");
                let instance = format!("run-{run}-{guid}-{index}");
                let container = ContainerRef {
                    guid,
                    index,
                    domain,
                    instance,
                    cell: cell.to_owned(),
                };
                InstanceCall::Claim.make(test, &container).await;
                InstanceCall::Start.make(test, &container).await;
            }
        }
    }
}

/// Removes every container that a rep was requested to stop.
async fn stop(test: &ConsistencyTest, asked: &[ReceivedRequest]) {
    let stops: BTreeSet<_> = asked.iter().map(|request| request.path.as_str()).collect();
    for row in test
        .rows
        .actual
        .iter()
        .filter(|row| checks::has_container(row))
    {
        let container = ContainerRef::of(row);
        if stops.contains(checks::stop_path(row).as_str()) {
            InstanceCall::Remove.make(test, &container).await;
        }
    }
}

/// Starts claimed instances on present cells, and removes evacuating ones.
async fn advance_containers(test: &ConsistencyTest) {
    for row in test
        .rows
        .actual
        .iter()
        .filter(|row| checks::has_container(row))
    {
        let container = ContainerRef::of(row);
        if !test.present_cells.contains(container.cell.as_str()) {
            continue;
        }
        match (row.presence(), &row.state[..]) {
            (Presence::Evacuating, _) => {
                InstanceCall::RemoveEvacuating.make(test, &container).await
            }
            (Presence::Ordinary, b"CLAIMED") => InstanceCall::Start.make(test, &container).await,
            _ => continue,
        };
    }
}

/// Asserts that another run of convergence does nothing, and that exactly the desired instances are
/// running.
async fn assert_settled(test: &mut ConsistencyTest) {
    let before = test.rows.clone();
    test.advance_clock(HOUR_S);
    let counts = test.converge().await;
    let lrps = &counts.lrps;
    assert_eq!(
        (lrps.missing, lrps.extra, lrps.started, lrps.failed),
        (0, 0, 0, 0),
        "{before:#?}"
    );
    assert_eq!(
        (counts.tasks.kicked, counts.tasks.pruned),
        (0, 0),
        "{before:#?}"
    );
    assert_eq!(
        (
            test.neighbours.auctioneer.take_requests(),
            test.neighbours.rep.take_requests()
        ),
        (Vec::new(), Vec::new())
    );
    test.read_and_check().await;
    assert_eq!(test.rows, before);
    let wanted = test.rows.desired.iter();
    let wanted: BTreeSet<_> = wanted
        .flat_map(|lrp| (0..lrp.instances).map(|index| (lrp.process_guid.clone(), index)))
        .collect();
    let running = test.rows.actual.iter().map(|row| {
        assert_eq!(
            (row.presence(), &row.state[..]),
            (Presence::Ordinary, &b"RUNNING"[..]),
            "{row:?}"
        );
        assert!(test.present_cells.contains(checks::cell_of(row)), "{row:?}");
        let key = row.actual_lrp_key.clone().expect("every row has a key");
        (key.process_guid, key.index)
    });
    assert_eq!(running.collect::<BTreeSet<_>>(), wanted);
    for task in &test.rows.tasks {
        let cell = std::str::from_utf8(&task.cell_id).expect("text");
        assert!(
            task.state() == State::Running && test.present_cells.contains(cell),
            "{task:?}"
        );
    }
}
