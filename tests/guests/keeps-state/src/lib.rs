//! Writes a counter of its calls, so that two calls with the same input have different output.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

use diego::migration::columns::{Column, Written};
use diego::migration::manifest::{self, Access, Change, ColumnType, Sealing, TableColumn};

use std::sync::atomic::{AtomicU64, Ordering};

struct KeepsState;

static CALLS: AtomicU64 = AtomicU64::new(0);

impl Guest for KeepsState {
    fn describe() -> Manifest {
        Manifest {
            version: 100,
            name: "keeps-state".into(),
            summary: "Writes a counter of its calls.".into(),
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
            leaves_residue: true,
            removes_rows: false,
        }
    }

    fn up(_run: Run, batch: Batch) -> Result<Outcome, Fault> {
        let rows = batch.tables[0].columns[0].offsets.len() - 1;
        let values = (0..rows)
            .flat_map(|_| CALLS.fetch_add(1, Ordering::Relaxed).to_le_bytes())
            .collect();
        let sizes = Column {
            validity: vec![],
            offsets: vec![],
            values,
        };
        Ok(Outcome {
            tables: vec![Written {
                shape: None,
                columns: vec![sizes],
            }],
            refused: vec![],
            residue: vec![],
        })
    }

    fn down(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("its down declares no access, so it is not called")
    }
}

export!(KeepsState);
