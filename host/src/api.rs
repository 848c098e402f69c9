//! The API as a set of methods: which there are at each version, the chain of translators between a
//! client's version and the host's, and the native handlers at its end. Knows no HTTP.

mod errors;
mod handlers;
mod line;
mod methods;
mod pages;
mod stream;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

pub use line::{ApiError, Target, names};
pub use methods::{Route, Stream, routes};
pub use pages::Pages;
pub use stream::{EventStream, NoStream};

use crate::domain::{Page, Service};
use crate::model::TraceId;
use crate::modules::translate::{ApiVersion, Translate, TranslateError};
use crate::store::Key;
use handlers::Call;
use line::Line;

/// What the compiled handlers speak.
pub const NATIVE: ApiVersion = ApiVersion { major: 1, minor: 1 };

/// Partition keys on one page of a list: as many as a cell has instances, so that a cell's are read at once.
const PAGE_UNITS: u32 = 500;

/// Everything that answers calls, for as long as this host is the master.
pub struct Api {
    service: Service,
    line: Line,
    page_units: u32,
    /// As many runs as there are instances of each translator, so that a run which has begun never waits
    /// for one: what it needs of every module on its way is its own.
    chains: Semaphore,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("service", &self.service).field("line", &self.line).finish_non_exhaustive()
    }
}

/// What a call came to.
#[derive(Debug)]
pub enum Answer {
    Whole(Vec<u8>),
    /// A list that did not fit on one page.
    Pages(Pages),
    NotHeld(NotHeld),
}

/// What a request holds has no place in the database as it is pinned; the text names it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotHeld(String);

/// What a method is called with.
#[derive(Debug, Clone)]
pub struct Request {
    pub body: Bytes,
    pub trace_id: TraceId,
}

/// How much of a list one run of the chain is for.
#[derive(Debug)]
enum Extent {
    Whole,
    Page { after: Option<Key> },
}

/// One run of the chain.
struct Run {
    answer: Result<Vec<u8>, TranslateError>,
    /// Where the next page begins, if there is one.
    next: Option<Key>,
    /// Whatever the answer is, the request was refused.
    refused: Option<NotHeld>,
}

/// Refuses translators that do not lead to the native version, and a pin that nothing is served at, without anything to
/// serve yet.
///
/// # Errors
/// As of [`Api::new`].
pub fn check(translators: Vec<Arc<dyn Translate>>, pin: Option<&str>) -> Result<(), ApiError> {
    pinned(translators, pin).map(drop)
}

fn pinned(translators: Vec<Arc<dyn Translate>>, pin: Option<&str>) -> Result<Line, ApiError> {
    let mut line = Line::new(translators, NATIVE)?;
    pin.map_or(Ok(()), |pin| line.pin(pin))?;
    Ok(line)
}

impl Api {
    /// `translators` go from the oldest version to the native one without a gap. With a pin, no version
    /// above it is served.
    pub fn new(service: Service, translators: Vec<Arc<dyn Translate>>, pin: Option<&str>) -> Result<Self, ApiError> {
        // Without translators nothing is translated, so nothing waits.
        let runs = translators.iter().map(|translator| translator.instances()).min().unwrap_or(0);
        let line = pinned(translators, pin)?;
        let chains = Semaphore::new(runs);
        Ok(Self { service, line, page_units: PAGE_UNITS, chains })
    }

    /// How many partition keys there are on one page of a list.
    pub fn with_page_units(mut self, page_units: u32) -> Self {
        self.page_units = page_units.max(1);
        self
    }

    /// How often a record was left out of an answer because it could not be read.
    pub fn left_out(&self) -> u64 {
        self.service.store().left_out()
    }

    /// The versions that clients may speak, oldest first; never empty.
    pub fn served(&self) -> &[ApiVersion] {
        self.line.served()
    }

    /// What a request that names no version is answered as.
    pub fn newest(&self) -> ApiVersion {
        self.line.newest()
    }

    /// The method that a client of this version, which is one of those served, calls by this path, if it has one.
    pub fn find(&self, version: ApiVersion, path: &str) -> Option<Target> {
        self.line.by_path(version, path)
    }

    /// The answer to a request whose body broke off.
    pub fn broken_off(&self) -> Answer {
        Answer::Whole(errors::broken_off())
    }

    pub async fn call(self: &Arc<Self>, target: Target, request: Request) -> Answer {
        if target.is_paged() {
            let mut pages = Pages::new(Arc::clone(self), target, request);
            let first = pages.next().await.unwrap_or_default();
            return if pages.is_done() { Answer::Whole(first) } else { Answer::Pages(pages.starting_with(first)) };
        }
        let Run { answer, refused, .. } = self.run(target, request, Extent::Whole).await;
        refused.map_or_else(|| Answer::Whole(answer.unwrap_or_else(errors::fault)), Answer::NotHeld)
    }

    /// What happens from now on, to the subscriber that asks with this body.
    pub fn subscribe(&self, stream: Stream, body: &[u8]) -> Result<EventStream, NoStream> {
        EventStream::begin(self.service.events(), stream, body)
    }

    /// Every stream ends after what has happened so far, and none begins.
    pub fn end_streams(&self) {
        self.service.events().close();
    }

    async fn run(self: &Arc<Self>, target: Target, request: Request, extent: Extent) -> Run {
        // Before the page, which holds a connection: whoever waits for instances must hold nothing that
        // those who have them may need.
        let _reserved = match &target {
            Target::Native(_) | Target::Stream(_) => None,
            Target::Translated { .. } => Some(self.chains.acquire().await.expect("the semaphore is never closed")),
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
        if let Target::Native(method) = target {
            let answer = handlers::answer(&self.service, method, Call::of(&request), page.as_mut()).await;
            let refused = answer.as_ref().err().cloned();
            return Run { answer: Ok(answer.unwrap_or_default()), next: page.and_then(Page::next), refused };
        }
        let (api, handle) = (Arc::clone(self), Handle::current());
        let chain = move || {
            let mut refused = None;
            let answer = api.run_chain(&handle, target, Call::of(&request), &mut page, &mut refused);
            Run { answer, next: page.and_then(Page::next), refused }
        };
        tokio::task::spawn_blocking(chain).await.unwrap_or_else(|panic| {
            let reason = format!("the chain of translators ended unexpectedly: {panic}");
            Run { answer: Err(TranslateError { reason }), next: None, refused: None }
        })
    }

    fn run_chain(
        &self,
        handle: &Handle,
        target: Target,
        call: Call<'_>,
        page: &mut Option<Page>,
        refused: &mut Option<NotHeld>,
    ) -> Result<Vec<u8>, TranslateError> {
        match target {
            Target::Native(method) => {
                let answer = handle.block_on(handlers::answer(&self.service, method, call, page.as_mut()));
                answer.map_err(|not_held| {
                    let reason = not_held.to_string();
                    *refused = Some(not_held);
                    TranslateError { reason }
                })
            }
            Target::Stream(stream) => {
                let name = stream.name();
                Err(TranslateError { reason: format!("{name:?} is a stream, which is listened to and not called") })
            }
            Target::Translated { step, method, .. } => {
                self.line.translator(step).call(&method, call.body, &mut |name, body| {
                    let next = self.line.next(step, name)?;
                    self.run_chain(handle, next, Call { body, ..call }, page, refused)
                })
            }
        }
    }
}
