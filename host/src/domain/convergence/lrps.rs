//! Convergence of instances: page by page over everything that is desired or there, each slot as the model decides. An
//! action looks again, in its own transaction, whether it is still due. Cells are asked for once, at the end, for all.

use std::collections::{BTreeMap, BTreeSet};

use bbs_proto::models::CellPresence;
use futures_util::{StreamExt, stream};

use super::tally::Tally;
use crate::clients::auctioneer::LrpStart;
use crate::clients::reps::InstanceUpdate;
use crate::domain::actual_lrps::{Changed, announce, retire, write};
use crate::domain::attempts::repeated;
use crate::domain::{DomainError, Page, Service, domains};
use crate::metrics::LrpCounts;
use crate::model::actual_lrp::{ActualLrp, LrpKey};
use crate::model::cell::CellSet;
use crate::model::change::Cause;
use crate::model::convergence::{Action, Push, Unit, World, decide};
use crate::model::desired_lrp::DesiredLrpFilter;
use crate::model::slot::Slot;
use crate::model::{Text, TraceId};
use crate::quiet::gets_a_line;
use crate::store::{Key, Range};

/// Process guids that are looked at together.
const PAGE_UNITS: u32 = 250;

/// The cells that there are, if anybody says so.
pub(super) struct Present {
    pub(super) set: CellSet,
    pub(super) cells: BTreeMap<Text, CellPresence>,
}

pub(super) async fn run(service: &Service, present: &Present) -> Result<LrpCounts, DomainError> {
    let now_ns = service.store().now_ns();
    let known: BTreeSet<Text> = domains::forget_expired(service).await?.into_iter().collect();
    let fresh = domains::list(&mut service.store().look().await?).await?;
    let mut tally = Tally::begin(&fresh);
    let fresh = fresh.into_iter().collect();
    let world = World { now_ns, cells: &present.set, fresh: &fresh, known: &known };
    let mut work = Work { service, world, present, starts: BTreeMap::new(), failed: 0 };
    let mut after = None;
    loop {
        let (units, next) = page(service, after).await?;
        work.act(&units, &mut tally).await;
        if next.is_none() {
            break;
        }
        after = next;
    }
    if work.failed > 0 {
        tracing::warn!(failed = work.failed, "not everything that was due could be done; the next run tries again");
    }
    let started = work.starts.values().map(|indices| indices.len() as u64).sum();
    request_auctions(service, work.starts).await?;
    Ok(tally.end(&present.set, started, work.failed))
}

/// Everything of the next process guids, and where those after them begin.
async fn page(service: &Service, after: Option<Key>) -> Result<(BTreeMap<Text, Unit>, Option<Key>), DomainError> {
    let mut page = Page::begin(service.store(), after.clone(), PAGE_UNITS).await?;
    let listed = page.reader.wanted(&page.range()).await?;
    let mut wanted = page.records(listed);
    // There may be many instances left of which nothing is desired.
    if page.takes_all()
        && let Some(last) = page.reader.instances_page_end(after.as_ref(), PAGE_UNITS).await?
    {
        page.end_at(last);
        wanted = page.reader.wanted(&page.range()).await?.records;
    }
    let mut units = BTreeMap::<Text, Unit>::new();
    for wanted in wanted {
        let guid = wanted.process_guid.clone();
        units.entry(guid).or_default().wanted = Some(wanted);
    }
    let mut rows = BTreeMap::<Text, Vec<ActualLrp>>::new();
    for row in page.reader.instance_parts(&page.range()).await? {
        rows.entry(row.process_guid.clone()).or_default().push(row);
    }
    for (guid, rows) in rows {
        units.entry(guid).or_default().slots = Slot::by_index(rows);
    }
    Ok((units, page.next()))
}

struct Work<'a> {
    service: &'a Service,
    world: World<'a>,
    present: &'a Present,
    /// What cells are to be asked for: the indices of each process guid.
    starts: BTreeMap<Text, Vec<i32>>,
    failed: u64,
}

impl Work<'_> {
    async fn act(&mut self, units: &BTreeMap<Text, Unit>, tally: &mut Tally) {
        let workers = self.service.policy().convergence_workers.max(1);
        let mut due = Vec::new();
        let mut pushes = Vec::new();
        for (guid, unit) in units {
            tally.count(unit, &self.world);
            pushes.extend(unit.pushes(&self.world));
            for (index, actions) in unit.decide(&self.world) {
                tally.count_actions(&actions);
                let domain = unit.wanted.as_ref().map(|wanted| &wanted.domain);
                let domain = domain.or_else(|| unit.slots.get(&index)?.rows().next().map(|row| &row.domain));
                let key = LrpKey { process_guid: guid.clone(), index, domain: domain.cloned().unwrap_or_default() };
                due.push(key);
            }
        }
        let (service, world) = (self.service, &self.world);
        let done: Vec<_> = stream::iter(&due)
            .map(|key| async move { (key, act(service, world, key).await) })
            .buffer_unordered(workers)
            .collect()
            .await;
        for (key, outcome) in done {
            match outcome {
                Ok(true) => self.starts.entry(key.process_guid.clone()).or_default().push(key.index),
                // It has changed or gone since it was looked at.
                Ok(false) | Err(DomainError::NotFound | DomainError::NotAllowed(_) | DomainError::Exists) => {}
                Err(fault) => {
                    self.failed += 1;
                    if gets_a_line(self.failed) {
                        let process_guid = String::from_utf8_lossy(&key.process_guid);
                        tracing::warn!(%process_guid, key.index, reason = %fault, "an instance could not be converged");
                    }
                }
            }
        }
        let present = self.present;
        stream::iter(pushes).for_each_concurrent(workers, |push| tell(service, present, push)).await;
    }
}

/// Does what is due for a slot by now, which may be nothing any more. Whether a cell is to be asked for.
async fn act(service: &Service, world: &World<'_>, key: &LrpKey) -> Result<bool, DomainError> {
    let turn = service.turn(&key.process_guid).await;
    let (changed, actions) = repeated(|| attempt(service, world, key)).await?;
    announce(service, changed, Cause::Other, &TraceId::NONE);
    drop(turn);
    if actions.contains(&Action::Retire) {
        retire(service, key, &TraceId::NONE).await?;
    }
    Ok(actions.iter().any(|action| action.is_auctioned()))
}

/// The desired LRP is locked before its instances, as in every other call.
async fn attempt(
    service: &Service,
    world: &World<'_>,
    key: &LrpKey,
) -> Result<(Option<Changed>, Vec<Action>), DomainError> {
    let store = service.store();
    let mut writer = store.writer(&key.process_guid).await?;
    let wanted = writer.wanted(&key.process_guid).await?;
    let before = writer.slot(&key.process_guid, key.index).await?;
    let actions = decide(key.index, &before, wanted.as_ref(), world);
    let mut after = before.clone();
    for action in &actions {
        action.apply(&mut after, key, store.now_ns())?;
    }
    Ok((write(writer, before, after).await?, actions))
}

/// Tells a container what it should have been told before.
async fn tell(service: &Service, present: &Present, push: Push) {
    let Push { key, instance, internal_routes, metric_tags } = push;
    let Some(cell) = present.cells.get(&instance.cell_id) else { return };
    let update = InstanceUpdate { internal_routes, metric_tags };
    if let Err(fault) = service.clients().reps.update(cell, &key, &instance, &update, &TraceId::NONE).await {
        let process_guid = String::from_utf8_lossy(&key.process_guid);
        tracing::info!(%process_guid, key.index, reason = %fault, "a container was not told of its routes or tags");
    }
}

/// One request for everything.
async fn request_auctions(service: &Service, mut starts: BTreeMap<Text, Vec<i32>>) -> Result<(), DomainError> {
    if starts.is_empty() {
        return Ok(());
    }
    let guids: Vec<Text> = starts.keys().cloned().collect();
    let mut requests = Vec::with_capacity(guids.len());
    for guids in guids.chunks(PAGE_UNITS as usize) {
        let filter = DesiredLrpFilter { process_guids: guids.to_vec(), ..Default::default() };
        for info in service.store().reader().await?.scheduling_infos(&filter, &Range::default()).await?.records {
            let mut indices = starts.remove(&info.process_guid).unwrap_or_default();
            indices.sort_unstable();
            requests.push(LrpStart::of(&info, indices));
        }
    }
    if let Err(fault) = service.clients().auctioneer.request_lrps(&requests, &TraceId::NONE).await {
        tracing::warn!(lrps = requests.len(), reason = %fault, "no cells were asked for; the next run asks again");
    }
    Ok(())
}
