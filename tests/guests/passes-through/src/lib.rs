//! Returns the columns of its input, one in `up` and two in `down`: measures the cost of a call
//! into the sandbox.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

use diego::migration::columns::Written;
use diego::migration::manifest::Access;

struct PassesThrough;

impl Guest for PassesThrough {
    fn describe() -> Manifest {
        let access = |columns: &[&str]| {
            let columns: Vec<String> = columns.iter().map(|column| (*column).into()).collect();
            vec![Access {
                table: "things".into(),
                reads: columns.clone(),
                writes: columns,
                reshapes: false,
            }]
        };
        Manifest {
            version: 100,
            name: "passes-through".into(),
            summary: "Changes nothing.".into(),
            changes: vec![],
            up: access(&["text"]),
            down: access(&["text", "note"]),
            reversible: true,
            leaves_residue: false,
            removes_rows: false,
        }
    }

    fn up(_run: Run, batch: Batch) -> Result<Outcome, Fault> {
        Ok(back(batch))
    }

    fn down(_run: Run, batch: Batch) -> Result<Outcome, Fault> {
        Ok(back(batch))
    }
}

fn back(batch: Batch) -> Outcome {
    let tables = batch
        .tables
        .into_iter()
        .map(|table| Written {
            shape: None,
            columns: table.columns,
        })
        .collect();
    Outcome {
        tables,
        refused: vec![],
        residue: vec![],
    }
}

export!(PassesThrough);
