//! Everything there is, in pages of process guids: first what is desired with its instances, then the instances of
//! which nothing is desired. Keys are never compared here, since databases differ in how they order them.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::DomainError;
use crate::model::Text;
use crate::model::actual_lrp::ActualLrp;
use crate::model::convergence::Unit;
use crate::model::desired_lrp::DesiredLrpFilter;
use crate::model::slot::Slot;
use crate::store::{Key, Range, Store};

/// A page, and the key after which the next one begins, if there is one.
type Page = (Vec<Unit>, Option<Key>);

pub(super) async fn desired(store: &Store, after: Option<Key>, units: u32) -> Result<Page, DomainError> {
    let mut reader = store.reader().await?;
    let through = reader.desired_lrps_page_end(&DesiredLrpFilter::default(), after.as_ref(), units).await?;
    let wanted = reader.wanted(&Range { after, through: through.clone() }).await?;
    let guids: Vec<_> = wanted.iter().map(|wanted| wanted.process_guid.clone()).collect();
    let mut slots = by_process_guid(reader.instances_of(&guids).await?);
    let units = wanted.into_iter().map(|wanted| {
        let slots = slots.remove(&wanted.process_guid).unwrap_or_default();
        Unit { slots, wanted: Some(wanted) }
    });
    Ok((units.collect(), through))
}

pub(super) async fn orphans(store: &Store, after: Option<Key>, units: u32) -> Result<Page, DomainError> {
    let mut reader = store.reader().await?;
    let through = reader.instances_page_end(after.as_ref(), units).await?;
    let rows = reader.instance_places(&Range { after, through: through.clone() }).await?;
    let slots = by_process_guid(rows);
    let guids: Vec<_> = slots.keys().cloned().collect();
    let desired: BTreeSet<_> = reader.desired_among(&guids).await?.into_iter().collect();
    let orphans = slots.into_iter().filter(|(guid, _)| !desired.contains(guid));
    Ok((orphans.map(|(_, slots)| Unit { wanted: None, slots }).collect(), through))
}

fn by_process_guid(rows: Vec<ActualLrp>) -> BTreeMap<Text, BTreeMap<i32, Slot>> {
    let mut by_guid = BTreeMap::<Text, Vec<ActualLrp>>::new();
    for row in rows {
        by_guid.entry(row.process_guid.clone()).or_default().push(row);
    }
    by_guid.into_iter().map(|(guid, rows)| (guid, Slot::by_index(rows))).collect()
}
