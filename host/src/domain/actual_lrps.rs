//! Actual LRPs: what is known of the instances.

use super::{DomainError, Page};
use crate::model::actual_lrp::{ActualLrp, ActualLrpFilter};

pub async fn list(page: &mut Page, filter: &ActualLrpFilter) -> Result<Vec<ActualLrp>, DomainError> {
    if let Some((after, units)) = page.open() {
        let last = page.reader.actual_lrps_page_end(filter, after.as_ref(), units).await?;
        page.fix(last);
    }
    let range = page.range();
    Ok(page.reader.actual_lrps(filter, &range).await?)
}
