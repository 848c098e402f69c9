//! Residue in its table.

use bbs_lens::layout::history::Leg;
use bbs_lens::layout::manifest::Direction;
use bbs_lens::{ResidueEntry, ResidueValue};

use super::residue::{SealedEntry, forget, load, remove, replace, seal, store};
use super::*;

const ROWS: &str = "SELECT unit || ' ' || table_name || ' ' || version || ' ' || direction FROM bbs_residue ORDER BY 1";

/// An entry of a step up.
fn entry(unit: usize, version: DataVersion, table: &str, bytes: &[u8]) -> ResidueEntry {
    let value = ResidueValue {
        row_key: vec![1, 2],
        digest: vec![0xd1],
        bytes: bytes.to_vec(),
    };
    ResidueEntry {
        unit,
        table: table.into(),
        left_by: Leg {
            version,
            direction: Direction::Up,
        },
        value,
    }
}

fn up_to(version: DataVersion) -> Vec<Leg> {
    (1..=version)
        .map(|version| Leg {
            version,
            direction: Direction::Up,
        })
        .collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("unit-{number}")).collect()
}

fn sealed(entries: Vec<ResidueEntry>) -> Vec<SealedEntry> {
    seal(&keyring(), entries, &names(9))
}

async fn database_with(entries: Vec<ResidueEntry>) -> (TempDir, Database) {
    let (folder, database) = database(&[], &[], &[]).await;
    let mut tx = database.write().await.unwrap();
    store(&mut tx, &sealed(entries)).await.unwrap();
    tx.commit().await.unwrap();
    (folder, database)
}

#[tokio::test]
async fn stored_residue_is_loaded_by_unit_direction_and_version() {
    let entries = vec![
        entry(0, 1, "apps", b"a"),
        entry(1, 2, "", b"b"),
        entry(1, 3, "apps", b"c"),
        entry(2, 1, "", b"d"),
    ];
    let (_folder, database) = database_with(entries.clone()).await;
    let mut tx = database.write().await.unwrap();
    let other = entry(0, 1, "apps", b"other direction");
    let other = ResidueEntry {
        left_by: other.left_by.back(),
        ..other
    };
    store(&mut tx, &sealed(vec![other.clone()])).await.unwrap();
    assert_eq!(
        load(&mut tx, &keyring(), &[other.left_by], &names(1))
            .await
            .unwrap(),
        [other]
    );
    let found = load(&mut tx, &keyring(), &up_to(2), &names(2))
        .await
        .unwrap();
    assert_eq!(found.len(), 2);
    assert!(
        entries[..2].iter().all(|entry| found.contains(entry)),
        "{found:?}"
    );
    let reversed = [names(3)[2].clone(), names(3)[0].clone()];
    let found = load(&mut tx, &keyring(), &up_to(9), &reversed)
        .await
        .unwrap();
    assert_eq!(
        found
            .iter()
            .map(|entry| entry.unit)
            .collect::<std::collections::BTreeSet<_>>(),
        [0, 1].into()
    );
    let one = load(&mut tx, &keyring(), &up_to(9), &names(1))
        .await
        .unwrap();
    assert_eq!(one, entries[..1]);
    let sealed = lines(&mut tx, "SELECT sealed FROM bbs_residue").await;
    assert!(sealed.iter().all(|text| text.len() > 16), "{sealed:?}");
}

#[tokio::test]
async fn residue_of_more_units_than_one_statement_takes_is_stored_and_loaded() {
    let (_folder, database) = database(&[], &[], &[]).await;
    let mut tx = database.write().await.unwrap();
    let names = names(600);
    let entries: Vec<_> = (0..600).map(|unit| entry(unit, 1, "apps", &[7])).collect();
    store(&mut tx, &seal(&keyring(), entries, &names))
        .await
        .unwrap();
    let found = load(&mut tx, &keyring(), &up_to(1), &names).await.unwrap();
    assert_eq!(
        found
            .iter()
            .map(|entry| entry.unit)
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        600
    );
}

#[tokio::test]
async fn later_residue_replaces_earlier_of_the_same_unit_step_and_table() {
    let (_folder, database) = database_with(vec![
        entry(0, 1, "apps", b"old"),
        entry(0, 2, "apps", b"stays"),
        entry(1, 1, "apps", b"stays"),
    ])
    .await;
    let mut tx = database.write().await.unwrap();
    store(&mut tx, &sealed(vec![entry(0, 1, "apps", b"new")]))
        .await
        .unwrap();
    let found = load(&mut tx, &keyring(), &up_to(9), &names(2))
        .await
        .unwrap();
    let bytes: std::collections::BTreeSet<_> = found
        .into_iter()
        .map(|entry| (entry.unit, entry.left_by.version, entry.value.bytes))
        .collect();
    let stays = b"stays".to_vec();
    assert_eq!(
        bytes,
        [
            (0, 1, b"new".to_vec()),
            (0, 2, stays.clone()),
            (1, 1, stays)
        ]
        .into()
    );
}

#[tokio::test]
async fn residue_of_one_unit_is_replaced_at_places_and_forgotten() {
    let (_folder, database) = database_with(vec![
        entry(0, 1, "apps", b""),
        entry(0, 2, "apps", b""),
        entry(0, 2, "", b""),
        entry(1, 1, "apps", b""),
    ])
    .await;
    let mut tx = database.write().await.unwrap();
    let at = |places: &[(DataVersion, &str)]| {
        places
            .iter()
            .map(|(version, table)| (*version, (*table).to_owned()))
            .collect()
    };
    replace(&mut tx, Direction::Down, &at(&[(1, "apps")]), "unit-0", &[])
        .await
        .unwrap();
    assert_eq!(lines(&mut tx, ROWS).await.len(), 4, "the other direction's");
    replace(&mut tx, Direction::Up, &at(&[]), "unit-0", &[])
        .await
        .unwrap();
    assert_eq!(lines(&mut tx, ROWS).await.len(), 4, "nowhere");
    let new = sealed(vec![entry(0, 3, "apps", b"")]);
    replace(
        &mut tx,
        Direction::Up,
        &at(&[(1, "apps"), (2, "")]),
        "unit-0",
        &new,
    )
    .await
    .unwrap();
    assert_eq!(
        lines(&mut tx, ROWS).await,
        ["unit-0 apps 2 up", "unit-0 apps 3 up", "unit-1 apps 1 up"]
    );
    forget(&mut tx, &at(&[]), "unit-0").await.unwrap();
    assert_eq!(lines(&mut tx, ROWS).await.len(), 3);
    forget(&mut tx, &at(&[(2, "apps")]), "unit-0")
        .await
        .unwrap();
    assert_eq!(
        lines(&mut tx, ROWS).await,
        ["unit-0 apps 3 up", "unit-1 apps 1 up"]
    );
    remove(&mut tx, &["unit-1".to_owned()], residue::left_by(&up_to(1)))
        .await
        .unwrap();
    assert_eq!(lines(&mut tx, ROWS).await, ["unit-0 apps 3 up"]);
}

#[tokio::test]
async fn damaged_and_unknown_residue_names_its_unit() {
    let (_folder, database) = database_with(vec![entry(0, 1, "apps", b"a")]).await;
    let mut tx = database.write().await.unwrap();
    let other = Keyring::new([("other", "passphrase")], "other").unwrap();
    let error = load(&mut tx, &other, &up_to(1), &names(1))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RowsError::SealedResidue { unit, .. } if unit == "unit-0"),
        "{error}"
    );
    tx.execute(sql("UPDATE bbs_residue SET digest = 'no digest'"))
        .await
        .unwrap();
    let error = load(&mut tx, &keyring(), &up_to(1), &names(1))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RowsError::DamagedResidue { unit } if unit == "unit-0"),
        "{error}"
    );
    tx.execute(sql("DROP TABLE bbs_residue")).await.unwrap();
    let error = load(&mut tx, &keyring(), &up_to(1), &names(1))
        .await
        .unwrap_err();
    assert!(matches!(error, RowsError::Residue(_)), "{error}");
    let places = [(1, "apps".to_owned())].into();
    assert!(matches!(
        forget(&mut tx, &places, "unit-0").await,
        Err(RowsError::Residue(_))
    ));
}

/// Goal: the residue of several units is bounded in memory; that of one is loaded whatever it is.
#[tokio::test]
async fn residue_of_several_units_is_bounded_in_bytes() {
    let large = vec![7; 9 << 20];
    let (_folder, database) =
        database_with((0..2).map(|unit| entry(unit, 1, "apps", &large)).collect()).await;
    let mut tx = database.read().await.unwrap();
    let error = load(&mut tx, &keyring(), &up_to(1), &names(2))
        .await
        .unwrap_err();
    assert!(error.is_of_several_units(), "{error:?}");
    for name in names(2) {
        assert_eq!(
            load(&mut tx, &keyring(), &up_to(1), &[name])
                .await
                .unwrap()
                .len(),
            1
        );
    }
}
