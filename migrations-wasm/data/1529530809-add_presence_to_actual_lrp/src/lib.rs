//! Replaces the flag `evacuating` of actual LRPs by the presence (ordinary, evacuating, suspect).
//! Up, an evacuating row gets presence 1. Down, the flag follows from the presence; if a slot has
//! two rows with the same old key, the second is saved as residue until the next migration up.

mod residue;

use bbs_sdk::{
    Access, Column, Manifest, Migration, Refused, Row, Run, Unit, Write, export_migration,
};

use residue::{ReducedRow, Residue, Suspect};

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
        let residue = unit
            .residue()
            .map(Residue::decode)
            .transpose()?
            .unwrap_or_default();
        for row in unit.rows("actual_lrps")? {
            let evacuating = row.boolean_or_null("evacuating")?;
            let reduced = residue.reduced(row.integer("instance_index")?, evacuating);
            row.set_integer(
                "presence",
                reduced.map_or(plain_presence(evacuating), |row| row.presence),
            )?;
            match reduced.map(|row| row.evacuating) {
                None => {}
                Some(Some(evacuating)) => row.set_boolean("evacuating", evacuating)?,
                Some(None) => row.set_null("evacuating")?,
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
                });
            }
        }
        if residue != Residue::default() {
            unit.set_residue(residue.encode())?;
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
        let texts = TEXTS
            .iter()
            .map(|column| Ok(row.bytes_or_null(column)?.map(<[u8]>::to_vec)));
        let integers = INTEGERS.iter().map(|column| row.integer_or_null(column));
        Ok(Self {
            index: row.integer("instance_index")?,
            presence: row.integer("presence")?,
            evacuating: row.boolean_or_null("evacuating")?,
            texts: texts.collect::<Result<_, Refused>>()?,
            integers: integers.collect::<Result<_, Refused>>()?,
        })
    }

    fn write(&self, row: Row<'_>) -> Result<(), Refused> {
        row.set_integer("instance_index", self.index)?;
        row.set_integer("presence", self.presence)?;
        match self.evacuating {
            Some(evacuating) => row.set_boolean("evacuating", evacuating)?,
            None => row.set_null("evacuating")?,
        }
        for (column, value) in TEXTS.iter().zip(&self.texts) {
            match value {
                Some(value) => row.set_bytes(column, value)?,
                None => row.set_null(column)?,
            }
        }
        for (column, value) in INTEGERS.iter().zip(&self.integers) {
            match value {
                Some(value) => row.set_integer(column, *value)?,
                None => row.set_null(column)?,
            }
        }
        Ok(())
    }
}

export_migration!(AddPresence);

#[cfg(test)]
mod tests;
