//! The columns of instances that convergence needs: placement and state, and for running instances their internal routes
//! and metric tags. No other column is read or decrypted.

use super::TABLE;
use crate::model::actual_lrp::{ActualLrp, Presence, State};
use crate::model::tags;
use crate::store::StoreError;
use crate::store::filter::Filter;
use crate::store::page::Range;
use crate::store::reader::Reader;
use crate::store::record::{Record, RecordReadError};

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
    /// Incomplete instances with the columns in `PARTS`. Do not write them: a change reads the whole row.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn instance_parts(&mut self, range: &Range) -> Result<Vec<ActualLrp>, StoreError> {
        Ok(self.list(TABLE, &PARTS, &Filter::everything(), range, parts).await?.records)
    }
}

fn parts(record: &Record<'_>) -> Result<ActualLrp, RecordReadError> {
    let mut row = ActualLrp {
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
    };
    if (row.state(), row.presence()) == (Some(State::Running), Some(Presence::Ordinary)) {
        row.internal_routes = record.optional_json("internal_routes", tags::hostnames_from_json)?;
        row.metric_tags = record.optional_json("metric_tags", tags::text_map_from_json)?;
    }
    Ok(row)
}
