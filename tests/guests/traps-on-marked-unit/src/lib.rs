//! Traps on every batch with a row whose text is `trap`; otherwise writes the length of each text.
//! Tests the bisection of failing batches.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

use diego::migration::columns::{Column, Written};
use diego::migration::manifest::{self, Access, Change, ColumnType, Sealing, TableColumn};

struct TrapsOnMarkedUnit;

impl Guest for TrapsOnMarkedUnit {
    fn describe() -> Manifest {
        Manifest {
            version: 100,
            name: "traps-on-marked-unit".into(),
            summary: "Writes the length of each text, and traps on the text trap.".into(),
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

    fn up(_run: Run, batch: Batch) -> Result<Outcome, Fault> {
        let text = &batch.tables[0].columns[0];
        let mut values = Vec::new();
        for ends in text.offsets.windows(2) {
            let value = &text.values[ends[0] as usize..ends[1] as usize];
            assert_ne!(value, b"trap", "a marked unit");
            values.extend((value.len() as u64).to_le_bytes());
        }
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

export!(TrapsOnMarkedUnit);
