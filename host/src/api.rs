//! The API as a set of methods: which there are at each version, the chain of translators between a
//! client's version and the host's, and the native handlers at its end. Knows no HTTP.

mod errors;
mod handlers;
mod line;
mod methods;
mod pages;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;

pub use line::{ApiError, Target};
pub use pages::Pages;

use crate::domain::Page;
use crate::modules::translate::{ApiVersion, Translate, TranslateError};
use crate::store::{Key, Store};
use line::Line;

/// What the compiled handlers speak.
pub const NATIVE: ApiVersion = ApiVersion { major: 1, minor: 1 };

/// Partition keys on one page of a list.
const PAGE_UNITS: u32 = 250;

/// Everything that answers calls, for as long as this host is the master.
pub struct Api {
    store: Store,
    line: Line,
    page_units: u32,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("store", &self.store).field("line", &self.line).finish_non_exhaustive()
    }
}

/// What a call came to.
#[derive(Debug)]
pub enum Answer {
    Whole(Vec<u8>),
    /// A list that did not fit on one page.
    Pages(Pages),
}

/// The versions that clients may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub oldest: ApiVersion,
    pub newest: ApiVersion,
}

impl Window {
    pub fn contains(&self, version: ApiVersion) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }
}

impl Api {
    /// `translators` go from the oldest version to the native one without a gap. With a pin, no version
    /// above it is served.
    pub fn new(store: Store, translators: Vec<Arc<dyn Translate>>, pin: Option<&str>) -> Result<Self, ApiError> {
        let mut line = Line::new(translators, NATIVE)?;
        pin.map_or(Ok(()), |pin| line.pin(pin))?;
        Ok(Self { store, line, page_units: PAGE_UNITS })
    }

    /// How many partition keys there are on one page of a list.
    pub fn with_page_units(mut self, page_units: u32) -> Self {
        self.page_units = page_units.max(1);
        self
    }

    pub fn window(&self) -> Window {
        self.line.window()
    }

    /// The method that a client of this version calls by this path, if it has one.
    pub fn find(&self, version: ApiVersion, path: &str) -> Option<Target> {
        self.line.by_path(version, path)
    }

    pub async fn call(self: &Arc<Self>, target: Target, request: Bytes) -> Answer {
        if target.is_paged() {
            let mut pages = Pages::new(Arc::clone(self), target, request);
            let first = pages.next().await.unwrap_or_default();
            return if pages.is_done() { Answer::Whole(first) } else { Answer::Pages(pages.starting_with(first)) };
        }
        Answer::Whole(self.run(target, request, None).await.0.unwrap_or_else(errors::fault))
    }

    /// One run of the chain; with where the next page begins, if the run was of one and it was not the last.
    async fn run(
        self: &Arc<Self>,
        target: Target,
        request: Bytes,
        mut page: Option<Page>,
    ) -> (Result<Vec<u8>, TranslateError>, Option<Key>) {
        if let Target::Native(method) = target {
            let answer = handlers::answer(&self.store, method, &request, page.as_mut()).await;
            return (Ok(answer), page.and_then(Page::next));
        }
        let (api, handle) = (Arc::clone(self), Handle::current());
        let chain = move || {
            let answer = api.run_chain(&handle, target, &request, &mut page);
            (answer, page.and_then(Page::next))
        };
        tokio::task::spawn_blocking(chain).await.unwrap_or_else(|panic| {
            (Err(TranslateError { reason: format!("the chain of translators ended unexpectedly: {panic}") }), None)
        })
    }

    fn run_chain(
        &self,
        handle: &Handle,
        target: Target,
        request: &[u8],
        page: &mut Option<Page>,
    ) -> Result<Vec<u8>, TranslateError> {
        match target {
            Target::Native(method) => {
                Ok(handle.block_on(handlers::answer(&self.store, method, request, page.as_mut())))
            }
            Target::Translated { step, method, .. } => {
                self.line.translator(step).call(&method, request, &mut |name, request| {
                    let next = self.line.next(step, name)?;
                    self.run_chain(handle, next, request, page)
                })
            }
        }
    }
}
