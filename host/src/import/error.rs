//! Why an import did not happen, and what to do about it.

use bbs_database::{
    DatabaseError, SqlError, StatementError, is_refused_row, is_transient, is_unique_violation,
    refusal,
};
use bbs_lens::layout::manifest::DataVersion;
use bbs_work::joined;

use super::report::{ImportReport, LeftOut};
use crate::etcd::client::EtcdError;
use crate::lock::fence::FenceError;
use crate::migrate::MigrateError;

/// A row that the database does not store.
#[derive(Debug)]
pub(super) struct RefusedRow {
    pub(super) flaw: String,
    /// Whether it takes the row's key for that of another one.
    pub(super) is_of_key: bool,
}

/// Why an import did not happen or did not end.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("cannot read or write {what}; nothing is lost, start again")]
    Sql { what: String, source: SqlError },
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Migrate(#[from] MigrateError),
    #[error("etcd cannot be read as a whole; nothing was changed there")]
    Etcd(#[from] EtcdError),
    #[error(
        "the row of `bbs_import` is damaged; if nothing was served from this database yet, drop its tables, `bbs_import` too, and \
         start again"
    )]
    Damaged,
    #[error(
        "`/version` of etcd is not what Diego's BBS writes ({value:?}); nothing was changed. Write the version that the records have, \
         such as {{\"CurrentVersion\":1451635200,\"TargetVersion\":1451635200}}, or delete the key to have each record judged by its form"
    )]
    StoreVersion { value: String },
    #[error(
        "no release of Diego's BBS wrote the version {version} into etcd; nothing was changed. Check that `etcd_cluster_urls` names \
         Diego's store"
    )]
    UnknownStoreVersion { version: i64 },
    #[error(
        "the store is at version {version}: it was imported into a relational database before, and is stale since; nothing was \
         changed. Use that database, remove `etcd_cluster_urls` to begin without records, or import the stale records with \
         `bbs import etcd --stale`"
    )]
    ImportedBefore { version: i64 },
    #[error(
        "the store has desired LRPs at `/v1/desired` and at `/v1/desired_lrp`, and its version is the mark of an import, which does \
         not say which of them Diego used last; nothing was changed. Set `/version` to the one before that import, which its report \
         has, such as {{\"CurrentVersion\":1451635200,\"TargetVersion\":1451635200}}, or delete it if there was none; or delete the LRPs \
         that are not to be imported"
    )]
    TwoLayouts,
    #[error(
        "records are sealed under keys that are not configured: {}; nothing was changed. Add them to `encryption_keys`, or, if \
         they are as few as `quarantine_limit` allows, leave them out with `on_unreadable` set to `quarantine`",
        shown_labels(.labels)
    )]
    UnknownLabels { labels: Vec<(String, u64)> },
    #[error(
        "{count} records cannot be imported; nothing was changed. The first are: {}. Repair or delete them in etcd, or, if they are as \
         few as `quarantine_limit` allows, leave them out with `on_unreadable` set to `quarantine`; `bbs import etcd --check` lists them",
        joined(.first.iter().map(|LeftOut { key, reason }| format!("{key} ({reason})")))
    )]
    Refused { count: u64, first: Vec<LeftOut> },
    #[error(
        "{refused} of {all} records of the kind {kind:?} cannot be imported, too many to be damaged: `quarantine_limit` is {limit}, \
         and more than half of several are always too many; etcd was not changed. {}; `bbs import etcd --check` lists those that are \
         damaged, and `bbs migrate quarantine list` those that the database does not store",
        advice_for_many(.labels, *.limit_helps)
    )]
    TooManyRefused {
        kind: &'static str,
        refused: u64,
        all: u64,
        limit: u64,
        /// Whether a higher limit would permit them.
        limit_helps: bool,
        /// Keys that are not configured, with the records under each.
        labels: Vec<(String, u64)>,
    },
    #[error(
        "the database cannot store the record {key}: {flaw}; etcd was not changed. Correct or delete the record there, or leave it out \
         with `on_unreadable` set to `quarantine`, then start again"
    )]
    RefusedRow { key: String, flaw: String },
    #[error(
        "the store has changed while it was imported, so a BBS still writes to it; etcd was not changed. Stop every BBS that uses \
         etcd, then start again"
    )]
    Changed,
    #[error(
        "the store has changed since it was imported, so a BBS still wrote to it; etcd was not changed, and no client was served from \
         this database. Stop every BBS that uses etcd, drop the tables of this database, `bbs_import` too, then start again to import \
         anew"
    )]
    ChangedSince,
    #[error(
        "etcd's answer is not sorted, or has {key:?} twice; connect to its members without a proxy between, then start again"
    )]
    Unsorted { key: String },
    #[error(
        "table {table} has {found} rows after the import and should have {expected}; start again to import anew, and check that \
         nothing else writes to this database"
    )]
    Rows {
        table: String,
        found: u64,
        expected: u64,
    },
    #[error(
        "{key} holds the database at {pin}, and etcd is imported at {version}, which is newer; nothing was changed. Import without it, \
         then take the database back with `bbs migrate down --to {pin}`"
    )]
    PinnedBelow {
        key: &'static str,
        pin: DataVersion,
        version: DataVersion,
    },
    #[error(
        "the catalog has no migration to {version}, the version that etcd is imported at; use one that has Diego's migrations"
    )]
    NoVersion { version: DataVersion },
    #[error(
        "an import from etcd has begun and not ended; give `etcd_cluster_urls` to finish it, or drop the tables of this database, \
         `bbs_import` too, to begin without it"
    )]
    Unfinished,
    #[error(
        "an import from etcd into this database has begun and not ended, as `bbs_import` says, and another BBS has used the database \
         since; nothing was changed. Remove `etcd_cluster_urls` to go on with what the database has, or drop its tables, `bbs_import` \
         too, to import into it"
    )]
    UsedSince,
    #[error(
        "the records that were imported from etcd are not in this database any more, but `bbs_import` is; nothing was changed. Drop \
         `bbs_import` too, then start again: to import anew, or without `etcd_cluster_urls` to begin without records"
    )]
    Dropped,
    #[error(
        "the records of etcd are not imported yet; import them first, with `bbs import etcd` or by a start of the host"
    )]
    Due,
    #[error(
        "the database is in use, and etcd is only imported into an empty one; nothing was changed. Name an empty database, or remove \
         `etcd_cluster_urls`"
    )]
    InUse,
    #[error(
        "the store was imported into this database before ({} records); nothing was changed. If it is to be imported again, drop the \
         tables of this database first, `bbs_import` too",
        .report.total().imported
    )]
    Done { report: Box<ImportReport> },
    #[error("`etcd_cluster_urls` is not in the configuration; name the members of etcd there")]
    NotConfigured,
    #[error(
        "`/version` of etcd was written after the import and cannot be marked; an older BBS may use the store. Stop every BBS that uses \
         etcd; what they wrote since is not in this database"
    )]
    MarkLost,
    #[error(
        "etcd has the mark of another import: another database was filled from this store, and may be served; nothing was changed. \
         No client was served from this database: configure the other one, and drop the tables of this one"
    )]
    MarkedByOther,
    #[error("the work was interrupted; start again")]
    Interrupted,
    #[error(
        "the run information of {guid} was changed in `bbs_import_run` after it was written; start again"
    )]
    DamagedRunInfo { guid: String },
}

fn shown_labels(labels: &[(String, u64)]) -> String {
    joined(
        labels
            .iter()
            .map(|(label, records)| format!("{label:?} ({records} records)")),
    )
}

fn advice_for_many(labels: &[(String, u64)], limit_helps: bool) -> String {
    let mut advice = if labels.is_empty() {
        "Repair the records in etcd, or delete them there".to_owned()
    } else {
        format!(
            "Add the missing keys to `encryption_keys`: {}; or delete the records from etcd",
            shown_labels(labels)
        )
    };
    if limit_helps {
        advice += "; or raise `quarantine_limit`";
    }
    advice
}

impl From<StatementError> for ImportError {
    fn from(StatementError { what, source }: StatementError) -> Self {
        Self::Sql { what, source }
    }
}

impl From<tokio::task::JoinError> for ImportError {
    fn from(_: tokio::task::JoinError) -> Self {
        Self::Interrupted
    }
}

impl ImportError {
    /// Whether the same transaction may succeed if it is done again from its start.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Sql { source, .. } => is_transient(source),
            Self::Database(fault) => fault.is_transient(),
            Self::Fence(fault) => fault.is_transient(),
            Self::Migrate(fault) => fault.is_transient(),
            _ => false,
        }
    }

    /// The flaw of a row that the database refuses, if that is the error.
    pub(super) fn refused_row(&self) -> Option<RefusedRow> {
        match self {
            Self::Sql { source, .. } if is_refused_row(source) => Some(RefusedRow {
                flaw: refusal(source),
                is_of_key: is_unique_violation(source),
            }),
            _ => None,
        }
    }

    /// Whether etcd could not be reached, so that the mark may be set later.
    pub fn is_unreachable(&self) -> bool {
        match self {
            // It answers, and another configuration is needed.
            Self::Etcd(EtcdError::OtherCluster { .. }) => false,
            Self::Etcd(_) => true,
            _ => false,
        }
    }
}
