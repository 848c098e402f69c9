//! Desired LRPs in the parts that convergence compares instances to. A part that cannot be read is unknown; what can
//! be read still counts, so that no instance goes because the record of what desires it is damaged.

use super::TABLE;
use crate::model::Text;
use crate::model::convergence::{Wanted, hostnames};
use crate::model::desired_lrp::{DesiredLrpFilter, SchedulingInfo};
use crate::model::routes::Routes;
use crate::model::tags;
use crate::store::filter::Filter;
use crate::store::reader::{Range, Reader};
use crate::store::record::{Record, RecordProblem};
use crate::store::{StoreError, Writer};

const NUMBERS: [&str; 3] = ["process_guid", "domain", "instances"];
const PARTS: [&str; 5] = ["process_guid", "domain", "instances", "routes", "metric_tags"];

impl Reader {
    pub async fn wanted(&mut self, range: &Range) -> Result<Vec<Wanted>, StoreError> {
        self.list(TABLE, &PARTS, &Filter::everything(), range, parts).await
    }

    /// Which of these are desired.
    pub async fn desired_among(&mut self, process_guids: &[Text]) -> Result<Vec<Text>, StoreError> {
        if process_guids.is_empty() {
            return Ok(Vec::new());
        }
        let filter = Filter::everything().one_of(TABLE.key, process_guids);
        self.list(TABLE, &[TABLE.key], &filter, &Range::default(), |record| record.text(TABLE.key)).await
    }

    /// What placing instances of these needs, of those that are desired.
    pub async fn scheduling_infos_of(&mut self, process_guids: &[Text]) -> Result<Vec<SchedulingInfo>, StoreError> {
        if process_guids.is_empty() {
            return Ok(Vec::new());
        }
        let filter = DesiredLrpFilter { process_guids: process_guids.to_vec(), ..DesiredLrpFilter::default() };
        self.scheduling_infos(&filter, &Range::default()).await
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
    let routes = record.json("routes", Routes::from_json).ok();
    let metric_tags = record.optional_json("metric_tags", tags::metric_tags_from_json).ok();
    let hostnames = routes.and_then(|routes| hostnames(routes.as_ref()));
    Ok(Wanted { hostnames, metric_tags, ..numbers(record)? })
}
