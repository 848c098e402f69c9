//! `diego:migration@0.1.0`, converted to the host's manifest and columns. Values are not inspected:
//! columns cross unchanged in both directions.

use bbs_lens::layout::columns::{Batch, ColumnData, Outcome, Refusal, Shape, Written};
use bbs_lens::layout::manifest::{Access, Change, Direction, Manifest};
use bbs_lens::layout::schema::{Column, ColumnType, Index, Literal, Sealing, Table};
use bbs_lens::transform::RunArguments;
use wasmtime::Store;
use wasmtime::component::{Component, Linker};

use self::generated::diego::migration::log::Level as WireLevel;
use self::generated::diego::migration::{columns as wire_columns, manifest as wire};
use super::{link_log, link_types};
use crate::instance::{InstanceState, Linked, LinkedBlocking};
use crate::log::GuestLogLevel;
use crate::text::ModuleText;

mod generated {
    wasmtime::component::bindgen!({
        path: "../../sdk/wit/migration-0.1.0",
        world: "migration",
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

const LOG: &str = "diego:migration/log@0.1.0";

/// The interfaces with functions that a component may import.
pub(crate) const IMPORTS: &[&str] = &[LOG];

pub(crate) struct Migration(generated::MigrationPre<InstanceState>);

impl Migration {
    /// Links the imports. Fails if the type of an import or export differs from the contract's.
    pub(crate) fn link(component: &Component) -> wasmtime::Result<Self> {
        let mut linker = Linker::new(component.engine());
        link_types(component, &mut linker)?;
        link_log(&mut linker, LOG, |level: WireLevel| match level {
            WireLevel::Debug => GuestLogLevel::Debug,
            WireLevel::Info => GuestLogLevel::Info,
            WireLevel::Warn => GuestLogLevel::Warn,
        })?;
        Ok(Self(generated::MigrationPre::new(
            linker.instantiate_pre(component)?,
        )?))
    }
}

impl Linked for Migration {
    type Guest = MigrationGuest;
}

impl LinkedBlocking for Migration {
    fn instantiate(&self, store: &mut Store<InstanceState>) -> wasmtime::Result<MigrationGuest> {
        Ok(MigrationGuest(self.0.instantiate(store)?))
    }
}

pub(crate) struct MigrationGuest(generated::Migration);

impl MigrationGuest {
    pub(crate) fn describe(&self, store: &mut Store<InstanceState>) -> wasmtime::Result<Manifest> {
        Ok(manifest(self.0.call_describe(store)?))
    }

    /// Calls `up` or `down`. The inner error is the fault that the module returned.
    pub(crate) fn apply(
        &self,
        store: &mut Store<InstanceState>,
        direction: Direction,
        run: &RunArguments,
        batch: &Batch,
    ) -> wasmtime::Result<Result<Outcome, ModuleText>> {
        let columns: Vec<Vec<_>> = batch
            .tables
            .iter()
            .map(|table| table.columns.iter().map(lend).collect())
            .collect();
        let tables: Vec<_> = batch
            .tables
            .iter()
            .zip(&columns)
            .map(|(table, columns)| wire_columns::Table {
                unit_offsets: &table.unit_offsets,
                columns,
            })
            .collect();
        let residue: Vec<_> = batch.residue.iter().map(Option::as_deref).collect();
        let batch = wire_columns::Batch {
            tables: &tables,
            residue: &residue,
        };
        let namespace = run.namespace.to_string();
        let run = wire_columns::Run {
            started_at_ns: run.started_at_ns,
            namespace: &namespace,
        };
        let answer = match direction {
            Direction::Up => self.0.call_up(store, run, batch)?,
            Direction::Down => self.0.call_down(store, run, batch)?,
        };
        Ok(answer
            .map(outcome)
            .map_err(|fault| ModuleText::reason(&fault.reason)))
    }
}

fn lend(column: &ColumnData) -> wire_columns::ColumnParam<'_> {
    wire_columns::ColumnParam {
        validity: &column.validity,
        offsets: &column.offsets,
        values: &column.values,
    }
}

fn outcome(outcome: wire_columns::Outcome) -> Outcome {
    Outcome {
        tables: outcome.tables.into_iter().map(written).collect(),
        refused: outcome
            .refused
            .into_iter()
            .map(|refusal| Refusal {
                unit: refusal.unit,
                reason: ModuleText::reason(&refusal.reason).into(),
            })
            .collect(),
        residue: outcome.residue,
    }
}

fn written(written: wire_columns::Written) -> Written {
    Written {
        shape: written.shape.map(|shape| Shape {
            unit_offsets: shape.unit_offsets,
            origins: shape.origins,
        }),
        columns: written
            .columns
            .into_iter()
            .map(|column| ColumnData {
                validity: column.validity,
                offsets: column.offsets,
                values: column.values,
            })
            .collect(),
    }
}

fn manifest(manifest: wire::Manifest) -> Manifest {
    Manifest {
        version: manifest.version,
        name: manifest.name,
        summary: manifest.summary,
        changes: manifest.changes.into_iter().map(change).collect(),
        up: manifest.up.into_iter().map(access).collect(),
        down: manifest.down.into_iter().map(access).collect(),
        reversible: manifest.reversible,
        leaves_residue: manifest.leaves_residue,
        removes_rows: manifest.removes_rows,
    }
}

fn access(access: wire::Access) -> Access {
    Access {
        table: access.table,
        reads: access.reads,
        writes: access.writes,
        encodings: Vec::new(),
        reshapes: access.reshapes,
    }
}

fn change(change: wire::Change) -> Change {
    use wire::Change as Wire;
    match change {
        Wire::CreateTable(created) => Change::CreateTable(table(created)),
        Wire::DropTable(table) => Change::DropTable { table },
        Wire::RenameTable(wire::RenameTable { from, to }) => Change::RenameTable { from, to },
        Wire::AddColumn(added) => Change::AddColumn {
            table: added.table,
            column: column(added.column),
        },
        Wire::AlterColumn(altered) => Change::AlterColumn {
            table: altered.table,
            column: column(altered.column),
        },
        Wire::DropColumn(wire::DroppedColumn { table, column }) => {
            Change::DropColumn { table, column }
        }
        Wire::RenameColumn(wire::RenameColumn { table, from, to }) => {
            Change::RenameColumn { table, from, to }
        }
        Wire::MoveColumn(wire::MoveColumn { column, from, to }) => {
            Change::MoveColumn { column, from, to }
        }
        Wire::SetPrimaryKey(wire::PrimaryKey { table, columns }) => {
            Change::SetPrimaryKey { table, columns }
        }
        Wire::CreateIndex(created) => Change::CreateIndex {
            table: created.table,
            index: index(created.index),
        },
        Wire::DropIndex(wire::DroppedIndex { table, index }) => Change::DropIndex { table, index },
    }
}

fn table(table: wire::Table) -> Table {
    Table {
        name: table.name,
        columns: table.columns.into_iter().map(column).collect(),
        primary_key: table.primary_key,
        indexes: table.indexes.into_iter().map(index).collect(),
        partition_key: table.partition_key,
    }
}

fn column(column: wire::Column) -> Column {
    Column {
        name: column.name,
        kind: match column.type_ {
            wire::ColumnType::Boolean => ColumnType::Boolean,
            wire::ColumnType::Integer => ColumnType::Integer,
            wire::ColumnType::BigInteger => ColumnType::BigInteger,
            wire::ColumnType::Varchar(characters) => ColumnType::Varchar(characters),
            wire::ColumnType::Text => ColumnType::Text,
            wire::ColumnType::MediumText => ColumnType::MediumText,
            wire::ColumnType::LongText => ColumnType::LongText,
        },
        nullable: column.nullable,
        default: column.default.map(|default| match default {
            wire::Literal::Boolean(value) => Literal::Boolean(value),
            wire::Literal::Integer(value) => Literal::Integer(value),
            wire::Literal::Text(value) => Literal::Text(value),
        }),
        sealing: match column.sealing {
            wire::Sealing::Plain => Sealing::Plain,
            wire::Sealing::Sealed => Sealing::Sealed,
            wire::Sealing::Enveloped => Sealing::Enveloped,
        },
    }
}

fn index(index: wire::Index) -> Index {
    Index {
        name: index.name,
        columns: index.columns,
    }
}
