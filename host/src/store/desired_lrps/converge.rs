//! The columns of desired LRPs that convergence compares instances with. A sealed column that cannot be read is `None`; the
//! others still count, so that no instance is removed because the record of its desired LRP is damaged.

use super::TABLE;
use crate::model::convergence::DesiredInstances;
use crate::model::routes::{INTERNAL_ROUTER, Routes};
use crate::model::tags;
use crate::store::filter::Filter;
use crate::store::page::{Listed, Range};
use crate::store::reader::Reader;
use crate::store::record::{Record, RecordReadError};
use crate::store::{StoreError, Writer};

const NUMBERS: [&str; 3] = ["process_guid", "domain", "instances"];
const PARTS: [&str; 5] = ["process_guid", "domain", "instances", "routes", "metric_tags"];

impl Reader {
    /// Lists the columns of desired LRPs that convergence needs.
    ///
    /// # Errors
    /// The database fails. Unreadable records are left out.
    pub async fn wanted(&mut self, range: &Range) -> Result<Listed<DesiredInstances>, StoreError> {
        self.list(TABLE, &PARTS, &Filter::everything(), range, parts).await
    }
}

impl Writer {
    /// The desired number of instances and the domain, locked until the transaction ends.
    ///
    /// # Errors
    /// As of [`Writer`].
    pub async fn wanted(&mut self, process_guid: &[u8]) -> Result<Option<DesiredInstances>, StoreError> {
        self.get(TABLE, &NUMBERS, process_guid, numbers).await
    }
}

fn numbers(record: &Record<'_>) -> Result<DesiredInstances, RecordReadError> {
    Ok(DesiredInstances {
        process_guid: record.text("process_guid")?,
        domain: record.text("domain")?,
        instances: record.number("instances")?,
        ..DesiredInstances::default()
    })
}

fn parts(record: &Record<'_>) -> Result<DesiredInstances, RecordReadError> {
    let routes: Option<Option<Routes>> = record.json("routes", Routes::from_json).ok();
    let hostnames = routes.and_then(|routes| match routes.as_ref().and_then(|routes| routes.of(INTERNAL_ROUTER)) {
        None => Some(Vec::new()),
        Some(value) => tags::hostnames_from_json(value).ok(),
    });
    let metric_tags = record.optional_json("metric_tags", tags::metric_tags_from_json).ok();
    Ok(DesiredInstances { hostnames, metric_tags, ..numbers(record)? })
}
