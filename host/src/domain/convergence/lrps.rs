//! Convergence of LRPs. Everything is looked at page by page, each page in a short transaction of its own; what is
//! due is decided by the model, decided again where it is done, and done by so many workers at once.

mod pages;

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};

use crate::clients::auctioneer::LrpStart;
use crate::domain::actual_lrps::{Changed, announce, retire, update_container, write};
use crate::domain::attempts::repeated;
use crate::domain::{DomainError, Service, domains};
use crate::model::actual_lrp::{LrpKey, State};
use crate::model::cell::CellSet;
use crate::model::change::Cause;
use crate::model::convergence::{Action, Push, Unit, World, decide};
use crate::model::{Text, TraceId};

/// Process guids whose records are held at once.
const PAGE_UNITS: u32 = 100;
/// What did not succeed in one run is logged so often, and counted.
const MOST_LOGGED: u64 = 20;
/// Desired LRPs that are read at once for the auctioneer.
const STARTS_AT_ONCE: usize = 500;

/// What a run found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LrpCounts {
    /// Instances, of all that is desired.
    pub desired: u64,
    /// Of the managed rows, by state.
    pub unclaimed: u64,
    pub claimed: u64,
    pub running: u64,
    pub crashed: u64,
    /// Desired LRPs of which an instance crashed.
    pub crashing_desired: u64,
    pub suspect_running: u64,
    pub suspect_claimed: u64,
    /// Cells that are gone and had instances.
    pub suspect_cells: u64,
    pub missing: u64,
    pub extra: u64,
    /// Instances for which the auctioneer was asked.
    pub started: u64,
    /// Containers that had to be told of routes or tags.
    pub told: u64,
    /// What was due and was not done. The next run tries again.
    pub failed: u64,
}

struct Run<'a> {
    service: &'a Service,
    world: World<'a>,
    counts: LrpCounts,
    lost_cells: BTreeSet<Text>,
    starts: Vec<(Text, i32)>,
}

pub(super) async fn run(service: &Service, cells: &CellSet) -> Result<LrpCounts, DomainError> {
    let domains = domains::prune(service).await?;
    let now_ns = service.store().now_ns();
    let world = World { now_ns, cells, fresh: &domains.fresh, known: &domains.known };
    let (counts, lost_cells, starts) = Default::default();
    let mut run = Run { service, world, counts, lost_cells, starts };
    let mut after = None;
    loop {
        let (units, next) = pages::desired(service.store(), after, PAGE_UNITS).await?;
        run.converge(units).await;
        after = next;
        if after.is_none() {
            break;
        }
    }
    loop {
        let (units, next) = pages::orphans(service.store(), after, PAGE_UNITS).await?;
        run.converge(units).await;
        after = next;
        if after.is_none() {
            break;
        }
    }
    run.counts.suspect_cells = run.lost_cells.len() as u64;
    run.request_starts().await?;
    Ok(run.counts)
}

impl Run<'_> {
    async fn converge(&mut self, units: Vec<Unit>) {
        let (mut due, mut pushes) = (Vec::new(), Vec::new());
        for unit in &units {
            self.count(unit);
            for (index, actions) in unit.decide(&self.world) {
                self.counts.missing += u64::from(actions.contains(&Action::Create));
                self.counts.extra += u64::from(actions.contains(&Action::Retire));
                due.push((unit.process_guid().clone(), index));
            }
            pushes.extend(unit.pushes(&self.world));
        }
        self.counts.told += pushes.len() as u64;
        let (service, world) = (self.service, &self.world);
        let workers = service.policy().convergence_workers.max(1);
        let acted = stream::iter(due).map(|(guid, index)| async move {
            let acted = act(service, world, &guid, index).await;
            (guid, index, acted)
        });
        let acted: Vec<_> = acted.buffer_unordered(workers).collect().await;
        let told =
            stream::iter(pushes).map(|push: Push| async move { update_container(service, push, &TraceId::NONE).await });
        told.buffer_unordered(workers).collect::<()>().await;
        for (guid, index, acted) in acted {
            match acted {
                Ok(true) => self.starts.push((guid, index)),
                Ok(false) => {}
                Err(fault) => self.failed(&guid, index, &fault),
            }
        }
    }

    fn count(&mut self, unit: &Unit) {
        let counts = &mut self.counts;
        counts.desired += unit.wanted.as_ref().map_or(0, |wanted| u64::try_from(wanted.instances).unwrap_or(0));
        let mut has_crashed = false;
        for slot in unit.slots.values() {
            match slot.ordinary.as_ref().and_then(|row| row.state()) {
                None => {}
                Some(State::Unclaimed) => counts.unclaimed += 1,
                Some(State::Claimed) => counts.claimed += 1,
                Some(State::Running) => counts.running += 1,
                Some(State::Crashed) => {
                    counts.crashed += 1;
                    has_crashed = true;
                }
            }
            match slot.suspect.as_ref().and_then(|row| row.state()) {
                Some(State::Running) => counts.suspect_running += 1,
                Some(State::Claimed) => counts.suspect_claimed += 1,
                Some(State::Unclaimed | State::Crashed) | None => {}
            }
        }
        counts.crashing_desired += u64::from(has_crashed && unit.wanted.is_some());
        self.lost_cells.extend(unit.lost_cells(self.world.cells).cloned());
    }

    fn failed(&mut self, process_guid: &[u8], index: i32, fault: &DomainError) {
        self.counts.failed += 1;
        if self.counts.failed <= MOST_LOGGED {
            let process_guid = String::from_utf8_lossy(process_guid);
            let cause = std::error::Error::source(fault).map(tracing::field::display);
            tracing::warn!(%process_guid, index, reason = %fault, cause, "an instance was not converged; the next run tries again");
        }
    }

    /// One request for everything that waits.
    async fn request_starts(&mut self) -> Result<(), DomainError> {
        let mut starts = Vec::new();
        for some in self.starts.chunks(STARTS_AT_ONCE) {
            let guids: BTreeSet<_> = some.iter().map(|(guid, _)| guid.clone()).collect();
            let guids: Vec<_> = guids.into_iter().collect();
            let infos = self.service.store().reader().await?.scheduling_infos_of(&guids).await?;
            for (guid, index) in some {
                // What nobody desires any more needs no cell.
                let info = infos.iter().find(|info| info.process_guid == *guid);
                starts.extend(info.map(|info| LrpStart::of(info, vec![*index])));
            }
        }
        self.counts.started = starts.len() as u64;
        if !starts.is_empty()
            && let Err(fault) = self.service.clients().auctioneer.request_lrps(&starts, &TraceId::NONE).await
        {
            tracing::warn!(instances = starts.len(), reason = %fault, "no cells were asked for; a later run asks again");
        }
        Ok(())
    }
}

/// Does what is due for a slot by now, which may be nothing any more. Whether a cell has to be found for it.
async fn act(service: &Service, world: &World<'_>, process_guid: &[u8], index: i32) -> Result<bool, DomainError> {
    let turn = service.turn(process_guid).await;
    let (changed, actions) = repeated(|| attempt(service, world, process_guid, index)).await?;
    announce(service, changed, Cause::Other, &TraceId::NONE);
    drop(turn);
    if actions.contains(&Action::Retire) {
        let key = LrpKey { process_guid: process_guid.to_vec(), index, domain: Text::new() };
        match retire(service, &key, &TraceId::NONE).await {
            Ok(()) | Err(DomainError::NotFound) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(actions.iter().any(|action| action.is_auctioned()))
}

/// The desired LRP is locked before its instances, as in every other call.
async fn attempt(
    service: &Service,
    world: &World<'_>,
    process_guid: &[u8],
    index: i32,
) -> Result<(Option<Changed>, Vec<Action>), DomainError> {
    let store = service.store();
    let mut writer = store.writer(process_guid).await?;
    let wanted = writer.wanted(process_guid).await?;
    let before = writer.slot(process_guid, index).await?;
    let actions = decide(index, &before, wanted.as_ref(), world);
    let domain = wanted.map(|wanted| wanted.domain).unwrap_or_default();
    let key = LrpKey { process_guid: process_guid.to_vec(), index, domain };
    let mut after = before.clone();
    for action in &actions {
        action.apply(&mut after, &key, store.now_ns())?;
    }
    Ok((write(writer, before, after).await?, actions))
}
