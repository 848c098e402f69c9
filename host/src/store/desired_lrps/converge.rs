//! Desired LRPs in the parts that convergence compares instances to. A part that cannot be read is unknown; what can
//! be read still counts, so that no instance goes because the record of what desires it is damaged.

use super::TABLE;
use crate::model::convergence::Wanted;
use crate::model::routes::{INTERNAL_ROUTER, Routes};
use crate::model::tags;
use crate::store::filter::Filter;
use crate::store::reader::{Listed, Range, Reader};
use crate::store::record::{Record, RecordProblem};
use crate::store::{StoreError, Writer};

const NUMBERS: [&str; 3] = ["process_guid", "domain", "instances"];
const PARTS: [&str; 5] = ["process_guid", "domain", "instances", "routes", "metric_tags"];

impl Reader {
    pub async fn wanted(&mut self, range: &Range) -> Result<Listed<Wanted>, StoreError> {
        self.list(TABLE, &PARTS, &Filter::everything(), range, parts).await
    }
}

impl Writer {
    /// How many instances are desired and for which domain, for as long as this transaction lasts.
    pub async fn wanted(&mut self, process_guid: &[u8]) -> Result<Option<Wanted>, StoreError> {
        self.get(TABLE, &NUMBERS, process_guid, numbers).await
    }
}

fn numbers(record: &Record<'_>) -> Result<Wanted, RecordProblem> {
    Ok(Wanted {
        process_guid: record.text("process_guid")?,
        domain: record.text("domain")?,
        instances: record.number("instances")?,
        ..Wanted::default()
    })
}

fn parts(record: &Record<'_>) -> Result<Wanted, RecordProblem> {
    let routes: Option<Option<Routes>> = record.json("routes", Routes::from_json).ok();
    let hostnames = routes.and_then(|routes| match routes.as_ref().and_then(|routes| routes.of(INTERNAL_ROUTER)) {
        None => Some(Vec::new()),
        Some(value) => tags::hostnames_from_json(value).ok(),
    });
    let metric_tags = record.optional_json("metric_tags", tags::metric_tags_from_json).ok();
    Ok(Wanted { hostnames, metric_tags, ..numbers(record)? })
}
