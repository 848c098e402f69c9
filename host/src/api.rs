//! The API as a set of methods: the methods of each version, the chain of translators between a
//! client's version and the host's, and the native handlers at its end. Independent of HTTP.

mod chain;
mod errors;
mod handlers;
mod methods;
mod pages;
mod reads;
mod run;
mod stream;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use chain::{ApiError, CallTarget, StreamTarget};
pub use methods::{NativeVersion, Route, routes, unrevised};
pub use pages::Pages;
pub use stream::{EventStream, SubscribeError};

use bbs_model::TraceId;
use bbs_modules::translate::{ApiVersion, Translate, TranslateError, Verb};
use bbs_work::log_sampling::LineLimit;

use crate::domain::Service;
use crate::protobuf;
use chain::TranslatorChain;
use errors::RunError;
use reads::ReadPermits;
use run::{Extent, RunPermits};
use stream::Streams;

/// The newest API version that the compiled handlers implement.
pub const NATIVE: ApiVersion = NativeVersion::Definitions.number();

/// The version at which the translator chain ends.
pub const CHAIN_END: ApiVersion = NativeVersion::Diego.number();

/// Partition keys on one page of a list: as many as a cell has instances, so that one page covers a
/// cell.
const PAGE_UNITS: u32 = 500;

/// Longest time for which a call waits before it runs: for memory, for the run of its translators,
/// for a place among reads and among large lists, and for earlier calls on its record. Below the
/// 10 s after which reps, auctioneers and Cloud Controller give up, but not far below: Cloud
/// Controller repeats no call that is answered with 503.
pub const LONGEST_WAIT: Duration = Duration::from_secs(8);

const FAILED_BURST: u32 = 100;
const FAILED_PER_MINUTE: u32 = 10;

/// Answers API calls while this host is the master.
pub struct Api {
    service: Service,
    chain: Arc<TranslatorChain>,
    streams: Arc<Streams>,
    page_units: u32,
    /// Longest time between two pages of a list.
    longest_pause: Duration,
    permits: RunPermits,
    reads: ReadPermits,
    /// Log lines about runs and answers that are no translator's own failure.
    failed_runs: LineLimit,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api")
            .field("service", &self.service)
            .field("chain", &self.chain)
            .finish_non_exhaustive()
    }
}

/// The result of a call.
#[derive(Debug)]
pub enum Answer {
    /// The whole encoded answer.
    Whole(Vec<u8>),
    /// A list that does not fit on one page.
    Pages(Box<Pages>),
    /// The request holds a value that the database, at its pinned version, has no column for; the
    /// text names it.
    NotHeld(String),
    /// A migration replaces the tables, another host is the master, or earlier calls on the record
    /// wait for too long; the text says which. The client has to repeat the call.
    Unavailable(String),
    /// Too many calls of older versions, reads of large records, or large lists, run.
    Busy,
}

impl Answer {
    /// `keeps_container` is that of [`CallTarget::keeps_container`].
    fn from_run(answer: Result<Vec<u8>, RunError>, keeps_container: bool) -> Self {
        match answer {
            Ok(answer) => Self::Whole(answer),
            Err(RunError::NotHeld(refused)) => Self::NotHeld(refused),
            Err(RunError::Unavailable(reason)) => Self::Unavailable(reason),
            Err(RunError::Busy) => Self::Busy,
            Err(RunError::Translate(error)) => Self::Whole(errors::fault(error, keeps_container)),
        }
    }
}

/// Input of a method: the undecoded body and the client's trace id.
#[derive(Debug, Clone)]
pub struct Request {
    /// A protobuf message of the client's version.
    pub body: Bytes,
    /// Empty if the client sent none.
    pub trace_id: TraceId,
    /// Cancelled when the client has disconnected. Ends what a translator computes for it; a change
    /// that a native handler has begun is completed.
    pub abandoned: CancellationToken,
    /// The end of all waits of the call; see [`LONGEST_WAIT`].
    pub waits_until: Instant,
}

/// Upper bound of what a decoded request of any type takes in memory besides its texts, in bytes.
pub fn decoded_bytes(body: &[u8]) -> usize {
    protobuf::elements(body).unwrap_or(protobuf::MOST_ELEMENTS) * protobuf::ELEMENT_BYTES
}

/// The first native version of a host that no longer serves clients of `version`: one serves its
/// own major version and the one before.
pub const fn served_until(version: ApiVersion) -> ApiVersion {
    ApiVersion::new(version.major + 2, 0)
}

/// The versions that a host with these translators and this pin serves: those of Diego, oldest
/// first, and then side shapes. Needs no store.
///
/// # Errors
/// The same as [`Api::new`].
pub fn served(
    translators: Vec<Arc<dyn Translate>>,
    pin: Option<&str>,
) -> Result<Vec<ApiVersion>, ApiError> {
    pinned_chain(translators, pin).map(|chain| chain.served().to_vec())
}

fn pinned_chain(
    translators: Vec<Arc<dyn Translate>>,
    pin: Option<&str>,
) -> Result<TranslatorChain, ApiError> {
    let mut chain = TranslatorChain::new(translators)?;
    pin.map_or(Ok(()), |pin| chain.pin(pin))?;
    Ok(chain)
}

impl Api {
    /// `translators` lead from the oldest version to Diego's current one. With a pin, versions
    /// above it are not served.
    ///
    /// # Errors
    /// [`ApiError`] if the translators have a gap or do not end at [`CHAIN_END`], or if the pin is
    /// malformed or not served.
    pub fn new(
        service: Service,
        translators: Vec<Arc<dyn Translate>>,
        pin: Option<&str>,
    ) -> Result<Self, ApiError> {
        let chain = Arc::new(pinned_chain(translators, pin)?);
        let permits = RunPermits::new(&chain, service.store());
        Ok(Self {
            service,
            streams: Streams::new(Arc::clone(&chain)),
            failed_runs: LineLimit::new(FAILED_BURST, FAILED_PER_MINUTE),
            chain,
            page_units: PAGE_UNITS,
            longest_pause: pages::LONGEST_PAUSE,
            permits,
            reads: ReadPermits::default(),
        })
    }

    /// Sets the number of partition keys on one page of a list; at least 1.
    pub fn with_page_units(mut self, page_units: u32) -> Self {
        self.page_units = page_units.max(1);
        self
    }

    /// Sets the time after which the database ends a transaction that is idle.
    pub fn with_idle_limit(self, idle_limit: Duration) -> Self {
        Self {
            longest_pause: pages::longest_pause(idle_limit),
            ..self
        }
    }

    /// The number of times that a record was left out of an answer because it could not be read.
    pub fn left_out(&self) -> u64 {
        self.service.store().left_out()
    }

    /// The versions that clients may use, oldest first; never empty.
    pub fn served(&self) -> &[ApiVersion] {
        self.chain.served()
    }

    /// The method at this path for a client of `version`, which is one of the served versions.
    /// Without a version, that of Diego's current version, or of an older one that has the path
    /// among Diego's. Returns the version with it.
    pub fn find(
        &self,
        version: Option<ApiVersion>,
        verb: Verb,
        path: &str,
    ) -> Option<(ApiVersion, CallTarget)> {
        match version {
            Some(version) => Some((version, self.chain.by_path(version, verb, path)?)),
            None => self.chain.by_diego_path(verb, path),
        }
    }

    /// The answer to a request whose body ended early.
    pub fn interrupted_body(&self, target: &CallTarget) -> Answer {
        Answer::Whole(errors::interrupted_body(target.keeps_container()))
    }

    /// Runs a method through the chain. A list is returned as pages unless it fits on one.
    pub async fn call(self: &Arc<Self>, target: CallTarget, request: Request) -> Answer {
        if target.is_paged() {
            return Pages::begin(Arc::clone(self), target, request).await;
        }
        let keeps_container = target.keeps_container();
        let run = self.run(target, &request, Extent::Whole).await;
        Answer::from_run(run.answer, keeps_container)
    }

    /// Subscribes to events from now on; `body` is the subscriber's encoded filter.
    ///
    /// # Errors
    /// [`SubscribeError`] if the body cannot be decoded or the host is stopping.
    pub fn subscribe(
        &self,
        stream: StreamTarget,
        body: &[u8],
    ) -> Result<EventStream, SubscribeError> {
        EventStream::begin(self.service.events(), &self.streams, stream, body)
    }

    /// Ends every stream after the events published so far, and rejects new ones.
    pub fn end_streams(&self) {
        self.service.events().close();
    }

    /// Logs that a run failed, or has an answer that is no message.
    fn log_failed(&self, error: &TranslateError) {
        if let Some(left_out) = self.failed_runs.admit() {
            tracing::error!(
                reason = error.reason,
                left_out,
                "a call of an older version failed"
            );
        }
    }
}
