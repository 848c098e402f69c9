//! Instances in the parts that convergence looks at: where they are and how they do; of those that run also what they
//! were told of routes and tags. Nothing else is read or opened.

use super::TABLE;
use crate::model::Text;
use crate::model::actual_lrp::{ActualLrp, ActualLrpFilter, Presence, State};
use crate::model::tags;
use crate::store::StoreError;
use crate::store::filter::Filter;
use crate::store::reader::{Range, Reader};
use crate::store::record::{Record, RecordProblem};

const PLACES: [&str; 9] = [
    "process_guid",
    "instance_index",
    "domain",
    "state",
    "instance_guid",
    "cell_id",
    "since",
    "crash_count",
    "presence",
];

const PARTS: [&str; 11] = [
    "process_guid",
    "instance_index",
    "domain",
    "state",
    "instance_guid",
    "cell_id",
    "since",
    "crash_count",
    "presence",
    "internal_routes",
    "metric_tags",
];

impl Reader {
    /// Of these process guids.
    pub async fn instances_of(&mut self, process_guids: &[Text]) -> Result<Vec<ActualLrp>, StoreError> {
        if process_guids.is_empty() {
            return Ok(Vec::new());
        }
        let filter = Filter::everything().one_of(TABLE.key, process_guids);
        self.list(TABLE, &PARTS, &filter, &Range::default(), parts).await
    }

    /// The last process guid of a page of those that have instances.
    pub async fn instances_page_end(&mut self, after: Option<&Text>, units: u32) -> Result<Option<Text>, StoreError> {
        self.actual_lrps_page_end(&ActualLrpFilter::default(), after, units).await
    }

    /// Where the instances of a page are, without what they were told.
    pub async fn instance_places(&mut self, range: &Range) -> Result<Vec<ActualLrp>, StoreError> {
        self.list(TABLE, &PLACES, &Filter::everything(), range, place).await
    }
}

fn parts(record: &Record<'_>) -> Result<ActualLrp, RecordProblem> {
    let mut row = place(record)?;
    if (row.state(), row.presence()) == (Some(State::Running), Some(Presence::Ordinary)) {
        row.internal_routes = record.optional_json("internal_routes", tags::hostnames_from_json)?;
        row.metric_tags = record.optional_json("metric_tags", tags::text_map_from_json)?;
    }
    Ok(row)
}

fn place(record: &Record<'_>) -> Result<ActualLrp, RecordProblem> {
    Ok(ActualLrp {
        process_guid: record.text("process_guid")?,
        index: record.number("instance_index")?,
        domain: record.text("domain")?,
        state: record.text("state")?,
        instance_guid: record.text("instance_guid")?,
        cell_id: record.text("cell_id")?,
        since_ns: record.long("since")?,
        crash_count: record.number("crash_count")?,
        presence: record.number("presence")?,
        ..ActualLrp::default()
    })
}
