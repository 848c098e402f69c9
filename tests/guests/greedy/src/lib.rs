//! A migration after the default ones that misbehaves in the way that the domain of the first task
//! of a batch names: it takes more memory than a batch may, each result within the limits of one
//! call, or does not end, or returns other rows.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

use diego::migration::columns::{Column, Refusal, Shape, Written};
use diego::migration::manifest::{self, Access, Change, ColumnType, Sealing, TableColumn};

/// Rows that continue one given row.
const REPEATS: usize = 10_000;

/// Bytes of one result, just below what a call may return.
const RESULT_BYTES: usize = 30 << 20;

struct Greedy;

impl Guest for Greedy {
    fn describe() -> Manifest {
        Manifest {
            version: 1_795_000_070,
            name: "greedy".into(),
            summary: "Misbehaves in the way that its input names".into(),
            changes: vec![Change::AddColumn(TableColumn {
                table: "tasks".into(),
                column: manifest::Column {
                    name: "label".into(),
                    type_: ColumnType::LongText,
                    nullable: true,
                    default: None,
                    sealing: Sealing::Plain,
                },
            })],
            up: vec![Access {
                table: "tasks".into(),
                reads: vec!["domain".into()],
                writes: vec!["label".into()],
                reshapes: true,
            }],
            down: vec![],
            reversible: true,
            leaves_residue: false,
            removes_rows: false,
        }
    }

    fn up(_run: Run, batch: Batch) -> Result<Outcome, Fault> {
        let table = &batch.tables[0];
        let (domains, units) = (&table.columns[0], table.unit_offsets.len() - 1);
        match &domains.values[..domains.offsets[1] as usize] {
            b"repeated" => Ok(tasks(units, REPEATS, 0, vec![])),
            b"halves" => halves(units),
            b"spins" => loop {
                std::hint::black_box(());
            },
            // Rows of more units than there are.
            b"other-rows" => Ok(tasks(units + 1, 1, 0, vec![])),
            _ => Ok(tasks(units, 1, 0, vec![])),
        }
    }

    fn down(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("its down declares no access, so it is not called")
    }
}

/// Fails for many tasks, returns as much as it may for two, and refuses a single one.
fn halves(units: usize) -> Result<Outcome, Fault> {
    match units {
        1 => Ok(tasks(
            1,
            1,
            0,
            vec![Refusal {
                unit: 0,
                reason: "it is alone".into(),
            }],
        )),
        2 => Ok(tasks(2, 1, RESULT_BYTES / 2, vec![])),
        _ => Err(Fault {
            reason: "there are too many".into(),
        }),
    }
}

/// So many rows for each task, with labels of so many bytes; none without a byte.
fn tasks(units: usize, rows: usize, label_bytes: usize, refused: Vec<Refusal>) -> Outcome {
    let count = units * rows;
    let shape = Shape {
        unit_offsets: (0..=units).map(|unit| (unit * rows) as u32).collect(),
        origins: (0..units as u32)
            .flat_map(|unit| std::iter::repeat_n(unit, rows))
            .collect(),
    };
    let labels = Column {
        validity: if label_bytes == 0 {
            vec![0; count.div_ceil(8)]
        } else {
            vec![]
        },
        offsets: (0..=count).map(|row| (row * label_bytes) as u32).collect(),
        values: vec![b'x'; count * label_bytes],
    };
    Outcome {
        tables: vec![Written {
            shape: Some(shape),
            columns: vec![labels],
        }],
        refused,
        residue: vec![],
    }
}

export!(Greedy);
