//! `bbs migrate history`: the migrations of a database, with their times, their ends and the hosts
//! that ran them.

use super::super::output::{push_line as line, time};
use super::super::progress::span;
use super::{ShownArgs, existing};
use crate::migrate::{self, MigrationRan, MigrationRun};

pub(super) async fn history(ShownArgs { config, form }: ShownArgs) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let context = prepared.context();
    let runs = migrate::runs(&prepared.database).await?;
    let migrations = migrate::migrations_ran(&context).await?;
    form.print(
        &serde_json::json!({ "runs": runs, "migrations": migrations }),
        || text(&runs, &migrations),
    )
}

fn text(runs: &[MigrationRun], migrations: &[MigrationRan]) -> String {
    let mut out = String::new();
    if runs.is_empty() && migrations.is_empty() {
        return "No host of this project has migrated this database.\n".to_owned();
    }
    for run in runs {
        let MigrationRun {
            from,
            to,
            direction,
            began_at_ns,
            ended_at_ns,
            ..
        } = run;
        let took = ended_at_ns.map(|ended| (ended - began_at_ns) as f64 / 1e9);
        let took = took.map(|seconds| format!(" after {}", span(seconds)));
        line!(
            out,
            "{}  {direction} from {from} to {to}: {}{}, by {} (release {})",
            time(*began_at_ns),
            run.state.name(),
            took.unwrap_or_default(),
            run.host.escape_debug(),
            run.release.escape_debug(),
        );
    }
    if migrations.is_empty() {
        return out;
    }
    line!(out, "\nMigrations that ran, oldest first:");
    let width = migrations
        .iter()
        .map(|ran| ran.name.len())
        .max()
        .unwrap_or(0);
    for MigrationRan {
        version,
        direction,
        name,
        digest,
        at_ns,
    } in migrations
    {
        line!(
            out,
            "{}  {direction:4}  {version}  {name:width$}  sha256 {}",
            time(*at_ns),
            short(digest)
        );
    }
    out
}

/// Enough of a digest to distinguish modules.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use bbs_lens::layout::manifest::Direction;

    use super::*;
    use crate::migrate::RunState;

    #[test]
    fn history_of_an_unfinished_first_migration_has_no_list_of_migrations() {
        let run = MigrationRun {
            number: 1,
            from: 0,
            to: 5,
            direction: Direction::Up,
            state: RunState::Unfinished,
            began_at_ns: 0,
            ended_at_ns: None,
            host: "z1".to_owned(),
            release: "0.1".to_owned(),
        };
        let text = text(&[run], &[]);
        assert!(
            text.ends_with("  up from 0 to 5: unfinished, by z1 (release 0.1)\n"),
            "{text}"
        );
    }
}
