//! The manifest and the outcome of guests that add the column `size` to `things`. Not a crate:
//! each of them includes it as a module.

use super::diego::migration::columns::{Column, Written};
use super::diego::migration::manifest::{self, Access, Change, ColumnType, Sealing, TableColumn};
use super::{Manifest, Outcome};

/// `up` reads `text` and writes `size`; `down` declares no access.
pub fn manifest(name: &str, summary: &str) -> Manifest {
    Manifest {
        version: 100,
        name: name.into(),
        summary: summary.into(),
        changes: vec![Change::AddColumn(TableColumn {
            table: "things".into(),
            column: manifest::Column {
                name: "size".into(),
                type_: ColumnType::BigInteger,
                nullable: false,
                default: None,
                sealing: Sealing::Plain,
            },
        })],
        up: vec![Access {
            table: "things".into(),
            reads: vec!["text".into()],
            writes: vec!["size".into()],
            reshapes: false,
        }],
        down: vec![],
        reversible: true,
        leaves_residue: false,
        removes_rows: false,
    }
}

/// The sizes, each as eight bytes.
pub fn outcome(values: Vec<u8>) -> Outcome {
    let sizes = Column {
        validity: vec![],
        offsets: vec![],
        values,
    };
    Outcome {
        tables: vec![Written {
            shape: None,
            columns: vec![sizes],
        }],
        refused: vec![],
        residue: vec![],
    }
}
