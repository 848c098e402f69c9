//! Updates of desired LRPs on simulated cells: the time until all instances are replaced, and the
//! requests between the host and the other components. The cells and the auctioneer run in this
//! process, and start a container at once. Asserts nothing about time.
//!
//! - `BBS_BENCH_ROWS`: the number of desired LRPs (250)
//! - `BBS_BENCH_INSTANCES`: of each of them (8)
//! - `BBS_BENCH_CELLS`: the number of cells (100)
//! - `BBS_BENCH_DATABASES`: of `sqlite,postgres,mariadb,mysql`
//! - `BBS_BENCH_IN_FLIGHT`: `update_max_in_flight` (`10%`)
//! - `TMPDIR`: the folder of the databases

#![allow(unreachable_pub, dead_code, reason = "uses a part of the harness")]

#[allow(unused_imports, unused_macros, reason = "the suite uses them")]
#[path = "../harness/mod.rs"]
mod harness;
#[path = "parts/subject.rs"]
mod subject;

use std::time::{Duration, Instant};

use bbs_proto::models as proto;
use futures_util::{StreamExt, stream};
use harness::database::Kind;
use harness::diego::auctioneer::Auctioneer;
use harness::diego::bbs_client::BbsClient;
use harness::diego::cell::{Cell, RUNS};
use harness::diego::emitter::Emitter;
use harness::diego::installation;
use harness::diego::outages::outages;
use harness::diego::trace::Trace;
use harness::diego::trust::Trust;
use harness::locket::Locket;
use harness::pause;
use subject::{BenchServer, kinds, setting};

/// Calls at once.
const CLIENTS: usize = 32;
/// Interval at which a rep synchronises.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() {
    bbs::choose_cryptography();
    let scale = Scale {
        lrps: setting("BBS_BENCH_ROWS", 250),
        instances: setting("BBS_BENCH_INSTANCES", 8),
        cells: setting("BBS_BENCH_CELLS", 100),
    };
    for kind in kinds() {
        measure(kind, scale).await;
    }
}

#[derive(Debug, Clone, Copy)]
struct Scale {
    lrps: usize,
    /// Instances of each LRP.
    instances: usize,
    cells: usize,
}

async fn measure(
    kind: Kind,
    Scale {
        lrps,
        instances,
        cells,
    }: Scale,
) {
    let server = BenchServer::new(kind);
    let trust = Trust::new();
    let locket = Locket::start();
    let trace = Trace::default();
    let auctioneer = Auctioneer::start(&trust);
    let in_flight = setting("BBS_BENCH_IN_FLIGHT", "10%".to_owned());
    let installation = installation(&server.database(), &trust, &auctioneer, &locket)
        .set("uuid", "the-host")
        .set("converge_repeat_interval", "30s")
        .set("update_max_in_flight", in_flight.as_str());
    let host = installation.serve();
    let of_cells = BbsClient::new(trust.client(), host.address);
    let cells: Vec<_> = (0..cells)
        .map(|number| Cell::start(number, &trust, &of_cells, &locket, SYNC_INTERVAL, &trace))
        .collect();
    auctioneer.auction_among(of_cells.clone(), cells.clone());
    let client = BbsClient::new(trust.client(), host.address);
    let emitter = Emitter::start(&client, &trace);

    let guids: Vec<_> = (0..lrps)
        .map(|lrp| format!("process-{lrp}").into_bytes())
        .collect();
    each(&guids, async |guid| desire(&client, guid, instances).await).await;
    let all = lrps * instances;
    while emitter.routable() < all {
        pause().await;
    }

    let of_reps = || {
        cells
            .iter()
            .map(|cell| cell.faults().requests())
            .sum::<u64>()
    };
    let requests = || {
        [
            of_cells.requests(),
            auctioneer.faults().requests(),
            of_reps(),
        ]
    };
    let began = Instant::now();
    let before = requests();
    let events = emitter.counts().1;
    each(&guids, async |guid| update(&client, guid).await).await;
    let answered = began.elapsed();
    while updating(&client).await > lrps {
        pause().await;
    }
    let spent = began.elapsed().as_secs_f64();
    let [of_cells, of_auctioneer, of_reps] = std::array::from_fn(|at| requests()[at] - before[at]);
    let events = emitter.counts().1 - events;
    println!(
        "{}, {lrps} desired LRPs of {instances} instances on {} cells",
        kind.name(),
        cells.len()
    );
    println!("  updates answered  {:8.2} s", answered.as_secs_f64());
    println!(
        "  all replaced      {spent:8.2} s   {:.0} instances/s",
        all as f64 / spent
    );
    let each = |count: u64| count as f64 / all as f64;
    println!(
        "  requests of cells {of_cells:8}     {:.2} for each instance",
        each(of_cells)
    );
    println!(
        "  to the auctioneer {of_auctioneer:8}     {:.2}",
        each(of_auctioneer)
    );
    println!("  to reps           {of_reps:8}     {:.2}", each(of_reps));
    println!("  events            {events:8}     {:.2}", each(events));
    println!("  outages           {:8}", outages(&trace.steps()).len());
    assert!(host.terminate().success(), "the host ends");
}

async fn each<F: Future<Output = ()>>(guids: &[Vec<u8>], call: impl Fn(Vec<u8>) -> F) {
    stream::iter(guids.iter().cloned())
        .for_each_concurrent(CLIENTS, call)
        .await;
}

fn run_action() -> Option<proto::Action> {
    let run = proto::RunAction {
        path: RUNS.to_vec(),
        user: b"vcap".to_vec(),
        ..Default::default()
    };
    Some(proto::Action {
        run_action: Some(run),
        ..Default::default()
    })
}

fn metric_tags() -> Vec<proto::MetricTagEntry> {
    let value = proto::MetricTagValue {
        r#static: b"app".to_vec(),
        ..Default::default()
    };
    vec![proto::MetricTagEntry {
        key: b"source_id".to_vec(),
        value: Some(value),
    }]
}

async fn desire(client: &BbsClient, guid: Vec<u8>, instances: usize) {
    let lrp = proto::DesiredLrp {
        process_guid: guid,
        domain: b"cf-apps".to_vec(),
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        instances: i32::try_from(instances).expect("few instances"),
        memory_mb: 64,
        action: run_action(),
        metric_tags: metric_tags(),
        ..Default::default()
    };
    let request = proto::DesireLrpRequest {
        desired_lrp: Some(lrp),
    };
    let desired = client
        .submit::<proto::DesiredLrpLifecycleResponse>("/v1.2/desired_lrp/desire.r2", &request)
        .await;
    assert_eq!(desired, Ok(()));
}

async fn update(client: &BbsClient, guid: Vec<u8>) {
    let definition = proto::LrpDefinition {
        root_fs: b"preloaded:cflinuxfs4".to_vec(),
        memory_mb: 128,
        action: run_action(),
        metric_tags: metric_tags(),
        ..Default::default()
    };
    let update = proto::DesiredLrpUpdate {
        lrp_definition: Some(definition),
        ..Default::default()
    };
    let request = proto::UpdateDesiredLrpRequest {
        process_guid: guid,
        update: Some(update),
    };
    let updated = client
        .submit::<proto::DesiredLrpLifecycleResponse>("/v1.2/desired_lrp/update", &request)
        .await;
    assert_eq!(updated, Ok(()));
}

/// The number of scheduling infos: two for an LRP that is being updated.
async fn updating(client: &BbsClient) -> usize {
    let path = "/v1.2/desired_lrp_scheduling_infos/list.r1";
    let (infos, refusal, _): (proto::DesiredLrpSchedulingInfosResponse, _, _) = client
        .call(path, &proto::DesiredLrPsRequest::default())
        .await;
    assert_eq!(refusal, None);
    infos.desired_lrp_scheduling_infos.len()
}
