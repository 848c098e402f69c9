//! Adds the column `size` to `things`: `up` writes the length of `text`, `down` declares no access.
//! Written against the WIT contract without the SDK, to test the contract itself.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

use diego::migration::columns::{Column, Written};
use diego::migration::manifest::{self, Access, Change, ColumnType, Sealing, TableColumn};

struct WellBehaved;

impl Guest for WellBehaved {
    fn describe() -> Manifest {
        Manifest {
            version: 100,
            name: "well-behaved".into(),
            summary: "Writes the length of each text.".into(),
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
        let values = text
            .offsets
            .windows(2)
            .flat_map(|ends| u64::from(ends[1] - ends[0]).to_le_bytes())
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

export!(WellBehaved);
