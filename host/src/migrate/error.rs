//! The errors of a migration, and what to do about each. Owns the words and which of them are worth
//! another try.

use bbs_database::schema::{AttachedObject, ReadBackError};
use bbs_database::{
    DatabaseError, SqlError, StatementError, is_not_at_once, is_outage, is_refused_row,
    is_transient,
};
use bbs_encryption::EncryptionError;
use bbs_lens::layout::history::LayoutError;
use bbs_lens::layout::manifest::{DataVersion, Direction};
use bbs_lens::{ComposeError, LensError};
use bbs_units::{RowsError, UnitKey, Unstorable, residue};
use bbs_work::causes::with_causes;
use bbs_work::joined;
use tokio::task::JoinError;

use crate::lock::fence::FenceError;

/// Why a migration, or a command about one, failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum MigrateError {
    #[error("cannot read or write {what}; nothing is lost, start again to continue")]
    Sql { what: String, source: SqlError },
    #[error(transparent)]
    Rows(RowsError),
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Compose(#[from] ComposeError),
    #[error(transparent)]
    ReadBack(#[from] ReadBackError),
    #[error(
        "the row `version` of `configurations` is not readable ({text:?}); \
         write {{\"CurrentVersion\":<version>}} with the version the tables have"
    )]
    UnreadableVersion {
        text: String,
        source: serde_json::Error,
    },
    #[error(
        "a migration that a newer release has begun is in the phase {phase:?}, which this release does not know. Start that release, \
         which `bbs migrate history` names, to complete the migration, or give it up with `bbs migrate abort` of that release"
    )]
    UnknownPhase { phase: String },
    #[error(
        "bbs_run_arguments has no UUID for migration {version} but {namespace:?}; delete the row to draw a new one"
    )]
    Namespace {
        version: DataVersion,
        namespace: String,
    },
    #[error(
        "the catalog has no migration {version}, which is the version of the database; \
         add the module that leads to it to the modules directory"
    )]
    UnknownVersion { version: DataVersion },
    #[error(
        "the catalog has no version {version}; `bbs module check` of the modules directory lists its versions"
    )]
    UnknownTarget { version: DataVersion },
    #[error(
        "migration {version} ran on this database as sha256 {ran}, but the catalog has {catalog}: put the module that \
         ran back, and ship the change as a migration with a later version"
    )]
    DigestChanged {
        version: DataVersion,
        ran: String,
        catalog: String,
    },
    #[error(
        "migration {version} ran on this database as sha256 {ran}, and the catalog does not have it. Put its module back; to \
         remove it, take the database down below {version} with it first"
    )]
    RanAndIsMissing { version: DataVersion, ran: String },
    #[error(
        "migration {version}-{name} did not run on this database, which is at {current}, and later ones did; {wanted} stands for \
         those that ran. It can be inserted on the way to a version that the catalog did not have then: add a migration above \
         {current} (an empty one suffices) and migrate to that, or give {name} a version above {current}"
    )]
    Inserted {
        version: DataVersion,
        name: String,
        current: DataVersion,
        wanted: DataVersion,
    },
    #[error(
        "table {table} has records of version {}, which no module of the catalog leads to: another catalog wrote them. \
         Nothing was written; use the modules that wrote them, or set their `record_version` to NULL if they are what \
         the version of the database says",
        joined(.versions)
    )]
    UnknownRecordVersions {
        table: String,
        versions: Vec<DataVersion>,
    },
    #[error(
        "table {table} has records of version {}, above {at}, the version of the database: they were written at that version, and \
         the database's was set back without a migration down. Nothing was written; restore the version that the records have, or \
         set their `record_version` to NULL if they are what the version of the database says",
        joined(.versions)
    )]
    RecordVersionsAbove {
        table: String,
        versions: Vec<DataVersion>,
        at: DataVersion,
    },
    #[error(
        "the user of this host may not read every row of table {table}. Nothing was written; grant it SELECT, and exempt it from \
         row-level security (`ALTER ROLE ... BYPASSRLS`) where a policy hides rows"
    )]
    Unreadable { table: String, source: SqlError },
    #[error(
        "column {column} of table {table} has a key of the storage class {class}, {value}, and the rows after it would not be read. Nothing \
         was written; correct it, for instance with `UPDATE {table} SET {column} = CAST({column} AS {usual}) WHERE \
         typeof({column}) = '{class}'`, then start again"
    )]
    KeyClass {
        table: String,
        column: String,
        value: String,
        class: String,
        usual: &'static str,
    },
    #[error(
        "migration {version}-{name} is not reversible, so the database cannot go below {version}; migrate down to {version} at the \
         lowest, or restore a backup from before that migration"
    )]
    NotReversible { version: DataVersion, name: String },
    #[error(
        "table {table} differs from the layout of its version: {}. Correct the table, then start again; what a migration that was interrupted has \
         changed, `bbs migrate abort` takes back",
        .differences.join("; ")
    )]
    SchemaDiffers {
        table: String,
        differences: Vec<String>,
    },
    #[error(
        "a migration creates table {table}, but there is one with rows already; rename or empty it, then start again"
    )]
    TableInTheWay { table: String },
    #[error(
        "a migration needs the name {name} for something of its own, and {object} has it, or one that is equal to it for the server. \
         Nothing was written; rename that, then start again"
    )]
    NameInTheWay { name: String, object: String },
    #[error(
        "{name} is {kind} ({}), and the host needs a table of its own with transactions. Nothing was written; change that, then \
         start again",
        .remedy.as_deref().unwrap_or("rename it")
    )]
    NotATable {
        name: String,
        kind: String,
        remedy: Option<String>,
    },
    #[error(
        "a migration replaces table {table}, and the new one would lack {}. No table was changed; run the statements in parentheses, \
         start again, and create the objects again afterwards if they are still needed",
        .objects.iter().map(removed_by).collect::<Vec<_>>().join("; ")
    )]
    Attached {
        table: String,
        objects: Vec<AttachedObject>,
    },
    #[error(
        "table {table} remains from an earlier migration and has to be dropped before another one begins, but these depend on it: {}. \
         Remove them, then start again",
        .objects.iter().map(removed_by).collect::<Vec<_>>().join("; ")
    )]
    AttachedToLeftover {
        table: String,
        objects: Vec<AttachedObject>,
    },
    #[error("a migration replaces table {table}, but {}. Nothing was written", .rights.join("; "))]
    MissingRights { table: String, rights: Vec<String> },
    #[error(
        "the user of this host may not change the schema as a migration does. Nothing was written; give it all rights on its \
         database, then start again. The statement that failed: {statement}"
    )]
    Trial { statement: String, source: SqlError },
    #[error(
        "the server does not change table {table} at once, and all commits of the cluster would wait for it. Nothing is lost; make \
         the change on one node after the other (`SET SESSION wsrep_OSU_method = RSU`) without its ALGORITHM, and start again to \
         continue: {statement}"
    )]
    NotAtOnce {
        table: String,
        statement: String,
        source: SqlError,
    },
    #[error("there are {} reasons against a migration:{}", .0.len(), .0.iter().map(listed).collect::<String>())]
    Several(Vec<MigrateError>),
    #[error("cannot open column {column} of table {table} in unit {unit:?}")]
    Record {
        unit: String,
        table: String,
        column: String,
        source: EncryptionError,
    },
    #[error("unit {unit:?} cannot be migrated")]
    Unit {
        unit: String,
        source: Box<LensError>,
    },
    #[error("unit {unit:?} cannot be migrated")]
    Unstorable {
        unit: String,
        source: Box<Unstorable>,
    },
    #[error("the database refuses a row of table {table}")]
    RefusedRow { table: String, source: SqlError },
    #[error("unit {unit:?} has {bytes} bytes or more, above the limit of {limit}")]
    UnitTooLarge {
        unit: String,
        bytes: u64,
        limit: u64,
    },
    #[error(
        "modules take more than 1 s in all for the units that clients have changed last, {unit:?} among them, so the cut-over is \
         given up, for which clients would wait. Nothing is lost; start again, or reload a faster module, to continue"
    )]
    Behind { unit: String },
    /// A unit at which a migration has to stop.
    #[error("{source}")]
    Refused {
        group: usize,
        key: UnitKey,
        source: Box<MigrateError>,
    },
    #[error(
        "the migration {direction} to {to} stopped at a unit; the tables are as they were. {}Repair the unit or the module, or \
         remove the unit, and run it again; or leave the unit out: `{} --on-unreadable quarantine`; or give the migration up: \
         `bbs migrate abort`",
        .unit.as_deref().map(where_shown).unwrap_or_default(),
        command(*.direction, *.to)
    )]
    Stopped {
        direction: Direction,
        to: DataVersion,
        /// The name of the unit, if there is an entry of it in quarantine.
        unit: Option<String>,
        source: Box<MigrateError>,
    },
    #[error("the migration to {to} is complete, so it cannot be given up; migrate the other way instead: `{}`", command(*.back, *.from))]
    Complete {
        from: DataVersion,
        to: DataVersion,
        back: Direction,
    },
    #[error(
        "this migration fills an empty database, which has no version to stay at; `bbs migrate up` continues it, and so does `bbs serve`"
    )]
    NothingToStayAt,
    #[error(
        "a module takes too long to find the units that it cannot migrate; the originals are untouched. Start again with a corrected one"
    )]
    SlowModule(#[source] Box<LensError>),
    #[error(
        "{refused} of {all} units of table {table} cannot be migrated, too many to be damaged; the originals are untouched. \
         Correct the module, or the encryption keys, then start again; or raise `quarantine_limit` (above {limit}, and never for \
         more than half of the units). The last one is {unit:?}: {reason}"
    )]
    TooManyRefused {
        table: String,
        refused: u64,
        all: u64,
        limit: u64,
        unit: String,
        reason: String,
    },
    #[error(
        "table {table} was written to while it was copied; stop what writes to it, then start again"
    )]
    WrittenMeanwhile { table: String },
    #[error(
        "the copy of table {table} failed its verification: {problem}. The original tables are intact, and the copy is removed; start \
         again to copy anew"
    )]
    Verify { table: String, problem: String },
    #[error(
        "bbs_copy has a damaged cursor of table group {group}; empty bbs_migration to copy anew"
    )]
    DamagedCursor { group: usize },
    #[error("bbs_changed_unit has a damaged entry {key:?}; empty bbs_migration to copy anew")]
    DamagedChange { key: String },
    #[error(
        "bbs_quarantine has a damaged entry for unit {unit:?}; restore the row from a backup, or delete it to give the \
         unit up"
    )]
    DamagedQuarantine { unit: String },
    #[error(
        "table {table} has got the column {column}, for which unit {unit:?} in quarantine has no value: give the column a default, \
         or let it be NULL, and try again"
    )]
    NoValueInQuarantine {
        unit: String,
        table: String,
        column: String,
    },
    #[error(
        "there is no unit {unit:?} in quarantine; `bbs migrate quarantine list` lists its units"
    )]
    NotInQuarantine { unit: String },
    #[error(
        "unit {unit:?} cannot be migrated ({reason}), and an earlier unit of its key is in quarantine, the only place that has its \
         rows. Repair the unit in the tables and start again; or run `bbs migrate abort`, and `bbs migrate quarantine delete` for the \
         earlier one"
    )]
    KeptInQuarantine { unit: String, reason: String },
    #[error(
        "the migration {direction} to {to} is in the phase {phase}; units in quarantine can be restored, corrected and deleted once it \
         has ended. A host completes it, or if it has failed, tries again at its next start or reload; without a host, `{}` completes it{}",
        command(*.direction, *.to),
        way_out(*.has_arrived)
    )]
    QuarantineUnderway {
        direction: Direction,
        to: DataVersion,
        /// The name of the phase.
        phase: &'static str,
        /// Whether its version is durable.
        has_arrived: bool,
    },
    #[error("a migration has changed the version of the database meanwhile; run the command again")]
    VersionChanged,
    #[error(
        "the records of this database are sealed under the key {label:?}, or a rotation to it is under way, and the active key of \
         this configuration is {active:?}. Nothing was written; set `active_key_label` to {label:?}, as the serving host has it, or \
         start a host with {active:?} first, which re-seals all records"
    )]
    OtherActiveKey { label: String, active: String },
    #[error(
        "the correction of unit {unit:?} cannot be imported, and nothing was written:{}",
        .faults.iter().map(|fault| format!("\n  {fault}")).collect::<String>()
    )]
    NotCorrected { unit: String, faults: Vec<String> },
    #[error(
        "the module given for migration {version} declares other layout changes than the catalog's; give a correction of the catalog's"
    )]
    OtherChanges { version: DataVersion },
    #[error(
        "the module given is migration {given}, and the unit failed at {version}-{module}; give a correction of that one"
    )]
    OtherMigration {
        given: DataVersion,
        version: DataVersion,
        module: String,
    },
    #[error(
        "no module failed on unit {unit:?}: {reason}; `bbs migrate quarantine show` has what to do"
    )]
    NoModuleFailed { unit: String, reason: String },
    #[error(
        "locks of another client do not let the host change the tables: {holders}. Nothing is lost; end its transaction, or its \
         backup, or raise migration_lock_timeout, and start again to continue"
    )]
    Locked {
        holders: String,
        source: Box<MigrateError>,
    },
    #[error("the work was interrupted; start again to continue")]
    Interrupted,
}

impl From<JoinError> for MigrateError {
    fn from(_: JoinError) -> Self {
        Self::Interrupted
    }
}

impl From<StatementError> for MigrateError {
    fn from(StatementError { what, source }: StatementError) -> Self {
        Self::Sql { what, source }
    }
}

impl From<RowsError> for MigrateError {
    fn from(fault: RowsError) -> Self {
        match fault {
            RowsError::Rows { table, source } => Self::Sql {
                what: format!("rows of {table}"),
                source,
            },
            RowsError::Residue(source) => {
                Self::of_row(residue::TABLE, residue::TABLE.to_owned(), source)
            }
            RowsError::SealedResidue { unit, source } => Self::Record {
                unit,
                table: residue::TABLE.to_owned(),
                column: "sealed".to_owned(),
                source,
            },
            RowsError::UnitTooLarge { unit, bytes, limit } => {
                Self::UnitTooLarge { unit, bytes, limit }
            }
            RowsError::WrittenMeanwhile { table } => Self::WrittenMeanwhile { table },
            RowsError::Interrupted => Self::Interrupted,
            RowsError::Lens(source) if source.is_of_module() => Self::SlowModule(source),
            fault => Self::Rows(fault),
        }
    }
}

/// The command that shows a unit at which a migration stopped.
fn where_shown(unit: &str) -> String {
    format!("`bbs migrate quarantine show {unit:?}` describes it. ")
}

/// The command that gives up a migration, unless its version is durable.
fn way_out(has_arrived: bool) -> &'static str {
    if has_arrived {
        ""
    } else {
        "; `bbs migrate abort` gives it up"
    }
}

/// The command that migrates to a version.
pub fn command(direction: Direction, to: DataVersion) -> String {
    format!("bbs migrate {direction} --to {to}")
}

/// A reason with its causes, on a line of its own.
fn listed(reason: &MigrateError) -> String {
    format!("\n- {}", with_causes(reason))
}

fn removed_by(object: &AttachedObject) -> String {
    let AttachedObject {
        description,
        removal,
        ..
    } = object;
    if removal.is_empty() {
        description.clone()
    } else {
        format!("{description} ({removal})")
    }
}

impl MigrateError {
    /// The error of a migration against which there are reasons.
    pub(super) fn refuse(mut reasons: Vec<Self>) -> Result<(), Self> {
        match reasons.len() {
            0 => Ok(()),
            1 => Err(reasons.remove(0)),
            _ => Err(Self::Several(reasons)),
        }
    }

    /// Adds how a migration that stops at a unit can go on, if it does. `unit` is its name, if there
    /// is an entry of it in quarantine.
    pub(super) fn stopping(
        self,
        direction: Direction,
        to: DataVersion,
        unit: Option<String>,
    ) -> Self {
        match self {
            Self::Record { .. }
            | Self::Unit { .. }
            | Self::Unstorable { .. }
            | Self::UnitTooLarge { .. } => Self::Stopped {
                direction,
                to,
                unit,
                source: Box::new(self),
            },
            other => other,
        }
    }

    /// The error of a statement that writes rows of a table.
    pub(super) fn of_row(table: &str, what: String, source: SqlError) -> Self {
        if is_refused_row(&source) {
            Self::RefusedRow {
                table: table.to_owned(),
                source,
            }
        } else {
            Self::Sql { what, source }
        }
    }

    /// The error of a change of a table that is not copied.
    pub(super) fn of_change_in_place(self, table: &str) -> Self {
        match self {
            Self::Fence(FenceError::Schema { statement, source }) if is_not_at_once(&source) => {
                Self::NotAtOnce {
                    table: table.to_owned(),
                    statement,
                    source,
                }
            }
            other => other,
        }
    }

    /// Whether a table has no place for what a row would hold, however often it is written.
    pub(super) fn is_refused_row(&self) -> bool {
        match self {
            Self::RefusedRow { .. } => true,
            Self::Sql { source, .. } | Self::Fence(FenceError::Schema { source, .. }) => {
                is_refused_row(source)
            }
            _ => false,
        }
    }

    /// Whether another host has raised the fence.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Fence(FenceError::Lost { .. }))
    }

    /// Whether the server is away, or has ended the session.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Sql { source, .. } => is_outage(source),
            Self::ReadBack(fault) => is_outage(fault.database_error()),
            Self::Database(fault) => fault.is_outage(),
            Self::Fence(fault) => fault.is_outage(),
            _ => false,
        }
    }

    /// Whether nothing else may be done in this session: another host is the master, the server is
    /// away, or the process ends.
    pub(super) fn ends_the_session(&self) -> bool {
        self.is_lost() || self.is_outage() || matches!(self, Self::Interrupted)
    }

    /// Whether the same work may succeed if it is done again from its start, in another session.
    pub fn is_repeatable(&self) -> bool {
        self.is_transient() || self.is_outage()
    }

    /// Whether the same transaction may succeed if it is done again from its start.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Sql { source, .. } => is_transient(source),
            Self::ReadBack(fault) => is_transient(fault.database_error()),
            Self::Database(fault) => fault.is_transient(),
            Self::Fence(fault) => fault.is_transient(),
            _ => false,
        }
    }
}

/// The description, in an error, of what the server's catalog has about a name.
pub(super) fn in_catalog(name: &str) -> String {
    format!("what the catalog of the server says of {name}")
}
