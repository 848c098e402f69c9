//! Residue that a database has, with the digests of units that a host computed when it saved them.

use super::*;
use crate::digests::ordered_unit_digests;
use crate::frame::Frame;

const UNITS: usize = 3;

fn parts_table() -> Table {
    Table::new("parts")
        .column(Column::varchar("guid", 255))
        .column(Column::integer("part"))
        .primary_key(["guid", "part"])
        .partition_key("guid")
}

fn tagged_apps() -> Table {
    table("apps")
        .column(Column::long_text("word"))
        .column(Column::varchar("modification_tag_epoch", 255))
}

/// Version 2 changes words of `apps` in both directions. Its way down reads parts of a unit, too,
/// which come and go while the record stays the same.
fn with_parts(apps: Table) -> Vec<Arc<dyn Transform>> {
    let first = manifest(1).create_table(apps).create_table(parts_table());
    let second = manifest(2)
        .up(to_words())
        .down(to_words())
        .down(Access::to("parts").reads(["part"]))
        .leaves_residue();
    [step(first, nothing), step(second, take_residue)]
        .map(|step| step as Arc<dyn Transform>)
        .into()
}

/// Writes the residue of each unit as its word.
fn take_residue(batch: &Batch) -> Result<Outcome, String> {
    let mut word = ColumnBuilder::new(Encoding::Text);
    for unit in 0..rows(batch) {
        let residue = batch.residue.get(unit).and_then(Option::as_deref);
        word.push(Value::Text(residue.unwrap_or_default()));
    }
    Ok(Outcome {
        tables: vec![Written {
            shape: None,
            columns: vec![word.finish()],
        }],
        ..Outcome::default()
    })
}

/// Units of one row in each table.
fn units() -> LensInput {
    let guids = ["g0", "g1", "g2"];
    let rows = |columns: Vec<(&str, BatchColumn)>| TableRows {
        unit_offsets: (0..=UNITS as u32).collect(),
        columns: columns
            .into_iter()
            .map(|(name, column)| (name.to_owned(), column))
            .collect(),
    };
    let part = ColumnData::repeat(Encoding::Integer, Value::Integer(0), UNITS);
    let apps = vec![
        ("guid", plain(&guids)),
        ("word", plain(&["w"; UNITS])),
        ("modification_tag_epoch", plain(&["e"; UNITS])),
    ];
    let parts = vec![
        ("guid", plain(&guids)),
        ("part", BatchColumn::new(part, Sealing::Plain)),
    ];
    LensInput {
        units: UNITS,
        tables: [
            ("apps".to_owned(), rows(apps)),
            ("parts".to_owned(), rows(parts)),
        ]
        .into(),
        ..LensInput::default()
    }
}

/// Goal: databases hold residue, and an upgrade of the host loses none of it. Method: the digests
/// are written down, the first 16 bytes of SHA-256 over the encoded rows of the unit, each after
/// its length.
#[test]
fn residue_is_recognised_by_a_digest_of_key_written_columns_and_identity() {
    let steps = with_parts(tagged_apps());
    let layouts = LayoutHistory::new(steps.iter().map(|step| step.manifest())).unwrap();
    let lens = Lens::restoring(Way::within(&layouts, 1, 2), &steps).unwrap();
    let digests: [u128; UNITS] = [
        // Of the key, the word and the epoch, not of the part.
        0x5da2_1abd_078f_519e_ae5f_4c9b_3dec_897a,
        // Of these, and of the key of the part.
        0xc135_10d1_1dc5_f68d_08dc_5029_b3ff_38f2,
        // Of the first unit.
        0x5da2_1abd_078f_519e_ae5f_4c9b_3dec_897a,
    ];
    let mut left = Residue::default();
    for (unit, digest) in digests.into_iter().enumerate() {
        let value = ResidueValue {
            row_key: Vec::new(),
            digest: digest.to_be_bytes().to_vec(),
            bytes: format!("saved-{unit}").into_bytes(),
        };
        left.add(2, "", unit, value);
    }
    let applied = lens
        .apply(
            lens.tables["apps"].group,
            &units(),
            &left,
            &arguments(),
            Search::First,
            &BatchBudget::default(),
        )
        .unwrap();
    assert_eq!(words(&applied, "word"), ["saved-0", "", ""]);
    assert_eq!(applied.stale, 2);
}

#[test]
fn default_of_an_inserted_column_changes_no_digest_of_a_unit() {
    let digests = |apps: Table, units: &LensInput| {
        let steps = with_parts(apps);
        let layouts = LayoutHistory::new(steps.iter().map(|step| step.manifest())).unwrap();
        let lens = Lens::restoring(Way::within(&layouts, 1, 2), &steps).unwrap();
        lens.residue_digests(lens.tables["apps"].group, units)
    };
    let before = digests(tagged_apps(), &units());
    let mut times = ColumnBuilder::new(Encoding::Integer);
    for time in [0, 0, 5] {
        times.push(Value::Integer(time));
    }
    let times = BatchColumn::new(times.finish(), Sealing::Plain);
    let mut timed = units();
    let apps = timed.tables.get_mut("apps").unwrap();
    apps.columns.insert("created_at".to_owned(), times);
    let created_at = Column::big_integer("created_at").default(0);
    let after = digests(tagged_apps().column(created_at), &timed);
    assert_eq!(after[..2], before[..2]);
    assert_ne!(after[2], before[2]);
}

/// Goal: what a row function saves of a unit is given back although a database returns the rows by
/// their keys. Method: two orders of the rows of a table that the function changes; the residue of
/// one, and that which an earlier build, which digested the order too, has saved of the other.
#[test]
fn residue_is_recognised_in_any_order_of_rows() {
    let apps = table("apps").column(Column::long_text("word"));
    let first = manifest(1).create_table(apps).create_table(parts_table());
    let second = manifest(2)
        .up(to_words())
        .down(to_words())
        .down(Access::to("parts").reads(["part"]).reshapes())
        .leaves_residue();
    let steps: Vec<_> = [step(first, nothing), step(second, take_residue)]
        .map(|step| step as Arc<dyn Transform>)
        .into();
    let layouts = LayoutHistory::new(steps.iter().map(|step| step.manifest())).unwrap();
    let lens = Lens::restoring(Way::within(&layouts, 1, 2), &steps).unwrap();
    let group = lens.tables["apps"].group;
    let unit = |order: [i64; 2]| {
        let mut part = ColumnBuilder::new(Encoding::Integer);
        for number in order {
            part.push(Value::Integer(number));
        }
        let rows = |columns: Vec<(&str, BatchColumn)>, count| TableRows {
            unit_offsets: vec![0, count],
            columns: columns
                .into_iter()
                .map(|(name, column)| (name.to_owned(), column))
                .collect(),
        };
        let apps = vec![("guid", plain(&["g0"])), ("word", plain(&["w"]))];
        let parts = vec![
            ("guid", plain(&["g0"; 2])),
            ("part", BatchColumn::new(part.finish(), Sealing::Plain)),
        ];
        LensInput {
            units: 1,
            tables: [
                ("apps".to_owned(), rows(apps, 1)),
                ("parts".to_owned(), rows(parts, 2)),
            ]
            .into(),
            ..LensInput::default()
        }
    };
    let [by_key, by_function] = [[-1, 1], [1, -1]].map(unit);
    let budget = BatchBudget::default();
    let sources = &lens.groups[group].sources;
    let frame = Frame::new(&lens.source, Some(sources), &by_key, &budget);
    let step = &lens.steps[0];
    let earlier = ordered_unit_digests(&frame, step.opposite(), &step.source).unwrap();
    let saved = lens.residue_digests(group, &by_function);
    assert_ne!(earlier, saved);
    for digest in [&earlier[0], &saved[0]] {
        let mut left = Residue::default();
        let value = ResidueValue {
            row_key: Vec::new(),
            digest: digest.clone(),
            bytes: b"saved".to_vec(),
        };
        left.add(2, "", 0, value);
        let applied = lens
            .apply(group, &by_key, &left, &arguments(), Search::First, &budget)
            .unwrap();
        assert_eq!(words(&applied, "word"), ["saved"]);
        assert_eq!(applied.stale, 0);
    }
}

/// Goal: a table with records of its own comes back: its rows are bound to none of these, which are
/// not there before they are restored.
#[test]
fn dropped_records_are_restored() {
    let records = table("records").column(Column::varchar("created_at", 9));
    let created = manifest(1).create_table(records);
    let dropped = manifest(2).drop_table("records");
    let steps: Vec<_> = [created, dropped]
        .map(|manifest| step(manifest, nothing) as Arc<dyn Transform>)
        .into();
    let layouts = LayoutHistory::new(steps.iter().map(|step| step.manifest())).unwrap();
    let columns = [
        ("guid", ["g0", "g1", "g2"]),
        ("created_at", ["t0", "t1", "t2"]),
    ];
    let rows = TableRows {
        unit_offsets: vec![0, 1, 2, 3],
        columns: columns
            .map(|(name, values)| (name.to_owned(), plain(&values)))
            .into(),
    };
    let records = LensInput {
        units: UNITS,
        tables: [("records".to_owned(), rows)].into(),
        ..LensInput::default()
    };
    let through = |lens: &Lens, units: &LensInput, residue: &Residue| {
        let budget = BatchBudget::default();
        lens.apply(0, units, residue, &arguments(), Search::First, &budget)
            .unwrap()
    };
    let up = Lens::restoring(Way::within(&layouts, 1, 2), &steps).unwrap();
    let saved = through(&up, &records, &Residue::default()).residue;
    let down = Lens::restoring(Way::within(&layouts, 2, 1), &steps).unwrap();
    let none = LensInput {
        units: UNITS,
        ..LensInput::default()
    };
    let restored = through(&down, &none, &Residue::from(saved));
    assert_eq!(restored.stale, 0);
    let rows = &restored.tables["records"];
    assert_eq!(rows.unit_offsets, [0, 1, 2, 3]);
    for (name, values) in columns {
        assert_eq!(*rows.columns[name].data, texts(&values), "{name}");
    }
}
