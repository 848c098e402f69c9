//! The migration world's bindings, and the conversion of their records. Columns are moved, not
//! copied.

use bindings::diego::migration::{columns as wire, log as host_log, manifest as wire_manifest};

use crate::columns::{Batch, ColumnData, Outcome, TableData, Written};
use crate::log::Level;
use crate::manifest::{Access, Change, Direction, Manifest};
use crate::migration::{Migration, Run};
use crate::schema::{Column, ColumnType, Index, Literal, Sealing, Table};

#[allow(
    unsafe_code,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all
)]
#[doc(hidden)]
pub mod bindings {
    //! Generated from the contract.
    wit_bindgen::generate!({
        path: "wit/migration-0.1.0",
        world: "migration",
        pub_export_macro: true,
        disable_custom_section_link_helpers: true,
    });
}

/// Implemented by the export macro; the generated `Guest` trait follows from it.
pub trait MigrationComponent {
    /// The exported migration.
    type Migration: Migration;

    /// The migration's manifest, built once per instance.
    fn manifest() -> &'static Manifest;
}

impl<C: MigrationComponent> bindings::Guest for C {
    fn describe() -> wire_manifest::Manifest {
        crate::log::set_destination(log);
        manifest(C::manifest())
    }

    fn up(run: wire::Run, batch: wire::Batch) -> Result<wire::Outcome, wire::Fault> {
        step::<C>(Direction::Up, run, batch)
    }

    fn down(run: wire::Run, batch: wire::Batch) -> Result<wire::Outcome, wire::Fault> {
        step::<C>(Direction::Down, run, batch)
    }
}

fn step<C: MigrationComponent>(
    direction: Direction,
    run: wire::Run,
    given: wire::Batch,
) -> Result<wire::Outcome, wire::Fault> {
    crate::log::set_destination(log);
    let run = Run {
        started_at_ns: run.started_at_ns,
        namespace: run.namespace,
    };
    match crate::transform::<C::Migration>(C::manifest(), direction, &run, &batch(given)) {
        Ok(given) => Ok(outcome(given)),
        Err(fault) => Err(wire::Fault {
            reason: fault.reason,
        }),
    }
}

fn log(level: Level, message: &str) {
    let level = match level {
        Level::Debug => host_log::Level::Debug,
        Level::Info => host_log::Level::Info,
        Level::Warn => host_log::Level::Warn,
    };
    host_log::log(level, message);
}

fn batch(batch: wire::Batch) -> Batch {
    let table = |table: wire::Table| TableData {
        unit_offsets: table.unit_offsets,
        columns: table.columns.into_iter().map(given_column).collect(),
    };
    Batch {
        tables: batch.tables.into_iter().map(table).collect(),
        residue: batch.residue,
    }
}

fn given_column(column: wire::Column) -> ColumnData {
    ColumnData {
        validity: column.validity,
        offsets: column.offsets,
        values: column.values,
    }
}

fn outcome(outcome: Outcome) -> wire::Outcome {
    let column = |column: ColumnData| wire::Column {
        validity: column.validity,
        offsets: column.offsets,
        values: column.values,
    };
    let table = |table: Written| wire::Written {
        shape: table.shape.map(|shape| wire::Shape {
            unit_offsets: shape.unit_offsets,
            origins: shape.origins,
        }),
        columns: table.columns.into_iter().map(column).collect(),
    };
    let refused = outcome.refused.into_iter();
    wire::Outcome {
        tables: outcome.tables.into_iter().map(table).collect(),
        refused: refused
            .map(|refusal| wire::Refusal {
                unit: refusal.unit,
                reason: refusal.reason,
            })
            .collect(),
        residue: outcome.residue,
    }
}

fn manifest(manifest: &Manifest) -> wire_manifest::Manifest {
    wire_manifest::Manifest {
        version: manifest.version,
        name: manifest.name.clone(),
        summary: manifest.summary.clone(),
        changes: manifest.changes.iter().cloned().map(change).collect(),
        up: manifest.up.iter().map(access).collect(),
        down: manifest.down.iter().map(access).collect(),
        reversible: manifest.reversible,
        leaves_residue: manifest.leaves_residue,
        removes_rows: manifest.removes_rows,
    }
}

fn access(access: &Access) -> wire_manifest::Access {
    wire_manifest::Access {
        table: access.table.clone(),
        reads: access.reads.clone(),
        writes: access.writes.clone(),
        reshapes: access.reshapes,
    }
}

fn change(change: Change) -> wire_manifest::Change {
    use wire_manifest as wire;
    match change {
        Change::CreateTable(created) => wire::Change::CreateTable(table(created)),
        Change::DropTable { table } => wire::Change::DropTable(table),
        Change::RenameTable { from, to } => {
            wire::Change::RenameTable(wire::RenameTable { from, to })
        }
        Change::AddColumn {
            table,
            column: added,
        } => wire::Change::AddColumn(wire::TableColumn {
            table,
            column: column(added),
        }),
        Change::AlterColumn {
            table,
            column: altered,
        } => wire::Change::AlterColumn(wire::TableColumn {
            table,
            column: column(altered),
        }),
        Change::DropColumn { table, column } => {
            wire::Change::DropColumn(wire::DroppedColumn { table, column })
        }
        Change::RenameColumn { table, from, to } => {
            wire::Change::RenameColumn(wire::RenameColumn { table, from, to })
        }
        Change::MoveColumn { column, from, to } => {
            wire::Change::MoveColumn(wire::MoveColumn { column, from, to })
        }
        Change::SetPrimaryKey { table, columns } => {
            wire::Change::SetPrimaryKey(wire::PrimaryKey { table, columns })
        }
        Change::CreateIndex {
            table,
            index: created,
        } => wire::Change::CreateIndex(wire::TableIndex {
            table,
            index: index(created),
        }),
        Change::DropIndex { table, index } => {
            wire::Change::DropIndex(wire::DroppedIndex { table, index })
        }
    }
}

fn table(table: Table) -> wire_manifest::Table {
    wire_manifest::Table {
        name: table.name,
        columns: table.columns.into_iter().map(column).collect(),
        primary_key: table.primary_key,
        indexes: table.indexes.into_iter().map(index).collect(),
        partition_key: table.partition_key,
    }
}

fn index(index: Index) -> wire_manifest::Index {
    wire_manifest::Index {
        name: index.name,
        columns: index.columns,
    }
}

fn column(column: Column) -> wire_manifest::Column {
    wire_manifest::Column {
        name: column.name,
        type_: match column.kind {
            ColumnType::Boolean => wire_manifest::ColumnType::Boolean,
            ColumnType::Integer => wire_manifest::ColumnType::Integer,
            ColumnType::BigInteger => wire_manifest::ColumnType::BigInteger,
            ColumnType::Varchar(length) => wire_manifest::ColumnType::Varchar(length),
            ColumnType::Text => wire_manifest::ColumnType::Text,
            ColumnType::MediumText => wire_manifest::ColumnType::MediumText,
            ColumnType::LongText => wire_manifest::ColumnType::LongText,
        },
        nullable: column.nullable,
        default: column.default.map(|literal| match literal {
            Literal::Boolean(value) => wire_manifest::Literal::Boolean(value),
            Literal::Integer(value) => wire_manifest::Literal::Integer(value),
            Literal::Text(value) => wire_manifest::Literal::Text(value),
        }),
        sealing: match column.sealing {
            Sealing::Plain => wire_manifest::Sealing::Plain,
            Sealing::Sealed => wire_manifest::Sealing::Sealed,
            Sealing::Enveloped => wire_manifest::Sealing::Enveloped,
        },
    }
}
