//! Units of which only residue is left, in a group without tables at the source, and which a module
//! refuses.

use std::collections::BTreeMap;

use bbs_lens::layout::columns::{Batch, Outcome, Written};
use bbs_lens::layout::manifest::{Access, Direction};
use bbs_lens::layout::values::{Encoding, Value};
use bbs_lens::transform::RunArguments;

use super::migrations::{self, all};
use super::restored::{creating_words, words};
use super::world::{TestEngine, at_unit};
use crate::migrate::*;

/// Leaves words as they are, and refuses one.
fn refuse_word(direction: Direction, run: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    let table = &batch.tables[0];
    let mut rows = 0..*table.unit_offsets.last().unwrap() as usize;
    if rows.any(|row| table.columns[0].get(Encoding::Text, row) == Value::Text(b"bad")) {
        return Err("a bad word".to_owned());
    }
    keep_words(direction, run, batch)
}

fn keep_words(_: Direction, _: &RunArguments, batch: &Batch) -> Result<Outcome, String> {
    Ok(Outcome {
        tables: vec![Written {
            shape: None,
            columns: batch.tables[0].columns.clone(),
        }],
        ..Outcome::default()
    })
}

/// Migration 3, which writes the words that migration 2 has created.
fn writing_words(function: migrations::RowFunction) -> Arc<dyn Transform> {
    let access = Access::to("words").reads(["word"]).writes(["word"]);
    migrations::native(migrations::manifest(3, "writes-words").up(access), function)
}

/// A database at version 1 with residue of words, one of which migration 3 refuses, and the words.
async fn with_a_bad_word(
    on_unreadable: OnUnreadable,
) -> (TestEngine, BTreeMap<String, (String, String)>) {
    let mut world = TestEngine::with_rows(1).await.tuned(Tuning {
        on_unreadable,
        ..Tuning::default()
    });
    world.context.migrations = vec![
        Arc::clone(&all()[0]),
        migrations::native(creating_words(2, "creates-words"), migrations::none),
        writing_words(refuse_word),
    ];
    world.up(3).await.unwrap();
    world
        .execute("INSERT INTO words (guid, word) VALUES ('alone', 'bad'), ('other', 'good')")
        .await;
    let words = words(&world).await;
    world.down(1).await.unwrap();
    (world, words)
}

#[tokio::test]
async fn refused_unit_of_which_only_residue_is_left_stops_the_migration_by_name() {
    let (mut world, before) = with_a_bad_word(OnUnreadable::Stop).await;
    let error = at_unit(world.up(3).await.unwrap_err());
    assert!(
        matches!(&error, MigrateError::Unit { unit, .. } if unit == "alone"),
        "{error}"
    );
    let entries = quarantined(&world.context).await.unwrap();
    assert_eq!((entries.len(), entries[0].table.as_str()), (1, "words"));
    assert!(entries[0].stopped);
    world.context.migrations[2] = writing_words(keep_words);
    world.up(3).await.unwrap();
    assert_eq!(words(&world).await, before);
    assert!(quarantined(&world.context).await.unwrap().is_empty());
}

#[tokio::test]
async fn refused_units_of_which_only_residue_is_left_are_limited() {
    let (mut world, _) = with_a_bad_word(OnUnreadable::Quarantine).await;
    world.context.migrations[2] = writing_words(keep_words);
    world.up(3).await.unwrap();
    world.execute("UPDATE words SET word = 'bad'").await;
    world.down(1).await.unwrap();
    world.context.migrations[2] = writing_words(refuse_word);
    let error = world.up(3).await.unwrap_err();
    assert!(
        matches!(
            error,
            MigrateError::TooManyRefused {
                refused: 2,
                all: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn refused_unit_of_which_only_residue_is_left_is_quarantined_and_put_back() {
    for goes_down in [false, true] {
        let (mut world, before) = with_a_bad_word(OnUnreadable::Quarantine).await;
        world.up(3).await.unwrap();
        assert_eq!(
            words(&world).await.into_keys().collect::<Vec<_>>(),
            ["other"]
        );
        let entries = quarantined(&world.context).await.unwrap();
        assert_eq!((entries.len(), entries[0].unit.as_str()), (1, "alone"));
        assert!(!entries[0].stopped && !entries[0].pending);
        if goes_down {
            world.down(1).await.unwrap();
            world.context.migrations[2] = writing_words(keep_words);
            world.up(3).await.unwrap();
        } else {
            let fence = Fence::raise(&world.context.database).await.unwrap();
            let corrected = Some(writing_words(keep_words));
            let retried = retry(&world.context, &fence, &[], corrected, WriteMode::Real).await;
            assert_eq!(retried.unwrap().remove(0).1, Fate::Returned);
        }
        assert_eq!(words(&world).await, before);
        assert!(quarantined(&world.context).await.unwrap().is_empty());
        assert_eq!(world.count("bbs_residue").await, 0);
    }
}
