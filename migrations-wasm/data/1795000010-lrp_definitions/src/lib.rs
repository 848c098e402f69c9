//! Names the definition of each desired LRP, and the one that each of its instances runs. Until
//! then an LRP has one definition, whose id follows from the process guid. Down, the ids are saved
//! as residue, as the host saves previous and archived definitions; the columns of `desired_lrps`
//! have the current one. Up again, a container that was started meanwhile runs the current
//! definition.

mod residue;

use bbs_sdk::{Access, Column, Manifest, Migration, Refused, Run, Table, Unit, export_migration};
use uuid::Uuid;

use residue::{InstanceIds, Residue};

#[derive(Debug)]
pub struct LrpDefinitions;

const DESIRED: &str = "desired_lrps";
const ACTUAL: &str = "actual_lrps";

const CURRENT: &str = "definition_id";
const PREVIOUS: &str = "previous_definition_id";
const OF_INSTANCE: &str = "desired_lrp_definition_id";
const UNCERTAIN: &str = "definition_uncertain";

impl Migration for LrpDefinitions {
    fn manifest() -> Manifest {
        Manifest::new(1_795_000_010, "lrp-definitions")
            .summary(
                "Adds definition ids to desired_lrps and actual_lrps, and tables for other definitions and updates",
            )
            .add_column(DESIRED, Column::varchar(CURRENT, 255).nullable())
            .add_column(DESIRED, Column::varchar(PREVIOUS, 255).nullable())
            .add_column(ACTUAL, Column::varchar(OF_INSTANCE, 255).nullable())
            .add_column(ACTUAL, Column::boolean(UNCERTAIN).nullable())
            .create_table(definitions())
            .create_table(updates())
            .up(Access::to(DESIRED).reads(["process_guid"]).writes([CURRENT, PREVIOUS]))
            .up(Access::to(ACTUAL)
                .reads(["process_guid", "instance_index", "presence", "instance_guid"])
                .writes([OF_INSTANCE, UNCERTAIN]))
            .down(Access::to(DESIRED).reads(["process_guid", CURRENT, PREVIOUS]))
            .down(Access::to(ACTUAL).reads(["instance_index", "presence", "instance_guid", OF_INSTANCE, UNCERTAIN]))
            .leaves_residue()
    }

    fn up(run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let residue = unit.decode_residue::<Residue>()?;
        let namespace = Uuid::parse_str(&run.namespace)
            .map_err(|_| Refused::new("the namespace of this run is not a UUID"))?;
        let generated = |process_guid: &[u8]| Uuid::new_v5(&namespace, process_guid).to_string();
        for row in unit.rows(DESIRED)? {
            match &residue {
                Some(residue) => {
                    row.set_bytes_or_null(CURRENT, residue.current.as_deref())?;
                    row.set_bytes_or_null(PREVIOUS, residue.previous.as_deref())?;
                }
                None => {
                    row.set_text(CURRENT, &generated(row.bytes("process_guid")?))?;
                    row.set_null(PREVIOUS)?;
                }
            }
        }
        for row in unit.rows(ACTUAL)? {
            let (index, presence) = (row.integer("instance_index")?, row.integer("presence")?);
            let container = row.bytes("instance_guid")?;
            let ids = residue
                .as_ref()
                .and_then(|residue| residue.instance(index, presence, container));
            match (
                ids,
                residue
                    .as_ref()
                    .and_then(|residue| residue.current.as_deref()),
            ) {
                (Some(ids), _) => {
                    row.set_bytes_or_null(OF_INSTANCE, ids.definition.as_deref())?;
                }
                (None, Some(current)) => row.set_bytes(OF_INSTANCE, current)?,
                (None, None) => {
                    row.set_text(OF_INSTANCE, &generated(row.bytes("process_guid")?))?
                }
            }
            row.set_boolean_or_null(UNCERTAIN, ids.and_then(|ids| ids.uncertain))?;
        }
        Ok(())
    }

    fn down(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        let mut residue = Residue::default();
        for row in unit.rows(DESIRED)? {
            residue.current = row.bytes_or_null(CURRENT)?.map(<[u8]>::to_vec);
            residue.previous = row.bytes_or_null(PREVIOUS)?.map(<[u8]>::to_vec);
        }
        for row in unit.rows(ACTUAL)? {
            residue.instances.push(InstanceIds {
                index: row.integer("instance_index")?,
                presence: row.integer("presence")?,
                container: row.bytes("instance_guid")?.to_vec(),
                definition: row.bytes_or_null(OF_INSTANCE)?.map(<[u8]>::to_vec),
                uncertain: row.boolean_or_null(UNCERTAIN)?,
            });
        }
        unit.encode_residue(&residue)
    }
}

/// Definitions that are not the current one: the previous one during an update, and archived ones.
fn definitions() -> Table {
    Table::new("bbs_lrp_definitions")
        .column(Column::varchar("process_guid", 255))
        .column(Column::varchar("definition_id", 255))
        .column(Column::varchar("log_guid", 255))
        .column(Column::integer("memory_mb"))
        .column(Column::integer("disk_mb"))
        .column(Column::integer("max_pids"))
        .column(Column::varchar("rootfs", 1024))
        .column(Column::medium_text("volume_placement").enveloped())
        .column(Column::text("placement_tags").nullable())
        .column(Column::medium_text("metric_tags").nullable().sealed())
        .column(Column::long_text("run_info").enveloped())
        .column(Column::big_integer("created_at"))
        .column(Column::big_integer("last_active_at").default(0))
        .primary_key(["process_guid", "definition_id"])
        .partition_key("process_guid")
        .index("bbs_lrp_definitions_last_active_at_idx", ["last_active_at"])
}

/// Updates under way.
fn updates() -> Table {
    Table::new("bbs_lrp_updates")
        .column(Column::varchar("process_guid", 255))
        .column(Column::big_integer("started_at"))
        .column(Column::boolean("cancelled").default(false))
        .primary_key(["process_guid"])
        .partition_key("process_guid")
}

export_migration!(LrpDefinitions);

#[cfg(test)]
mod tests;
