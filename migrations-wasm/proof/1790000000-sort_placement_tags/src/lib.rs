//! An add-on as another author may write it, with a version below those of this project's own
//! migrations: a set of placement tags has one text, whatever the order in which a client listed
//! them. The text before is saved as residue where it differs. Not in the default catalog: tests
//! add it to a modules folder.

use std::collections::BTreeSet;

use bbs_sdk::json::{self, JsonValue};
use bbs_sdk::{Access, Manifest, Migration, Refused, Run, Unit, export_migration};

#[derive(Debug)]
pub struct SortPlacementTags;

const TABLE: &str = "desired_lrps";
const COLUMN: &str = "placement_tags";

impl Migration for SortPlacementTags {
    fn manifest() -> Manifest {
        Manifest::new(1_790_000_000, "sort-placement-tags")
            .summary("Sorts desired_lrps.placement_tags, and lists each tag once")
            .up(Access::to(TABLE).reads([COLUMN]).writes([COLUMN]))
            .down(Access::to(TABLE).reads([COLUMN]).writes([COLUMN]))
            .leaves_residue()
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows(TABLE)? {
            let Some(source) = row.bytes_or_null(COLUMN)? else {
                continue;
            };
            let target = match unit.residue() {
                Some(residue) => residue.to_vec(),
                None => sorted(source)?,
            };
            row.set_bytes(COLUMN, &target)?;
            if target != source {
                unit.set_residue(source.to_vec())?;
            }
        }
        Ok(())
    }

    fn down(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows(TABLE)? {
            let Some(target) = row.bytes_or_null(COLUMN)? else {
                continue;
            };
            let source = unit.residue().unwrap_or(target).to_vec();
            row.set_bytes(COLUMN, &source)?;
            // A client wrote it after the migration, in an order of its own.
            if sorted(&source)? != target {
                unit.set_residue(target.to_vec())?;
            }
        }
        Ok(())
    }
}

/// The tags of a column value in order, each once, as Diego's BBS would write them. No tags are
/// `[]`, also where Go wrote `null` for an absent list.
///
/// # Errors
/// If the value is neither `null` nor a list of texts.
fn sorted(value: &[u8]) -> Result<Vec<u8>, Refused> {
    let refused = |reason: String| Refused::new(format!("`{COLUMN}` cannot be read: {reason}"));
    let parsed = json::parse(value).map_err(|error| refused(error.to_string()))?;
    let list = if parsed.is_null() {
        Some(&[][..])
    } else {
        parsed.as_array()
    };
    let texts = list.and_then(|items| {
        items
            .iter()
            .map(JsonValue::as_str)
            .collect::<Option<BTreeSet<_>>>()
    });
    let texts = texts.ok_or_else(|| refused("not a list of texts".to_owned()))?;
    let list = JsonValue::Array(texts.into_iter().map(JsonValue::from).collect());
    Ok(json::to_go_string(&list).into_bytes())
}

export_migration!(SortPlacementTags);

#[cfg(test)]
mod tests;
