//! Residue and rows that a migration keeps for the way back, and the record that the host
//! recognises them by: another client may remove the record meanwhile and make one under its key,
//! which must get nothing of it.

use super::{LayoutHistory, share_units};
use crate::layout::manifest::{Change, Direction, Manifest};
use crate::layout::schema::{Column, Layout, Table};

/// Something that would be given to whatever record has the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unbound {
    #[error(
        "the residue that {direction} leaves would be given to any record with the same key: no table that {direction} names \
         has a column that distinguishes them (`modification_tag_epoch` or `created_at`, unencrypted); name one that has"
    )]
    Residue { direction: Direction },
    #[error(
        "the rows of `{table}` would be given to any record with the same {key}: none of the tables with that partition key has \
         one row for each of its values and a column that distinguishes records (`modification_tag_epoch` or `created_at`, \
         unencrypted)"
    )]
    Rows { table: String, key: String },
}

impl LayoutHistory {
    /// Residue and rows that one of its migrations keeps without a record to bind them to.
    pub fn unbound(&self, manifest: &Manifest) -> Vec<Unbound> {
        let before = self.before(manifest.version);
        let after = self.at(manifest.version);
        let Some(after) = after.filter(|_| manifest.reversible) else {
            return Vec::new();
        };
        let residue = [(Direction::Up, after), (Direction::Down, before)]
            .into_iter()
            .filter(|(direction, left)| {
                manifest.leaves_residue && !distinguishes_records(manifest, *direction, left)
            })
            .map(|(direction, _)| Unbound::Residue { direction });
        let created = manifest.changes.iter().filter_map(|change| match change {
            Change::CreateTable(table) => Some(table),
            _ => None,
        });
        let is_kept = |table: &&Table| {
            !manifest
                .up
                .iter()
                .any(|access| access.table == table.name && access.reshapes)
        };
        let rows = created
            .filter(is_kept)
            .filter_map(|table| unbound_rows(table, before));
        residue.chain(rows).collect()
    }
}

/// Whether a column of the tables that a row function names has another value in another record.
/// `left` is the layout in which it leaves them.
fn distinguishes_records(manifest: &Manifest, direction: Direction, left: &Layout) -> bool {
    let accesses = manifest.accesses(direction);
    let mut tables = accesses
        .iter()
        .filter_map(|access| left.tables.get(&access.table));
    accesses.is_empty() || tables.any(|table| table.columns.iter().any(Column::is_identity))
}

/// The rows of a table that `down` drops, if there are records that they could belong to, but none
/// with an identity.
fn unbound_rows(table: &Table, below: &Layout) -> Option<Unbound> {
    let key = table.partition_key.as_ref()?;
    let mut records = below
        .tables
        .values()
        .filter(|below| share_units(below, table))
        .peekable();
    records.peek()?;
    let is_bound = records.any(Table::identifies_units);
    (!is_bound).then(|| Unbound::Rows {
        table: table.name.clone(),
        key: key.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::manifest::{Access, DataVersion};

    fn manifest(version: DataVersion) -> Manifest {
        Manifest::new(version, "test")
    }

    fn table(name: &str, column: &str) -> Table {
        Table::new(name)
            .column(Column::varchar("guid", 255))
            .column(Column::varchar(column, 255).nullable())
            .primary_key(["guid"])
            .partition_key("guid")
    }

    /// Residue and rows that a migration over records with this column leaves unbound.
    fn unbound(column: &str, migration: Manifest) -> Vec<Unbound> {
        let manifests = [
            manifest(1).create_table(table("records", column)),
            migration,
        ];
        LayoutHistory::new(&manifests)
            .unwrap()
            .unbound(&manifests[1])
    }

    #[test]
    fn residue_needs_a_column_that_distinguishes_records() {
        let reads = || manifest(2).down(Access::to("records").reads(["guid"]));
        let leaves = || reads().leaves_residue();
        let residue = Unbound::Residue {
            direction: Direction::Down,
        };
        assert_eq!(unbound("domain", leaves()), [residue]);
        assert_eq!(unbound("modification_tag_epoch", leaves()), []);
        assert_eq!(unbound("created_at", leaves()), []);
        assert_eq!(unbound("domain", reads()), []);
    }

    #[test]
    fn dropped_rows_need_a_record_or_that_there_is_none() {
        let creates = |version| manifest(version).create_table(table("details", "text"));
        let rows = Unbound::Rows {
            table: "details".to_owned(),
            key: "guid".to_owned(),
        };
        assert_eq!(unbound("domain", creates(2)), [rows]);
        assert_eq!(unbound("created_at", creates(2)), []);
        assert_eq!(unbound("domain", creates(2).irreversible()), []);
        let alone = [creates(1)];
        assert_eq!(LayoutHistory::new(&alone).unwrap().unbound(&alone[0]), []);
    }
}
