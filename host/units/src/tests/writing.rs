//! Writing differences and whole rows, and copying ranges.

use bbs_lens::Provenance;
use bbs_lens::layout::schema::Literal;

use super::*;

const ROWS: &str = "SELECT app || ' ' || note || ' ' || number || ' ' || COALESCE(record_version, '-') FROM apps ORDER BY app";

/// Three apps written by [`bulk::insert`].
async fn three_apps() -> (TempDir, Database, UnitBatch) {
    let (folder, database) = database(&[], &[], &[]).await;
    let batch = apps(&[
        ("a", Some(("x", 1, "s"))),
        ("b", Some(("y", 2, "t"))),
        ("c", Some(("z", 3, ""))),
    ]);
    let table = &layout().tables["apps"];
    let mut tx = database.write().await.unwrap();
    let rows = &batch.tables["apps"];
    let sealed = sealed(
        rows.columns["secret"].clone(),
        rows.count(),
        table.find_column("secret").unwrap(),
        &keyring(),
    );
    let mut stored = rows.clone();
    stored.columns.insert("secret".into(), sealed);
    bulk::insert(&mut tx, "apps", table, &stored).await.unwrap();
    tx.commit().await.unwrap();
    (folder, database, batch)
}

fn stamping(version: u64) -> Place {
    place().stamping([("apps".to_owned(), version)].into_iter().collect())
}

#[tokio::test]
async fn rows_are_removed_changed_and_added() {
    let (_folder, database, _) = three_apps().await;
    let mut tx = database.write().await.unwrap();
    let (a, b, c) = (("x", 1, "s"), ("y", 2, "t"), ("z", 3, ""));
    let before = apps(&[("a", Some(a)), ("b", Some(b)), ("c", Some(c)), ("d", None)]);
    let after = apps(&[
        ("a", Some(a)),
        ("b", Some(("new", 2, "t"))),
        ("c", None),
        ("d", Some(("w", 4, ""))),
    ]);
    replace(&mut tx, &stamping(7), &before, &after, &keyring())
        .await
        .unwrap();
    assert_eq!(
        lines(&mut tx, ROWS).await,
        ["a x 1 -", "b new 2 7", "d w 4 7"],
        "only rows that changed are stamped"
    );
    replace(&mut tx, &place(), &after, &before, &keyring())
        .await
        .unwrap();
    assert_eq!(
        lines(&mut tx, ROWS).await,
        ["a x 1 -", "b y 2 7", "c z 3 -"],
        "without a version no row is stamped"
    );
    let secrets = lines(&mut tx, "SELECT secret FROM apps ORDER BY app").await;
    let opened = secrets
        .iter()
        .map(|secret| keyring().open(Sealing::Sealed, secret.as_bytes()).unwrap());
    assert_eq!(
        opened.collect::<Vec<_>>(),
        [b"s".to_vec(), b"t".to_vec(), Vec::new()]
    );
}

#[tokio::test]
async fn record_version_alone_changes_no_row_that_is_stamped() {
    let (_folder, database, before) = three_apps().await;
    let table = &layout().tables["apps"];
    let mut after = before.clone();
    after
        .tables
        .get_mut("apps")
        .unwrap()
        .set(table, RECORD_VERSION, &[0], Value::Integer(5));
    let mut tx = database.write().await.unwrap();
    replace(&mut tx, &stamping(7), &before, &after, &keyring())
        .await
        .unwrap();
    assert_eq!(
        lines(&mut tx, ROWS).await,
        ["a x 1 -", "b y 2 -", "c z 3 -"]
    );
    replace(&mut tx, &place(), &before, &after, &keyring())
        .await
        .unwrap();
    assert_eq!(
        lines(&mut tx, ROWS).await,
        ["a x 1 5", "b y 2 -", "c z 3 -"]
    );
}

#[tokio::test]
async fn row_is_found_by_a_key_of_text_and_number() {
    let (_folder, database) = database(&[], &[("a", 1), ("a", 2)], &[]).await;
    let mut tx = database.write().await.unwrap();
    let columns = whole([&layout().tables["instances"]]);
    let before = load(&mut tx, &place(), &columns, &units(["a"]), RowLock::None)
        .await
        .unwrap();
    let mut after = before.clone();
    let rows = after.tables.get_mut("instances").unwrap();
    rows.retain(&layout().tables["instances"], |row| row == 1);
    replace(&mut tx, &place(), &before, &after, &keyring())
        .await
        .unwrap();
    assert_eq!(
        lines(&mut tx, "SELECT app || number FROM instances").await,
        ["a2"]
    );
}

#[tokio::test]
async fn write_that_the_database_refuses_returns_its_error() {
    let (_folder, database, before) = three_apps().await;
    let nothing = apps(&[("a", None), ("b", None), ("c", None)]);
    let changed = apps(&[
        ("a", Some(("!", 1, "s"))),
        ("b", Some(("y", 2, "t"))),
        ("c", Some(("z", 3, ""))),
    ]);
    let mut tx = database.write().await.unwrap();
    tx.execute(sql("DROP TABLE apps")).await.unwrap();
    for (before, after) in [
        (&before, &nothing),
        (&before, &changed),
        (&nothing, &before),
    ] {
        let error = replace(&mut tx, &place(), before, after, &keyring())
            .await
            .unwrap_err();
        assert!(
            matches!(&error, RowsError::Rows { table, .. } if table == "apps"),
            "{error}"
        );
        assert!(!error.is_transient(), "a missing table does not come back");
    }
}

#[tokio::test]
async fn text_that_its_column_does_not_hold_is_refused() {
    let (_folder, database) = database(&[], &[], &[]).await;
    let mut tx = database.write().await.unwrap();
    let (nine, ten) = ("123456789", "1234567890");
    for name in [nine, ten] {
        let (was, is) = (apps(&[(name, None)]), apps(&[(name, Some(("", 0, "")))]));
        let refused = replace(&mut tx, &place(), &was, &is, &keyring())
            .await
            .err();
        let is_too_long =
            matches!(&refused, Some(RowsError::TooLong { column, .. }) if column == "app");
        assert!(
            if name == ten {
                is_too_long
            } else {
                refused.is_none()
            },
            "{name}: {refused:?}"
        );
    }
}

#[tokio::test]
async fn table_that_one_state_lacks_is_left_alone() {
    let (_folder, database, before) = three_apps().await;
    let mut tx = database.write().await.unwrap();
    let after = UnitBatch {
        units: before.units.clone(),
        ..UnitBatch::default()
    };
    replace(&mut tx, &place(), &before, &after, &keyring())
        .await
        .unwrap();
    assert_eq!(lines(&mut tx, ROWS).await.len(), 3);
}

#[tokio::test]
async fn range_is_copied_but_for_some_units() {
    let (_folder, database) = database(
        &[],
        &[("a", 1), ("b", 1), ("b", 2), ("c", 1), ("d", 1), ("e", 1)],
        &[],
    )
    .await;
    let mut tx = database.write().await.unwrap();
    let source = &layout().tables["instances"];
    let raw = |name: &str| Provenance::Raw {
        table: "instances".into(),
        column: name.into(),
    };
    let fill = Provenance::Fill(Some(Literal::Text("filled".into())));
    let columns: Vec<_> = source
        .columns
        .iter()
        .cloned()
        .zip([raw("number"), raw("app"), fill])
        .collect();
    let (a, d, c) = (unit("a"), unit("d"), unit("c"));
    let copied = copy_range(
        &mut tx,
        (source, "pairs"),
        &columns,
        (Some(&a), &d),
        [&c].into_iter(),
    )
    .await
    .unwrap();
    assert_eq!(copied, 3);
    let rows = lines(
        &mut tx,
        "SELECT app || number || note FROM pairs ORDER BY app, number",
    )
    .await;
    assert_eq!(rows, ["b1filled", "b2filled", "d1filled"]);
}
