//! The lens without a database: which columns it reads, where columns come from, and how a failing
//! batch is halved.

mod any_manifest;
mod hostile;
mod moved_columns;
mod saved_digests;

use std::sync::atomic::{AtomicUsize, Ordering};

use super::transform::TransformError;
use super::*;
use crate::layout::columns::{Batch, NEW_ROW, Outcome, Refusal, Shape, Written};
use crate::layout::manifest::{Access, Manifest};
use crate::layout::schema::Sealing;
use crate::layout::values::{ColumnBuilder, Encoding, Value};

type StepFunction = fn(&Batch) -> Result<Outcome, String>;

/// The reason of a call that took long.
const SLOW: &str = "it ran longer";

struct NativeStep {
    manifest: Manifest,
    function: StepFunction,
    calls: AtomicUsize,
}

impl Transform for NativeStep {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn digest(&self) -> &str {
        "d1935"
    }

    fn apply(
        &self,
        _: Direction,
        _: &RunArguments,
        batch: &Batch,
    ) -> Result<Outcome, TransformError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        (self.function)(batch).map_err(|reason| TransformError {
            is_slow: reason == SLOW,
            reason,
        })
    }
}

/// A table with a unit for each `guid`.
fn table(name: &str) -> Table {
    Table::new(name)
        .column(Column::varchar("guid", 255))
        .primary_key(["guid"])
        .partition_key("guid")
}

fn manifest(version: DataVersion) -> Manifest {
    Manifest::new(version, &format!("step-{version}"))
}

fn step(manifest: Manifest, function: StepFunction) -> Arc<NativeStep> {
    Arc::new(NativeStep {
        manifest,
        function,
        calls: AtomicUsize::new(0),
    })
}

fn nothing(_: &Batch) -> Result<Outcome, String> {
    Err("it has no row function".to_owned())
}

/// Version 1: `apps` with two text columns, one boolean and one sealed column that no step reads.
fn first() -> Arc<NativeStep> {
    let apps = table("apps")
        .column(Column::long_text("word").nullable())
        .column(Column::boolean("flag").nullable())
        .column(Column::long_text("secret").nullable().enveloped());
    let others = table("others").column(Column::long_text("x").nullable());
    step(manifest(1).create_table(apps).create_table(others), nothing)
}

/// The access of a row function that reads and writes words.
fn to_words() -> Access {
    Access::to("apps").reads(["word"]).writes(["word"])
}

fn lens(steps: &[Arc<NativeStep>], source: DataVersion, target: DataVersion) -> Lens {
    let steps: Vec<_> = steps
        .iter()
        .map(|step| Arc::clone(step) as Arc<dyn Transform>)
        .collect();
    let layouts = LayoutHistory::new(steps.iter().map(|step| step.manifest()))
        .expect("a valid layout history");
    Lens::new(
        Way::within(&layouts, source, target),
        &steps,
        BTreeSet::new(),
    )
    .expect("it composes")
}

/// Keys `apps` by a part as well, so that a unit may have several rows.
fn keyed_by_part(manifest: Manifest) -> Manifest {
    manifest
        .add_column("apps", Column::integer("part").default(0))
        .set_primary_key("apps", ["guid", "part"])
}

fn texts(values: &[&str]) -> ColumnData {
    let mut column = ColumnBuilder::new(Encoding::Text);
    values
        .iter()
        .for_each(|value| column.push(Value::Text(value.as_bytes())));
    column.finish()
}

fn plain(values: &[&str]) -> BatchColumn {
    BatchColumn::new(texts(values), Sealing::Plain)
}

/// Units of one row each.
fn source(words: &[&str]) -> LensInput {
    let guids: Vec<_> = (0..words.len())
        .map(|number| format!("g{number}"))
        .collect();
    let guids: Vec<_> = guids.iter().map(String::as_str).collect();
    let mut flags = ColumnBuilder::new(Encoding::Boolean);
    (0..words.len()).for_each(|row| flags.push(Value::Boolean(row % 3 == 0)));
    let columns = [
        ("guid", texts(&guids)),
        ("word", texts(words)),
        ("flag", flags.finish()),
    ];
    let plain = |(name, data): (&str, _)| (name.to_owned(), BatchColumn::new(data, Sealing::Plain));
    let columns = columns.map(plain).into();
    let rows = u32::try_from(words.len()).unwrap();
    let apps = TableRows {
        unit_offsets: (0..=rows).collect(),
        columns,
    };
    LensInput {
        units: words.len(),
        tables: [("apps".to_owned(), apps)].into(),
        ..LensInput::default()
    }
}

fn arguments() -> Arguments {
    let run = RunArguments {
        started_at_ns: 1,
        namespace: uuid::Uuid::nil(),
    };
    (1..10).map(|version| (version, run.clone())).collect()
}

fn words(applied: &Applied, column: &str) -> Vec<String> {
    let data = &applied.tables["apps"].columns[column].data;
    let text = |row| match data.get(Encoding::Text, row) {
        Value::Text(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => format!("{other:?}"),
    };
    (0..data.offsets.len() - 1).map(text).collect()
}

fn read(batch: &Batch, column: usize, row: usize) -> &[u8] {
    match batch.tables[0].columns[column].get(Encoding::Text, row) {
        Value::Text(bytes) => bytes,
        _ => b"",
    }
}

fn rows(batch: &Batch) -> usize {
    *batch.tables[0].unit_offsets.last().unwrap() as usize
}

/// Changes words to capitals and negates flags; fails over "bad", refuses "no", and takes at most
/// three units. The first word of a call is its residue, unless it is "mute".
fn shout(batch: &Batch) -> Result<Outcome, String> {
    if batch.tables[0].unit_offsets.len() - 1 > 3 {
        return Err("too much for one call".to_owned());
    }
    let (mut word, mut flag) = (
        ColumnBuilder::new(Encoding::Text),
        ColumnBuilder::new(Encoding::Boolean),
    );
    let mut refused = Vec::new();
    let mut residue = Vec::new();
    for row in 0..rows(batch) {
        let text = read(batch, 0, row);
        match text {
            b"bad" => return Err("it broke off".to_owned()),
            b"no" => refused.push(Refusal {
                unit: u32::try_from(row).unwrap(),
                reason: "not that word".into(),
            }),
            _ => {}
        }
        word.push(Value::Text(&text.to_ascii_uppercase()));
        let set = batch.tables[0].columns[1].get(Encoding::Boolean, row) == Value::Boolean(true);
        flag.push(Value::Boolean(!set));
        residue.push((row == 0).then(|| text.to_vec()));
    }
    if rows(batch) > 0 && read(batch, 0, 0) == b"mute" {
        residue.clear();
    }
    let written = Written {
        shape: None,
        columns: vec![word.finish(), flag.finish()],
    };
    Ok(Outcome {
        tables: vec![written],
        refused,
        residue,
    })
}

fn shouting(manifest: Manifest) -> [Arc<NativeStep>; 2] {
    let words = ["word", "flag"];
    let access = Access::to("apps").reads(words).writes(words);
    [first(), step(manifest.up(access), shout)]
}

#[test]
fn only_declared_columns_are_read_and_others_pass_sealed() {
    let lens = lens(&shouting(manifest(2)), 1, 2);
    assert_eq!(
        lens.needed,
        [(
            "apps".to_owned(),
            ["flag", "word"].map(str::to_owned).into()
        )]
        .into()
    );
    let of = |column: &str| {
        let columns = &lens.tables["apps"].columns;
        columns
            .iter()
            .find(|(known, _)| known.name == column)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(of("word"), Provenance::Computed);
    assert_eq!(
        of("secret"),
        Provenance::Raw {
            table: "apps".into(),
            column: "secret".into()
        }
    );
    assert_eq!(
        lens.tables["apps"].transformed,
        Some(Leg {
            version: 2,
            direction: Direction::Up
        })
    );
    assert_eq!(lens.tables["others"].transformed, None);
    assert!(lens.groups[lens.tables["apps"].group].visits_units);
    assert!(!lens.groups[lens.tables["others"].group].visits_units);
    assert_ne!(lens.tables["apps"].group, lens.tables["others"].group);
}

#[test]
fn steps_are_chained_in_memory_in_both_directions() {
    let twice = step(manifest(3).up(to_words()), |batch| {
        let mut word = ColumnBuilder::new(Encoding::Text);
        (0..rows(batch)).for_each(|row| {
            word.push(Value::Text(
                &[read(batch, 0, row), read(batch, 0, row)].concat(),
            ))
        });
        Ok(Outcome {
            tables: vec![Written {
                shape: None,
                columns: vec![word.finish()],
            }],
            ..Outcome::default()
        })
    });
    let [one, two] = shouting(manifest(2));
    let rename = manifest(4)
        .rename_column("apps", "word", "loud")
        .alter_column("apps", Column::long_text("secret").nullable());
    let steps = [one, two, twice, step(rename, nothing)];
    let up = lens(&steps, 1, 4);
    assert!(
        up.needed["apps"].contains("secret"),
        "it is sealed otherwise at the target"
    );
    let mut units = source(&["a", "b"]);
    units
        .tables
        .get_mut("apps")
        .unwrap()
        .columns
        .insert("secret".into(), plain(&["s", "t"]));
    let applied = apply(&up, &units, Search::First).unwrap();
    assert_eq!(words(&applied, "loud"), ["AA", "BB"]);
    assert_eq!(words(&applied, "secret"), ["s", "t"]);
    let down = lens(&steps, 4, 1);
    assert_eq!(
        down.steps()
            .map(|step| step.manifest().version)
            .collect::<Vec<_>>(),
        [4, 3, 2]
    );
    assert_eq!(
        down.tables["apps"].columns[1].1,
        Provenance::Raw {
            table: "apps".into(),
            column: "loud".into()
        }
    );
    assert_eq!(lens(&steps, 4, 4).steps().count(), 0);
}

/// Rows of a dropped table are bound to records by their keys, and a database compares no keys of
/// different types.
#[test]
fn table_whose_key_has_another_type_shares_no_units_with_records() {
    let records = table("records").column(Column::varchar("created_at", 9));
    let number = Column::big_integer("guid");
    for (key, groups) in [(number, 2), (Column::varchar("guid", 9), 1)] {
        let counters = Table::new("counters")
            .column(key)
            .primary_key(["guid"])
            .partition_key("guid");
        let first = manifest(1).create_table(records.clone());
        let second = manifest(2).create_table(counters);
        let steps = [first, second].map(|manifest| step(manifest, nothing));
        assert_eq!(lens(&steps, 2, 1).groups.len(), groups);
    }
}

fn apply(lens: &Lens, units: &LensInput, search: Search) -> Result<Applied, Vec<LensError>> {
    lens.apply(
        lens.tables["apps"].group,
        units,
        &Residue::default(),
        &arguments(),
        search,
        &BatchBudget::default(),
    )
}

fn first_fault(applied: Result<Applied, Vec<LensError>>) -> LensError {
    applied.unwrap_err().remove(0)
}

#[test]
fn batch_too_large_for_one_call_passes_in_halves() {
    let lens = lens(&shouting(manifest(3).leaves_residue()), 1, 3);
    let words_in: Vec<_> = (0..11).map(|number| format!("w{number}")).collect();
    let words_in: Vec<_> = words_in.iter().map(String::as_str).collect();
    let applied = apply(&lens, &source(&words_in), Search::First).unwrap();
    let expected: Vec<_> = words_in.iter().map(|word| word.to_uppercase()).collect();
    assert_eq!(words(&applied, "word"), expected);
    let flags = &applied.tables["apps"].columns["flag"].data;
    for row in 0..11 {
        assert_eq!(
            flags.get(Encoding::Boolean, row),
            Value::Boolean(row % 3 != 0),
            "row {row}"
        );
    }
    let kept: Vec<_> = applied
        .residue
        .iter()
        .map(|kept| (kept.unit, kept.value.bytes.clone()))
        .collect();
    assert!(kept.contains(&(0, b"w0".to_vec())), "{kept:?}");
    for (unit, bytes) in kept {
        assert_eq!(
            bytes,
            format!("w{unit}").into_bytes(),
            "residue stays with its unit"
        );
    }
}

#[test]
fn residue_of_one_half_is_kept_beside_a_half_without() {
    let lens = lens(&shouting(manifest(3).leaves_residue()), 1, 3);
    for (words, unit) in [(["a", "b", "mute", "c"], 0), (["mute", "c", "a", "b"], 2)] {
        let applied = apply(&lens, &source(&words), Search::First).unwrap();
        let kept: Vec<_> = applied
            .residue
            .iter()
            .map(|kept| (kept.unit, kept.value.bytes.as_slice()))
            .collect();
        assert_eq!(kept, [(unit, b"a".as_slice())]);
    }
}

#[test]
fn no_unit_gives_tables_without_rows_and_no_call() {
    let steps = shouting(manifest(2));
    let applied = apply(&lens(&steps, 1, 2), &source(&[]), Search::First).unwrap();
    assert_eq!(
        (
            words(&applied, "word"),
            &applied.tables["apps"].unit_offsets
        ),
        (vec![], &vec![0])
    );
    assert_eq!(steps[1].calls.load(Ordering::Relaxed), 0);
}

#[test]
fn unit_at_fault_is_found_at_any_place() {
    for (word, reason) in [("bad", "it broke off"), ("no", "not that word")] {
        for place in 0..9 {
            let steps = shouting(manifest(2));
            let lens = lens(&steps, 1, 2);
            let mut all = vec!["fine"; 9];
            all[place] = word;
            let error = first_fault(apply(&lens, &source(&all), Search::First));
            assert_eq!(error.unit(), place);
            let LensError::Unit {
                reason: found,
                step,
                ..
            } = error
            else {
                panic!("a unit")
            };
            assert_eq!(
                (found.as_str(), step.version, step.direction, &*step.digest),
                (reason, 2, Direction::Up, "d1935")
            );
            assert!(
                steps[1].calls.load(Ordering::Relaxed) < 12,
                "halving, not one by one"
            );
        }
    }
}

#[test]
fn first_of_several_refusals_is_named() {
    let lens = lens(&shouting(manifest(2)), 1, 2);
    let units = source(&["fine", "no", "no"]);
    let error = first_fault(apply(&lens, &units, Search::First));
    assert_eq!(error.unit(), 1);
}

/// Goal: one search returns every unit that fails at a step, whether the module names it or fails
/// over it.
#[test]
fn search_for_every_unit_returns_those_that_are_named_and_those_that_fail() {
    let lens = lens(&shouting(manifest(2)), 1, 2);
    let units = source(&[
        "fine", "no", "bad", "fine", "fine", "bad", "no", "fine", "no",
    ]);
    let places = |search| {
        apply(&lens, &units, search)
            .unwrap_err()
            .iter()
            .map(LensError::unit)
            .collect::<Vec<_>>()
    };
    assert_eq!(places(Search::Every), [1, 2, 5, 6, 8]);
    assert_eq!(places(Search::First), [1]);
    let named = source(&["no", "fine", "no"]);
    let refused = apply(&lens, &named, Search::First).unwrap_err();
    assert_eq!(
        refused.iter().map(LensError::unit).collect::<Vec<_>>(),
        [0, 2],
        "named in one call"
    );
}

/// Drops rows whose word is empty and doubles those whose word is "twin"; gives each row the number
/// of its kind.
fn reshape(batch: &Batch) -> Result<Outcome, String> {
    let table = &batch.tables[0];
    if table.unit_offsets.len() - 1 > 2 {
        return Err("too much".to_owned());
    }
    let mut shape = Shape {
        unit_offsets: vec![0],
        origins: Vec::new(),
    };
    let (mut guid, mut part) = (
        ColumnBuilder::new(Encoding::Text),
        ColumnBuilder::new(Encoding::Integer),
    );
    for unit in 0..table.unit_offsets.len() - 1 {
        for row in table.unit_offsets[unit]..table.unit_offsets[unit + 1] {
            let (key, word) = (read(batch, 0, row as usize), read(batch, 1, row as usize));
            if word.is_empty() {
                continue;
            }
            for (origin, number) in [(row, 0), (NEW_ROW, 1)]
                .into_iter()
                .take(1 + usize::from(word == b"twin"))
            {
                shape.origins.push(origin);
                guid.push(Value::Text(key));
                part.push(Value::Integer(number));
            }
        }
        shape
            .unit_offsets
            .push(u32::try_from(shape.origins.len()).unwrap());
    }
    let written = Written {
        shape: Some(shape),
        columns: vec![guid.finish(), part.finish()],
    };
    Ok(Outcome {
        tables: vec![written],
        ..Outcome::default()
    })
}

#[test]
fn reshaped_rows_keep_their_origins_across_halves() {
    let access = Access::to("apps")
        .reads(["guid", "word"])
        .writes(["guid", "part"])
        .reshapes();
    let reshaping = step(keyed_by_part(manifest(2)).up(access), reshape);
    let lens = lens(&[first(), reshaping], 1, 2);
    assert!(lens.tables["apps"].reshaped);
    let units = source(&["a", "", "twin", "b", "twin"]);
    let applied = apply(&lens, &units, Search::First).unwrap();
    assert_eq!(
        words(&applied, "guid"),
        ["g0", "g2", "g2", "g3", "g4", "g4"]
    );
    assert_eq!(
        applied.origins["apps"]["apps"],
        [0, 2, NEW_ROW, 3, 4, NEW_ROW]
    );
    assert_eq!(applied.tables["apps"].unit_offsets, [0, 1, 1, 3, 4, 6]);
    assert_eq!(applied.removed, 1, "the row without a word");
}

/// Returns each row twice, as two parts.
fn in_two_parts(batch: &Batch) -> Result<Outcome, String> {
    let count = u32::try_from(rows(batch)).unwrap();
    let mut part = ColumnBuilder::new(Encoding::Integer);
    for number in (0..count).flat_map(|_| [0, 1]) {
        part.push(Value::Integer(number));
    }
    let shape = Shape {
        unit_offsets: (0..=count).map(|unit| 2 * unit).collect(),
        origins: (0..count).flat_map(|row| [row; 2]).collect(),
    };
    Ok(Outcome {
        tables: vec![Written {
            shape: Some(shape),
            columns: vec![part.finish()],
        }],
        ..Outcome::default()
    })
}

/// Residue of a row that has come back as two is used once, and only that of another row is stale.
#[test]
fn row_that_is_continued_twice_uses_its_residue_once() {
    let access = Access::to("apps").writes(["part"]).reshapes();
    let second = keyed_by_part(manifest(2))
        .add_column("apps", Column::long_text("note").nullable())
        .up(access);
    let steps = [first(), step(second, in_two_parts)].map(|step| step as Arc<dyn Transform>);
    let layouts = LayoutHistory::new(steps.iter().map(|step| step.manifest())).unwrap();
    let lens = Lens::restoring(Way::within(&layouts, 1, 2), &steps).unwrap();
    let encoded = |texts: &[&str]| {
        let mut bytes = Vec::new();
        for text in texts {
            Value::Text(text.as_bytes()).encode(&mut bytes);
        }
        bytes
    };
    let mut left = Residue::default();
    for (unit, guid) in ["g0", "gone"].into_iter().enumerate() {
        let value = ResidueValue {
            row_key: encoded(&[guid]),
            digest: Vec::new(),
            bytes: encoded(&["note", guid]),
        };
        left.add(2, "apps", unit, value);
    }
    let applied = lens
        .apply(
            lens.tables["apps"].group,
            &source(&["a", "b"]),
            &left.of_edited(),
            &arguments(),
            Search::First,
            &BatchBudget::default(),
        )
        .unwrap();
    assert_eq!(words(&applied, "guid"), ["g0", "g0", "g1", "g1"]);
    assert_eq!(words(&applied, "note"), ["g0", "g0", "Null", "Null"]);
    assert_eq!(applied.stale, 1);
}
