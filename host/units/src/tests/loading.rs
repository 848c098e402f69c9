//! Which units come next, and the two loaders.

use super::*;

const APPS: [(&str, &str); 4] = [
    ("a", "0123456789"),
    ("b", "0123456789"),
    ("c", "0123456789"),
    ("d", "0123456789"),
];
const INSTANCES: [(&str, i64); 4] = [("a", 2), ("a", 1), ("c", 1), ("e", 1)];

async fn loaded(
    range: KeyRange<'_>,
    columns: &[(&str, &[&str])],
    limits: ByteLimits,
) -> Result<(UnitBatch, u64), RowsError> {
    let (_folder, database) = database(&APPS, &INSTANCES, &[]).await;
    let mut tx = database.read().await.unwrap();
    let loaded = load_range(&mut tx, &place(), &wanted(columns), range, limits).await?;
    loaded
        .oversized
        .into_iter()
        .next()
        .map_or(Ok((loaded.batch, loaded.bytes)), |(_, fault)| Err(fault))
}

fn up_to(units: &[UnitKey]) -> KeyRange<'_> {
    KeyRange { after: None, units }
}

#[tokio::test]
async fn range_has_the_rows_of_its_units_and_their_bytes() {
    let units = units(["a", "b", "c", "d", "e"]);
    let columns: [(&str, &[&str]); 2] = [
        ("apps", &["note", "number"]),
        ("instances", &["note", "number"]),
    ];
    let (batch, bytes) = loaded(up_to(&units), &columns, ByteLimits::NONE)
        .await
        .unwrap();
    assert_eq!(batch.units, units);
    assert_eq!(batch.tables["apps"].unit_offsets, [0, 1, 2, 3, 4, 4]);
    assert_eq!(batch.tables["instances"].unit_offsets, [0, 2, 2, 3, 3, 4]);
    assert_eq!(
        values(&batch.tables["apps"], "apps", "note"),
        ["0123456789"; 4]
    );
    assert_eq!(
        values(&batch.tables["instances"], "instances", "number"),
        ["1", "2", "1", "1"]
    );
    assert_eq!(
        batch.tables["apps"].columns.keys().collect::<Vec<_>>(),
        ["note", "number"]
    );
    assert_eq!(bytes, 4 * (10 + 8) + 4 * (1 + 8));
}

#[tokio::test]
async fn range_begins_after_its_key_and_ends_with_its_last_unit() {
    let units = units(["b", "c"]);
    let range = KeyRange {
        after: Some(&unit("a")),
        units: &units,
    };
    let columns: [(&str, &[&str]); 2] = [("apps", &["app"]), ("instances", &["app"])];
    let (batch, _) = loaded(range, &columns, ByteLimits::NONE).await.unwrap();
    assert_eq!(values(&batch.tables["apps"], "apps", "app"), ["b", "c"]);
    assert_eq!(
        values(&batch.tables["instances"], "instances", "app"),
        ["c"]
    );
}

#[tokio::test]
async fn range_ends_with_the_unit_that_reaches_the_limit() {
    let units = units(["a", "b", "c", "d", "e"]);
    let (notes, numbers): ((_, &[&str]), (_, &[&str])) =
        (("apps", &["note"]), ("instances", &["number"]));
    for (limit, complete) in [(0, 1), (1, 1), (10, 1), (11, 2), (20, 2), (30, 3), (31, 5)] {
        let limits = ByteLimits {
            batch: limit,
            ..ByteLimits::NONE
        };
        let (batch, bytes) = loaded(up_to(&units), &[notes], limits).await.unwrap();
        assert_eq!(batch.units, units[..complete], "{limit}");
        assert_eq!(batch.tables["apps"].units(), complete, "{limit}");
        assert_eq!(batch.tables["apps"].count(), complete.min(4), "{limit}");
        assert_eq!(bytes, 10 * complete.min(4) as u64, "{limit}");
    }
    let limits = ByteLimits {
        batch: 8,
        ..ByteLimits::NONE
    };
    let (batch, bytes) = loaded(up_to(&units), &[numbers], limits).await.unwrap();
    assert_eq!(
        (batch.units.len(), batch.rows(), bytes),
        (2, 2, 16),
        "a unit is complete, and those without rows with it"
    );
    let (batch, bytes) = loaded(up_to(&units), &[("apps", &["number"]), numbers], limits)
        .await
        .unwrap();
    assert_eq!(
        (batch.units.len(), bytes),
        (1, 24),
        "the first table ends the range for the others"
    );
    let limits = ByteLimits {
        batch: 15,
        ..ByteLimits::NONE
    };
    let (batch, bytes) = loaded(up_to(&units), &[("apps", &[]), numbers], limits)
        .await
        .unwrap();
    assert_eq!(batch.units, units[..2]);
    assert_eq!(
        (
            batch.tables["apps"].count(),
            batch.tables["instances"].count(),
            bytes
        ),
        (2, 2, 16),
        "and later ones for it"
    );
}

#[tokio::test]
async fn unit_above_its_limit_is_refused_over_all_its_tables() {
    let units = units(["a", "b", "c", "d", "e"]);
    let columns: [(&str, &[&str]); 2] = [("apps", &["note"]), ("instances", &["number"])];
    let limits = |unit| ByteLimits {
        unit,
        ..ByteLimits::NONE
    };
    assert!(loaded(up_to(&units), &columns, limits(26)).await.is_ok());
    let refused = loaded(up_to(&units), &columns, limits(25))
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, RowsError::UnitTooLarge { unit, bytes: 26, limit: 25 } if unit == "a"),
        "{refused}"
    );
}

/// Each range ends before the next unit above the limit, which is a range of its own.
#[tokio::test]
async fn units_within_the_limit_are_loaded_beside_those_above_it() {
    let (_folder, database) = database(&APPS, &INSTANCES, &[]).await;
    let mut tx = database.read().await.unwrap();
    let columns = wanted(&[("apps", &["note"]), ("instances", &["number"])]);
    let listed = units(["a", "b", "c", "d", "e"]);
    let limits = ByteLimits {
        unit: 17,
        ..ByteLimits::NONE
    };
    let mut ranges = Vec::new();
    let mut done = 0;
    while done < listed.len() {
        let after = done.checked_sub(1).map(|last| &listed[last]);
        let range = KeyRange {
            after,
            ..up_to(&listed[done..])
        };
        let loaded = load_range(&mut tx, &place(), &columns, range, limits)
            .await
            .unwrap();
        let rows = ["apps", "instances"].map(|table| loaded.batch.tables[table].count());
        let above = loaded
            .oversized
            .map(|(unit, fault)| (unit.name(), fault.to_string().contains("18 bytes")));
        ranges.push((loaded.batch.names(), rows, above));
        done = listed.iter().position(|unit| *unit == loaded.last).unwrap() + 1;
    }
    let names =
        |units: &[&str]| -> Vec<String> { units.iter().map(|unit| (*unit).to_owned()).collect() };
    assert_eq!(
        ranges,
        [
            (names(&[]), [0, 0], Some(("a".to_owned(), false))),
            (names(&["b"]), [1, 0], None),
            (names(&[]), [0, 0], Some(("c".to_owned(), true))),
            (names(&["d", "e"]), [1, 1], None),
        ]
    );
}

#[tokio::test]
async fn row_of_a_unit_that_is_not_listed_is_an_error() {
    let units = units(["a", "c", "e"]);
    let columns: [(&str, &[&str]); 2] = [("apps", &["app"]), ("instances", &["app"])];
    let error = loaded(up_to(&units), &columns, ByteLimits::NONE)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RowsError::WrittenMeanwhile { table } if table == "apps"),
        "{error}"
    );
}

#[tokio::test]
async fn units_that_the_database_orders_otherwise_are_an_error() {
    let columns: [(&str, &[&str]); 1] = [("apps", &["note"])];
    let unordered = units(["b", "a", "c", "d"]);
    let error = loaded(up_to(&unordered), &columns, ByteLimits::NONE)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RowsError::WrittenMeanwhile { .. }),
        "{error}"
    );
    // The first table ends the range with `b`; the other one has `aa` before it, which is listed
    // after it.
    let limits = ByteLimits {
        batch: 20,
        ..ByteLimits::NONE
    };
    let (_folder, database) = database(
        &[("a", "0123456789"), ("b", "0123456789"), ("e", "")],
        &[("aa", 1)],
        &[],
    )
    .await;
    let mut tx = database.read().await.unwrap();
    let listed = units(["a", "b", "e", "aa", "z"]);
    let columns = wanted(&[("apps", &["note"]), ("instances", &["app"])]);
    let error = load_range(&mut tx, &place(), &columns, up_to(&listed), limits)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RowsError::WrittenMeanwhile { table } if table == "instances"),
        "{error}"
    );
}

#[tokio::test]
async fn listed_units_have_their_rows_in_the_order_of_the_list() {
    let (_folder, database) = database(&APPS, &INSTANCES, &[]).await;
    let mut tx = database.read().await.unwrap();
    let columns = wanted(&[("apps", &["app"]), ("instances", &["app", "number"])]);
    let listed = units(["c", "unknown", "a", "e"]);
    let batch = load(&mut tx, &place(), &columns, &listed, RowLock::None)
        .await
        .unwrap();
    assert_eq!(batch.units, listed);
    assert_eq!(batch.tables["apps"].unit_offsets, [0, 1, 1, 2, 2]);
    assert_eq!(values(&batch.tables["apps"], "apps", "app"), ["c", "a"]);
    assert_eq!(batch.tables["instances"].unit_offsets, [0, 1, 1, 3, 4]);
    assert_eq!(
        values(&batch.tables["instances"], "instances", "number"),
        ["1", "1", "2", "1"]
    );
    let one = load(
        &mut tx,
        &place(),
        &columns,
        &units(["d"]),
        RowLock::Exclusive,
    )
    .await
    .unwrap();
    assert_eq!(
        (one.units, one.tables["instances"].count()),
        (units(["d"]), 0)
    );
    let none = load(&mut tx, &place(), &columns, &units(["A"]), RowLock::None)
        .await
        .unwrap();
    assert_eq!(
        (none.units.clone(), none.rows()),
        (units(["A"]), 0),
        "keys are compared by bytes"
    );
}

#[tokio::test]
async fn listed_unit_above_its_limit_is_refused() {
    let (_folder, database) = database(&APPS, &INSTANCES, &[]).await;
    let mut tx = database.read().await.unwrap();
    let columns = wanted(&[("apps", &["note"])]);
    let limits = ByteLimits {
        unit: 9,
        ..ByteLimits::NONE
    };
    let error = load_within(
        &mut tx,
        &place(),
        &columns,
        &units(["b"]),
        RowLock::None,
        limits,
    )
    .await
    .unwrap_err();
    assert!(
        matches!(&error, RowsError::UnitTooLarge { unit, .. } if unit == "b"),
        "{error}"
    );
}

#[tokio::test]
async fn several_listed_units_above_the_limit_of_a_batch_are_refused_together() {
    let (_folder, database) = database(&APPS, &INSTANCES, &[]).await;
    let mut tx = database.read().await.unwrap();
    let columns = wanted(&[("apps", &["note"]), ("instances", &["number"])]);
    let limits = ByteLimits {
        batch: 20,
        ..ByteLimits::NONE
    };
    for (listed, is_refused) in [
        (units(["b"]), false),
        (units(["b", "d"]), false),
        (units(["c", "d"]), true),
        (units(["b", "c", "d"]), true),
    ] {
        let loaded = load_within(&mut tx, &place(), &columns, &listed, RowLock::None, limits).await;
        let refused = loaded.is_err_and(|fault| fault.is_of_several_units());
        assert_eq!(refused, is_refused, "{listed:?}");
    }
}

/// Keys and bytes.
async fn next(
    tables: &[&str],
    after: Option<UnitKey>,
    most: u64,
    measure: Measure,
) -> (Vec<String>, u64) {
    let (_folder, database) = database(&APPS, &INSTANCES, &[("a", 1), ("a", 2), ("b", 1)]).await;
    let mut tx = database.read().await.unwrap();
    let layout = layout();
    let tables: Vec<_> = tables.iter().map(|&name| &layout.tables[name]).collect();
    let bounds = next_units(&mut tx, &tables, after.as_ref(), most, measure)
        .await
        .unwrap();
    (
        bounds.units.iter().map(UnitKey::name).collect(),
        bounds.bytes,
    )
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).into()
}

#[tokio::test]
async fn next_units_are_those_of_all_tables_in_the_order_of_their_keys() {
    let both = ["apps", "instances"];
    assert_eq!(
        next(&["apps"], None, 9, Measure::Keys).await,
        (names(["a", "b", "c", "d"]), 0)
    );
    assert_eq!(
        next(&["instances"], None, 9, Measure::Keys).await,
        (names(["a", "c", "e"]), 0)
    );
    assert_eq!(
        next(&both, None, 9, Measure::Keys).await,
        (names(["a", "b", "c", "d", "e"]), 0)
    );
    assert_eq!(
        next(&both, None, 3, Measure::Keys).await,
        (names(["a", "b", "c"]), 0)
    );
    assert_eq!(
        next(&both, Some(unit("c")), 9, Measure::Keys).await,
        (names(["d", "e"]), 0)
    );
    assert_eq!(
        next(&both, Some(unit("e")), 9, Measure::Keys).await,
        (Vec::new(), 0)
    );
    assert_eq!(next(&[], None, 9, Measure::Keys).await, (Vec::new(), 0));
}

#[tokio::test]
async fn unit_of_a_table_without_partition_key_is_one_row() {
    let all = names([r#"["a","1"]"#, r#"["a","2"]"#, r#"["b","1"]"#]);
    assert_eq!(
        next(&["pairs"], None, 9, Measure::Keys).await,
        (all.clone(), 0)
    );
    let (_folder, database) = database(&[], &[], &[("a", 1), ("a", 2), ("b", 1)]).await;
    let mut tx = database.read().await.unwrap();
    let pairs = &layout().tables["pairs"];
    let bounds = next_units(&mut tx, &[pairs], None, 1, Measure::Keys)
        .await
        .unwrap();
    let rest = next_units(&mut tx, &[pairs], bounds.units.first(), 9, Measure::Keys)
        .await
        .unwrap();
    assert_eq!(
        rest.units.iter().map(UnitKey::name).collect::<Vec<_>>(),
        all[1..]
    );
    let listed: Vec<_> = bounds.units.into_iter().chain(rest.units).collect();
    let columns = wanted(&[("pairs", &["number"])]);
    let batch = load(&mut tx, &place(), &columns, &listed[1..], RowLock::None)
        .await
        .unwrap();
    assert_eq!(
        values(&batch.tables["pairs"], "pairs", "number"),
        ["2", "1"]
    );
}

#[tokio::test]
async fn next_units_have_at_most_so_many_bytes_together_but_one_at_least() {
    let both = ["apps", "instances"];
    let bytes = |most| Measure::Bytes { most };
    // A text of `apps` has 1 + 10 bytes, a row of `instances` 1 + 1.
    assert_eq!(
        next(&both, None, 9, bytes(99)).await,
        (names(["a", "b", "c", "d", "e"]), 4 * 11 + 4 * 2)
    );
    assert_eq!(
        next(&both, None, 9, bytes(26)).await,
        (names(["a", "b"]), 26)
    );
    assert_eq!(next(&both, None, 9, bytes(25)).await, (names(["a"]), 15));
    assert_eq!(next(&both, None, 9, bytes(0)).await, (names(["a"]), 15));
    assert_eq!(
        next(&["apps"], None, 9, bytes(22)).await,
        (names(["a", "b"]), 22)
    );
    assert_eq!(
        next(&["instances"], None, 9, bytes(6)).await,
        (names(["a", "c"]), 6)
    );
}

#[tokio::test]
async fn units_with_rows_are_found_by_list() {
    let (_folder, database) = database(&APPS, &INSTANCES, &[]).await;
    let mut tx = database.read().await.unwrap();
    let instances = &layout().tables["instances"];
    let listed = places_among(&mut tx, instances, "instances", &units(["e", "b", "a"]))
        .await
        .unwrap();
    assert_eq!(listed, [0, 2].into());
    let among = units_among(&mut tx, instances, "instances", &units(["b", "a", "e"]))
        .await
        .unwrap();
    assert_eq!(among, units(["a", "e"]));
    assert_eq!(
        units_among(&mut tx, instances, "instances", &[])
            .await
            .unwrap(),
        []
    );
}

#[test]
fn table_without_text_has_no_length_of_text() {
    assert_eq!(text_length(std::iter::empty()), None);
}

/// Goal: reading goes on behind each page or ends with an error, whatever is in a key column.
#[tokio::test]
async fn page_of_units_that_does_not_advance_is_an_error() {
    let apps = [("a", ""), ("b", ""), ("c", "")];
    let (_folder, database) = database(&apps, &[], &[]).await;
    let mut tx = database.write().await.unwrap();
    tx.execute(sql("UPDATE apps SET app = x'62' WHERE app = 'b'"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut tx = database.read().await.unwrap();
    let layout = layout();
    let tables = [&layout.tables["apps"]];
    let mut after = None;
    let mut found = Vec::new();
    let fault = loop {
        match next_units(&mut tx, &tables, after.as_ref(), 1, Measure::Keys).await {
            Ok(bounds) => {
                after = Some(
                    bounds
                        .units
                        .last()
                        .expect("a page has units or is an error")
                        .clone(),
                )
            }
            Err(fault) => break fault,
        }
        found.push(after.clone().unwrap().name());
    };
    assert_eq!(found, ["a", "c"]);
    let cause = format!(
        "{fault}: {:?}",
        std::error::Error::source(&fault).map(ToString::to_string)
    );
    assert!(
        cause.contains("apps") && cause.contains("storage class BLOB"),
        "{cause}"
    );
    assert!(
        unit("b").comes_after(&unit("a"), Dialect::Sqlite)
            && !unit("a").comes_after(&unit("b"), Dialect::Sqlite)
    );
    for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::Mysql] {
        assert!(!unit("a").comes_after(&unit("a"), dialect), "{dialect:?}");
    }
}
