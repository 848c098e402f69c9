//! `bbs migrate`: inspects and migrates a database between deployments. Owns arguments; `render`
//! owns the text.

mod history;
mod quarantine;
mod render;
mod steer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bbs_database::{Address, Database, Dialect};
use bbs_lens::layout::manifest::DataVersion;
use bbs_work::progress::Progress;
use clap::{Args, Subcommand, ValueEnum};

use super::confirm::Confirmation;
use super::exit::Exit;
use super::interrupt::until_interrupted;
use super::output::OutputForm;
use super::{output, progress, whole_number};
use crate::config::{Config, LogLevel, OnUnreadable};
use crate::lock::fence::Fence;
use crate::lock::{self, HeldLock};
use crate::logs::Logs;
use crate::migrate::{self, Context, Decision, Found, GivenUp, Intent, Reason, RunOutcome};
use crate::startup::{Prepared, StartupError, VersionName};
pub(super) use quarantine::corrected;
pub(super) use steer::{SteerArgs, running_host, stopped};

/// Show the state of a database, plan a migration, and run it.
///
/// `status`, `history` and `plan` only read and may run beside a serving host. `up` and `down` take
/// the master lock and refuse to start while another host has it. Both may be killed at any time:
/// the same command finishes the job. `abort` gives an unfinished migration up. `watch`, `pause`,
/// `resume` and `rate` reach a host that is running on this machine.
#[derive(Debug, Args)]
pub struct MigrateCommand {
    #[command(subcommand)]
    action: MigrateAction,
}

#[derive(Debug, Subcommand)]
enum MigrateAction {
    /// Show the state of the database: version, pending migrations, rows, key, a migration in
    /// progress.
    Status(ShownArgs),
    /// Show the migrations that this database has been through: when, how long, by which host and
    /// release.
    History(ShownArgs),
    /// Show what a migration would do to each table, how long it may take and whether it is
    /// reversible.
    Plan(PlanArgs),
    /// Migrate up, without serving. `bbs serve` does the same before it serves.
    Up(UpArgs),
    /// Take the database back to an older version, for an older host. No data is lost: what an
    /// older layout cannot hold is saved, sealed, as residue, and restored by the next migration
    /// up.
    Down(DownArgs),
    /// Give up a migration that has begun, in either direction, before its cut-over: the database
    /// stays at its version. The copies are removed, and so are columns, indexes and empty tables
    /// that were added ahead; a column type that became wider stays.
    Abort(ShownArgs),
    /// List, repair and retry units that could not be migrated and are in quarantine.
    Quarantine(quarantine::QuarantineCommand),
    /// Show the progress of a running host until it serves and its migration is complete.
    Watch(steer::SteerArgs),
    /// Pause a running host's migration after the batch in progress.
    Pause(steer::SteerArgs),
    /// Resume a running host's migration.
    Resume(steer::SteerArgs),
    /// Set the highest rate of a running host's migration.
    Rate(steer::RateArgs),
}

/// The host whose database a command works on, and the form of the command's result.
#[derive(Debug, Args)]
pub(super) struct ShownArgs {
    /// The JSON configuration file of the host.
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
    #[command(flatten)]
    pub(super) form: OutputForm,
}

#[derive(Debug, Args)]
struct PlanArgs {
    #[command(flatten)]
    shown: ShownArgs,
    /// The version to go to, up or down: a number, or the name of a release [default: the newest,
    /// or the pin of the configuration]
    #[arg(long, value_name = "VERSION")]
    to: Option<VersionName>,
    /// Migrate every unit there and back in memory, count those that fail or do not come back
    /// unchanged by their reasons, and name up to three for each. Reads all rows, writes nothing,
    /// and may run beside a serving host. The exit code is 1 if there are any.
    #[arg(long)]
    check: bool,
    /// Show the SQL of the layout changes instead, in the order in which a host runs it, for the
    /// configured database or for one of another kind. Rows are transformed by the modules, which
    /// no SQL shows.
    #[arg(long, value_name = "DATABASE", num_args = 0..=1, conflicts_with = "check")]
    sql: Option<Option<SqlDialect>>,
}

impl PlanArgs {
    /// The plan of a run that writes nothing.
    fn dry_run(shown: ShownArgs, to: Option<VersionName>) -> Self {
        Self {
            shown,
            to,
            check: true,
            sql: None,
        }
    }
}

/// A kind of database, as `database_driver` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SqlDialect {
    Sqlite,
    Postgres,
    /// Also MariaDB.
    Mysql,
}

impl From<SqlDialect> for Dialect {
    fn from(dialect: SqlDialect) -> Self {
        match dialect {
            SqlDialect::Sqlite => Self::Sqlite,
            SqlDialect::Postgres => Self::Postgres,
            SqlDialect::Mysql => Self::Mysql,
        }
    }
}

#[derive(Debug, Args)]
struct UpArgs {
    #[command(flatten)]
    shown: ShownArgs,
    /// The version to go to: a number, or the name of a release [default: the newest, or the pin of
    /// the configuration]
    #[arg(long, value_name = "VERSION")]
    to: Option<VersionName>,
    #[command(flatten)]
    terms: RunArgs,
}

/// Arguments of both directions.
#[derive(Debug, Args)]
struct RunArgs {
    /// Migrate at most this many units, then stop; a unit is everything of one process guid, or one
    /// task. The exit code is 0 once all are migrated and 3 while units remain. The same command
    /// continues, and so does `bbs serve`. 0 means all of them.
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>)]
    max_count: Option<u64>,
    /// Handling of a unit that cannot be migrated [default: `on_unreadable` of the configuration,
    /// or stop]
    #[arg(long, value_name = "WHAT")]
    on_unreadable: Option<OnUnreadable>,
    /// Show what it would do, as `bbs migrate plan --check` does, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
struct DownArgs {
    #[command(flatten)]
    shown: ShownArgs,
    /// The version to go to: a number, or the name of a release, such as `diego`.
    #[arg(long, value_name = "VERSION")]
    to: VersionName,
    #[command(flatten)]
    confirmation: Confirmation,
    #[command(flatten)]
    terms: RunArgs,
}

impl MigrateCommand {
    /// Runs the command. The result differs between a complete run and one that a limit ended.
    ///
    /// # Errors
    /// The configuration or catalog is invalid, another host holds the lock, or the migration
    /// fails.
    pub async fn run(self) -> anyhow::Result<Exit> {
        let _logs = Logs::readable(LogLevel::Error);
        match self.action {
            MigrateAction::Status(shown) => status(shown).await?,
            MigrateAction::History(shown) => history::history(shown).await?,
            MigrateAction::Plan(args) => plan(args, Prepared::start_context).await?,
            MigrateAction::Up(UpArgs { shown, to, terms }) if terms.dry_run => {
                plan(PlanArgs::dry_run(shown, to), Prepared::context).await?;
            }
            MigrateAction::Down(down) if down.terms.dry_run => {
                let args = PlanArgs::dry_run(down.shown, Some(down.to));
                plan(args, Prepared::context).await?;
            }
            MigrateAction::Up(UpArgs { shown, to, terms }) => {
                let config = Config::read(&shown.config)?;
                let loading = Progress::default();
                let work = Prepared::going_to(config, to.as_ref(), &loading);
                let (prepared, wanted) = progress::shown(&loading, work).await?;
                return migrate_to(prepared, Intent::Up { wanted }, &terms, shown.form).await;
            }
            MigrateAction::Down(DownArgs {
                shown,
                to,
                confirmation,
                terms,
            }) => {
                let prepared = existing(&shown.config).await?;
                let to = version(&prepared, Some(&to))?;
                confirm_way_down(&prepared, to, &confirmation).await?;
                return migrate_to(prepared, Intent::Down { to }, &terms, shown.form).await;
            }
            MigrateAction::Abort(given_up) => abort(given_up).await?,
            MigrateAction::Quarantine(command) => command.run().await?,
            MigrateAction::Watch(args) => steer::watch(args).await?,
            MigrateAction::Pause(args) => steer::pause(args).await?,
            MigrateAction::Resume(args) => steer::resume(args).await?,
            MigrateAction::Rate(args) => steer::rate(args).await?,
        }
        Ok(Exit::Success)
    }
}

/// Opens an existing database, so that a mistyped path is an error and creates no file.
pub(super) async fn existing(config: &Path) -> anyhow::Result<Prepared> {
    open_existing(Config::read(config)?).await
}

/// [`existing`] for a configuration that was read.
async fn open_existing(config: Config) -> anyhow::Result<Prepared> {
    ensure_database_exists(&config)?;
    let loading = Progress::default();
    Ok(progress::shown(&loading, Prepared::new(config, &loading)).await?)
}

fn ensure_database_exists(config: &Config) -> anyhow::Result<()> {
    if let Address::Sqlite(path) = &config.database {
        anyhow::ensure!(
            path.exists(),
            "there is no database at {}; correct `database_connection_string`, or make one with `bbs serve` or `bbs migrate up`",
            path.display()
        );
    }
    Ok(())
}

/// The data version that `--to` names, or that of a host with this configuration.
fn version(prepared: &Prepared, to: Option<&VersionName>) -> Result<DataVersion, StartupError> {
    to.map_or_else(|| Ok(prepared.wanted()), |to| prepared.version(to))
}

/// Why a start with these keys would be refused, if it would.
async fn keys_refused(prepared: &Prepared) -> Result<Option<String>, StartupError> {
    match prepared.check_keys().await {
        Ok(()) => Ok(None),
        Err(StartupError::Keys(refused)) if refused.is_about_keys() => {
            Ok(Some(refused.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// Why a start with these modules would be refused for a catalog that is too old, if it would.
async fn catalog_refused(prepared: &Prepared) -> Result<Option<String>, StartupError> {
    match prepared.check_serials().await {
        Ok(()) => Ok(None),
        Err(StartupError::OlderCatalog(older)) => Ok(Some(older.to_string())),
        Err(error) => Err(error),
    }
}

async fn status(ShownArgs { config, form }: ShownArgs) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let mut status = migrate::status(&prepared.start_context(), prepared.intent()).await?;
    status.refused = catalog_refused(&prepared).await?.or(status.refused);
    let wrong_keys = prepared.wrong_keys().await?;
    let keys_refused = keys_refused(&prepared).await?;
    // What a host that waits for the lock would log; a lock that cannot be read is no reason to
    // show nothing.
    let holder = prepared
        .lock_holder()
        .await
        .unwrap_or_else(|fault| Some(format!("unknown: {fault}")));
    let host = running_host(&prepared.config).await;
    if form.json {
        let mut value = serde_json::to_value(&status)?;
        value["pin_data_version"] = prepared.config.pin_data_version.into();
        value["host"] = serde_json::to_value(&host)?;
        value["wrong_keys"] = serde_json::to_value(&wrong_keys)?;
        value["keys_refused"] = keys_refused.into();
        value["lock_holder"] = holder.into();
        output::json(&value)?;
    } else {
        let beside = render::Beside {
            config: &prepared.config,
            host: host.as_ref(),
            holder: holder.as_deref(),
            keys_refused: keys_refused.as_deref(),
        };
        output::text(render::status(&status, prepared.database.name(), &beside))?;
    }
    Ok(())
}

async fn plan(
    PlanArgs {
        shown: ShownArgs { config, form },
        to,
        check,
        sql,
    }: PlanArgs,
    context: impl FnOnce(&Prepared) -> Context,
) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    let to = version(&prepared, to.as_ref())?;
    let context = context(&prepared);
    if let Some(dialect) = sql {
        let changes = migrate::layout_sql(&context, to, dialect.map(Dialect::from)).await?;
        return form.print(&changes, || render::layout_sql(&changes));
    }
    let mut plan = migrate::plan(&context, to).await?;
    plan.refused = catalog_refused(&prepared).await?.or(plan.refused);
    let start = migrate::decision(&context, prepared.intent()).await?;
    let keys_refused = keys_refused(&prepared).await?;
    let checked = if check && plan.refused.is_none() && keys_refused.is_none() {
        Some(progress::shown(&prepared.progress, migrate::check(&context, to)).await?)
    } else {
        None
    };
    let wrong_keys = prepared.wrong_keys().await?;
    if form.json {
        let mut value = serde_json::to_value(&plan)?;
        value["start"] = serde_json::to_value(&start)?;
        value["wrong_keys"] = serde_json::to_value(&wrong_keys)?;
        value["keys_refused"] = keys_refused.as_deref().into();
        if let Some(checked) = &checked {
            value["check"] = serde_json::to_value(checked)?;
        }
        output::json(&value)?;
    } else {
        let checked = checked.as_ref().map(render::check).unwrap_or_default();
        output::text(
            [
                render::plan(&plan),
                render::other_start(&plan, &start),
                render::refused_keys(&wrong_keys, keys_refused.as_deref()),
                checked,
            ]
            .concat(),
        )?;
    }
    if let Some(refused) = plan.refused.or(keys_refused) {
        anyhow::bail!("this migration would be refused: {refused}");
    }
    match checked.map_or(0, |checked| checked.lost()) {
        0 => Ok(()),
        lost => anyhow::bail!(
            "{lost} units do not survive a migration to {to} and back; repair them or the module, or quarantine them with \
             `{} --on-unreadable quarantine`",
            migrate::command(plan.direction, to)
        ),
    }
}

/// Lets an operator at a terminal confirm that the database is taken down. There is no question if
/// it would do nothing.
async fn confirm_way_down(
    prepared: &Prepared,
    to: DataVersion,
    confirmation: &Confirmation,
) -> anyhow::Result<()> {
    let found = migrate::found(&prepared.database).await?;
    match migrate::decide(&found, Intent::Down { to }) {
        Decision::Begin { from, .. } | Decision::Continue { from, .. } => {
            confirmation.obtain(&format!(
                "This takes {} from {from} down to {to}, where the hosts of the newer version do not serve it. `--dry-run` shows what happens.",
                prepared.database.name()
            ))
        }
        _ => Ok(()),
    }
}

async fn abort(ShownArgs { config, form }: ShownArgs) -> anyhow::Result<()> {
    let prepared = existing(&config).await?;
    if migrate::abortable(&prepared.context()).await?.is_none() {
        return print_given_up(form, None);
    }
    let (lock, fence) = prepared.lock_now(async || Ok(())).await?;
    let context = prepared.context();
    let work = progress::shown(&prepared.progress, migrate::abort(&context, &fence));
    let given_up = until_interrupted(&prepared, lock, async { Ok(work.await?) }).await?;
    print_given_up(form, given_up)
}

fn print_given_up(form: OutputForm, given_up: Option<GivenUp>) -> anyhow::Result<()> {
    form.print(&serde_json::json!({ "given_up": given_up }), || match given_up {
        Some(GivenUp { from, to }) => {
            let until = if from < to {
                format!(
                    " A host with these modules migrates again when it starts: set `pin_data_version` to {from} before, or start the \
                     older release."
                )
            } else {
                String::new()
            };
            format!(
                "The migration to {to} is given up, and its copies are removed; the database stays at {from}.{until}\n"
            )
        }
        None => "Nothing to give up: no migration is in progress.\n".to_owned(),
    })
}

async fn migrate_to(
    mut prepared: Prepared,
    intent: Intent,
    terms: &RunArgs,
    form: OutputForm,
) -> anyhow::Result<Exit> {
    if let Some(on_unreadable) = terms.on_unreadable {
        prepared.config.migration.on_unreadable = on_unreadable;
    }
    let before = migrate::found(&prepared.database).await?;
    let locked = lock_for(&prepared, intent).await;
    let (lock, fence) = locked.map_err(nothing_done)?;
    let most = terms.max_count.filter(|most| *most > 0);
    let work = bring_part(&prepared, &fence, intent, most);
    let (outcome, quarantined) = until_interrupted(&prepared, lock, work).await?;
    let result = serde_json::json!({ "outcome": outcome, "quarantined": quarantined });
    form.print(&result, || {
        render::progressed(&outcome, &before, quarantined)
    })?;
    Ok(match outcome {
        RunOutcome::Done(_) => Exit::Success,
        RunOutcome::Partial(_) => Exit::UnitsRemain,
    })
}

/// Takes the lock for a migration that may begin.
async fn lock_for(prepared: &Prepared, intent: Intent) -> Result<(HeldLock, Fence), StartupError> {
    prepared
        .lock_now(async || prepared.may_begin(&prepared.context(), intent).await)
        .await
}

/// The error of a migration that has not begun.
fn nothing_done(error: StartupError) -> anyhow::Error {
    match error {
        StartupError::ShutDown(reason) => anyhow::anyhow!("nothing was done: {reason}"),
        error => error.into(),
    }
}

/// Migrates down as `bbs migrate down` does, for `bbs drain` of a host that does not run. Nothing to
/// do is a success, and so is a lock that another host holds: its own drain migrates down.
pub(super) async fn migrate_down_without_host(
    config: Config,
    to: DataVersion,
    form: OutputForm,
) -> anyhow::Result<()> {
    let _logs = Logs::readable(LogLevel::Error);
    let prepared = open_existing(config).await?;
    let before = migrate::found(&prepared.database).await?;
    if is_at_or_below(&before, to) {
        not_migrated(
            form,
            format_args!("The database is not above {to}: there is nothing to take back."),
        );
        return Ok(());
    }
    // In Locket, the lock of a host that was killed lasts until it expires.
    let lock = &prepared.config.lock;
    let lock_expiry = lock.locket.is_some().then_some(lock.ttl);
    migrate_down_if_master(&prepared, &before, to, lock_expiry, form).await
}

/// Migrates down as [`migrate_down_without_host`] does, for `bbs drain` of a host that has ended
/// and released its lock. Prints nothing if that host has migrated down itself.
pub(super) async fn migrate_down_after_host(
    config: Config,
    to: DataVersion,
    form: OutputForm,
) -> anyhow::Result<()> {
    let _logs = Logs::readable(LogLevel::Error);
    ensure_database_exists(&config)?;
    // Without the modules: a fault of theirs is none of a host that has migrated down.
    let database = Database::open(&config.database).await?;
    let found = migrate::found(&database).await;
    database.close().await;
    let before = found?;
    if is_at_or_below(&before, to) {
        return Ok(());
    }
    let prepared = open_existing(config).await?;
    migrate_down_if_master(&prepared, &before, to, None, form).await
}

/// Migrates down unless another host holds the lock, or an import has not ended. With
/// `lock_expiry`, a lock that is held is tried once more after that time.
async fn migrate_down_if_master(
    prepared: &Prepared,
    before: &Found,
    to: DataVersion,
    lock_expiry: Option<Duration>,
    form: OutputForm,
) -> anyhow::Result<()> {
    if prepared.is_import_due().await? {
        not_migrated(
            form,
            format_args!("The import from etcd has not ended: there is nothing to take back."),
        );
        return Ok(());
    }
    let intent = Intent::Down { to };
    let mut locked = lock_for(prepared, intent).await;
    if matches!(locked, Err(StartupError::Locked { .. }))
        && let Some(expiry) = lock_expiry
    {
        output::note(format_args!(
            "The lock of this database is taken; trying again after {expiry:?}."
        ));
        tokio::time::sleep(expiry).await;
        locked = lock_for(prepared, intent).await;
    }
    let (lock, fence) = match locked {
        Err(StartupError::Locked { holder }) => {
            let own = prepared.config.lock.uuid.as_deref();
            let is_own = |holder: &str| own.is_some_and(|own| lock::is_of_host(holder, own));
            anyhow::ensure!(
                !holder.as_deref().is_some_and(is_own),
                "the host of this configuration holds the lock and does not answer at its admin socket; stop it, then drain again"
            );
            let holder = holder.map_or_else(String::new, |holder| format!(": {holder}"));
            not_migrated(
                form,
                format_args!(
                    "Another host holds the lock of this database{holder}; its drain has to take the database back to {to}."
                ),
            );
            return Ok(());
        }
        locked => locked.map_err(nothing_done)?,
    };
    let work = bring_part(prepared, &fence, intent, None);
    let (outcome, quarantined) = until_interrupted(prepared, lock, work).await?;
    if form.json {
        output::announce(serde_json::json!({ "outcome": outcome, "quarantined": quarantined }));
    } else {
        output::announce(render::progressed(&outcome, before, quarantined).trim_end());
    }
    Ok(())
}

/// The result of `bbs drain` where this command does not migrate down.
fn not_migrated(form: OutputForm, reason: std::fmt::Arguments<'_>) {
    if form.json {
        output::note(reason);
        output::announce(serde_json::json!({ "outcome": null }));
    } else {
        output::announce(reason);
    }
}

/// Whether a database has nothing that a migration down to a version would change.
fn is_at_or_below(found: &Found, to: DataVersion) -> bool {
    match migrate::decide(found, Intent::Down { to }) {
        // A migration up that has not ended has copies, which are removed.
        Decision::Serve => {
            matches!(found, Found::Versioned { current, target, .. } if current == target)
        }
        Decision::ShutDown(Reason::NothingBelow { .. } | Reason::NothingThere) => true,
        _ => false,
    }
}

/// Returns the outcome and the number of units in quarantine.
async fn bring_part(
    prepared: &Prepared,
    fence: &Fence,
    intent: Intent,
    most: Option<u64>,
) -> anyhow::Result<(RunOutcome, usize)> {
    let _admin = prepared.open_admin(None).await;
    let resumed_to = migrate::resumable(&prepared.database).await?;
    let mut outcome =
        progress::shown(&prepared.progress, prepared.bring_part(fence, intent, most)).await?;
    if let RunOutcome::Done(decision) = outcome {
        outcome = RunOutcome::Done(decision.resuming(resumed_to));
        progress::shown(&prepared.progress, prepared.rotate(fence)).await?;
    }
    let quarantined = migrate::quarantined(&prepared.context()).await?.len();
    Ok((outcome, quarantined))
}
