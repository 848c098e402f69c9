//! Replaces the flag `evacuating` of actual LRPs by the presence (ordinary, evacuating, suspect).
//! Up, an evacuating row gets presence 1. Down, the flag follows from the presence; if a slot has
//! two rows with the same old key, the second is saved as residue until the next migration up.

mod residue;

use bbs_sdk::{
    Access, Column, Manifest, Migration, Refused, Row, Run, Unit, Write, export_migration,
};

use residue::{ReducedRow, Residue, SavedInteger, SavedText, Suspect};

#[derive(Debug)]
pub struct AddPresence;

const EVACUATING: i64 = 1;

/// Text columns of a row that is saved as residue.
const TEXTS: [&str; 9] = [
    "domain",
    "state",
    "instance_guid",
    "cell_id",
    "placement_error",
    "net_info",
    "modification_tag_epoch",
    "crash_reason",
    "process_guid",
];

/// Integer columns of a row that is saved as residue, besides its keys.
const INTEGERS: [&str; 4] = [
    "since",
    "modification_tag_index",
    "crash_count",
    "expire_time",
];

fn carried() -> impl Iterator<Item = Write> {
    let integers = ["instance_index"].into_iter().chain(INTEGERS);
    TEXTS
        .into_iter()
        .map(Write::text)
        .chain(integers.map(Write::integer))
        .chain([Write::boolean("evacuating")])
}

fn read() -> impl Iterator<Item = &'static str> {
    TEXTS
        .into_iter()
        .chain(INTEGERS)
        .chain(["instance_index", "evacuating"])
}

impl Migration for AddPresence {
    fn manifest() -> Manifest {
        let up = Access::to("actual_lrps")
            .reads(read())
            .writes(carried())
            .writes(["presence"])
            .reshapes();
        let down = Access::to("actual_lrps")
            .reads(read())
            .reads(["presence"])
            .writes(["evacuating"])
            .reshapes();
        Manifest::new(1_529_530_809, "add-presence-to-actual-lrp")
            .summary("Adds actual_lrps.presence, and keys rows by it instead of by evacuating")
            .add_column("actual_lrps", Column::integer("presence").default(0))
            .set_primary_key(
                "actual_lrps",
                ["process_guid", "instance_index", "presence"],
            )
            .up(up)
            .down(down)
            .leaves_residue()
            .removes_rows()
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let residue: Residue = unit.decode_residue()?.unwrap_or_default();
        for row in unit.rows("actual_lrps")? {
            let evacuating = row.boolean_or_null("evacuating")?;
            let reduced = residue.reduced(
                row.integer("instance_index")?,
                evacuating,
                row.bytes("instance_guid")?,
            );
            row.set_integer(
                "presence",
                reduced.map_or(plain_presence(evacuating), |row| row.presence),
            )?;
            if let Some(reduced) = reduced {
                row.set_boolean_or_null("evacuating", reduced.evacuating)?;
            }
        }
        for suspect in &residue.suspects {
            suspect.write(unit.add_row("actual_lrps")?)?;
        }
        Ok(())
    }

    fn down(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let mut rows = Vec::new();
        for row in unit.rows("actual_lrps")? {
            rows.push((
                row.integer("instance_index")?,
                row.integer("presence")?,
                row,
            ));
        }
        rows.sort_by_key(|(index, presence, _)| (*index, *presence));
        let mut residue = Residue::default();
        let mut taken = None;
        for (index, presence, row) in rows {
            let evacuating = presence == EVACUATING;
            // Sorted by presence, a slot's ordinary row comes first, then its evacuating one.
            if !evacuating && taken == Some(index) {
                residue.suspects.push(Suspect::read(row)?);
                row.remove()?;
                continue;
            }
            if !evacuating {
                taken = Some(index);
            }
            row.set_boolean("evacuating", evacuating)?;
            let before = row.boolean_or_null("evacuating")?;
            if before != Some(evacuating) || presence != plain_presence(Some(evacuating)) {
                residue.reduced.push(ReducedRow {
                    index,
                    key: evacuating,
                    presence,
                    evacuating: before,
                    instance_guid: Some(row.bytes("instance_guid")?.to_vec()),
                });
            }
        }
        if residue != Residue::default() {
            unit.encode_residue(&residue)?;
        }
        Ok(())
    }
}

/// The presence that follows from the flag alone. NULL counts as not evacuating.
fn plain_presence(evacuating: Option<bool>) -> i64 {
    if evacuating == Some(true) {
        EVACUATING
    } else {
        0
    }
}

impl Suspect {
    fn read(row: Row<'_>) -> Result<Self, Refused> {
        let mut suspect = Self {
            index: row.integer("instance_index")?,
            presence: row.integer("presence")?,
            evacuating: row.boolean_or_null("evacuating")?,
            ..Self::default()
        };
        for column in TEXTS {
            let value = row.bytes_or_null(column)?.map(<[u8]>::to_vec);
            suspect.texts.push(SavedText { value });
        }
        for column in INTEGERS {
            let value = row.integer_or_null(column)?;
            suspect.integers.push(SavedInteger { value });
        }
        Ok(suspect)
    }

    fn write(&self, row: Row<'_>) -> Result<(), Refused> {
        row.set_integer("instance_index", self.index)?;
        row.set_integer("presence", self.presence)?;
        row.set_boolean_or_null("evacuating", self.evacuating)?;
        for (column, text) in TEXTS.iter().zip(&self.texts) {
            row.set_bytes_or_null(column, text.value.as_deref())?;
        }
        for (column, integer) in INTEGERS.iter().zip(&self.integers) {
            row.set_integer_or_null(column, integer.value)?;
        }
        Ok(())
    }
}

export_migration!(AddPresence);

#[cfg(test)]
mod tests;
