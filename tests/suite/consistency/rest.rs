//! Coming to rest: everybody does what he is asked to, convergence runs now and then, and soon nothing is left to do.

use std::collections::BTreeSet;

use bbs_proto::models as proto;
use bbs_proto::models::actual_lrp::Presence;
use bbs_proto::models::task::State;

use super::calls::{About, Container, OfTask};
use super::{CELLS, DOMAINS, World, checks};
use crate::harness::neighbours::{Heard, Say};

/// Runs after which everything has come to rest.
const RUNS: usize = 8;
/// Longer than anything waits.
const HOUR_S: i64 = 3_600;

pub(super) async fn comes(world: &mut World) {
    prepare(world).await;
    for run in 0..RUNS {
        world.wait(HOUR_S);
        world.converge().await;
        let asked = (world.neighbours.auctioneer.heard(), world.neighbours.rep.heard());
        world.look().await;
        place(world, run, &asked.0).await;
        stop(world, &asked.1).await;
        go_on(world).await;
        world.look().await;
    }
    is_here(world).await;
}

/// From now on everybody listens, one cell at least is there, and what is desired is known to be complete.
async fn prepare(world: &mut World) {
    for stand_in in [&world.neighbours.auctioneer, &world.neighbours.rep] {
        stand_in.forget_answers();
        stand_in.heard();
        stand_in.say_always(Say::Status(202));
    }
    world.show(CELLS[0], true);
    for domain in DOMAINS {
        let request = proto::UpsertDomainRequest { domain: domain.into(), ttl: 0 };
        assert_eq!(world.said("domains/upsert", &request, &[]).await, None);
    }
}

/// The auctioneer finds a cell for everything.
async fn place(world: &mut World, run: usize, asked: &[Heard]) {
    let there: Vec<_> = world.there.iter().copied().collect();
    for request in asked {
        for start in request.body.as_array().expect("a list") {
            let cell = there[world.random.usize(..there.len())];
            if request.path == "/v1/tasks" {
                OfTask::Start.make(world, start["TaskGuid"].as_str().expect("text"), cell).await;
                continue;
            }
            let text = |name: &str| start[name].as_str().expect("text").to_owned();
            for index in start["indices"].as_array().expect("indices") {
                let index = i32::try_from(index.as_i64().expect("a number")).expect("an index");
                let (guid, domain) = (text("process_guid"), text("domain"));
                let instance = format!("run-{run}-{guid}-{index}");
                let container = Container { guid, index, domain, instance, cell: cell.to_owned() };
                About::Start.make(world, &container).await;
            }
        }
    }
}

/// Each cell ends what it is asked to.
async fn stop(world: &World, asked: &[Heard]) {
    let stops: BTreeSet<_> = asked.iter().map(|heard| heard.path.as_str()).collect();
    for row in world.rows.actual.iter().filter(|row| checks::has_container(row)) {
        let container = container(row);
        if stops.contains(checks::stop_path(row, &container.guid).as_str()) {
            About::Remove.make(world, &container).await;
        }
    }
}

/// Each cell starts what it claimed, and ends what is evacuated.
async fn go_on(world: &World) {
    for row in world.rows.actual.iter().filter(|row| checks::has_container(row)) {
        let container = container(row);
        if !world.there.contains(container.cell.as_str()) {
            continue;
        }
        match (row.presence(), &row.state[..]) {
            (Presence::Evacuating, _) => About::RemoveEvacuating.make(world, &container).await,
            (Presence::Ordinary, b"CLAIMED") => About::Start.make(world, &container).await,
            _ => continue,
        };
    }
}

fn container(row: &proto::ActualLrp) -> Container {
    let text = |text: &[u8]| String::from_utf8(text.to_vec()).expect("text");
    let key = row.actual_lrp_key.as_ref().expect("every row has a key");
    let instance = row.actual_lrp_instance_key.as_ref().expect("a container has a name");
    Container {
        guid: text(&key.process_guid),
        index: key.index,
        domain: text(&key.domain),
        instance: text(&instance.instance_guid),
        cell: text(&instance.cell_id),
    }
}

/// Another run does nothing, and what runs is what is desired.
async fn is_here(world: &mut World) {
    let before = world.rows.clone();
    world.wait(HOUR_S);
    let counts = world.converge().await;
    let lrps = &counts.lrps;
    assert_eq!((lrps.missing, lrps.extra, lrps.started, lrps.failed), (0, 0, 0, 0), "{before:#?}");
    assert_eq!((counts.tasks.kicked, counts.tasks.pruned), (0, 0), "{before:#?}");
    assert_eq!((world.neighbours.auctioneer.heard(), world.neighbours.rep.heard()), (Vec::new(), Vec::new()));
    world.look().await;
    assert_eq!(world.rows, before);
    let wanted = world.rows.desired.iter();
    let wanted: BTreeSet<_> =
        wanted.flat_map(|lrp| (0..lrp.instances).map(|index| (lrp.process_guid.clone(), index))).collect();
    let running = world.rows.actual.iter().map(|row| {
        assert_eq!((row.presence(), &row.state[..]), (Presence::Ordinary, &b"RUNNING"[..]), "{row:?}");
        assert!(world.there.contains(checks::cell_of(row)), "{row:?}");
        let key = row.actual_lrp_key.clone().expect("every row has a key");
        (key.process_guid, key.index)
    });
    assert_eq!(running.collect::<BTreeSet<_>>(), wanted);
    for task in &world.rows.tasks {
        let cell = std::str::from_utf8(&task.cell_id).expect("text");
        assert!(task.state() == State::Running && world.there.contains(cell), "{task:?}");
    }
}
