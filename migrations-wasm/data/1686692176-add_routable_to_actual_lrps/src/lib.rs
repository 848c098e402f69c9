//! Adds a column for whether an actual LRP receives traffic, which is true for running ones. `down`
//! drops it, and saves as residue which rows had a value that does not follow from their state.

use bbs_sdk::wire::{self, Value, WireError};
use bbs_sdk::{Access, Column, Manifest, Migration, Refused, Row, Run, Unit, export_migration};

#[derive(Debug)]
pub struct AddRoutable;

const KEY_AND_STATE: [&str; 3] = ["instance_index", "presence", "state"];

impl Migration for AddRoutable {
    fn manifest() -> Manifest {
        Manifest::new(1_686_692_176, "add-routable-to-actual-lrps")
            .summary("Adds actual_lrps.routable, true where the instance is running")
            .add_column(
                "actual_lrps",
                Column::boolean("routable").nullable().default(false),
            )
            .up(Access::to("actual_lrps")
                .reads(KEY_AND_STATE)
                .writes(["routable"]))
            // The state is written back unchanged: residue is bound to the written columns, so that
            // an instance whose state has changed since gets no stale value.
            .down(
                Access::to("actual_lrps")
                    .reads(KEY_AND_STATE)
                    .reads(["routable"])
                    .writes(["state"]),
            )
            .leaves_residue()
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let exceptions = unit.residue().map(read_exceptions).transpose();
        let exceptions = exceptions
            .map_err(|error| Refused::new(format!("the residue cannot be read: {error}")))?;
        for row in unit.rows("actual_lrps")? {
            let key = (row.integer("instance_index")?, row.integer("presence")?);
            let exception = exceptions
                .iter()
                .flatten()
                .find(|exception| exception.key == key);
            match exception.map_or(Some(plainly_routable(row)?), |exception| exception.routable) {
                Some(routable) => row.set_boolean("routable", routable)?,
                None => row.set_null("routable")?,
            }
        }
        Ok(())
    }

    fn down(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let mut residue = Vec::new();
        for row in unit.rows("actual_lrps")? {
            let routable = row.boolean_or_null("routable")?;
            if routable != Some(plainly_routable(row)?) {
                let key = (row.integer("instance_index")?, row.integer("presence")?);
                Exception { key, routable }.append_to(&mut residue);
            }
        }
        if !residue.is_empty() {
            unit.set_residue(residue)?;
        }
        Ok(())
    }
}

fn plainly_routable(row: Row<'_>) -> Result<bool, Refused> {
    Ok(row.bytes("state")? == b"RUNNING")
}

/// A row whose value does not follow from its state. The residue is a message with a list of them.
struct Exception {
    key: (i64, i64),
    routable: Option<bool>,
}

const EXCEPTION: u32 = 1;
const INSTANCE_INDEX: u32 = 1;
const PRESENCE: u32 = 2;
const ROUTABLE: u32 = 3;

impl Exception {
    fn append_to(&self, residue: &mut Vec<u8>) {
        let mut row = Vec::new();
        wire::append(&mut row, INSTANCE_INDEX, Value::Varint(self.key.0 as u64));
        wire::append(&mut row, PRESENCE, Value::Varint(self.key.1 as u64));
        if let Some(routable) = self.routable {
            wire::append(&mut row, ROUTABLE, Value::Varint(routable.into()));
        }
        wire::append(residue, EXCEPTION, Value::Bytes(&row));
    }
}

fn read_exceptions(residue: &[u8]) -> Result<Vec<Exception>, WireError> {
    let rows = wire::get_all(residue, EXCEPTION)?.into_iter().map(|field| {
        let row = field.bytes()?;
        let number = |number| {
            wire::get(row, number)?
                .map(|field| field.varint())
                .transpose()
        };
        Ok(Exception {
            key: (
                number(INSTANCE_INDEX)?.unwrap_or(0) as i64,
                number(PRESENCE)?.unwrap_or(0) as i64,
            ),
            routable: number(ROUTABLE)?.map(|flag| flag == 1),
        })
    });
    rows.collect()
}

export_migration!(AddRoutable);

#[cfg(test)]
mod tests;
