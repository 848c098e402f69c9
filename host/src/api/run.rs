//! One run of the chain: calls the translators from a client's version to the native handler, and
//! bounds what all runs together take. A future without a thread of its own: a run that waits for
//! the database costs none, and a chain of any length needs no deeper stack.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bbs_modules::translate::{CallProgress, NextAnswer, NextCall, TranslateError, TranslatedCall};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::chain::{CallTarget, TranslatorChain};
use super::errors::RunError;
use super::handlers::{self, HandlerCall};
use super::methods::DEFINITION;
use super::reads::LONGEST_READ;
use super::{Api, Request};
use crate::domain::Page;
use crate::store::{Range, Reader, Store};

/// Longest time in translators, from the first one's start. A native handler that has begun is not
/// interrupted.
const RUN_TIME: Duration = Duration::from_secs(30);
/// Most calls of a newer version during one run, by all translators together.
const NEXT_CALLS: usize = 1_000;
/// Largest request of a translator, in bytes: twice the largest body of a client, since a newer
/// form may be longer. A module may pass far more, which the bodies in flight do not count.
const NEXT_BODY: usize = 2 * DEFINITION;
/// A request with a larger body is large: translating it takes as long as many others.
const LARGE_BODY: usize = 256 << 10;
/// Most runs of large requests at once; at most half of the permits.
const LARGE_RUNS: usize = 2;

/// The part of a list that one run of the chain answers.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for each run, and moved once"
)]
pub(super) enum Extent<'a> {
    Whole,
    /// The first page of `range`. `reader` is that of the page before, or of an attempt at this
    /// one, which has the permit, too; the run begins before `waits_until`.
    Page {
        reader: Option<Reader>,
        permit: Option<RunPermit<'a>>,
        waits_until: Instant,
        range: Range,
    },
}

/// The result of one run.
pub(super) struct Run<'a> {
    /// Not used if the page is [cut](Page::cut).
    pub(super) answer: Result<Vec<u8>, RunError>,
    /// The page as it was read, with its transaction.
    pub(super) page: Option<Page>,
    /// For another attempt at the page.
    pub(super) permit: Option<RunPermit<'a>>,
}

impl Run<'_> {
    /// A run that has read no page.
    fn without_page(answer: Result<Vec<u8>, RunError>) -> Self {
        Self {
            answer,
            page: None,
            permit: None,
        }
    }
}

/// Bounds concurrent runs of the chain.
pub(super) struct RunPermits {
    /// To the instances of each translator, without those that translate events, so that a run that
    /// has started never waits for an instance of a module further along. And to the readers that
    /// translated calls may have, since a run keeps one for its page.
    runs: SharedPermits,
    large: SharedPermits,
    /// Permits of the store, which the runs of the translators before a reload take, too.
    readers: Arc<Semaphore>,
}

/// The right to run the chain, until this is dropped.
#[derive(Debug)]
pub(super) struct RunPermit<'a> {
    _large: Vec<SemaphorePermit<'a>>,
    _run: Vec<SemaphorePermit<'a>>,
    /// For a page, which keeps a reader.
    _reader: Option<SemaphorePermit<'a>>,
}

/// Permits that all versions share. One is kept for each version that the older ones, however slow
/// their translators are, cannot take. If there are more versions than permits, one is kept for
/// several versions that follow one another.
struct SharedPermits {
    /// For each version, in the order of [`TranslatorChain::rank`], the permits that it and those
    /// before it have together.
    through: Vec<Semaphore>,
}

impl SharedPermits {
    fn new(permits: usize, versions: usize) -> Self {
        let through = (1..=versions).map(|count| {
            if versions <= permits {
                permits - (versions - count)
            } else {
                (permits * count).div_ceil(versions)
            }
        });
        Self {
            through: through.map(Semaphore::new).collect(),
        }
    }

    /// Waits for a permit of the version of this rank. Its own first: one that waits takes none
    /// from newer versions.
    async fn acquire(&self, rank: usize) -> Vec<SemaphorePermit<'_>> {
        let mut taken = Vec::with_capacity(self.through.len() - rank);
        for permits in &self.through[rank..] {
            taken.push(
                permits
                    .acquire()
                    .await
                    .expect("the semaphore is never closed"),
            );
        }
        taken
    }
}

impl RunPermits {
    pub(super) fn new(chain: &TranslatorChain, store: &Store) -> Self {
        let steps = || 0..chain.steps();
        // Without translators there are no runs to bound.
        let instances = steps()
            .map(|step| chain.translator(step).instances())
            .min()
            .unwrap_or(0);
        let event_runs = steps().filter(|step| chain.has_streams(*step)).count();
        let readers = store.most_translated_readers();
        let runs = instances.saturating_sub(event_runs).min(readers).max(1);
        let large = LARGE_RUNS.min(runs / 2).max(1);
        Self {
            runs: SharedPermits::new(runs, chain.steps()),
            large: SharedPermits::new(large, chain.steps()),
            readers: Arc::clone(store.translated_readers()),
        }
    }

    async fn acquire(
        &self,
        rank: usize,
        request: &Request,
        is_page: bool,
    ) -> Result<RunPermit<'_>, TranslateError> {
        let permit = async {
            // First, so that a large request that waits takes no permit from small ones.
            let is_large = request.body.len() > LARGE_BODY;
            let large = if is_large {
                self.large.acquire(rank).await
            } else {
                Vec::new()
            };
            let run = self.runs.acquire(rank).await;
            // Last: free unless runs from before a reload have it.
            let reader = if is_page {
                let permit = self.readers.acquire().await;
                Some(permit.expect("the semaphore is never closed"))
            } else {
                None
            };
            RunPermit {
                _large: large,
                _run: run,
                _reader: reader,
            }
        };
        or_abandoned(&request.abandoned, permit).await
    }
}

/// # Errors
/// The client disconnects before `work` ends.
pub(super) async fn or_abandoned<T>(
    abandoned: &CancellationToken,
    work: impl Future<Output = T>,
) -> Result<T, TranslateError> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        () = abandoned.cancelled() => Err(TranslateError::new("the client has disconnected")),
    }
}

impl Api {
    /// Runs a call, or a page of a list, once it has its permits.
    pub(super) async fn run<'a>(
        &'a self,
        target: CallTarget,
        request: &Request,
        extent: Extent<'a>,
    ) -> Run<'a> {
        let (has_reader, waits_until) = match &extent {
            Extent::Whole => (false, request.waits_until),
            Extent::Page {
                reader,
                waits_until,
                ..
            } => (reader.is_some(), *waits_until),
        };
        let permit = self.read_permit(&target, request, has_reader, waits_until);
        let permit = match permit.await {
            Ok(permit) => permit,
            Err(error) => return Run::without_page(Err(error)),
        };
        let mut running = pin!(self.run_extent(target, request, extent));
        if let Some(permit) = permit {
            tokio::select! {
                biased;
                run = &mut running => return run,
                () = sleep(LONGEST_READ) => drop(permit),
            }
        }
        running.await
    }

    /// Waits up to `waits_until` for the permit of a native read, if its method needs one.
    /// `has_reader` is that of [`ReadPermits::of`](super::reads::ReadPermits::of).
    async fn read_permit(
        &self,
        target: &CallTarget,
        request: &Request,
        has_reader: bool,
        waits_until: Instant,
    ) -> Result<Option<SemaphorePermit<'_>>, RunError> {
        let CallTarget::Native { method, .. } = target else {
            return Ok(None);
        };
        let Some(permits) = self.reads.of(*method, has_reader) else {
            return Ok(None);
        };
        let permit = or_abandoned(&request.abandoned, permits.acquire());
        let permit = timeout_at(waits_until, permit).await;
        let permit = permit.map_err(|_| RunError::Busy)??;
        Ok(Some(permit.expect("the semaphore is never closed")))
    }

    async fn run_extent<'a>(
        &'a self,
        target: CallTarget,
        request: &Request,
        mut extent: Extent<'a>,
    ) -> Run<'a> {
        let is_page = matches!(extent, Extent::Page { .. });
        let (waits_until, permit) = match &mut extent {
            Extent::Whole => (request.waits_until, None),
            Extent::Page {
                waits_until,
                permit,
                ..
            } => (*waits_until, permit.take()),
        };
        // Before the first page, which holds a connection: a run that waits for its permit must not
        // hold what others may need.
        let permit = match permit {
            Some(permit) => Some(permit),
            None => match self.permit(&target, request, is_page, waits_until).await {
                Ok(permit) => permit,
                Err(error) => return Run::without_page(Err(error)),
            },
        };
        let mut page = match extent {
            Extent::Whole => None,
            Extent::Page { reader, range, .. } => {
                let page = Page::of(reader, range);
                let mut page = if matches!(target, CallTarget::Translated { .. }) {
                    page.lasting(waits_until)
                } else {
                    page
                };
                if let Err(error) = page.ready(self.service.store()).await {
                    let answer = handlers::failed(&self.service, &error.into());
                    return Run::without_page(answer);
                }
                Some(page)
            }
        };
        let answer = self.run_chain(target, request, &mut page).await;
        Run {
            answer,
            page,
            permit,
        }
    }

    /// Waits up to `waits_until` for the permit of a run, if its target needs one. A run keeps its
    /// permit while the native handler waits for the database, since its translators wait on stacks
    /// of their own.
    async fn permit(
        &self,
        target: &CallTarget,
        request: &Request,
        is_page: bool,
        waits_until: Instant,
    ) -> Result<Option<RunPermit<'_>>, RunError> {
        let CallTarget::Translated { step, .. } = target else {
            return Ok(None);
        };
        let rank = self.chain.rank(*step);
        let permit = self.permits.acquire(rank, request, is_page);
        let permit = timeout_at(waits_until, permit).await;
        Ok(Some(permit.map_err(|_| RunError::Busy)??))
    }

    async fn run_chain(
        &self,
        mut target: CallTarget,
        request: &Request,
        page: &mut Option<Page>,
    ) -> Result<Vec<u8>, RunError> {
        let mut translators = RunningChain {
            api: self,
            request,
            calls: Vec::new(),
            next_calls: 0,
            deadline: Instant::now() + RUN_TIME,
            exceeds_limits: false,
        };
        let mut body = request.body.clone();
        let service = self.service.for_call(request.waits_until);
        loop {
            let answer = match target {
                CallTarget::Native { method, version } => {
                    let call = HandlerCall {
                        body: &body,
                        trace_id: &request.trace_id,
                        version,
                    };
                    let answer = handlers::answer(&service, method, call, page.as_mut()).await?;
                    if page.as_ref().and_then(Page::cut).is_some() {
                        return Err(longer_list());
                    }
                    Some(Ok(answer))
                }
                CallTarget::Stream(stream) => {
                    let name = stream.name();
                    let reason = format!(
                        "{name:?} is an event stream; subscribe to it instead of calling it"
                    );
                    Some(Err(TranslateError::new(reason)))
                }
                CallTarget::Translated { step, method, .. } => {
                    let call = self.chain.translator(step).call(&method, body);
                    translators.calls.push((step, call));
                    None
                }
            };
            match translators.resume(answer).await? {
                Resumed::Next(next, request) => (target, body) = (next, request.into()),
                Resumed::Answered(answer) => {
                    let exceeds_limits = translators.exceeds_limits;
                    return Ok(answer.map_err(|error| TranslateError {
                        exceeds_limits,
                        ..error
                    })?);
                }
            }
        }
    }
}

/// The end of a run whose page is cut: its translators have more of the first list than the page.
fn longer_list() -> RunError {
    let reason = "a later list of the page has more records than the page".to_owned();
    RunError::Translate(TranslateError {
        reason,
        exceeds_limits: true,
    })
}

/// The translators that a run has called and that have not answered.
struct RunningChain<'a> {
    api: &'a Api,
    request: &'a Request,
    /// The last one was called by the one before it.
    calls: Vec<(usize, Box<dyn TranslatedCall + 'a>)>,
    next_calls: usize,
    deadline: Instant,
    /// Whether a translator failed because a page was too large for it, whatever the translators
    /// before it make of that.
    exceeds_limits: bool,
}

enum Resumed {
    /// The call that the chain waits for.
    Next(CallTarget, Vec<u8>),
    /// The answer of the whole chain.
    Answered(NextAnswer),
}

impl RunningChain<'_> {
    /// Runs the translators until one of them calls a newer version, or the first has answered.
    /// `answer` is that to the last call; `None` if the last translator has not run yet.
    async fn resume(&mut self, mut answer: Option<NextAnswer>) -> Result<Resumed, RunError> {
        while let Some((step, call)) = self.calls.last_mut() {
            let step = *step;
            let resumed = or_abandoned(&self.request.abandoned, call.resume(answer.take()));
            let progress = tokio::select! {
                biased;
                progress = resumed => progress?,
                () = sleep_until(self.deadline) => return Err(self.call_failed(step, &format!("ran longer than {RUN_TIME:?}"))),
            };
            match progress {
                CallProgress::Answered(answered) => {
                    self.calls.pop();
                    self.exceeds_limits |=
                        answered.as_ref().is_err_and(|error| error.exceeds_limits);
                    answer = Some(answered);
                }
                CallProgress::Next(_) if self.next_calls == NEXT_CALLS => {
                    let flaw = format!("called the next version more than {NEXT_CALLS} times");
                    return Err(self.call_failed(step, &flaw));
                }
                CallProgress::Next(NextCall { method, request }) => {
                    self.next_calls += 1;
                    match self.api.chain.next(step, &method) {
                        Ok(target) if request.len() <= NEXT_BODY => {
                            return Ok(Resumed::Next(target, request));
                        }
                        Ok(target) => {
                            let reason = format!(
                                "translator {:?} called {:?} with {} bytes, above the limit of {NEXT_BODY}",
                                self.api.chain.translator(step).manifest().name,
                                target.name(),
                                request.len()
                            );
                            answer = Some(Err(TranslateError::new(reason)));
                        }
                        Err(error) => answer = Some(Err(error)),
                    }
                }
            }
        }
        Ok(Resumed::Answered(answer.expect(
            "a translator answers before it is removed, and a native handler at once",
        )))
    }

    fn call_failed(&self, step: usize, flaw: &str) -> RunError {
        let name = &self.api.chain.translator(step).manifest().name;
        let reason = format!(
            "translator {name:?} {flaw} for one request; it has to request more per call, and less in all"
        );
        let error = TranslateError::new(reason);
        self.api.log_failed(&error);
        RunError::Translate(error)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn work_ends_with_its_client() {
        let abandoned = CancellationToken::new();
        let mut work = pin!(or_abandoned(&abandoned, std::future::pending::<()>()));
        assert!(work.as_mut().now_or_never().is_none());
        abandoned.cancel();
        assert!(work.now_or_never().is_some_and(|ended| ended.is_err()));
    }

    #[test]
    fn older_versions_leave_a_permit_for_each_newer_one() {
        let permits = SharedPermits::new(4, 3);
        let mut taken: Vec<_> = std::iter::from_fn(|| permits.acquire(0).now_or_never()).collect();
        assert_eq!(taken.len(), 2);
        taken.extend(permits.acquire(1).now_or_never());
        assert!(permits.acquire(1).now_or_never().is_none());
        taken.extend(permits.acquire(2).now_or_never());
        assert_eq!(taken.len(), 4);
        assert!(permits.acquire(2).now_or_never().is_none());
        taken.remove(0);
        assert!(
            permits.acquire(2).now_or_never().is_some(),
            "a newer one may have all"
        );
    }

    #[test]
    fn fewer_permits_than_versions_are_kept_for_several_versions_each() {
        let permits = SharedPermits::new(3, 6);
        let mut taken = Vec::new();
        for oldest in [0, 2, 4] {
            taken.extend(permits.acquire(oldest).now_or_never());
            assert!(permits.acquire(oldest + 1).now_or_never().is_none());
        }
        assert_eq!(taken.len(), 3);
    }

    #[test]
    fn each_version_has_a_permit_where_there_are_few() {
        let permits = SharedPermits::new(1, 3);
        for rank in 0..3 {
            assert!(permits.acquire(rank).now_or_never().is_some());
        }
    }
}
