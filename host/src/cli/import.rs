//! `bbs import`: takes over the records of a Diego from before it had a relational database. Owns
//! arguments and the text of the report.

use std::fmt::Write as _;
use std::path::PathBuf;

use bbs_database::Address;
use bbs_work::progress::Progress;
use clap::{Args, Subcommand};

use super::interrupt::until_interrupted;
use super::output::OutputForm;
use super::progress;
use crate::config::{Config, LogLevel, OnUnreadable};
use crate::import::{ImportError, ImportReport, LeafCounts, LeftOut, Reimport};
use crate::logs::Logs;
use crate::startup::Prepared;

/// Import the records of a Diego that kept them in etcd.
#[derive(Debug, Args)]
pub struct ImportCommand {
    #[command(subcommand)]
    source: ImportSource,
}

#[derive(Debug, Subcommand)]
enum ImportSource {
    Etcd(EtcdArguments),
}

/// Import the etcd store that `etcd_cluster_urls` names into an empty database, migrate it, and
/// mark the store as imported. `bbs serve` does the same at its start.
///
/// Stop every BBS that uses etcd first. The store is read as a whole and is not changed, except
/// that its version is set at the end, so that an older BBS refuses it. Killed at any time, the
/// same command finishes the work.
#[derive(Debug, Args)]
struct EtcdArguments {
    /// The JSON configuration file of the host.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Decode every record and print the report; write nothing, neither in etcd nor in the
    /// database, which has to be there. The exit code is 1 if an import would be refused.
    #[arg(long)]
    check: bool,
    /// Also import a store that its version calls imported before: its records are those of that
    /// time.
    #[arg(long)]
    stale: bool,
    /// Handling of a record that cannot be imported [default: `on_unreadable` of the configuration,
    /// or stop]
    #[arg(long, value_name = "WHAT")]
    on_unreadable: Option<OnUnreadable>,
    #[command(flatten)]
    form: OutputForm,
}

impl EtcdArguments {
    fn reimport(&self) -> Reimport {
        if self.stale {
            Reimport::Allow
        } else {
            Reimport::Refuse
        }
    }
}

impl ImportCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The store cannot be imported, another host holds the lock, or the migration fails.
    pub async fn run(self) -> anyhow::Result<()> {
        let _logs = Logs::readable(LogLevel::Error);
        let ImportSource::Etcd(arguments) = self.source;
        let config = Config::read(&arguments.config)?;
        may_open(&config, arguments.check)?;
        let loading = Progress::default();
        let mut prepared = progress::shown(&loading, Prepared::new(config, &loading)).await?;
        if let Some(on_unreadable) = arguments.on_unreadable {
            prepared.config.migration.on_unreadable = on_unreadable;
        }
        if arguments.check {
            check(&prepared, &arguments).await
        } else {
            import(&prepared, &arguments).await
        }
    }
}

/// Checks that opening the database makes no file that the command would not use: a check writes
/// nothing, and an import needs a store.
fn may_open(config: &Config, is_check: bool) -> anyhow::Result<()> {
    if config.etcd.is_none() {
        return Err(ImportError::NotConfigured.into());
    }
    if let Address::Sqlite(path) = &config.database {
        anyhow::ensure!(
            !is_check || path.exists(),
            "there is no database at {}; correct `database_connection_string`, or make an empty file there for the check",
            path.display()
        );
    }
    Ok(())
}

async fn check(prepared: &Prepared, arguments: &EtcdArguments) -> anyhow::Result<()> {
    let check = prepared.check_import(arguments.reimport());
    let (report, verdict) = progress::shown(&prepared.progress, check).await?;
    print(&report, arguments, "would be imported")?;
    verdict?;
    Ok(prepared.may_import().await?)
}

async fn import(prepared: &Prepared, arguments: &EtcdArguments) -> anyhow::Result<()> {
    let (lock, fence) = prepared
        .lock_now(async || prepared.may_import().await)
        .await?;
    let work = async {
        let _admin = prepared.open_admin(None).await;
        prepared
            .import_from_etcd(&fence, arguments.reimport())
            .await
    };
    let work = async { Ok(progress::shown(&prepared.progress, work).await?) };
    let report = until_interrupted(prepared, lock, work).await?;
    print(&report, arguments, "imported")
}

fn print(report: &ImportReport, arguments: &EtcdArguments, what: &str) -> anyhow::Result<()> {
    arguments.form.print(report, || text(report, what))
}

fn text(report: &ImportReport, what: &str) -> String {
    let mut out = String::new();
    let version = report.version.map_or_else(
        || "without a version".to_owned(),
        |version| format!("at version {version}"),
    );
    let _ = writeln!(
        out,
        "etcd store {version}, index {}, {} bytes",
        report.index, report.bytes
    );
    let _ = writeln!(
        out,
        "{:<24}{:>10}{:>18}{:>10}{:>13}{:>10}",
        "", "seen", what, "expired", "quarantine", "foreign"
    );
    let kinds = report
        .kinds
        .iter()
        .map(|(kind, counts)| (kind.as_str(), *counts));
    for (
        kind,
        LeafCounts {
            seen,
            imported,
            expired,
            quarantined,
            foreign,
        },
    ) in kinds.chain([("all", report.total())])
    {
        let _ = writeln!(
            out,
            "{kind:<24}{seen:>10}{imported:>18}{expired:>10}{quarantined:>13}{foreign:>10}"
        );
    }
    for (label, records) in &report.labels {
        let _ = writeln!(out, "sealed under {label:?}: {records}");
    }
    for LeftOut { key, reason } in &report.quarantined {
        let _ = writeln!(
            out,
            "quarantine: {}: {}",
            key.escape_debug(),
            reason.escape_debug()
        );
    }
    for LeftOut { key, reason } in &report.foreign {
        let _ = writeln!(out, "foreign: {}: {reason}", key.escape_debug());
    }
    for domain in &report.permanent_domains {
        let _ = writeln!(
            out,
            "never expires since the store was encrypted again: {}",
            domain.escape_debug()
        );
    }
    out
}
