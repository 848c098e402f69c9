//! Adds a column for whether an actual LRP receives traffic, which is true for running ones. `down`
//! drops it, and saves as residue which rows had a value that does not follow from their state. A
//! row that another container has since taken gets none of it.

use bbs_sdk::{Access, Column, Manifest, Migration, Refused, Row, Run, Unit, export_migration};

#[derive(Debug)]
pub struct AddRoutable;

/// Columns that both directions read.
const READ: [&str; 4] = ["instance_index", "instance_guid", "presence", "state"];

impl Migration for AddRoutable {
    fn manifest() -> Manifest {
        Manifest::new(1_686_692_176, "add-routable-to-actual-lrps")
            .summary("Adds actual_lrps.routable, true where the instance is running")
            .add_column(
                "actual_lrps",
                Column::boolean("routable").nullable().default(false),
            )
            .up(Access::to("actual_lrps").reads(READ).writes(["routable"]))
            // The state is written back unchanged: residue is bound to the written columns, so that
            // an instance whose state has changed since gets no stale value.
            .down(
                Access::to("actual_lrps")
                    .reads(READ)
                    .reads(["routable"])
                    .writes(["state"]),
            )
            .leaves_residue()
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let residue: Residue = unit.decode_residue()?.unwrap_or_default();
        for row in unit.rows("actual_lrps")? {
            let routable = match residue.exception(row)? {
                Some(exception) => exception.routable,
                None => Some(plainly_routable(row)?),
            };
            row.set_boolean_or_null("routable", routable)?;
        }
        Ok(())
    }

    fn down(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let mut residue = Residue::default();
        for row in unit.rows("actual_lrps")? {
            let routable = row.boolean_or_null("routable")?;
            if routable != Some(plainly_routable(row)?) {
                residue.exceptions.push(Exception {
                    instance_index: row.integer("instance_index")?,
                    presence: row.integer("presence")?,
                    routable,
                    instance_guid: Some(row.bytes("instance_guid")?.to_vec()),
                });
            }
        }
        if !residue.exceptions.is_empty() {
            unit.encode_residue(&residue)?;
        }
        Ok(())
    }
}

fn plainly_routable(row: Row<'_>) -> Result<bool, Refused> {
    Ok(row.bytes("state")? == b"RUNNING")
}

#[derive(Clone, PartialEq, prost::Message)]
struct Residue {
    #[prost(message, repeated, tag = "1")]
    exceptions: Vec<Exception>,
}

/// A row whose value does not follow from its state.
#[derive(Clone, PartialEq, prost::Message)]
struct Exception {
    #[prost(int64, required, tag = "1")]
    instance_index: i64,
    #[prost(int64, required, tag = "2")]
    presence: i64,
    #[prost(bool, optional, tag = "3")]
    routable: Option<bool>,
    /// The container; absent in the residue of earlier builds.
    #[prost(bytes = "vec", optional, tag = "4")]
    instance_guid: Option<Vec<u8>>,
}

impl Residue {
    /// The exception of the row, if the row still has the container.
    fn exception(&self, row: Row<'_>) -> Result<Option<&Exception>, Refused> {
        let index = row.integer("instance_index")?;
        let presence = row.integer("presence")?;
        let container = row.bytes("instance_guid")?;
        Ok(self.exceptions.iter().find(|exception| {
            let saved = exception.instance_guid.as_deref();
            exception.instance_index == index
                && exception.presence == presence
                && saved.is_none_or(|saved| saved == container)
        }))
    }
}

export_migration!(AddRoutable);

#[cfg(test)]
mod tests;
