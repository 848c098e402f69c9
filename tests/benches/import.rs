//! The import of an etcd store: desired LRPs in two halves, sealed, each with one running instance.
//! Prints the rate, the peak memory of the host, and how much of the time etcd alone takes for its
//! answers. Asserts nothing about time.
//!
//! - `BBS_BENCH_ROWS`: the largest number of desired LRPs (200,000); a tenth of it is imported,
//!   too, so that memory can be compared
//! - `BBS_BENCH_DATABASES`: of `sqlite,postgres,mariadb,mysql`
//! - `TMPDIR`: the folder of etcd and the databases

#![allow(unreachable_pub, dead_code, reason = "uses a part of the harness")]

#[allow(unused_imports, unused_macros, reason = "the suite uses them")]
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../suite/import/stores.rs"]
mod stores;
#[path = "parts/subject.rs"]
mod subject;

use std::time::{Duration, Instant};

use harness::etcd::Etcd;
use harness::host::Installation;
use harness::modules;
use serde_json::{Value, json};
use stores::StoreLayout;
use subject::{BenchServer, kinds, setting};

const LAYOUT: StoreLayout = StoreLayout::Halves;

#[tokio::main]
async fn main() {
    let rows: u32 = setting("BBS_BENCH_ROWS", 200_000);
    let etcd = Etcd::start().await;
    let version = stores::version(1_442_529_338, 1_442_529_338);
    let mut written = 0;
    for rows in [rows / 10, rows] {
        let began = Instant::now();
        etcd.put_all((written..rows).flat_map(leaves)).await;
        println!(
            "{} desired LRPs written to etcd in {:.0} s",
            rows - written,
            began.elapsed().as_secs_f64()
        );
        written = rows;
        for kind in kinds() {
            etcd.put("/version", &version, None).await;
            let answer = Answer::of(&etcd).await;
            let server = BenchServer::new(kind);
            let installation = Installation::on(server.database(), &modules::modules())
                .set(
                    "encryption_keys",
                    json!({ "key1": "correct horse battery staple" }),
                )
                .set("active_key_label", "key1")
                .set("etcd_cluster_urls", json!(etcd.urls()));
            let check = timed(&installation, &["import", "etcd", "--check", "--json"]).await;
            let import = timed(&installation, &["import", "etcd", "--json"]).await;
            println!(
                "{}, {rows} desired LRPs, {} leaves, {} MB",
                kind.name(),
                check.leaves,
                check.bytes / 1_000_000
            );
            let seconds = |time: Duration| time.as_secs_f64();
            println!(
                "  etcd's answer alone {:8.2} s  ({:.2} s until it begins)",
                seconds(answer.whole),
                seconds(answer.begun)
            );
            for (what, run) in [("check", &check), ("import and migration", &import)] {
                let rate = f64::from(rows) / seconds(run.spent);
                println!(
                    "  {what:<20}{:8.2} s  {rate:8.0} LRPs/s, peak {} MB",
                    seconds(run.spent),
                    run.peak_mb
                );
            }
            println!(
                "  etcd's share of the check {:.0} %",
                100.0 * seconds(answer.whole) / seconds(check.spent)
            );
        }
    }
}

fn leaves(number: u32) -> [(String, String); 3] {
    let guid = format!("process-{number:06}");
    let mut run = stores::run_info(&guid, LAYOUT);
    // As large as an app of Cloud Foundry, with its services in the environment.
    run.environment_variables[0].value = "v".repeat(1500).into();
    [
        (
            format!("/v1/desired_lrp/schedule/{guid}"),
            stores::sealed(&stores::scheduling(&guid)),
        ),
        (format!("/v1/desired_lrp/run/{guid}"), stores::sealed(&run)),
        (
            format!("/v1/actual/{guid}/0/instance"),
            stores::sealed(&stores::instance(&guid, 0, "RUNNING", "cell-1")),
        ),
    ]
}

/// The answer that has the whole store, read and dropped.
struct Answer {
    begun: Duration,
    whole: Duration,
}

impl Answer {
    async fn of(etcd: &Etcd) -> Self {
        let began = Instant::now();
        let url = format!(
            "{}/v2/keys/?recursive=true&sorted=true&quorum=true",
            etcd.urls()[0]
        );
        let mut answer = harness::http_client()
            .get(url)
            .send()
            .await
            .expect("etcd answers");
        let begun = began.elapsed();
        while answer.chunk().await.expect("a whole body").is_some() {}
        Self {
            begun,
            whole: began.elapsed(),
        }
    }
}

struct Run {
    spent: Duration,
    peak_mb: u64,
    leaves: u64,
    bytes: u64,
}

async fn timed(installation: &Installation, arguments: &[&str]) -> Run {
    let command = installation.command(arguments);
    let began = Instant::now();
    let (output, peak_mb) = harness::watch::run_watched(command).await;
    let spent = began.elapsed();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    let counts = report["kinds"]
        .as_object()
        .expect("counts by kind")
        .values();
    let leaves = counts
        .map(|counts| counts["seen"].as_u64().expect("a count"))
        .sum();
    Run {
        spent,
        peak_mb,
        leaves,
        bytes: report["bytes"].as_u64().expect("a number"),
    }
}
