//! The tables that the host keeps for its migrations beside Diego's, all named `bbs_…`. Owns their
//! columns, declared as any layout is, so that they are the same on every database, and their
//! creation. No key is longer than MySQL allows.

use bbs_database::{StatementResult, schema};
use bbs_lens::layout::schema::{Column, ColumnType, Table};
use bbs_units::residue;

use crate::lock::fence::Fence;
use crate::migrate::lock_waits::change_schema;
use crate::migrate::{Context, MigrateError};

pub(crate) use bbs_units::residue::TABLE as RESIDUE;
/// The import of an etcd store, and the halves of its desired LRPs whose other half has not been
/// read yet.
pub const IMPORT: &str = "bbs_import";
pub const IMPORT_RUN: &str = "bbs_import_run";
pub(super) const CATALOG_SERIAL: &str = "bbs_catalog_serial";
/// The migrations of the catalog up to the version of the database, when a host worked with it
/// last.
pub(crate) const APPLIED: &str = "bbs_applied_version";
/// The migrations that began, for operators.
pub(crate) const RUN: &str = "bbs_migration_run";
/// The units that clients have changed while they are copied.
pub(crate) const CHANGED_UNIT: &str = "bbs_changed_unit";
pub(crate) const QUARANTINE: &str = "bbs_quarantine";
pub(crate) const QUARANTINE_PART: &str = "bbs_quarantine_part";

const KEY: ColumnType = ColumnType::Varchar(255);
const NUMBER: ColumnType = ColumnType::BigInteger;
const TEXT: ColumnType = ColumnType::LongText;

/// The columns of the history: the migrations that ran.
pub(super) const HISTORY_COLUMNS: [(&str, ColumnType); 8] = [
    ("seq", NUMBER),
    ("version", NUMBER),
    ("direction", KEY),
    ("name", TEXT),
    ("digest", KEY),
    ("ran_at_ns", NUMBER),
    ("started_at_ns", NUMBER),
    ("namespace", KEY),
];

/// Creates the host's own tables that are absent.
///
/// # Errors
/// Another host has raised the fence, or the database fails.
pub async fn create(context: &Context, fence: &Fence) -> Result<(), MigrateError> {
    let mut reader = context.database.read().await?;
    let own = tables();
    let names: Vec<_> = own.iter().map(|table| table.name.as_str()).collect();
    let existing = schema::existing(&mut reader, &names).await;
    let existing = existing.about("the list of tables")?;
    let absent: Vec<_> = own
        .iter()
        .filter(|table| !existing.contains(table.name.as_str()))
        .collect();
    if absent.is_empty() {
        return Ok(());
    }
    let layouts = context.layouts()?;
    let beside: Vec<_> = layouts.table_names().into_iter().collect();
    let options = schema::options_beside(&mut reader, &beside, &[])
        .await
        .about("the list of tables")?;
    let dialect = reader.dialect();
    drop(reader);
    let mut statements = Vec::new();
    for table in absent {
        statements.extend(schema::create_table_like(
            dialect,
            table,
            &table.name,
            &options,
        ));
        statements.extend(schema::create_indexes(dialect, &table.name, &table.indexes));
    }
    change_schema(context, fence, &statements).await
}

/// All of them. Sealed columns are marked as such, which key rotation relies on.
pub fn tables() -> Vec<Table> {
    vec![
        table("configurations", &["id"], &[("id", KEY)])
            .column(Column::new("value", KEY).nullable()),
        table("bbs_history", &["seq"], &HISTORY_COLUMNS),
        table(APPLIED, &["version"], &[("version", NUMBER)]),
        table(
            "bbs_run_arguments",
            &["version"],
            &[
                ("version", NUMBER),
                ("started_at_ns", NUMBER),
                ("namespace", KEY),
            ],
        ),
        table(
            "bbs_migration",
            &["id"],
            &[
                ("id", NUMBER),
                ("from_version", NUMBER),
                ("to_version", NUMBER),
                ("going_down", ColumnType::Boolean),
                ("fingerprint", KEY),
                ("token", NUMBER),
                ("phase", KEY),
            ],
        ),
        run(),
        table("bbs_side_table", &["table_name"], &[("table_name", KEY)]),
        table(
            "bbs_copy",
            &["group_number"],
            &[("group_number", NUMBER), ("last_key", TEXT)],
        ),
        table(
            "bbs_copy_table",
            &["table_name"],
            &[("table_name", KEY), ("rows_out", NUMBER), ("digest", KEY)],
        ),
        changed_unit(),
        catalog_serial(),
        import(),
        import_run(),
        residue::table(),
        quarantine(),
        quarantine_part(),
    ]
}

fn run() -> Table {
    table(
        RUN,
        &["run"],
        &[
            ("run", NUMBER),
            ("from_version", NUMBER),
            ("to_version", NUMBER),
            ("state", KEY),
            ("began_at_ns", NUMBER),
            ("host", KEY),
            ("release_name", KEY),
        ],
    )
    .column(Column::new("ended_at_ns", NUMBER).nullable())
}

/// A unit is found by the digest of its key.
pub(super) fn changed_unit() -> Table {
    table(
        CHANGED_UNIT,
        &["unit_digest", "group_number"],
        &[
            ("unit_digest", ColumnType::Varchar(64)),
            ("group_number", NUMBER),
            ("unit_key", TEXT),
            ("change_id", KEY),
        ],
    )
}

pub(super) fn catalog_serial() -> Table {
    table(
        CATALOG_SERIAL,
        &["name"],
        &[("name", KEY), ("serial", NUMBER)],
    )
}

fn import() -> Table {
    table(
        IMPORT,
        &["id"],
        &[
            ("id", NUMBER),
            ("phase", KEY),
            ("cluster_id", KEY),
            ("etcd_index", NUMBER),
            ("version_index", NUMBER),
            ("fingerprint", KEY),
            ("report", TEXT),
        ],
    )
}

/// Leaves as they were read, found by their process guids.
pub fn import_run() -> Table {
    table(IMPORT_RUN, &["process_guid"], &[("process_guid", KEY)])
        .column(Column::new("leaf", TEXT).sealed())
}

/// A unit is found by the digest of its key; the table distinguishes units with the same key.
pub(crate) fn quarantine() -> Table {
    table(
        QUARANTINE,
        &["unit_digest", "table_name", "from_version"],
        &[
            ("unit_digest", ColumnType::Varchar(64)),
            ("table_name", ColumnType::Varchar(64)),
            ("from_version", NUMBER),
            ("unit", TEXT),
            ("unit_key", TEXT),
            ("to_version", NUMBER),
            ("version", NUMBER),
            ("direction", ColumnType::Varchar(4)),
            ("module", KEY),
            ("digest", KEY),
            ("reason", TEXT),
            ("row_counts", TEXT),
            ("at_ns", NUMBER),
            ("pending", ColumnType::Boolean),
        ],
    )
    .column(Column::new("sealed", TEXT).sealed())
    // Marks an entry whose hold has ended. Hosts of earlier releases, which may share the database,
    // write a path into it.
    .column(Column::new("replay", TEXT).nullable())
}

/// The content of a unit beyond what an entry holds.
pub(crate) fn quarantine_part() -> Table {
    let key = [
        ("unit_digest", ColumnType::Varchar(64)),
        ("table_name", ColumnType::Varchar(64)),
        ("from_version", NUMBER),
        ("part", NUMBER),
    ];
    table(QUARANTINE_PART, &key.map(|(name, _)| name), &key)
        .column(Column::new("sealed", TEXT).sealed())
}

/// A table without indexes, of plain columns that are never NULL.
pub fn table(name: &str, key: &[&str], columns: &[(&str, ColumnType)]) -> Table {
    let columns = columns.iter().map(|(name, kind)| Column::new(name, *kind));
    Table {
        primary_key: key.iter().map(|name| (*name).to_owned()).collect(),
        ..columns.fold(Table::new(name), Table::column)
    }
}
