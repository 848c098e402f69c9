//! Misbehaves in the way that the text of the first row names; behaves correctly on any other text.

wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

#[path = "../../adds_size.rs"]
mod adds_size;

use diego::migration::columns::{Column, Refusal, Shape, Written};
use diego::migration::log::{Level, log};
use std::hint::black_box;

struct Hostile;

impl Guest for Hostile {
    fn describe() -> Manifest {
        adds_size::manifest("hostile", "Misbehaves in the way that its input names.")
    }

    fn up(_run: Run, batch: Batch) -> Result<Outcome, Fault> {
        let text = &batch.tables[0].columns[0];
        let rows = text.offsets.len() - 1;
        let name = text.values[..text.offsets[1] as usize].to_vec();
        misbehave(&name)?;
        Ok(malformed(&name, rows))
    }

    fn down(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
        unreachable!("its down declares no access, so it is not called")
    }
}

/// Misbehaviour that does not return, or not an outcome.
fn misbehave(name: &[u8]) -> Result<(), Fault> {
    match name {
        b"endless-loop" => loop {
            black_box(());
        },
        b"memory-growth" => {
            let mut kept = Vec::new();
            loop {
                kept.push(black_box(vec![1_u8; 1 << 20]));
            }
        }
        b"memory-grown" => drop(black_box(vec![1_u8; 32 << 20])),
        b"stack-overflow" => {
            black_box(recurse(black_box(1)));
        }
        b"trap" => panic!("trap on request"),
        b"fault" => {
            return Err(Fault {
                reason: "fault on request".into(),
            });
        }
        b"long-fault" => {
            return Err(Fault {
                reason: "forged\n\u{1b}[31m".repeat(2 << 20),
            });
        }
        b"log-and-trap" => {
            (0..90).for_each(|line| log(Level::Warn, &format!("flood {line}")));
            panic!("trap on request")
        }
        b"log-flood" => (0..10_000)
            .for_each(|line| log(Level::Warn, &format!("flood {line} {}", "x".repeat(5_000)))),
        _ => {}
    }
    Ok(())
}

/// Allocates nothing on the heap, so that the stack overflows first.
fn recurse(depth: u64) -> u64 {
    if depth == u64::MAX {
        depth
    } else {
        recurse(depth + 1).rotate_left(3) ^ depth
    }
}

fn sizes(rows: usize) -> Column {
    Column {
        validity: vec![],
        offsets: vec![],
        values: vec![0; rows * 8],
    }
}

/// An outcome that does not match the batch, or a correct one for an unknown name.
fn malformed(name: &[u8], rows: usize) -> Outcome {
    let one = |column| {
        vec![Written {
            shape: None,
            columns: vec![column],
        }]
    };
    let correct = adds_size::outcome(vec![0; rows * 8]);
    let text = |offsets: &[u32]| Column {
        validity: vec![],
        offsets: offsets.into(),
        values: vec![b'x'; 4],
    };
    match name {
        b"wrong-row-count" => Outcome {
            tables: one(sizes(rows + 1)),
            ..correct
        },
        b"offsets-out-of-range" => Outcome {
            tables: one(text(&[0, 2, 1 << 30])),
            ..correct
        },
        b"offsets-go-back" => Outcome {
            tables: one(text(&[0, 4, 2])),
            ..correct
        },
        b"text-for-integers" => Outcome {
            tables: one(text(&[0, 2, 4])),
            ..correct
        },
        b"oversized-result" => Outcome {
            tables: one(oversized()),
            ..correct
        },
        b"short-validity" => Outcome {
            tables: one(Column {
                validity: vec![255; rows.div_ceil(8) + 1],
                ..sizes(rows)
            }),
            ..correct
        },
        b"null-where-none-may-be" => Outcome {
            tables: one(Column {
                validity: vec![0; rows.div_ceil(8)],
                ..sizes(rows)
            }),
            ..correct
        },
        b"too-many-tables" => Outcome {
            tables: vec![],
            ..correct
        },
        b"too-many-columns" => Outcome {
            tables: vec![Written {
                shape: None,
                columns: vec![sizes(rows), sizes(rows)],
            }],
            ..correct
        },
        b"undeclared-shape" => {
            let shape = Some(Shape {
                unit_offsets: vec![0],
                origins: vec![],
            });
            Outcome {
                tables: vec![Written {
                    shape,
                    columns: vec![sizes(0)],
                }],
                ..correct
            }
        }
        b"undeclared-residue" => Outcome {
            residue: vec![Some(vec![1]); rows],
            ..correct
        },
        b"refuses-at-length" => {
            let reason = "forged\n\u{1b}[31m".repeat(1 << 20);
            Outcome {
                refused: vec![Refusal { unit: 0, reason }],
                ..correct
            }
        }
        b"refuses-unknown-unit" => Outcome {
            refused: vec![Refusal {
                unit: rows as u32,
                reason: "there is no such unit".into(),
            }],
            ..correct
        },
        _ => correct,
    }
}

/// More bytes than the host accepts in a result, in less memory than an instance may have.
fn oversized() -> Column {
    Column {
        validity: vec![0; 20 << 20],
        offsets: vec![],
        values: vec![0; 20 << 20],
    }
}

export!(Hostile);
