//! Copies metric tags from `run_info` to a column of their own. Up reads them from the message,
//! which stays unchanged; down writes them back unless they are still there. Only field 25 of
//! `run_info` is read or written; every other byte keeps its place.

mod residue;
mod tags;

use bbs_proto::fields::desired_lrp_run_info::METRIC_TAGS;
use bbs_sdk::{Access, Column, Manifest, Migration, Refused, Run, Unit, export_migration, wire};

use residue::Residue;
use tags::Tags;

#[derive(Debug)]
pub struct SplitMetricTags;

const COLUMNS: [&str; 2] = ["run_info", "metric_tags"];

impl Migration for SplitMetricTags {
    fn manifest() -> Manifest {
        Manifest::new(1_722_634_733, "split-metric-tags")
            .summary("Copies metric tags from desired_lrps.run_info to a column of their own")
            .add_column(
                "desired_lrps",
                Column::medium_text("metric_tags").nullable().sealed(),
            )
            .up(Access::to("desired_lrps")
                .reads(["run_info"])
                .writes(COLUMNS))
            .down(
                Access::to("desired_lrps")
                    .reads(COLUMNS)
                    .writes(["run_info"]),
            )
            .leaves_residue()
    }

    fn up(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("desired_lrps")? {
            let run_info = row.bytes("run_info")?;
            let Some(residue) = unit.decode_residue::<Residue>()? else {
                row.set_bytes("metric_tags", &Tags::of_message(run_info)?.to_json())?;
                continue;
            };
            row.set_bytes_or_null("metric_tags", residue.metric_tags.as_deref())?;
            if residue.edited {
                let restored = residue::restore_tag_fields(run_info, &residue.entries)?;
                row.set_bytes("run_info", &restored)?;
            }
        }
        Ok(())
    }

    fn down(_run: &Run, unit: &mut Unit<'_>) -> Result<(), Refused> {
        for row in unit.rows("desired_lrps")? {
            let run_info = row.bytes("run_info")?;
            let json = row.bytes_or_null("metric_tags")?;
            let carried = Tags::of_message(run_info)?;
            let mut residue = Residue {
                metric_tags: json.map(<[u8]>::to_vec),
                ..Residue::default()
            };
            // A row that Diego's own migration could not read has NULL, and no tags to write back.
            let stored = json.map(Tags::of_json).transpose()?;
            if let Some(stored) = stored.filter(|stored| *stored != carried.replace_invalid()) {
                let mut edited = wire::remove(run_info, METRIC_TAGS)?;
                stored.append_to(&mut edited);
                row.set_bytes("run_info", &edited)?;
                residue.edited = true;
                residue.entries = residue::tag_fields(run_info)?;
            }
            if residue.edited || json != Some(carried.to_json().as_slice()) {
                unit.encode_residue(&residue)?;
            }
        }
        Ok(())
    }
}

export_migration!(SplitMetricTags);

#[cfg(test)]
mod tests;
