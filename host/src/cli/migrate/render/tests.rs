//! The texts of a status and of a plan.

use super::*;

#[test]
fn sizes_have_a_unit_of_their_magnitude() {
    assert_eq!(
        [0, 1_023, 1_024, 5 << 20, 3 << 29].map(bytes),
        ["0 B", "1023 B", "1 KiB", "5 MiB", "1.5 GiB"]
    );
}

#[test]
fn plan_names_what_is_inserted_and_what_ran_above_it() {
    let migration = |version, direction| PlannedMigration {
        version,
        direction,
        name: format!("m{version}"),
        summary: "It changes.".into(),
        digest: "d".into(),
        reversible: true,
        transforms_rows: false,
        leaves_residue: false,
        removes_rows: false,
    };
    let up = Direction::Up;
    let down = Direction::Down;
    let text = plan(&Plan {
        from: 5,
        to: 9,
        direction: up,
        migrations: [(5, down), (3, up), (5, up), (9, up)]
            .map(|(version, way)| migration(version, way))
            .into(),
        inserted: vec![3],
        tables: Vec::new(),
        reversible: true,
        refused: None,
        is_refused_by_version: false,
        bytes_to_copy: 0,
        estimated_seconds: 0,
    });
    for part in [
        "  down  5  m5  layout  It changes.",
        "  up    3  m3  layout  It changes.",
        "Inserted   3-m3, below 5-m5, which ran before it: records are taken down and up again in memory.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn split() -> PlannedMigration {
    PlannedMigration {
        version: 2,
        direction: Direction::Up,
        name: "split".into(),
        summary: "Splits.".into(),
        digest: "d".into(),
        reversible: true,
        transforms_rows: true,
        leaves_residue: false,
        removes_rows: false,
    }
}

fn of_one_table(table: TableChange, estimated_seconds: u64) -> Plan {
    Plan {
        from: 1,
        to: 2,
        direction: Direction::Up,
        migrations: vec![split()],
        inserted: Vec::new(),
        bytes_to_copy: table.bytes,
        tables: vec![table],
        reversible: true,
        refused: None,
        is_refused_by_version: false,
        estimated_seconds,
    }
}

#[test]
fn plan_names_tables_decrypted_columns_and_reversibility() {
    let copied = TableChange {
        table: "desired_lrps".into(),
        strategy: Some(Strategy::Copy),
        rows: 300,
        bytes: 1 << 20,
        opened: vec!["run_info".into()],
        computed: vec!["metric_tags".into()],
        rewritten_by_server: false,
        awaited_indexes: Vec::new(),
    };
    let text = plan(&of_one_table(copied, 1));
    for part in [
        "From 1 up to 2: 1 migration, applied",
        "  2  split  rows    Splits.",
        "desired_lrps  copied (300 rows, 1 MiB); rewritten: metric_tags; decrypted: run_info",
        "To copy    1 MiB, about a second",
        "Reversible yes, with `bbs migrate down --to 1`",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

#[test]
fn plan_names_the_migration_that_is_not_reversible_and_a_database_without_a_version() {
    let table = TableChange {
        table: "desired_lrps".into(),
        strategy: Some(Strategy::Copy),
        rows: 0,
        bytes: 0,
        opened: Vec::new(),
        computed: Vec::new(),
        rewritten_by_server: false,
        awaited_indexes: Vec::new(),
    };
    let one_way = PlannedMigration {
        reversible: false,
        ..split()
    };
    for (from, of_table, back) in [
        (
            1,
            "recreated (it has no rows)",
            "no: 2-split is not reversible",
        ),
        (0, "created\n", "no: there is no version to go back to"),
    ] {
        let text = plan(&Plan {
            from,
            migrations: vec![one_way.clone()],
            reversible: false,
            ..of_one_table(table.clone(), 0)
        });
        for part in [
            format!("desired_lrps  {of_table}"),
            format!("Reversible {back}\n"),
        ] {
            assert!(text.contains(&part), "{part:?} is not in:\n{text}");
        }
    }
}

#[test]
fn plan_is_empty_if_the_version_of_the_database_refuses_it() {
    let refused = Plan {
        is_refused_by_version: true,
        ..of_one_table(TableChange::default(), 0)
    };
    assert_eq!(plan(&refused), "");
}

#[test]
fn plan_names_the_effect_of_a_start_that_does_not_make_its_migration() {
    let planned = of_one_table(TableChange::default(), 0);
    let begins = |to| Decision::Begin { from: 1, to };
    assert_eq!(other_start(&planned, &begins(2)), "");
    let above = Decision::ShutDown(Reason::Above {
        current: 2,
        wanted: 1,
    });
    for (start, text) in [
        (begins(3), "`bbs migrate plan` shows what going to 3 does"),
        (
            Decision::Stay { at: 1 },
            "`bbs serve` serves 1 through a lens",
        ),
        (above, "`bbs serve` refuses: the database is at 2, above 1"),
    ] {
        let line = other_start(&planned, &start);
        assert!(line.starts_with(&format!("Start      {text}")), "{line}");
    }
}

#[test]
fn plan_says_which_changes_in_place_take_time() {
    for (rewritten_by_server, index, of_table, of_plan) in [
        (
            true,
            None,
            "desired_lrps  changed in place (300 rows, which the server rewrites)",
            "To copy    nothing: the server rewrites tables itself, and writes of them wait for it.",
        ),
        (
            false,
            Some("x_idx"),
            "desired_lrps  changed in place (300 rows, none rewritten; calls wait while x_idx is built over them)",
            "To copy    nothing: every change is made in place, and calls wait while indexes are built.",
        ),
        (
            false,
            None,
            "desired_lrps  changed in place (300 rows, none rewritten)",
            "To copy    nothing: every change is made in place, in moments.",
        ),
    ] {
        let table = TableChange {
            table: "desired_lrps".into(),
            strategy: Some(Strategy::InPlace),
            rows: 300,
            bytes: 0,
            opened: Vec::new(),
            computed: Vec::new(),
            rewritten_by_server,
            awaited_indexes: index.into_iter().map(str::to_owned).collect(),
        };
        let text = plan(&of_one_table(table, 0));
        for part in [of_table, of_plan] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
    }
}

#[test]
fn sql_of_a_layout_controls_no_terminal() {
    let change = LayoutChange {
        step: LayoutStep::Prepare,
        table: Some("apps".to_owned()),
        statements: vec!["ALTER TABLE apps\nADD x text DEFAULT '\u{1b}[2J'".to_owned()],
    };
    let sql = layout_sql(&[change]);
    let statement = r"ADD x text DEFAULT '\u{1b}[2J';";
    assert!(sql.lines().any(|line| line == statement), "{sql:?}");
}
