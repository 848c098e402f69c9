//! Decodes each `text` as the run info of a desired LRP and encodes it again. The work is a plain
//! function that the benchmark also runs outside of the sandbox.

use bbs_proto::models::DesiredLrpRunInfo;
use prost::Message;

/// Decodes and encodes every value of a text column.
pub fn recode(offsets: &[u32], values: &[u8]) -> (Vec<u32>, Vec<u8>) {
    let (mut new_offsets, mut new_values) = (vec![0], Vec::with_capacity(values.len()));
    for ends in offsets.windows(2) {
        let message = DesiredLrpRunInfo::decode(&values[ends[0] as usize..ends[1] as usize])
            .expect("a run info");
        message.encode(&mut new_values).expect("a vector grows");
        new_offsets.push(new_values.len() as u32);
    }
    (new_offsets, new_values)
}

#[cfg(target_family = "wasm")]
mod component {
    wit_bindgen::generate!({ path: "../../../sdk/wit/migration-0.1.0", world: "migration" });

    use diego::migration::columns::{Column, Written};
    use diego::migration::manifest::Access;

    struct Recodes;

    impl Guest for Recodes {
        fn describe() -> Manifest {
            let columns = vec!["text".to_owned()];
            Manifest {
                version: 100,
                name: "recodes".into(),
                summary: "Decodes and encodes each text.".into(),
                changes: vec![],
                up: vec![Access {
                    table: "things".into(),
                    reads: columns.clone(),
                    writes: columns,
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
            let (offsets, values) = super::recode(&text.offsets, &text.values);
            let column = Column {
                validity: vec![],
                offsets,
                values,
            };
            let tables = vec![Written {
                shape: None,
                columns: vec![column],
            }];
            Ok(Outcome {
                tables,
                refused: vec![],
                residue: vec![],
            })
        }

        fn down(_run: Run, _batch: Batch) -> Result<Outcome, Fault> {
            unreachable!("its down declares no access, so it is not called")
        }
    }

    export!(Recodes);
}
