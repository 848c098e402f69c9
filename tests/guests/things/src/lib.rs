//! Creates the table `things` with the columns `id` and `text`. Changes the layout only.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

use diego::migration::manifest::{Change, Column, ColumnType, Sealing, Table};

struct Things;

impl Guest for Things {
    fn describe() -> Manifest {
        let column = |name: &str, type_| Column {
            name: name.into(),
            type_,
            nullable: false,
            default: None,
            sealing: Sealing::Plain,
        };
        Manifest {
            version: 50,
            name: "things".into(),
            summary: "Creates the table of things.".into(),
            changes: vec![Change::CreateTable(Table {
                name: "things".into(),
                columns: vec![
                    column("id", ColumnType::Varchar(255)),
                    column("text", ColumnType::LongText),
                ],
                primary_key: vec!["id".into()],
                indexes: vec![],
                partition_key: Some("id".into()),
            })],
            up: vec![],
            down: vec![],
            reversible: true,
            leaves_residue: false,
            removes_rows: false,
        }
    }

    fn up(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("a migration that only changes the layout is never called")
    }

    fn down(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("a migration that only changes the layout is never called")
    }
}

export!(Things);
