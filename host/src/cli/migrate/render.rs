//! Renders status and plan as text for an operator. Owns wording and columns.

use std::collections::BTreeSet;
use std::fmt::Write;

use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_work::joined;
use bbs_work::printable;
use bbs_work::progress::{LOCK, SERVING};

use super::super::output::push_line as line;
use super::super::progress::line as progress_line;
use crate::admin::Report;
use crate::config::Config;
use crate::keys::WrongKey;
use crate::migrate::{
    Checked, Decision, Found, LayoutChange, LayoutStep, PartialRun, Plan, PlannedMigration, Reason,
    RunOutcome, Status, Strategy, TableChange, Trouble,
};

/// The parts of a status beside the state of the database.
pub(super) struct Beside<'a> {
    pub(super) config: &'a Config,
    /// The host that runs with this configuration.
    pub(super) host: Option<&'a Report>,
    /// The process that holds the lock.
    pub(super) holder: Option<&'a str>,
    /// Why a start would be refused for its keys.
    pub(super) keys_refused: Option<&'a str>,
}

pub(super) fn status(status: &Status, database: &str, beside: &Beside<'_>) -> String {
    let mut out = String::new();
    line!(out, "Database   {database}");
    let version = found(status);
    line!(out, "Version    {version}");
    let pending = match status.pending.len() {
        0 => "all of them have run here".to_owned(),
        count => format!("{count} of them have not run here"),
    };
    line!(out, "Modules    newest is {}; {pending}", status.newest);
    pinned(&mut out, beside.config, &status.found);
    if let Some(phase) = status.underway.map(|phase| phase.name()) {
        let copied = status.copied.as_ref();
        let copied =
            copied.map(|run| format!(": {} of {} units are copied", run.migrated, run.total));
        let copied = copied.unwrap_or_default();
        line!(
            out,
            "Under way  a migration is in the phase {phase}{copied}"
        );
    }
    records(&mut out, status);
    let changed = status.history.iter();
    let changed = changed
        .filter(|applied| applied.same_module == Some(false))
        .count();
    if changed > 0 {
        line!(
            out,
            "History    {changed} modules differ from those that ran here; restore those files before you migrate"
        );
    }
    not_run(&mut out, status);
    line!(out, "\nNext       {}", next(status, beside));
    if let Some(refused) = &status.rollback_refused {
        line!(
            out,
            "Rollback   a drain could not roll back as `rollback_on_drain_to_version` says: {refused}"
        );
    }
    process(&mut out, beside);
    out
}

/// The pinned data version, with its release if the pin names one.
fn pinned(out: &mut String, config: &Config, found: &Found) {
    let Some(pin) = config.pin_data_version else {
        return;
    };
    let release = config.pin_release.as_ref();
    let release = release
        .map(|name| format!(", the release {name:?}"))
        .unwrap_or_default();
    let above = above(pin, found);
    line!(out, "Pin        {pin}{release}{above}");
}

/// The key of the records, and how many rows, residue entries and quarantined units there are.
fn records(out: &mut String, status: &Status) {
    let label = match &status.encryption_key_label {
        Some(label) => label,
        None if status.found == Found::Fresh => "none yet: nothing is sealed",
        None => "no label: records may be under several keys, the next start rotates them",
    };
    line!(out, "Key        {label}");
    let rows = status
        .rows
        .iter()
        .map(|table| format!("{} {}", table.rows, table.table));
    let rows = match rows.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "no tables yet".to_owned(),
        rows => rows,
    };
    line!(out, "Rows       {rows}");
    let Status {
        residue,
        quarantined,
        ..
    } = status;
    if *residue > 0 {
        line!(
            out,
            "Residue    {}, which a migration in the other direction restores",
            counted(*residue, "entry", "entries")
        );
    }
    if *quarantined > 0 {
        line!(
            out,
            "Quarantine {} that could not be migrated; `bbs migrate quarantine list` has the reasons",
            counted(*quarantined, "unit", "units")
        );
    }
}

/// The host that runs with this configuration, or else the holder of the lock.
fn process(out: &mut String, beside: &Beside<'_>) {
    if let Some(host) = beside.host {
        let progress = progress_line(&host.progress);
        line!(
            out,
            "Host       process {}: {progress}{}",
            host.pid,
            throttled(host)
        );
    } else if let Some(holder) = beside.holder {
        line!(out, "Lock       held by {holder}");
    }
}

/// The migrations that have not run here.
fn not_run(out: &mut String, status: &Status) {
    if !status.pending.is_empty() {
        line!(out, "\nMigrations that have not run here, oldest first:");
        migrations(out, &status.pending);
    }
    if !status.inserted.is_empty() {
        line!(
            out,
            "\nInserted   {} below others that ran: a migration to a version that is new here takes them in",
            joined(&status.inserted)
        );
    }
}

/// The note that a pin holds nothing back, if the database is below it.
fn above(pin: DataVersion, found: &Found) -> &'static str {
    match found {
        Found::Versioned { current, .. } if *current < pin => "; a start migrates up to it",
        _ => "",
    }
}

/// The pause and the rate that an operator has set for work that has not begun.
fn throttled(host: &Report) -> String {
    if !host.progress.is_over() {
        return String::new();
    }
    let paused = if host.throttle.paused {
        "; the next migration waits for `bbs migrate resume`"
    } else {
        ""
    };
    let rate = host.throttle.units_per_second;
    let rate = rate.map(|rate| format!("; at most {rate} units a second"));
    format!("{paused}{}", rate.unwrap_or_default())
}

/// Why a start would be refused for its keys: each wrong one, or else what it is refused for.
/// Printed after a plan.
pub(super) fn refused_keys(wrong: &[WrongKey], refused: Option<&str>) -> String {
    let reasons: Vec<_> = match refused {
        Some(refused) if wrong.is_empty() => vec![refused.to_owned()],
        _ => wrong.iter().map(ToString::to_string).collect(),
    };
    let lines = reasons.iter();
    lines
        .map(|reason| format!("Refused    before it begins: {reason}\n"))
        .collect()
}

fn found(status: &Status) -> String {
    let is_underway = status.underway.is_some();
    match &status.found {
        Found::Fresh => fresh(&status.other_tables),
        Found::Unversioned { tables } => {
            format!("none, although there are rows in {}", tables.join(", "))
        }
        Found::Versioned {
            current,
            going_down: Some(to),
            ..
        } => format!("{current}, on its way down to {to}"),
        Found::Versioned {
            current, target, ..
        } if current != target && !is_underway => {
            format!("{current}; a migration to {target} was begun and abandoned")
        }
        Found::Versioned {
            current, target, ..
        } if current != target => {
            format!("{current}; a migration to {target} was begun and is not finished")
        }
        Found::Versioned { current, .. } => current.to_string(),
    }
}

/// A database without a version and without rows of a BBS, which may be another program's.
fn fresh(other_tables: &[String]) -> String {
    match other_tables {
        [] => "none yet: the database is empty".to_owned(),
        [table] => format!(
            "none yet; the table {} of another program is left alone",
            printable::line(table)
        ),
        [first, ..] => format!(
            "none yet; {} tables of another program, such as {}, are left alone",
            other_tables.len(),
            printable::line(first)
        ),
    }
}

fn next(status: &Status, beside: &Beside<'_>) -> String {
    if let Some(host) = beside.host
        && !host.progress.is_over()
        && host.progress.phase != LOCK
        && !status.underway.is_some_and(|phase| phase.is_clean_up())
    {
        return at_work(host);
    }
    let refused = beside.keys_refused.or(status.refused.as_deref());
    if refused.is_none()
        && let Decision::ShutDown(Reason::GoingDown { to }) = status.decision
        && beside.config.migration.rollback_on_drain_to == Some(to)
    {
        return format!(
            "`bbs serve` completes the rollback to {to} and then ends; `bbs migrate abort` gives it up."
        );
    }
    if let Some(refused) = refused {
        return format!("`bbs serve` refuses: {refused}");
    }
    if let Decision::Begin { to, .. } = status.decision
        && let Some(host) = beside.host
        && host.progress.phase == SERVING
        && let Some(pin) = host.pin_data_version
    {
        return format!(
            "nothing: the host serves with the pin {pin}. `bbs migrate plan` shows what going to {to} does; a start without a pin does it."
        );
    }
    match &status.decision {
        Decision::Serve if status.underway.is_some_and(|phase| phase.is_clean_up()) => {
            "the migration is complete, but the tables that it replaced are not removed yet. A host that serves removes them; if it logs \
             `clean-up-waits`, end the sessions that lock the tables, or drop the objects that depend on them."
                .into()
        }
        Decision::Serve
            if beside
                .host
                .is_some_and(|host| host.progress.phase == SERVING) =>
        {
            "nothing: the host serves, and there is nothing to migrate.".into()
        }
        Decision::Serve if beside.holder.is_some() => {
            "there is nothing to migrate; another host waits for the lock until its holder ends."
                .into()
        }
        decision => started(decision),
    }
}

/// The next step while the host, or a command that migrates, has work to do.
fn at_work(host: &Report) -> String {
    let pid = host.pid;
    if host.throttle.paused {
        format!("`bbs migrate resume` continues the work of process {pid}, which is paused.")
    } else {
        format!("nothing: process {pid} is at work; `bbs migrate watch` shows its progress.")
    }
}

/// The effect of a start with this decision.
fn started(decision: &Decision) -> String {
    match decision {
        Decision::Serve => "`bbs serve` serves at once; there is nothing to migrate.".into(),
        Decision::Stay { at } => format!(
            "`bbs serve` serves {at} through a lens: a rollback left the database there, and \
             `rollback_on_drain_to_version` keeps it there."
        ),
        Decision::Begin { to, .. } => {
            format!(
                "`bbs migrate plan` shows what going to {to} does; `bbs serve` does it and then serves."
            )
        }
        Decision::Continue { to, .. } => {
            format!("`bbs serve` finishes the migration to {to} and then serves.")
        }
        Decision::ShutDown(reason) => format!("`bbs serve` refuses: {reason}"),
    }
}

fn migrations(out: &mut String, migrations: &[PlannedMigration]) {
    let width = longest(migrations.iter().map(|migration| &migration.name));
    // Both only where some are inserted.
    let directions: BTreeSet<_> = migrations
        .iter()
        .map(|migration| migration.direction)
        .collect();
    for migration in migrations {
        let PlannedMigration {
            version,
            direction,
            name,
            summary,
            transforms_rows,
            ..
        } = migration;
        let kind = if *transforms_rows { "rows" } else { "layout" };
        let direction = if directions.len() > 1 {
            format!("{direction:4}  ")
        } else {
            String::new()
        };
        line!(
            out,
            "  {direction}{version}  {name:width$}  {kind:6}  {summary}"
        );
    }
}

/// A number with the form of its noun.
fn counted(count: u64, one: &str, more: &str) -> String {
    let noun = if count == 1 { one } else { more };
    format!("{count} {noun}")
}

fn longest<'a>(names: impl Iterator<Item = &'a String>) -> usize {
    names.map(String::len).max().unwrap_or(0)
}

/// The migrations that are inserted, and those that run down and up again for them.
fn inserted(out: &mut String, plan: &Plan) {
    let named = |is_of: &dyn Fn(&PlannedMigration) -> bool| {
        let of = plan.migrations.iter().filter(|migration| is_of(migration));
        of.map(|migration| format!("{}-{}", migration.version, migration.name))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let inserted = named(&|migration| plan.inserted.contains(&migration.version));
    let above = named(&|migration| migration.direction == Direction::Down);
    line!(
        out,
        "\nInserted   {inserted}, below {above}, which ran before it: records are taken down and up again in memory."
    );
}

/// Empty if the version of the database refuses the migration: the refusal alone is printed.
pub(super) fn plan(plan: &Plan) -> String {
    let mut out = String::new();
    if plan.is_refused_by_version {
        return out;
    }
    let Plan {
        from,
        to,
        direction,
        ..
    } = plan;
    if plan.migrations.is_empty() {
        line!(out, "Nothing to do: the database is at {to}.");
        return out;
    }
    line!(
        out,
        "From {from} {direction} to {to}: {}, applied in memory, rows written once.",
        counted(plan.migrations.len() as u64, "migration", "migrations")
    );
    line!(out, "\nMigrations, in order:");
    migrations(&mut out, &plan.migrations);
    if !plan.inserted.is_empty() {
        inserted(&mut out, plan);
    }
    line!(out, "\nTables:");
    let width = longest(plan.tables.iter().map(|table| &table.table));
    for change in &plan.tables {
        let happens = if *from == 0 {
            "created".to_owned()
        } else {
            table(change)
        };
        line!(out, "  {:width$}  {happens}", change.table);
    }
    line!(out, "");
    copying(&mut out, plan);
    let is_final = |migration: &&PlannedMigration| !migration.reversible;
    let back = match plan.migrations.iter().find(is_final) {
        _ if *from == 0 => "no: there is no version to go back to".to_owned(),
        Some(PlannedMigration { version, name, .. }) => {
            format!("no: {version}-{name} is not reversible")
        }
        None => {
            let way = direction.opposite();
            format!("yes, with `bbs migrate {way} --to {from}`")
        }
    };
    line!(out, "Reversible {back}");
    out
}

/// The effect of a start with this configuration, if it is not this migration. Printed after a plan.
pub(super) fn other_start(plan: &Plan, start: &Decision) -> String {
    let is_this_migration = matches!(
        start,
        Decision::Begin { to, .. } | Decision::Continue { to, .. } if *to == plan.to
    );
    if is_this_migration || plan.is_refused_by_version || plan.migrations.is_empty() {
        String::new()
    } else {
        format!("Start      {}\n", started(start))
    }
}

/// How much is copied, and how long that may take.
fn copying(out: &mut String, plan: &Plan) {
    if plan.bytes_to_copy > 0 {
        let time = match plan.estimated_seconds {
            0 | 1 => "about a second".to_owned(),
            seconds => format!("about {seconds} s"),
        };
        line!(
            out,
            "To copy    {}, {time}; the originals stay untouched until the copy is verified.",
            bytes(plan.bytes_to_copy)
        );
    } else {
        let any = |is_long: fn(&TableChange) -> bool| plan.tables.iter().any(is_long);
        let how = if any(|table| table.rewritten_by_server) {
            "the server rewrites tables itself, and writes of them wait for it"
        } else if any(|table| table.rows > 0 && !table.awaited_indexes.is_empty()) {
            "every change is made in place, and calls wait while indexes are built"
        } else {
            "every change is made in place, in moments"
        };
        line!(out, "To copy    nothing: {how}.");
    }
}

pub(super) fn layout_sql(changes: &[LayoutChange]) -> String {
    let mut out = String::new();
    let mut last = None;
    for LayoutChange {
        step,
        table,
        statements,
    } in changes
    {
        if last.replace(*step) != Some(*step) {
            let gap = if out.is_empty() { "" } else { "\n" };
            line!(out, "{gap}-- {}", heading(*step));
        }
        let table = table.as_deref().unwrap_or("all copied tables");
        line!(out, "-- {table}");
        for statement in statements {
            // A module chooses the defaults of columns.
            line!(out, "{};", printable::lines(statement));
        }
    }
    if changes.is_empty() {
        line!(out, "-- The layout does not change.");
    }
    out
}

fn heading(step: LayoutStep) -> &'static str {
    match step {
        LayoutStep::Prepare => {
            "PREPARE: create the copies. Their rows follow, transformed by the modules."
        }
        LayoutStep::Index => "INDEX: index the copies.",
        LayoutStep::ChangeAhead => {
            "CHANGE AHEAD: change tables in place, each statement by itself."
        }
        LayoutStep::CutOver => "CUT OVER: give the copies their names.",
        LayoutStep::CleanUp => "CLEAN UP: remove the replaced tables.",
    }
}

fn table(change: &TableChange) -> String {
    let TableChange {
        rows,
        opened,
        computed,
        ..
    } = change;
    let mut words = match change.strategy {
        Some(Strategy::Untouched) => return format!("stays as it is ({rows} rows)"),
        Some(Strategy::InPlace) if change.rewritten_by_server => {
            return format!("changed in place ({rows} rows, which the server rewrites)");
        }
        Some(Strategy::InPlace) => {
            let indexes = change.awaited_indexes.join(", ");
            let waits = if indexes.is_empty() {
                String::new()
            } else {
                format!("; calls wait while {indexes} is built over them")
            };
            return format!("changed in place ({rows} rows, none rewritten{waits})");
        }
        Some(Strategy::Create) => return "created".to_owned(),
        None => return format!("dropped ({rows} rows, saved sealed for the migration back)"),
        Some(Strategy::Copy) if *rows == 0 => return "recreated (it has no rows)".to_owned(),
        Some(Strategy::Copy) => format!("copied ({rows} rows, {})", bytes(change.bytes)),
    };
    if !computed.is_empty() {
        let _ = write!(words, "; rewritten: {}", computed.join(", "));
    }
    if !opened.is_empty() {
        let _ = write!(words, "; decrypted: {}", opened.join(", "));
    }
    words
}

pub(super) fn progressed(progressed: &RunOutcome, before: &Found, waiting: usize) -> String {
    let mut out = String::new();
    match progressed {
        RunOutcome::Done(Decision::Serve | Decision::Stay { .. }) => {
            out += "Nothing to migrate: the database is already at that version.\n";
            if let Found::Versioned {
                current, target, ..
            } = before
                && target > current
            {
                line!(
                    out,
                    "The unfinished migration to {target} was abandoned; its copies are removed."
                );
            }
        }
        RunOutcome::Done(Decision::Begin { from, to }) => {
            line!(out, "Migrated from {from} to {to}.")
        }
        RunOutcome::Done(Decision::Continue { from, to }) => {
            line!(
                out,
                "Finished the migration from {from} to {to}, which an earlier run had begun."
            );
        }
        RunOutcome::Done(Decision::ShutDown(reason)) => line!(out, "Nothing was done: {reason}"),
        RunOutcome::Partial(PartialRun {
            from,
            to,
            total,
            migrated,
        }) => {
            line!(
                out,
                "Migrated {migrated} of {total} units from {from} to {to} so far; {} remain.",
                total - migrated
            );
            line!(
                out,
                "The database stays at {from} until all are migrated. Run the same command to continue."
            );
        }
    }
    if waiting > 0 {
        line!(
            out,
            "{} in quarantine: `bbs migrate quarantine list` has the reasons.",
            counted(waiting as u64, "unit is", "units are")
        );
    }
    out
}

pub(super) fn check(checked: &Checked) -> String {
    let mut out = String::new();
    let Checked { units, to, .. } = checked;
    line!(
        out,
        "\nChecked    {units} units to {to} and back, in memory; nothing was written."
    );
    if !checked.unreadable.is_empty() {
        out += "  Records that cannot be decrypted; a migration that reads them stops there:\n";
        troubles(&mut out, &checked.unreadable);
    }
    let width = longest(checked.migrations.iter().map(|migration| &migration.name));
    for migration in &checked.migrations {
        let verdict = match (migration.units, migration.lost) {
            (0, _) => "changes no row".to_owned(),
            (units, 0) if migration.reversible => format!("all {units} units round-trip"),
            (units, 0) => format!("all {units} units migrate; it is not reversible"),
            (units, lost) => format!("{lost} of {units} units do not round-trip"),
        };
        let removed = match migration.removed_rows {
            0 => String::new(),
            rows => format!("; it removes {rows} rows"),
        };
        line!(
            out,
            "  {}  {:width$}  {verdict}{removed}",
            migration.version,
            migration.name
        );
        troubles(&mut out, &migration.troubles);
    }
    if !checked.unopened.is_empty() {
        let tables = checked
            .unopened
            .iter()
            .map(|(table, columns)| format!("{} of {table}", columns.join(", ")));
        line!(
            out,
            "Not opened {}: no migration reads these columns. `bbs keys status` opens a sample.",
            tables.collect::<Vec<_>>().join("; ")
        );
    }
    out
}

fn troubles(out: &mut String, troubles: &[Trouble]) {
    for Trouble {
        reason,
        units,
        examples,
    } in troubles
    {
        line!(out, "    {reason}");
        for example in examples {
            let detail = example.detail.as_ref().map(|detail| format!(": {detail}"));
            let detail = detail.unwrap_or_default();
            line!(out, "      {:?}{detail}", example.unit);
        }
        let named = examples.len() as u64;
        if *units > named {
            line!(out, "      and {} more", units - named);
        }
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..1_024 => format!("{count} B"),
        1_024..1_048_576 => format!("{} KiB", count / 1_024),
        1_048_576..1_073_741_824 => format!("{} MiB", count >> 20),
        _ => format!("{:.1} GiB", count as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests;
