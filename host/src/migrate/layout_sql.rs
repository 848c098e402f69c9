//! The layout changes of a migration as SQL, for an operator who reviews them: in the order in
//! which a host runs them on this database, or would run them on one of another kind. Reads only.

use bbs_database::schema::{self, PhysicalTable, TableOptions};
use bbs_database::{Dialect, ServerKind, SqlError, StatementResult, Transaction};
use bbs_lens::Lens;
use bbs_lens::layout::manifest::DataVersion;
use serde::Serialize;

use super::look::check_ends;
use super::plan::{self, Strategy, TablePlan, replaced, side_table};
use super::state::{self, found};
use super::{Context, HistoryPair, MigrateError, Work, statements};

/// The steps of a migration that change the layout, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayoutStep {
    /// Creates the tables that rows are copied into. The rows follow, which no statement here
    /// shows: modules transform them.
    Prepare,
    /// Indexes the copies.
    Index,
    /// Where each change of the schema commits by itself: changes in place, which do not disturb
    /// older hosts.
    ChangeAhead,
    /// Gives the copies the names of the tables that they replace, in one transaction or statement.
    CutOver,
    /// Removes the replaced tables.
    CleanUp,
}

/// The statements of a step for one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayoutChange {
    /// The step that they are part of.
    pub step: LayoutStep,
    /// The table, as the layout names it; absent for a statement for all of them.
    pub table: Option<String>,
    /// In the order in which they run.
    pub statements: Vec<String>,
}

impl LayoutChange {
    fn of(step: LayoutStep, table: &str, statements: Vec<String>) -> Self {
        Self {
            step,
            table: Some(table.to_owned()),
            statements,
        }
    }
}

/// Where the statements would run.
enum Target<'a> {
    /// This database, whose tables have options, comments and objects of their own.
    Here(&'a mut Transaction, ServerKind),
    /// A database of another kind with the same layout, and nothing else.
    Elsewhere(Dialect),
}

impl Target<'_> {
    fn server(&self) -> ServerKind {
        match self {
            Self::Here(_, server) => *server,
            Self::Elsewhere(dialect) => ServerKind::of(*dialect),
        }
    }

    fn dialect(&self) -> Dialect {
        self.server().dialect
    }

    async fn options(
        &mut self,
        lens: &Lens,
        plan: &TablePlan,
        staged: &str,
    ) -> Result<TableOptions, SqlError> {
        match self {
            Self::Elsewhere(dialect) => Ok(TableOptions::new(*dialect)),
            Self::Here(tx, _) => plan.options(tx, lens, staged).await,
        }
    }

    async fn found(
        &mut self,
        lens: &Lens,
        name: &str,
    ) -> Result<Option<PhysicalTable>, MigrateError> {
        match self {
            Self::Here(tx, _) => Ok(schema::read_back(tx, name).await?),
            Self::Elsewhere(dialect) => Ok(lens
                .source
                .tables
                .get(name)
                .map(|table| schema::expected(*dialect, table))),
        }
    }

    async fn belongings(
        &mut self,
        lens: &Lens,
        plan: &TablePlan,
        to: DataVersion,
    ) -> Result<Vec<String>, SqlError> {
        match (self, plan.replacement(lens, to)) {
            (Self::Here(tx, _), Some(replacement)) => schema::belongings(tx, &[replacement]).await,
            _ => Ok(Vec::new()),
        }
    }
}

/// The statements of the layout changes of a migration to a version, for a database of this
/// dialect; for the configured one by default.
///
/// # Errors
/// The migrations do not lead from the database's version to the other one, or the database fails.
pub async fn layout_sql(
    context: &Context,
    to: DataVersion,
    dialect: Option<Dialect>,
) -> Result<Vec<LayoutChange>, MigrateError> {
    let mut tx = context.database.read().await?;
    let from = state::current_of(&found::read(&mut tx).await?);
    let histories = HistoryPair::here(context, &mut tx).await?;
    check_ends(context, &histories, from, to)?;
    let way = histories.way(from, to);
    let lens = Work::planned(context, &mut tx, way).await?.lens;
    let here = tx.dialect();
    let mut target = match dialect.filter(|dialect| *dialect != here) {
        Some(dialect) => Target::Elsewhere(dialect),
        None => Target::Here(&mut tx, context.database.server_kind()),
    };
    let plans = plan::tables(&lens, way, &context.migrations, target.server());
    let mut changes = copies(&mut target, &lens, &plans, to).await?;
    changes.extend(cut_over(&mut target, &lens, &plans, from, to).await?);
    changes.extend(replaced(&lens, &plans).into_iter().map(|name| {
        let drop = schema::drop_table(target.dialect(), &side_table(&name, from));
        LayoutChange::of(LayoutStep::CleanUp, &name, vec![drop])
    }));
    changes.retain(|change| !change.statements.is_empty());
    Ok(changes)
}

async fn copies(
    target: &mut Target<'_>,
    lens: &Lens,
    plans: &[TablePlan],
    to: DataVersion,
) -> Result<Vec<LayoutChange>, MigrateError> {
    let dialect = target.dialect();
    let mut created = Vec::new();
    let mut indexed = Vec::new();
    for plan in plans.iter().filter(|plan| plan.is_copied()) {
        let name = &plan.table.name;
        let staged = plan.staged(to);
        let options = target.options(lens, plan, &staged).await.about(name)?;
        let copy = statements::copy(dialect, plan, &staged, &options, &[]);
        created.push(LayoutChange::of(LayoutStep::Prepare, name, copy));
        let indexes = schema::index_ahead(dialect, &plan.table, &staged, &plan.table.indexes);
        indexed.push(LayoutChange::of(LayoutStep::Index, name, indexes));
    }
    created.extend(indexed);
    Ok(created)
}

async fn cut_over(
    target: &mut Target<'_>,
    lens: &Lens,
    plans: &[TablePlan],
    from: DataVersion,
    to: DataVersion,
) -> Result<Vec<LayoutChange>, MigrateError> {
    let dialect = target.dialect();
    let is_at_once = dialect != Dialect::Mysql;
    let step = if is_at_once {
        LayoutStep::CutOver
    } else {
        LayoutStep::ChangeAhead
    };
    let mut changes = Vec::new();
    let mut belongings = Vec::new();
    if is_at_once {
        changes.extend(replaced(lens, plans).into_iter().map(|name| {
            let aside = side_table(&name, from);
            let statements = schema::set_aside(dialect, &lens.source.tables[&name], &aside);
            LayoutChange::of(step, &name, statements)
        }));
        changes.extend(index_drops(target, lens, plans).await?);
    }
    for plan in plans {
        let name = &plan.table.name;
        let staged = plan.staged(to);
        let statements = match plan.strategy {
            Strategy::Untouched => continue,
            Strategy::InPlace => {
                let found = target.found(lens, name).await?;
                let changed = if is_at_once {
                    statements::additions
                } else {
                    statements::in_place
                };
                found
                    .map(|found| changed(target.server(), lens, plan, &found))
                    .unwrap_or_default()
            }
            Strategy::Create => {
                let options = target.options(lens, plan, name).await.about(name)?;
                statements::table_and_indexes(dialect, plan, &options)
            }
            Strategy::Copy => {
                let statements = target.belongings(lens, plan, to).await.about(name)?;
                belongings.push(LayoutChange::of(LayoutStep::CutOver, name, statements));
                if is_at_once {
                    schema::take_place(dialect, &plan.table, &staged)
                } else {
                    continue;
                }
            }
        };
        changes.push(LayoutChange::of(step, name, statements));
    }
    if !is_at_once {
        changes.push(renames_at_once(lens, plans, from, to));
    }
    changes.extend(belongings);
    Ok(changes)
}

/// The drops of indexes of tables that are changed in place. Where the cut-over is one transaction,
/// they come before all that is created.
async fn index_drops(
    target: &mut Target<'_>,
    lens: &Lens,
    plans: &[TablePlan],
) -> Result<Vec<LayoutChange>, MigrateError> {
    let mut changes = Vec::new();
    for plan in plans {
        let name = &plan.table.name;
        if plan.strategy == Strategy::InPlace
            && let Some(found) = target.found(lens, name).await?
        {
            let drops = statements::index_drops(target.dialect(), lens, plan, &found);
            changes.push(LayoutChange::of(LayoutStep::CutOver, name, drops));
        }
    }
    Ok(changes)
}

/// The one statement of MySQL and MariaDB that gives the copies their names, and the originals
/// theirs.
fn renames_at_once(
    lens: &Lens,
    plans: &[TablePlan],
    from: DataVersion,
    to: DataVersion,
) -> LayoutChange {
    let is_there = |name: &str| {
        let mut copies = plans.iter().filter(|plan| plan.is_copied());
        copies.any(|plan| plan.staged(to) == name) || lens.source.tables.contains_key(name)
    };
    let pairs = statements::renames(&lens.source, &lens.target, from, to, is_there);
    let statements = if pairs.is_empty() {
        Vec::new()
    } else {
        vec![schema::rename_tables(&pairs)]
    };
    LayoutChange {
        step: LayoutStep::CutOver,
        table: None,
        statements,
    }
}
