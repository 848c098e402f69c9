//! Convergence of instances, page by page over all process guids. The model decides for each slot;
//! each action is decided again in its own transaction. All auctions are requested after the last
//! page, in one request, and the calls to cells are made after that.

use std::collections::{BTreeMap, BTreeSet};

use bbs_model::actual_lrp::{ActualLrp, LrpKey};
use bbs_model::cell::CellSet;
use bbs_model::change::Cause;
use bbs_model::convergence::{ConvergenceInput, ProcessRecords, SlotAction, decide};
use bbs_model::desired_lrp::SchedulingInfo;
use bbs_model::slot::Slot;
use bbs_model::{Text, TraceId};
use bbs_proto::models::CellPresence;
use bbs_work::causes::with_causes;
use bbs_work::log_sampling::is_sampled;
use bbs_work::lossy;
use futures_util::{StreamExt, stream};

use super::cell_calls::{self, CellCalls, RetireCall, SilentComponents};
use super::lrp_counter::LrpCounter;
use crate::clients::auctioneer::LrpStart;
use crate::domain::actual_lrps::{
    ChangedSlot, CurrentDefinition, Retirement, announce, retire, write,
};
use crate::domain::retry::retry;
use crate::domain::{DomainError, Page, Service, desired_lrps, domains, lrp_updates};
use crate::metrics::LrpCounts;
use crate::store::{Key, Range};

/// Process guids on one page.
const PAGE_UNITS: u32 = 250;

/// The present cells, if they are known.
pub(super) struct Present {
    pub(super) set: CellSet,
    pub(super) cells: BTreeMap<Text, CellPresence>,
}

pub(super) async fn run(service: &Service, present: &Present) -> Result<LrpCounts, DomainError> {
    let mut known: BTreeSet<Text> = domains::forget_expired(service)
        .await?
        .into_iter()
        .collect();
    let fresh = domains::list(&mut service.store().look().await?).await?;
    let mut counter = LrpCounter::begin(&fresh);
    let fresh = fresh.into_iter().collect();
    let mut work = LrpConvergence {
        service,
        present,
        fresh: &fresh,
        starts: BTreeMap::new(),
        calls: CellCalls::default(),
        failed: 0,
    };
    lrp_updates::find_all(service).await?;
    let quarantined = desired_lrps::quarantined(service).await?;
    let read = work
        .act_on_pages(&quarantined, &mut known, &mut counter)
        .await;
    let starts = std::mem::take(&mut work.starts);
    let started = starts.values().map(|indices| indices.len() as u64).sum();
    // Also after an error, as in Diego: the actions on earlier pages are committed, and later runs
    // find these instances due only once they are stale.
    let requested = request_auctions(service, starts).await;
    let input = work.input(&known);
    work.call_cells(&input, &mut counter).await;
    if work.failed > 0 {
        tracing::warn!(
            failed = work.failed,
            "some instances were not converged; the next run retries them"
        );
    }
    read.and(requested)?;
    let counts = counter.end(&present.set, started, work.failed);
    Ok(LrpCounts {
        halted_updates: service.update_hints().halted(),
        ..counts
    })
}

/// All records of the next process guids, and the key after which the page after them starts.
async fn page(
    service: &Service,
    after: Option<Key>,
) -> Result<(BTreeMap<Text, ProcessRecords>, Option<Key>), DomainError> {
    let mut page = Page::begin(service.store(), after.clone(), PAGE_UNITS).await?;
    let range = page.range();
    let listed = page.reader().desired_instances(&range).await?;
    let mut wanted = page.records(listed, |wanted| &wanted.target.process_guid);
    // Orphaned instances may outnumber the desired LRPs, so an unbounded page is ended by their
    // keys.
    if page.is_unbounded()
        && let Some(last) = page
            .reader()
            .instances_page_end(after.as_ref(), PAGE_UNITS)
            .await?
    {
        page.end_at(last);
        let range = page.range();
        wanted = page.reader().desired_instances(&range).await?.records;
    }
    let mut units = BTreeMap::<Text, ProcessRecords>::new();
    for wanted in wanted {
        let guid = wanted.target.process_guid.clone();
        units.entry(guid).or_default().wanted = Some(wanted);
    }
    let mut rows = BTreeMap::<Text, Vec<ActualLrp>>::new();
    // All of them: a guid without its instances would look like one that has none.
    let range = Range {
        most: None,
        ..page.range()
    };
    for row in page.reader().instance_parts(&range).await? {
        rows.entry(row.process_guid.clone()).or_default().push(row);
    }
    for (guid, rows) in rows {
        units.entry(guid).or_default().slots = Slot::by_index(rows);
    }
    Ok((units, page.next()))
}

/// Adds the domains of orphaned instances that are known ones to the database: with a collation of
/// MySQL that ignores case, Diego's BBS removes these instances, too. It compares the domains of
/// surplus instances byte by byte.
async fn add_spellings(
    service: &Service,
    units: &BTreeMap<Text, ProcessRecords>,
    known: &mut BTreeSet<Text>,
) -> Result<(), DomainError> {
    let orphans = units.values().filter(|unit| unit.wanted.is_none());
    let slots = orphans.flat_map(|unit| unit.slots.values());
    let domains: BTreeSet<_> = slots
        .flat_map(|slot| slot.rows())
        .map(|row| &row.domain)
        .collect();
    for domain in domains {
        if known.contains(domain) {
            continue;
        }
        let now_ns = service.store().now_ns();
        let mut reader = service.store().look().await?;
        if reader.has_domain(domain, now_ns).await? {
            known.insert(domain.clone());
        }
    }
    Ok(())
}

struct LrpConvergence<'a> {
    service: &'a Service,
    present: &'a Present,
    fresh: &'a BTreeSet<Text>,
    /// Instances to auction: the indices of each process guid.
    starts: BTreeMap<Text, Vec<i32>>,
    calls: CellCalls,
    failed: u64,
}

impl<'a> LrpConvergence<'a> {
    /// The input of decisions as of now.
    fn input<'b>(&self, known: &'b BTreeSet<Text>) -> ConvergenceInput<'b>
    where
        'a: 'b,
    {
        ConvergenceInput {
            now_ns: self.service.store().now_ns(),
            cells: &self.present.set,
            fresh: self.fresh,
            known,
        }
    }

    /// Acts on one page after the other. What was collected before an error stays.
    async fn act_on_pages(
        &mut self,
        quarantined: &BTreeSet<Text>,
        known: &mut BTreeSet<Text>,
        counter: &mut LrpCounter,
    ) -> Result<(), DomainError> {
        let mut after = None;
        loop {
            let (mut units, next) = page(self.service, after).await?;
            units.retain(|guid, records| records.wanted.is_some() || !quarantined.contains(guid));
            add_spellings(self.service, &units, known).await?;
            // After the page was read, so that no record of it is of the future.
            let input = self.input(known);
            self.act(&input, &mut units, counter).await;
            units.values().for_each(|unit| counter.count_left(unit));
            if next.is_none() {
                return Ok(());
            }
            after = next;
        }
    }

    /// Acts on the slots of a page, and keeps `units` up to date with them.
    async fn act(
        &mut self,
        input: &ConvergenceInput<'_>,
        units: &mut BTreeMap<Text, ProcessRecords>,
        counter: &mut LrpCounter,
    ) {
        let workers = self.service.policy().convergence_workers.max(1);
        let mut due = Vec::new();
        for (guid, unit) in &*units {
            counter.count_found(unit, input);
            for push in unit.pushes(input) {
                self.calls.update(push);
            }
            if unit.has_old_containers() {
                self.service.update_hints().find(self.service, guid);
            }
            for (index, actions) in unit.decide(input) {
                counter.count_actions(&actions);
                let domain = unit.wanted.as_ref().map(|wanted| &wanted.target.domain);
                let domain =
                    domain.or_else(|| unit.slots.get(&index)?.rows().next().map(|row| &row.domain));
                let key = LrpKey {
                    process_guid: guid.clone(),
                    index,
                    domain: domain.cloned().unwrap_or_default(),
                };
                due.push(key);
            }
        }
        let service = self.service;
        let done: Vec<_> = stream::iter(&due)
            .map(|key| async move { (key, act(service, input, key).await) })
            .buffer_unordered(workers)
            .collect()
            .await;
        for (key, outcome) in done {
            match outcome {
                Ok(acted) => {
                    if acted.is_auctioned {
                        let indices = self.starts.entry(key.process_guid.clone()).or_default();
                        indices.push(key.index);
                    }
                    let unit = units.entry(key.process_guid.clone()).or_default();
                    unit.slots.insert(key.index, Box::new(acted.slot));
                    if let Some(call) = acted.retirement {
                        self.calls.retire(call);
                    }
                }
                Err(fault) => self.note_failed(key, &fault),
            }
        }
    }

    /// Makes the collected calls to cells.
    async fn call_cells(&mut self, input: &ConvergenceInput<'_>, counter: &mut LrpCounter) {
        let workers = self.service.policy().convergence_workers.max(1);
        let calls = std::mem::take(&mut self.calls).into_calls();
        let service = self.service;
        let cells = &self.present.cells;
        let silent = &SilentComponents::default();
        let made: Vec<_> = stream::iter(calls)
            .map(|call| cell_calls::make(service, input, cells, silent, call))
            .buffer_unordered(workers)
            .collect()
            .await;
        for retired in made.into_iter().flatten() {
            match retired.outcome {
                Ok(Retirement::Removed) => counter.count_removed(retired.call.state),
                Ok(Retirement::Stopping) => {}
                Err(fault) => self.note_failed(&retired.call.key, &fault),
            }
        }
        // After the failures that were noted with their reasons, of which the first are logged.
        self.failed += silent.left_out();
    }

    fn note_failed(&mut self, key: &LrpKey, fault: &DomainError) {
        // The slot has changed or gone since the page was read.
        if matches!(
            fault,
            DomainError::NotFound | DomainError::NotAllowed(_) | DomainError::Exists
        ) {
            return;
        }
        self.failed += 1;
        if is_sampled(self.failed) {
            tracing::warn!(process_guid = %lossy(&key.process_guid), key.index, reason = %with_causes(fault), "an instance could not be converged");
        }
    }
}

/// The result of the actions on a slot.
struct ActedSlot {
    /// The slot after them. A row that its cell is still to remove is in it.
    slot: Slot,
    /// Whether its instance needs an auction.
    is_auctioned: bool,
    /// The call that is due to the cell of its container.
    retirement: Option<RetireCall>,
}

/// Applies the actions that are still due for a slot.
async fn act(
    service: &Service,
    input: &ConvergenceInput<'_>,
    key: &LrpKey,
) -> Result<ActedSlot, DomainError> {
    let lock = service.lock_key(&key.process_guid).await?;
    let CommittedActions {
        changed,
        mut slot,
        actions,
    } = retry(|| attempt(service, input, key)).await?;
    announce(service, changed, Cause::Other, &TraceId::NONE);
    drop(lock);
    let is_retired = actions.contains(&SlotAction::Retire);
    let retirement = is_retired
        .then(|| call_to_retire(service, input, key, &slot))
        .flatten();
    if is_retired
        && retirement.is_none()
        && retire(service, key, &TraceId::NONE).await? == Retirement::Removed
    {
        slot.ordinary = None;
    }
    let is_auctioned = actions.iter().any(|action| action.is_auctioned());
    Ok(ActedSlot {
        slot,
        is_auctioned,
        retirement,
    })
}

/// The call that retires the managed container of a slot; `None` if it needs no cell.
fn call_to_retire(
    service: &Service,
    input: &ConvergenceInput<'_>,
    key: &LrpKey,
    slot: &Slot,
) -> Option<RetireCall> {
    let input = input.at(service.store().now_ns());
    let row = slot.ordinary.as_ref()?;
    let has_cell = !row.waits() && !input.is_on_gone_cell(row);
    has_cell.then(|| RetireCall {
        key: key.clone(),
        cell_id: row.cell_id.clone(),
        state: row.state(),
    })
}

/// The actions that one transaction has committed on a slot.
struct CommittedActions {
    changed: Option<ChangedSlot>,
    /// The slot after them.
    slot: Slot,
    actions: Vec<SlotAction>,
}

/// Locks the desired LRP before its instances. The slot may have changed
/// since its page was read, so the actions are decided again, as of now.
async fn attempt(
    service: &Service,
    input: &ConvergenceInput<'_>,
    key: &LrpKey,
) -> Result<CommittedActions, DomainError> {
    let store = service.store();
    let mut writer = store.writer().await?;
    let target = writer.instance_target(&key.process_guid).await?;
    let before = writer.slot(&key.process_guid, key.index).await?;
    let input = input.at(store.now_ns());
    let actions = decide(key.index, &before, target.as_ref(), &input);
    let mut after = before.clone();
    for action in &actions {
        action.apply(&mut after, key, input.now_ns)?;
    }
    let slot = after.clone();
    let current = CurrentDefinition::Read(target.map(|target| target.definition_id));
    let changed = write(writer, before, after, current).await?;
    Ok(CommittedActions {
        changed,
        slot,
        actions,
    })
}

/// Requests all auctions at once.
///
/// # Errors
/// Some of the desired LRPs cannot be read. The auctions of the others are requested.
async fn request_auctions(
    service: &Service,
    mut starts: BTreeMap<Text, Vec<i32>>,
) -> Result<(), DomainError> {
    let guids: Vec<Text> = starts.keys().cloned().collect();
    let mut requests = Vec::with_capacity(guids.len());
    let mut read = Ok(());
    for guids in guids.chunks(PAGE_UNITS as usize) {
        match auction_infos(service, guids).await {
            Ok(infos) => requests.extend(infos.into_iter().map(|info| {
                let mut indices = starts.remove(&info.process_guid).unwrap_or_default();
                indices.sort_unstable();
                LrpStart::of(&info, indices)
            })),
            Err(fault) => read = Err(fault),
        }
    }
    if !requests.is_empty()
        && let Err(fault) = service
            .clients()
            .auctioneer
            .request_lrps(&requests, &TraceId::NONE)
            .await
    {
        tracing::warn!(lrps = requests.len(), reason = %with_causes(&fault), "instances were not auctioned; the next run retries");
    }
    read
}

async fn auction_infos(
    service: &Service,
    process_guids: &[Text],
) -> Result<Vec<SchedulingInfo>, DomainError> {
    let mut reader = service.store().reader().await?;
    Ok(reader.auction_infos(process_guids).await?)
}
