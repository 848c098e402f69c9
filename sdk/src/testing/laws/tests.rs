//! The laws, each with a migration that violates it.

use std::cell::Cell;

use super::*;
use crate::schema::{Column, Table};
use crate::{Access, Run, Unit, Write};

fn layout() -> Layout {
    let table = Table::new("t")
        .column(Column::varchar("k", 32))
        .column(Column::integer("i"));
    let table = table
        .column(Column::text("x").nullable())
        .column(Column::boolean("b").nullable());
    Layout::of([table.primary_key(["k", "i"]).partition_key("k")])
}

fn with_epoch(epoch: Column) -> Layout {
    let mut layout = layout();
    layout
        .tables
        .get_mut("t")
        .expect("the table")
        .columns
        .push(epoch);
    layout
}

fn edits_text() -> Manifest {
    Manifest::new(2, "test")
        .up(Access::to("t").reads(["x"]).writes(["x"]))
        .down(Access::to("t").reads(["x"]).writes(["x"]))
}

/// A migration of the test table whose row functions are these.
macro_rules! migration {
    ($name:ident, $manifest:expr, $up:expr, $down:expr) => {
        struct $name;

        impl Migration for $name {
            fn manifest() -> Manifest {
                $manifest
            }

            fn up(_: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
                let up: fn(&Unit<'_>) -> Result<(), Refused> = $up;
                up(unit)
            }

            fn down(_: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
                let down: fn(&Unit<'_>) -> Result<(), Refused> = $down;
                down(unit)
            }
        }
    };
}

fn append(unit: &Unit<'_>, suffix: &str) -> Result<(), Refused> {
    for row in unit.rows("t")? {
        let text = row.text_or_null("x")?.unwrap_or("NULL");
        row.set_text("x", &format!("{text}{suffix}"))?;
    }
    Ok(())
}

fn nothing(_: &Unit<'_>) -> Result<(), Refused> {
    Ok(())
}

fn swap_null_and_empty(unit: &Unit<'_>) -> Result<(), Refused> {
    for row in unit.rows("t")? {
        match row.text_or_null("x")? {
            Some("") => row.set_null("x")?,
            None => row.set_text("x", "")?,
            Some(_) => {}
        }
    }
    Ok(())
}

#[test]
fn lawful_migration_passes() {
    migration!(Passes, edits_text(), nothing, nothing);
    Laws::<Passes>::over(layout())
        .check()
        .expect("a lawful migration");
}

#[test]
fn down_that_does_not_invert_up_is_a_violation_unless_declared() {
    migration!(
        Erases,
        edits_text(),
        |unit| unit
            .rows("t")?
            .try_for_each(|row| row.set_text("x", "gone")),
        nothing
    );
    let laws = || Laws::<Erases>::over(layout());
    assert!(
        matches!(
            laws().check(),
            Err(Violation::RoundTrip {
                direction: Direction::Up,
                ..
            })
        ),
        "{:?}",
        laws().check()
    );
    laws().loses("t", "x").check().expect("a declared loss");
}

#[test]
fn up_that_does_not_invert_down_is_a_violation() {
    migration!(ErasesDown, edits_text(), nothing, |unit| unit
        .rows("t")?
        .try_for_each(|row| row.set_text("x", "gone")));
    // `up` changes nothing, so a round trip from the source loses the column in `down`; checks the
    // other direction.
    let laws = Laws::<ErasesDown>::over(layout()).loses("t", "x");
    laws.check().expect("a declared loss");
    let violation = Laws::<ErasesDown>::over(layout())
        .check()
        .expect_err("a loss");
    assert!(
        matches!(violation, Violation::RoundTrip { .. }),
        "{violation:?}"
    );
}

#[test]
fn nondeterministic_step_is_a_violation() {
    thread_local!(static CALLS: Cell<u64> = const { Cell::new(0) });
    migration!(
        Counts,
        edits_text(),
        |unit| {
            CALLS.set(CALLS.get() + 1);
            let calls = CALLS.get().to_string();
            unit.rows("t")?
                .try_for_each(|row| row.set_text("x", &calls))
        },
        nothing
    );
    // The column is declared as lost, so that only determinism can fail.
    let violation = Laws::<Counts>::over(layout())
        .loses("t", "x")
        .check()
        .expect_err("a counter");
    assert!(
        matches!(violation, Violation::NotIdempotent { .. }),
        "{violation:?}"
    );
    migration!(CountsDown, edits_text(), nothing, |unit| {
        CALLS.set(CALLS.get() + 1);
        let calls = CALLS.get().to_string();
        unit.rows("t")?
            .try_for_each(|row| row.set_text("x", &calls))
    });
    let violation = Laws::<CountsDown>::over(layout())
        .loses("t", "x")
        .check()
        .expect_err("a counter");
    assert!(
        matches!(
            violation,
            Violation::Nondeterministic {
                direction: Direction::Down,
                ..
            }
        ),
        "{violation:?}"
    );
}

#[test]
fn step_that_depends_on_other_units_is_a_violation() {
    thread_local!(static CALLS: Cell<u64> = const { Cell::new(0) });
    // Batches of two units, of which the second is treated differently, however often the batch
    // runs.
    migration!(
        EverySecond,
        edits_text(),
        |unit| {
            CALLS.set(CALLS.get() + 1);
            let text = if CALLS.get().is_multiple_of(2) {
                "even"
            } else {
                "odd"
            };
            unit.rows("t")?.try_for_each(|row| row.set_text("x", text))
        },
        nothing
    );
    let laws = (1..20).map(|seed| {
        Laws::<EverySecond>::over(layout())
            .loses("t", "x")
            .units(2)
            .seed(seed)
    });
    let violations: Vec<_> = laws.filter_map(|laws| laws.check().err()).collect();
    assert!(
        violations
            .iter()
            .any(|violation| matches!(violation, Violation::BatchDependent { .. })),
        "{violations:?}"
    );
}

#[test]
fn up_that_is_not_idempotent_is_a_violation() {
    migration!(Grows, edits_text(), |unit| append(unit, "!"), nothing);
    let violation = Laws::<Grows>::over(layout())
        .loses("t", "x")
        .check()
        .expect_err("growth");
    assert!(
        matches!(violation, Violation::NotIdempotent { .. }),
        "{violation:?}"
    );
    migration!(
        GrowsOnce,
        edits_text(),
        |unit| {
            let done = unit.rows("t")?.any(|row| {
                row.text_or_null("x")
                    .is_ok_and(|x| x.is_some_and(|x| x.ends_with('!')))
            });
            if done {
                Err(Refused::new("done already"))
            } else {
                append(unit, "!")
            }
        },
        nothing
    );
    Laws::<GrowsOnce>::over(layout())
        .loses("t", "x")
        .check()
        .expect("the second time is refused");
}

#[test]
fn refusal_is_a_violation_unless_allowed() {
    migration!(
        Picky,
        edits_text(),
        |unit| unit.rows("t")?.try_for_each(|row| row.text("x").map(drop)),
        nothing
    );
    let violation = Laws::<Picky>::over(layout())
        .check()
        .expect_err("a refusal");
    assert!(
        matches!(&violation, Violation::Refuses { reason, .. } if reason == "`x` of `t` is NULL"),
        "{violation:?}"
    );
    Laws::<Picky>::over(layout())
        .may_refuse()
        .check()
        .expect("refusals are allowed");
}

#[test]
fn refusal_of_every_unit_with_rows_is_a_violation_though_refusals_are_allowed() {
    migration!(
        Misspells,
        edits_text(),
        |unit| unit.rows("t")?.try_for_each(|row| row.text("y").map(drop)),
        nothing
    );
    let violation = Laws::<Misspells>::over(layout())
        .may_refuse()
        .check()
        .expect_err("no unit is accepted");
    assert!(
        matches!(
            &violation,
            Violation::RefusesAll { direction: Direction::Up, reason, .. }
                if reason.contains("`y` of `t` is not declared")
        ),
        "{violation:?}"
    );
}

/// A table whose text is never NULL.
fn layout_of_texts() -> Layout {
    let table = Table::new("t")
        .column(Column::varchar("k", 32))
        .column(Column::text("x"));
    Layout::of([table.primary_key(["k"]).partition_key("k")])
}

/// Puts a mark before each text, unless one of these is there.
fn mark(unit: &Unit<'_>, mark: &str, refused: &[&str]) -> Result<(), Refused> {
    for row in unit.rows("t")? {
        let text = row.text("x")?;
        if refused.iter().any(|refused| text.starts_with(refused)) {
            return Err(Refused::new("it has a mark"));
        }
        row.set_text("x", &format!("{mark}{text}"))?;
    }
    Ok(())
}

/// Takes the mark of `up` from each text.
fn unmark(unit: &Unit<'_>, otherwise: fn(&str) -> Result<String, Refused>) -> Result<(), Refused> {
    for row in unit.rows("t")? {
        let text = row.text("x")?;
        let unmarked = match text.strip_prefix("made:") {
            Some(unmarked) => unmarked.to_owned(),
            None => otherwise(text)?,
        };
        row.set_text("x", &unmarked)?;
    }
    Ok(())
}

/// Goal: a way back that no generated unit takes is reported. Method: `down` accepts only what `up`
/// returns; then `up` refuses whatever else `down` returns.
#[test]
fn refusal_of_every_unit_on_the_way_back_is_a_violation_unless_declared() {
    migration!(
        OnlyMarked,
        edits_text(),
        |unit| mark(unit, "made:", &["made:"]),
        |unit| unmark(unit, |_| Err(Refused::new("it has no mark")))
    );
    let laws = || Laws::<OnlyMarked>::over(layout_of_texts()).may_refuse();
    let violation = laws().check().expect_err("no generated unit is accepted");
    assert!(
        matches!(
            &violation,
            Violation::RefusesAll { direction: Direction::Down, reason, .. }
                if reason == "it has no mark"
        ),
        "{violation:?}"
    );
    assert!(violation.to_string().contains("`only_from_source`"));
    laws()
        .only_from_source()
        .check()
        .expect("what `up` returns comes back");

    migration!(
        NeverReturns,
        edits_text(),
        |unit| mark(unit, "made:", &["made:", "taken:"]),
        |unit| unmark(unit, |text| Ok(format!("taken:{text}")))
    );
    let violation = Laws::<NeverReturns>::over(layout_of_texts())
        .may_refuse()
        .check()
        .expect_err("no generated unit comes back");
    assert!(
        matches!(
            &violation,
            Violation::RefusesAll { direction: Direction::Up, reason, .. }
                if reason == "it has a mark"
        ),
        "{violation:?}"
    );
}

#[test]
fn laws_hold_over_units_with_an_integer_partition_key() {
    migration!(OfNumbers, edits_text(), nothing, nothing);
    let table = Table::new("t")
        .column(Column::integer("k"))
        .column(Column::text("x").nullable());
    let layout = Layout::of([table.primary_key(["k"]).partition_key("k")]);
    Laws::<OfNumbers>::over(layout)
        .check()
        .expect("a lawful migration");
}

#[test]
fn number_that_the_column_below_does_not_hold_is_a_violation_unless_allowed() {
    migration!(
        Widens,
        Manifest::new(2, "test").alter_column("t", Column::big_integer("i")),
        nothing,
        nothing
    );
    let laws = || Laws::<Widens>::over(layout());
    let violation = laws().check().expect_err("clients write larger numbers");
    assert!(
        matches!(
            &violation,
            Violation::Refuses { direction: Direction::Down, reason, .. }
                if reason.contains("`i` of `t` has a number that does not fit 32 bits")
        ),
        "{violation:?}"
    );
    laws()
        .fill("t", "i", |generator| (generator.below(100) as i64).into())
        .check()
        .expect("the column below holds every number");
    laws().may_refuse().check().expect("refusals are allowed");
}

#[test]
fn null_and_empty_are_different_values() {
    migration!(Swaps, edits_text(), swap_null_and_empty, nothing);
    let violation = Laws::<Swaps>::over(layout()).check().expect_err("a swap");
    assert!(
        matches!(
            violation,
            Violation::NotIdempotent { .. } | Violation::RoundTrip { .. }
        ),
        "{violation:?}"
    );
}

#[test]
fn written_column_of_unknown_kind_is_a_violation() {
    fn manifest() -> Manifest {
        Manifest::new(2, "test").up(Access::to("t").writes(["b"]))
    }
    migration!(
        Untyped,
        manifest(),
        |unit| unit.rows("t")?.try_for_each(|row| row.set_null("b")),
        nothing
    );
    let violation = Laws::<Untyped>::over(layout())
        .check()
        .expect_err("no kind");
    assert!(
        violation
            .to_string()
            .ends_with("declare it as `Write::boolean(\"b\")`"),
        "{violation}"
    );
    migration!(
        Mistyped,
        Manifest::new(2, "test").up(Access::to("t").writes([Write::text("b")])),
        |unit| unit.rows("t")?.try_for_each(|row| row.set_null("b")),
        nothing
    );
    let violation = Laws::<Mistyped>::over(layout())
        .check()
        .expect_err("a wrong kind");
    assert_eq!(violation.to_string(), "the manifest: up writes `b` as text");
    migration!(
        Nowhere,
        Manifest::new(2, "test").up(Access::to("u").writes(["b"])),
        nothing,
        nothing
    );
    let violation = Laws::<Nowhere>::over(layout())
        .check()
        .expect_err("no table");
    assert_eq!(
        violation.to_string(),
        "the manifest: there is no table \"u\""
    );
    migration!(
        Missing,
        Manifest::new(2, "test").up(Access::to("t").writes(["c"])),
        nothing,
        nothing
    );
    let violation = Laws::<Missing>::over(layout())
        .check()
        .expect_err("no column");
    assert_eq!(
        violation.to_string(),
        "the manifest: up writes column \"c\", which table \"t\" does not have after the step"
    );
}

#[test]
fn dropped_columns_and_tables_are_restored() {
    migration!(
        Drops,
        Manifest::new(2, "test")
            .drop_column("t", "x")
            .rename_column("t", "b", "c")
            .rename_table("t", "u"),
        nothing,
        nothing
    );
    Laws::<Drops>::over(layout())
        .check()
        .expect("the host saves what is dropped");
    migration!(
        DropsAll,
        Manifest::new(2, "test").drop_table("t"),
        nothing,
        nothing
    );
    Laws::<DropsAll>::over(layout())
        .check()
        .expect("the host saves what is dropped");
    migration!(
        OneWay,
        Manifest::new(2, "test")
            .drop_column("t", "x")
            .irreversible(),
        nothing,
        nothing
    );
    Laws::<OneWay>::over(layout())
        .check()
        .expect("there is no round trip to check");
}

#[test]
fn residue_that_belongs_to_no_record_is_a_violation() {
    migration!(Leaves, edits_text().leaves_residue(), nothing, nothing);
    let violation = Laws::<Leaves>::over(layout())
        .check()
        .expect_err("any record would get the residue");
    assert_eq!(
        violation,
        Violation::Unbound {
            unbound: Unbound::Residue {
                direction: Direction::Up
            }
        }
    );
    Laws::<Leaves>::over(with_epoch(Column::varchar("modification_tag_epoch", 255)))
        .check()
        .expect("a bound residue");
    let sealed =
        Laws::<Leaves>::over(with_epoch(Column::text("modification_tag_epoch").sealed())).check();
    assert!(
        matches!(sealed, Err(Violation::Unbound { .. })),
        "{sealed:?}"
    );
    fn one_way() -> Manifest {
        Manifest::new(2, "test")
            .up(Access::to("t").reads(["x"]).writes(["x"]))
            .leaves_residue()
            .irreversible()
    }
    migration!(OneWay, one_way(), nothing, nothing);
    Laws::<OneWay>::over(layout())
        .check()
        .expect("there is no way back");
}

/// Goal: residue that only a second way back needs is missed. Method: `up` always leaves the text
/// that it was given, and `down` leaves its own only where it is given none.
#[test]
fn loss_in_the_second_round_trip_is_a_violation() {
    fn layout_of_one_row() -> Layout {
        let table = Table::new("t")
            .column(Column::varchar("k", 32))
            .column(Column::text("x"))
            .column(Column::varchar("modification_tag_epoch", 255));
        Layout::of([table.primary_key(["k"]).partition_key("k")])
    }
    fn lower(unit: &Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("t")? {
            let text = row.text("x")?;
            let lowered = match unit.residue() {
                Some(residue) => residue.to_vec(),
                None => text.to_lowercase().into_bytes(),
            };
            unit.set_residue(text.as_bytes().to_vec())?;
            row.set_bytes("x", &lowered)?;
        }
        Ok(())
    }
    fn restore(unit: &Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("t")? {
            match unit.residue() {
                Some(residue) => row.set_bytes("x", residue)?,
                None => unit.set_residue(row.bytes("x")?.to_vec())?,
            }
        }
        Ok(())
    }
    migration!(LosesLater, edits_text().leaves_residue(), lower, restore);
    let violation = Laws::<LosesLater>::over(layout_of_one_row())
        .check()
        .expect_err("a text of the newer version is lower case after two round trips");
    assert!(
        matches!(
            violation,
            Violation::SecondRoundTrip {
                direction: Direction::Up,
                ..
            }
        ),
        "{violation:?}"
    );
}

/// The host saves the column that `down` drops, and restores it after `up` has computed it.
#[test]
fn computed_column_is_restored_without_residue() {
    migration!(
        Computes,
        Manifest::new(2, "test")
            .add_column("t", Column::boolean("c").nullable())
            .up(Access::to("t").writes(["c"])),
        |unit| unit
            .rows("t")?
            .try_for_each(|row| row.set_boolean("c", true)),
        nothing
    );
    Laws::<Computes>::over(layout())
        .check()
        .expect("a change of the column comes back");
}

#[test]
fn host_saves_no_column_that_the_migration_computes_and_leaves_residue() {
    // `up` writes the column, so the host does not save it when `down` drops it: the migration has
    // to.
    fn manifest() -> Manifest {
        let column = Column::boolean("c").nullable();
        Manifest::new(2, "test")
            .add_column("t", column)
            .up(Access::to("t").writes(["c"]))
            .leaves_residue()
    }
    migration!(
        Forgets,
        manifest(),
        |unit| unit
            .rows("t")?
            .try_for_each(|row| row.set_boolean("c", true)),
        nothing
    );
    let laws = Laws::<Forgets>::over(with_epoch(Column::varchar("modification_tag_epoch", 255)));
    let violation = laws.check().expect_err("a loss on the way down");
    assert!(
        matches!(
            violation,
            Violation::RoundTrip {
                direction: Direction::Down,
                ..
            }
        ),
        "{violation:?}"
    );
}
