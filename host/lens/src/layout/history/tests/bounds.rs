//! The bounds of a layout and of a manifest, and the work that checking them takes.

use super::super::change::CHECKED_COLUMNS;
use super::*;

/// Adds `count` columns to `apps`.
fn with_notes(count: usize) -> Manifest {
    (0..count).fold(step(), |step, number| {
        step.add_column("apps", nullable(&format!("note_{number}")))
    })
}

#[test]
fn layout_and_manifest_are_bounded() {
    let many = (0..MOST_CHANGES).fold(step(), |manifest, _| {
        manifest
            .create_index("other", "i", ["extra"])
            .drop_index("other", "i")
    });
    assert_eq!(
        rejected(many),
        Problem::TooManyChanges {
            changes: 2 * MOST_CHANGES
        }
    );
    assert_eq!(rejected(with_notes(MOST_COLUMNS)), Problem::TooManyColumns);
    let tables = (0..MOST_TABLES).map(|number| table(&format!("table_{number}")));
    assert_eq!(
        rejected(tables.fold(step(), Manifest::create_table)),
        Problem::TooManyTables
    );
    let of = |length: usize| {
        Column::text("x")
            .nullable()
            .default("d".repeat(length).as_str())
    };
    let long = Problem::LongDefault {
        table: "apps".into(),
        column: "x".into(),
    };
    assert_eq!(rejected(add(of(LONGEST_DEFAULT + 1))), long);
    before()
        .apply(&add(of(LONGEST_DEFAULT)))
        .expect("it is as long as a default may be");
    before()
        .apply(&with_notes(900))
        .expect("they are fewer than a layout may have");
}

/// Goal: the time of folding a manifest grows with its size, not with the square.
/// Method: counts the checks of columns.
#[test]
fn added_column_is_checked_when_it_is_added_and_in_the_final_layout() {
    let checks = |added: usize| {
        CHECKED_COLUMNS.set(0);
        before().apply(&with_notes(added)).unwrap();
        CHECKED_COLUMNS.get()
    };
    let of_the_layout_before = checks(0);
    for added in [1, 100, 900] {
        assert_eq!(checks(added), of_the_layout_before + 2 * added);
    }
}

#[test]
fn largest_manifest_of_many_versions_is_folded() {
    let manifest = |version| {
        (0..MOST_CHANGES / 2).fold(Manifest { version, ..step() }, |step, number| {
            let name = format!("note_{version}_{number}");
            step.add_column("apps", nullable(&name))
                .drop_column("apps", &name)
        })
    };
    let mut layout = before();
    for version in 3..23 {
        layout = layout.apply(&manifest(version)).unwrap();
    }
    assert_eq!(
        layout,
        before(),
        "each version drops the columns that it adds"
    );
    let error = layout
        .apply(&step().drop_table(&"t".repeat(10_000)))
        .unwrap_err();
    assert!(error.to_string().len() < 1_000, "{error}");
}
