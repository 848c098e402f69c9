//! Attacks of modules on the host through a lens: they take its memory, make its own code panic, or
//! move rows to other units.

use super::*;

/// Goal: a panic of the host's own code names the module and the step, and does not end the host.
/// Method: a result with too few values, which the checks of an answer would refuse.
#[test]
fn panic_of_the_host_becomes_an_error_of_the_step() {
    let short: StepFunction = |batch| {
        let written = Written {
            shape: None,
            columns: vec![texts(&[])],
        };
        let residue = vec![Some(vec![1]); batch.tables[0].unit_offsets.len() - 1];
        Ok(Outcome {
            tables: vec![written],
            refused: Vec::new(),
            residue,
        })
    };
    let shortening = manifest(3).up(to_words()).leaves_residue();
    let lens = lens(&[first(), step(shortening, short)], 1, 3);
    for words in [&["a"][..], &["a", "b"]] {
        let error = first_fault(apply(&lens, &source(words), Search::First));
        assert_eq!(
            (error.unit(), error.is_of_several_units()),
            (0, words.len() > 1)
        );
        let text = error.to_string();
        assert!(
            text.starts_with("up of migration 3 (step-3, sha256 d1935) cannot be applied to "),
            "{text}"
        );
    }
}

#[test]
fn migrations_that_do_not_compose_are_named() {
    let [first, second] = shouting(manifest(2)).map(|step| step as Arc<dyn Transform>);
    let layouts = LayoutHistory::new([first.manifest(), second.manifest()]).unwrap();
    assert_eq!(
        check_composition(&layouts, &[Arc::clone(&first), second]),
        Ok(())
    );
    // Another manifest than that of the layout history.
    let other = step(manifest(2).drop_column("apps", "none"), nothing);
    let error = check_composition(&layouts, &[first, other as Arc<dyn Transform>]).unwrap_err();
    assert_eq!(
        (error.version, error.name.as_str()),
        (2, "step-2"),
        "{error}"
    );
}

/// Takes units through a lens with a budget of so many bytes.
fn apply_within(bytes: usize, lens: &Lens, units: &LensInput) -> Result<Applied, LensError> {
    let (left, budget) = (Residue::default(), BatchBudget::of(bytes));
    let applied = lens.apply(
        lens.tables["apps"].group,
        units,
        &left,
        &arguments(),
        Search::First,
        &budget,
    );
    assert!(budget.spent() <= bytes);
    applied.map_err(|mut errors| errors.remove(0))
}

#[track_caller]
fn assert_over_budget(error: &LensError, version: DataVersion, units: usize) {
    let LensError::Step {
        step, units: found, ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!((step.version, *found), (version, units));
    assert!(error.to_string().contains("bytes of memory"), "{error}");
}

/// Goal: what the calls for parts of a batch return is spent together.
#[test]
fn answers_for_halves_are_spent_from_the_budget_of_the_batch() {
    let large: StepFunction = |batch| match batch.tables[0].unit_offsets.len() - 1 {
        1 => {
            let column = ColumnData::repeat(Encoding::Text, Value::Text(&[b'x'; 10_000]), 1);
            Ok(Outcome {
                tables: vec![Written {
                    shape: None,
                    columns: vec![column],
                }],
                ..Outcome::default()
            })
        }
        _ => Err("too much".to_owned()),
    };
    let enlarging = step(manifest(2).up(to_words()), large);
    let lens = lens(&[first(), enlarging], 1, 2);
    let units = source(&["w"; 16]);
    assert_over_budget(&apply_within(50_000, &lens, &units).unwrap_err(), 2, 16);
    assert_over_budget(
        &apply_within(5_000, &lens, &source(&["w"])).unwrap_err(),
        2,
        1,
    );
    apply_within(400_000, &lens, &units).unwrap();
}

/// Goal: a row that many returned rows continue is spent each time, whether a step has read it or
/// not.
#[test]
fn repeated_origins_are_spent_before_their_rows_are_made() {
    let repeat: StepFunction = |batch| {
        let units = batch.tables[0].unit_offsets.len() - 1;
        let origins: Vec<_> = (0..units)
            .flat_map(|unit| vec![unit as u32; 1_000])
            .collect();
        let shape = Shape {
            unit_offsets: (0..=units).map(|unit| unit as u32 * 1_000).collect(),
            origins,
        };
        let part = ColumnData::repeat(Encoding::Integer, Value::Integer(1), units * 1_000);
        Ok(Outcome {
            tables: vec![Written {
                shape: Some(shape),
                columns: vec![part],
            }],
            ..Outcome::default()
        })
    };
    let parts = Access::to("apps").reads(["word"]).writes(["part"]);
    let repeated = step(keyed_by_part(manifest(2)).up(parts.reshapes()), repeat);
    let read_again = step(manifest(4).up(to_words()), |batch| {
        let written = Written {
            shape: None,
            columns: batch.tables[0].columns.clone(),
        };
        Ok(Outcome {
            tables: vec![written],
            ..Outcome::default()
        })
    });
    let lens = lens(&[first(), repeated, read_again], 1, 4);
    let word = "w".repeat(10_000);
    let error = apply_within(5 << 20, &lens, &source(&[&word])).unwrap_err();
    assert_over_budget(&error, 4, 1);
    apply_within(48 << 20, &lens, &source(&[&word])).unwrap();
}

/// Goal: a row cannot be returned under the key of another unit, given or added, and each unit that
/// tries is named.
#[test]
fn row_with_the_key_of_another_unit_is_refused() {
    // Writes the word of each row as its key.
    let rekey: StepFunction = |batch| {
        let table = &batch.tables[0];
        let shape = Shape {
            unit_offsets: table.unit_offsets.clone(),
            origins: (0..rows(batch) as u32).collect(),
        };
        Ok(Outcome {
            tables: vec![Written {
                shape: Some(shape),
                columns: vec![table.columns[0].clone()],
            }],
            ..Outcome::default()
        })
    };
    let access = Access::to("apps").reads(["word"]).writes(["guid"]);
    let rekeying = step(manifest(2).up(access.reshapes()), rekey);
    let lens = lens(&[first(), rekeying], 1, 2);
    assert!(lens.writes_keys() && lens.needed["apps"].contains("guid"));
    let own = apply(&lens, &source(&["g0", "g1"]), Search::First).unwrap();
    assert_eq!(words(&own, "guid"), ["g0", "g1"]);
    let errors = apply(&lens, &source(&["g0", "g0", "", "g3"]), Search::First).unwrap_err();
    assert_eq!(
        errors.iter().map(LensError::unit).collect::<Vec<_>>(),
        [1, 2]
    );
    let text = errors[0].to_string();
    assert!(
        text.starts_with(
            "up of migration 2 (step-2, sha256 d1935) cannot be applied to a unit: a row"
        ),
        "{text}"
    );
    // The key of the unit in the spelling of its name, where its rows have another.
    let keys = Some(UnitKeys {
        encoding: Encoding::Text,
        values: texts(&["G0", "g1"]),
    });
    apply(
        &lens,
        &LensInput {
            keys,
            ..source(&["G0", "g1"])
        },
        Search::First,
    )
    .unwrap();
}

/// A lens down that gives a dropped column of truth values back, and a unit without it.
fn restoring_a_flag() -> (Lens, LensInput) {
    let dropped = step(manifest(2).drop_column("apps", "flag"), nothing);
    let steps: Vec<_> = [first(), dropped]
        .map(|step| step as Arc<dyn Transform>)
        .into();
    let layouts = LayoutHistory::new(steps.iter().map(|step| step.manifest())).unwrap();
    let mut units = source(&["a"]);
    units.tables.get_mut("apps").unwrap().columns.remove("flag");
    (
        Lens::restoring(Way::within(&layouts, 2, 1), &steps).unwrap(),
        units,
    )
}

/// Applies the lens with a saved row of these bytes.
fn restored(bytes: &[u8]) -> Result<ColumnData, String> {
    let (lens, units) = restoring_a_flag();
    let mut row_key = Vec::new();
    Value::Text(b"g0").encode(&mut row_key);
    let mut left = Residue::default();
    left.add(
        2,
        "apps",
        0,
        ResidueValue {
            row_key,
            digest: Vec::new(),
            bytes: bytes.to_vec(),
        },
    );
    let group = lens.tables["apps"].group;
    let budget = BatchBudget::default();
    let applied = lens.apply(
        group,
        &units,
        &left.of_edited(),
        &arguments(),
        Search::First,
        &budget,
    );
    let applied = applied.map_err(|errors| errors[0].to_string())?;
    let flags = &applied.tables["apps"].columns["flag"];
    Ok(ColumnData::clone(&flags.data))
}

fn saved(values: &[Value<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    values.iter().for_each(|value| value.encode(&mut bytes));
    bytes
}

#[test]
fn damaged_residue_is_an_error_that_shows_none_of_it() {
    let sound = restored(&saved(&[Value::Text(b"flag"), Value::Boolean(true)])).unwrap();
    assert_eq!(sound.get(Encoding::Boolean, 0), Value::Boolean(true));
    let other_type = saved(&[Value::Text(b"flag"), Value::Text(b"secret")]);
    let cut_short = &saved(&[Value::Text(b"flag"), Value::Boolean(true)])[..14];
    let without_name = saved(&[Value::Integer(7), Value::Boolean(true)]);
    for damaged in [&other_type[..], cut_short, &without_name] {
        let error = restored(damaged).unwrap_err();
        assert!(
            error.contains("the residue of a row of `apps` is damaged"),
            "{error}"
        );
        assert!(
            !error.contains("secret") && !error.contains("115"),
            "{error}"
        );
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_in_residue(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60)) {
        if let Err(error) = restored(&bytes) {
            proptest::prop_assert!(error.contains("is damaged"), "{}", error);
        }
    }
}
