//! The bounds of a layout and of a manifest, and the work that checking them takes.

use super::super::change::CHECKED_COLUMNS;
use super::*;

#[test]
fn layout_and_manifest_are_bounded() {
    let note = |number: usize| add(nullable(&format!("note_{number}")));
    let index = || {
        [
            Change::CreateIndex {
                table: "other".into(),
                index: index("i", &["extra"]),
            },
            Change::DropIndex {
                table: "other".into(),
                index: "i".into(),
            },
        ]
    };
    let many: Vec<_> = (0..MOST_CHANGES).flat_map(|_| index()).collect();
    assert_eq!(
        rejected(many),
        Problem::TooManyChanges {
            changes: 2 * MOST_CHANGES
        }
    );
    assert_eq!(
        rejected((0..MOST_COLUMNS).map(note).collect()),
        Problem::TooManyColumns
    );
    let create = |number: usize| {
        Change::CreateTable(table(&format!("table_{number}"), vec![column("guid")]))
    };
    assert_eq!(
        rejected((0..MOST_TABLES).map(create).collect()),
        Problem::TooManyTables
    );
    let of = |length: usize| Column {
        default: Some(Literal::Text("d".repeat(length))),
        ..nullable("x")
    };
    let long = Problem::LongDefault {
        table: "apps".into(),
        column: "x".into(),
    };
    assert_eq!(rejected(vec![add(of(LONGEST_DEFAULT + 1))]), long);
    before()
        .apply(&manifest(vec![add(of(LONGEST_DEFAULT))]))
        .expect("it is as long as a default may be");
    before()
        .apply(&manifest((0..900).map(note).collect()))
        .expect("they are fewer than a layout may have");
}

/// Goal: the time of folding a manifest grows with its size, not with the square.
/// Method: counts the checks of columns.
#[test]
fn added_column_is_checked_when_it_is_added_and_in_the_final_layout() {
    let checks = |added: usize| {
        CHECKED_COLUMNS.set(0);
        before()
            .apply(&manifest(
                (0..added)
                    .map(|number| add(nullable(&format!("note_{number}"))))
                    .collect(),
            ))
            .unwrap();
        CHECKED_COLUMNS.get()
    };
    let of_the_layout_before = checks(0);
    for added in [1, 100, 900] {
        assert_eq!(checks(added), of_the_layout_before + 2 * added);
    }
}

#[test]
fn largest_manifest_of_many_versions_is_folded() {
    let changes = |version: u64| {
        (0..MOST_CHANGES / 2).flat_map(move |number| {
            let name = format!("note_{version}_{number}");
            [
                add(nullable(&name)),
                Change::DropColumn {
                    table: "apps".into(),
                    column: name,
                },
            ]
        })
    };
    let mut layout = before();
    for version in 3..23 {
        layout = layout
            .apply(&Manifest {
                version,
                ..manifest(changes(version).collect())
            })
            .unwrap();
    }
    assert_eq!(
        layout,
        before(),
        "each version drops the columns that it adds"
    );
    let error = layout
        .apply(&manifest(vec![Change::DropTable {
            table: "t".repeat(10_000),
        }]))
        .unwrap_err();
    assert!(error.to_string().len() < 1_000, "{error}");
}
