//! Cost of the sandbox: calls per unit, and the same work inside and outside of the sandbox. Prints
//! ratios within one run; asserts nothing about time, because timed assertions are unreliable.

#![allow(unreachable_pub, dead_code, reason = "uses a part of the harness")]

#[allow(unused_imports, unused_macros, reason = "the suite uses them")]
#[path = "../harness/mod.rs"]
mod harness;

use std::hint::black_box;
use std::time::{Duration, Instant};

use bbs::testing::modules::catalog::Catalog;
use bbs_lens::layout::columns::{Batch, ColumnData, TableData};
use bbs_lens::layout::manifest::Direction;
use bbs_lens::transform::{RunArguments, Transform};
use bbs_proto::models::{Action, DesiredLrpKey, DesiredLrpRunInfo, EnvironmentVariable, RunAction};
use prost::Message;

const UNITS: u32 = 200;
const ROUNDS: usize = 9;
/// Long enough to average out noise within a round.
const ROUND: Duration = Duration::from_millis(200);

fn main() {
    load();
    let sandbox = harness::modules::sandbox();
    let run = RunArguments {
        started_at_ns: 1,
        namespace: uuid::Uuid::nil(),
    };
    let passes = harness::modules::migration("passes-through", &sandbox);
    let text = column(&[b'x'; 40]);
    for (direction, columns) in [(Direction::Up, 1), (Direction::Down, 2)] {
        let batch = batch(vec![text.clone(); columns]);
        let time = median(|| {
            black_box(
                passes
                    .apply(direction, &run, &batch)
                    .expect("the guest returns its input"),
            );
        });
        let per_unit = time.as_secs_f64() * 1e6 / f64::from(UNITS);
        println!(
            "crossing, {columns} column(s) of 40 bytes, {UNITS} units a call: {per_unit:.3} µs a unit (bound 0.1)"
        );
    }

    let record = record();
    let column = column(&record);
    let native = median(|| {
        black_box(guest_recodes::recode(&column.offsets, &column.values));
    });
    let recodes = harness::modules::migration("recodes", &sandbox);
    let batch = batch(vec![column]);
    let sandboxed = median(|| {
        black_box(
            recodes
                .apply(Direction::Up, &run, &batch)
                .expect("the guest decodes its input"),
        );
    });
    let per_unit = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(UNITS);
    println!(
        "decode and encode of {} bytes: {:.2} µs in the sandbox, {:.2} µs native, ratio {:.2} (bound 1.5)",
        record.len(),
        per_unit(sandboxed),
        per_unit(native),
        sandboxed.as_secs_f64() / native.as_secs_f64()
    );
}

/// Measures the loading of all modules at a start, with a warm cache of compiled modules.
fn load() {
    let folder = harness::modules::modules();
    let modules = || {
        let sandbox = harness::modules::sandbox();
        let catalog = Catalog::load(&folder, &sandbox).expect("the default modules");
        catalog.migrations().len() + catalog.translators().len()
    };
    let count = modules();
    let time = median(|| {
        black_box(modules());
    });
    let each = time.as_secs_f64() * 1e3 / count as f64;
    println!(
        "loading {count} compiled modules: {time:.1?}, so {:.0} ms for 40 (bound 200)",
        each * 40.0
    );
}

/// The time of one call: the median over rounds of repeated calls.
fn median(mut call: impl FnMut()) -> Duration {
    let mut rounds: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            let mut calls = 0;
            while begin.elapsed() < ROUND {
                call();
                calls += 1;
            }
            begin.elapsed() / calls
        })
        .collect();
    rounds.sort();
    rounds[ROUNDS / 2]
}

fn column(value: &[u8]) -> ColumnData {
    let length = u32::try_from(value.len()).expect("a short value");
    ColumnData {
        validity: vec![],
        offsets: (0..=UNITS).map(|row| row * length).collect(),
        values: value.repeat(UNITS as usize),
    }
}

fn batch(columns: Vec<ColumnData>) -> Batch {
    Batch {
        tables: vec![TableData {
            unit_offsets: (0..=UNITS).collect(),
            columns,
        }],
        residue: vec![],
    }
}

/// A run info of about 2 KB with a realistic number of fields.
fn record() -> Vec<u8> {
    let variable = |index: usize| EnvironmentVariable {
        name: format!("VARIABLE_{index}").into_bytes(),
        value: vec![b'v'; 60],
    };
    let run = RunAction {
        path: b"/tmp/lifecycle/launcher".to_vec(),
        args: vec![b"app".to_vec(), vec![b'a'; 200]],
        env: (0..8).map(variable).collect(),
        user: b"vcap".to_vec(),
        ..RunAction::default()
    };
    let message = DesiredLrpRunInfo {
        desired_lrp_key: Some(DesiredLrpKey {
            process_guid: vec![b'g'; 73],
            domain: b"cf-apps".to_vec(),
            log_guid: vec![b'g'; 36],
        }),
        environment_variables: (0..10).map(variable).collect(),
        action: Some(Action {
            run_action: Some(run),
            ..Action::default()
        }),
        ports: vec![8080, 61001],
        created_at: 1_700_000_000_000_000_000,
        ..DesiredLrpRunInfo::default()
    };
    message.encode_to_vec()
}
