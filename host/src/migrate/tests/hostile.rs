//! Row functions that take more memory than a batch may, or fall over the host's own code: the unit
//! at fault is found, and the others are migrated.

use std::collections::BTreeMap;

use bbs_lens::budget::BATCH_BYTES;
use bbs_lens::layout::columns::{Batch, ColumnData, Outcome, Shape, Written};
use bbs_lens::layout::manifest::{Access, Direction};
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::transform::RunArguments;

use super::migrations::{self, all};
use super::world::{TestEngine, at_unit};
use crate::migrate::*;

/// The unit that the row functions are hostile to.
const TARGET: &[u8] = b"app-00007";

fn units_of(batch: &Batch) -> usize {
    batch.tables[0].unit_offsets.len() - 1
}

/// The place of the target, among units of one row.
fn target(batch: &Batch) -> Option<usize> {
    (0..units_of(batch))
        .find(|&unit| batch.tables[0].columns[0].get(Encoding::Text, unit) == Value::Text(TARGET))
}

fn annotations(values: ColumnData) -> Result<Outcome, String> {
    Ok(Outcome {
        tables: vec![Written {
            shape: None,
            columns: vec![values],
        }],
        ..Outcome::default()
    })
}

/// Writes a text of a tenth of a batch budget to every unit, and three times as much in calls for
/// one unit.
fn large_everywhere(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let text = vec![b'x'; BATCH_BYTES / 10];
    match units_of(batch) {
        units @ ..=4 => annotations(ColumnData::repeat(
            Encoding::Text,
            Value::Text(&text),
            units,
        )),
        _ => Err("it returned more than it may".to_owned()),
    }
}

/// Writes more than a batch budget to the target.
fn large_for_one(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let text = vec![b'x'; BATCH_BYTES + 1];
    let mut values = bbs_lens::layout::values::ColumnBuilder::new(Encoding::Text);
    for unit in 0..units_of(batch) {
        values.push(if target(batch) == Some(unit) {
            Value::Text(&text)
        } else {
            Value::Text(b"small")
        });
    }
    annotations(values.finish())
}

/// Returns too few values for a batch with the target, which only the checks of a module's answer
/// would refuse.
fn short_for_one(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let mut outcome = annotations(ColumnData::repeat(
        Encoding::Text,
        Value::Text(b"small"),
        units_of(batch),
    ))?;
    if target(batch).is_some() {
        outcome.tables[0].columns[0] = ColumnData::repeat(Encoding::Text, Value::Null, 0);
    }
    outcome.residue = vec![None; units_of(batch)];
    Ok(outcome)
}

async fn world(function: migrations::RowFunction, on_unreadable: OnUnreadable) -> TestEngine {
    let mut world = TestEngine::with_rows(20).await.tuned(Tuning {
        on_unreadable,
        ..Tuning::default()
    });
    let access = Access::to("desired_lrps").reads(["guid"]);
    let manifest = migrations::manifest(2, "hostile")
        .up(access.writes(["annotation"]))
        .leaves_residue();
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(manifest, function),
    ];
    world
}

/// Goal: units that together make more than a batch may are migrated in smaller batches.
#[tokio::test]
async fn batch_over_its_budget_is_divided_and_written() {
    let world = world(large_everywhere, OnUnreadable::Stop).await;
    world.up(2).await.unwrap();
    assert_eq!(world.count("desired_lrps").await, 20);
    let written = world
        .text("SELECT COUNT(*) FROM desired_lrps WHERE LENGTH(annotation) > 1000000")
        .await;
    assert_eq!(written, "20");
}

#[tokio::test]
async fn unit_that_makes_too_much_or_panics_is_named_and_quarantined_alone() {
    let functions: [(migrations::RowFunction, &str); 2] = [
        (large_for_one, "bytes of memory"),
        (short_for_one, "out of bounds"),
    ];
    for (function, reason) in functions {
        let stopping = world(function, OnUnreadable::Stop).await;
        let error = stopping.up(2).await.unwrap_err();
        let error = at_unit(error);
        let MigrateError::Unit { unit, source, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(unit.as_bytes(), TARGET);
        assert!(
            source
                .to_string()
                .contains("up of migration 2 (hostile, sha256 digest-of-2)"),
            "{source}"
        );

        let world = world(function, OnUnreadable::Quarantine).await;
        world.up(2).await.unwrap();
        assert_eq!(world.count("desired_lrps").await, 19);
        let entries: BTreeMap<_, _> = quarantined(&world.context)
            .await
            .unwrap()
            .into_iter()
            .map(|entry| (entry.unit.clone(), entry))
            .collect();
        let [(unit, entry)] = &entries.iter().collect::<Vec<_>>()[..] else {
            panic!("{entries:?}")
        };
        assert_eq!(unit.as_bytes(), TARGET);
        assert_eq!(
            (entry.version, entry.module.as_str(), entry.digest.as_str()),
            (2, "hostile", "digest-of-2")
        );
        assert!(entry.reason.contains(reason), "{}", entry.reason);
    }
}

/// Goal: the check divides batches as a migration does, and names the same unit.
#[tokio::test]
async fn check_names_the_unit_that_makes_too_much() {
    let divided = world(large_everywhere, OnUnreadable::Stop).await;
    let checked = check(&divided.context, 2).await.unwrap();
    assert_eq!(checked.migrations[0].units, 20);
    let world = world(large_for_one, OnUnreadable::Stop).await;
    let checked = check(&world.context, 2).await.unwrap();
    let troubles: Vec<_> = checked.migrations[0]
        .troubles
        .iter()
        .flat_map(|trouble| &trouble.examples)
        .collect();
    assert!(
        troubles
            .iter()
            .any(|example| example.unit.as_bytes() == TARGET),
        "{checked:?}"
    );
}

/// Removes the second instance of each app.
fn without_second_instances(
    _: Direction,
    _: &RunArguments,
    batch: &Batch,
) -> Result<Outcome, String> {
    let given = &batch.tables[0].unit_offsets;
    let shape = Shape {
        unit_offsets: (0..given.len() as u32).collect(),
        origins: given[..given.len() - 1].to_vec(),
    };
    Ok(Outcome {
        tables: vec![Written {
            shape: Some(shape),
            columns: Vec::new(),
        }],
        ..Outcome::default()
    })
}

#[tokio::test]
async fn check_counts_the_rows_that_a_migration_removes() {
    let mut world = TestEngine::with_rows(20).await;
    let access = Access::to("actual_lrps").reads(["place"]);
    let manifest = migrations::manifest(2, "hostile")
        .up(access.reshapes())
        .irreversible()
        .removes_rows();
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(manifest, without_second_instances),
    ];
    let checked = check(&world.context, 2).await.unwrap();
    assert_eq!(
        (
            checked.migrations[0].removed_rows,
            checked.migrations[0].lost
        ),
        (20, 0)
    );
    let planned = plan(&world.context, 2).await.unwrap();
    assert!(planned.migrations[0].removes_rows);
    world.up(2).await.unwrap();
    assert_eq!(world.count("actual_lrps").await, 20);
}
