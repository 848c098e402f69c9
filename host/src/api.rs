//! The API as a set of methods: the methods of each version, the chain of translators between a client's version and the
//! host's, and the native handlers at its end. Independent of HTTP.

mod chain;
mod errors;
mod handlers;
mod methods;
mod pages;
mod stream;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

pub use chain::{ApiError, CallTarget, StreamTarget, names};
pub use methods::{Route, routes};
pub use pages::Pages;
pub use stream::{EventStream, SubscribeError};

use crate::domain::{Page, Service};
use crate::model::TraceId;
use crate::modules::translate::{ApiVersion, Translate, TranslateError, Verb};
use crate::store::Key;
use chain::TranslatorChain;
use handlers::HandlerCall;
use stream::Streams;

/// The API version that the compiled handlers implement.
pub const NATIVE: ApiVersion = ApiVersion::new(1, 1);

/// Partition keys on one page of a list: as many as a cell has instances, so that one page covers a cell.
const PAGE_UNITS: u32 = 500;

/// Answers API calls while this host is the master.
pub struct Api {
    service: Service,
    chain: Arc<TranslatorChain>,
    streams: Arc<Streams>,
    page_units: u32,
    /// Bounds concurrent runs of the chain. To the instances of each translator, without those that translate events, so
    /// that a run that has started never waits for an instance of a module further along. And to half of the database's
    /// readers, since a run keeps one for its page: native calls have the other half.
    runs: Arc<Semaphore>,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("service", &self.service).field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// The result of a call.
#[derive(Debug)]
pub enum Answer {
    /// The whole encoded answer.
    Whole(Vec<u8>),
    /// A list that does not fit on one page.
    Pages(Pages),
    /// The request cannot be stored at the pinned data version.
    NotHeld(NotHeld),
}

/// The request holds a value that the database, at its pinned version, has no column for; the text names it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotHeld(String);

/// Input of a method: the undecoded body and the client's trace id.
#[derive(Debug, Clone)]
pub struct Request {
    /// A protobuf message of the client's version.
    pub body: Bytes,
    /// Empty if the client sent none.
    pub trace_id: TraceId,
}

/// The part of a list that one run of the chain answers.
#[derive(Debug)]
enum Extent {
    Whole,
    Page { after: Option<Key> },
}

/// One run of the chain.
struct Run {
    answer: Result<Vec<u8>, TranslateError>,
    /// The key after which the next page starts; `None` after the last page.
    next: Option<Key>,
    /// Set if the request is rejected, whatever the answer is.
    refused: Option<NotHeld>,
}

/// The first native version of a host that no longer serves clients of `version`: one serves its own major version and the
/// one before.
pub const fn served_until(version: ApiVersion) -> ApiVersion {
    ApiVersion::new(version.major + 2, 0)
}

/// The versions that a host with these translators and this pin serves: those of the line, oldest first, and then side
/// shapes. Needs no store.
///
/// # Errors
/// The same as [`Api::new`].
pub fn served(translators: Vec<Arc<dyn Translate>>, pin: Option<&str>) -> Result<Vec<ApiVersion>, ApiError> {
    pinned_chain(translators, pin).map(|chain| chain.served().to_vec())
}

fn pinned_chain(translators: Vec<Arc<dyn Translate>>, pin: Option<&str>) -> Result<TranslatorChain, ApiError> {
    let mut chain = TranslatorChain::new(translators, NATIVE)?;
    pin.map_or(Ok(()), |pin| chain.pin(pin))?;
    Ok(chain)
}

impl Api {
    /// `translators` lead from the oldest version to the native one. With a pin, versions above it are not served.
    ///
    /// # Errors
    /// [`ApiError`] if the translators have a gap or do not end at [`NATIVE`], or if the pin is malformed or not served.
    pub fn new(service: Service, translators: Vec<Arc<dyn Translate>>, pin: Option<&str>) -> Result<Self, ApiError> {
        // Without translators the semaphore is never acquired.
        let instances = translators.iter().map(|translator| translator.instances()).min().unwrap_or(0);
        let chain = Arc::new(pinned_chain(translators, pin)?);
        let event_runs = (0..chain.steps()).filter(|step| chain.has_streams(*step)).count();
        let runs = instances.saturating_sub(event_runs).min(service.store().readers() / 2).max(1);
        Ok(Self {
            service,
            streams: Streams::new(Arc::clone(&chain)),
            chain,
            page_units: PAGE_UNITS,
            runs: Arc::new(Semaphore::new(runs)),
        })
    }

    /// Sets the number of partition keys on one page of a list; at least 1.
    pub fn with_page_units(mut self, page_units: u32) -> Self {
        self.page_units = page_units.max(1);
        self
    }

    /// The number of times that a record was left out of an answer because it could not be read.
    pub fn left_out(&self) -> u64 {
        self.service.store().left_out()
    }

    /// The versions that clients may use, oldest first; never empty.
    pub fn served(&self) -> &[ApiVersion] {
        self.chain.served()
    }

    /// The method at this path for a client of `version`, which is one of the served versions. Without a version, that of
    /// the newest version, or of an older one that has the path among Diego's. Returns the version with it.
    pub fn find(&self, version: Option<ApiVersion>, verb: Verb, path: &str) -> Option<(ApiVersion, CallTarget)> {
        match version {
            Some(version) => Some((version, self.chain.by_path(version, verb, path)?)),
            None => self.chain.by_diego_path(verb, path),
        }
    }

    /// The answer to a request whose body ended early.
    pub fn interrupted_body(&self) -> Answer {
        Answer::Whole(errors::interrupted_body())
    }

    /// Runs a method through the chain. A list is returned as pages unless it fits on one.
    pub async fn call(self: &Arc<Self>, target: CallTarget, request: Request) -> Answer {
        if target.is_paged() {
            let mut pages = Pages::new(Arc::clone(self), target, request);
            let first = pages.next().await.unwrap_or_default();
            return if pages.is_done() { Answer::Whole(first) } else { Answer::Pages(pages.starting_with(first)) };
        }
        let Run { answer, refused, .. } = self.run(target, request, Extent::Whole).await;
        refused.map_or_else(|| Answer::Whole(answer.unwrap_or_else(errors::fault)), Answer::NotHeld)
    }

    /// Subscribes to events from now on; `body` is the subscriber's encoded filter.
    ///
    /// # Errors
    /// [`SubscribeError`] if the body cannot be decoded or the host is stopping.
    pub fn subscribe(&self, stream: StreamTarget, body: &[u8]) -> Result<EventStream, SubscribeError> {
        EventStream::begin(self.service.events(), &self.streams, stream, body)
    }

    /// Ends every stream after the events published so far, and rejects new ones.
    pub fn end_streams(&self) {
        self.service.events().close();
    }

    async fn run(self: &Arc<Self>, target: CallTarget, request: Request, extent: Extent) -> Run {
        // Acquired before the page, which holds a connection: a run that waits for translator instances must not hold
        // what running chains may need.
        let reserved = match &target {
            CallTarget::Native(_) | CallTarget::Stream(_) => None,
            CallTarget::Translated { .. } => {
                Some(Arc::clone(&self.runs).acquire_owned().await.expect("the semaphore is never closed"))
            }
        };
        let mut page = match extent {
            Extent::Whole => None,
            Extent::Page { after } => match Page::begin(self.service.store(), after, self.page_units).await {
                Ok(page) => Some(page),
                Err(error) => {
                    let error = error.into();
                    return Run { answer: Ok(handlers::failed(&self.service, &error)), next: None, refused: None };
                }
            },
        };
        if let CallTarget::Native(method) = target {
            let answer = handlers::answer(&self.service, method, HandlerCall::of(&request), page.as_mut()).await;
            let refused = answer.as_ref().err().cloned();
            return Run { answer: Ok(answer.unwrap_or_default()), next: page.and_then(Page::next), refused };
        }
        let (api, handle) = (Arc::clone(self), Handle::current());
        let chain = move || {
            let mut refused = None;
            let answer = api.run_chain(&handle, target, HandlerCall::of(&request), &mut page, &mut refused);
            let run = Run { answer, next: page.and_then(Page::next), refused };
            // Only now, also if the client has gone meanwhile.
            drop(reserved);
            run
        };
        tokio::task::spawn_blocking(chain).await.unwrap_or_else(|panic| {
            let reason = format!("the chain of translators ended unexpectedly: {panic}");
            Run { answer: Err(TranslateError { reason }), next: None, refused: None }
        })
    }

    fn run_chain(
        &self,
        handle: &Handle,
        target: CallTarget,
        call: HandlerCall<'_>,
        page: &mut Option<Page>,
        refused: &mut Option<NotHeld>,
    ) -> Result<Vec<u8>, TranslateError> {
        match target {
            CallTarget::Native(method) => {
                let answer = handle.block_on(handlers::answer(&self.service, method, call, page.as_mut()));
                answer.map_err(|not_held| {
                    let reason = not_held.to_string();
                    *refused = Some(not_held);
                    TranslateError { reason }
                })
            }
            CallTarget::Stream(stream) => {
                let name = stream.name();
                Err(TranslateError {
                    reason: format!("{name:?} is an event stream; subscribe to it instead of calling it"),
                })
            }
            CallTarget::Translated { step, method, .. } => {
                self.chain.translator(step).call(&method, call.body, &mut |name, body| {
                    let next = self.chain.next(step, name)?;
                    self.run_chain(handle, next, HandlerCall { body, ..call }, page, refused)
                })
            }
        }
    }
}
