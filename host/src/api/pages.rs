//! Paged lists: the whole chain runs once per page, and the concatenated encoded pages are the
//! list. All pages are read in one transaction, so that the list is of one moment; a client that
//! receives it too slowly gets an error. Writes data in page order and an error once, as the last
//! field. A page that is too large for a translator is read again in smaller ones; a single record
//! that is too large is left out, counted and logged.

use std::sync::Arc;
use std::time::Duration;

use bbs_modules::translate::TranslateError;
use bytes::Bytes;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::errors::{self, RunError};
use super::run::{Extent, Run, or_abandoned};
use super::{Answer, Api, CallTarget, Request};
use crate::domain::Page;
use crate::protobuf::split_field;
use crate::store::{KeptReader, Key, Range, Reader};

/// The number of the error field of every response message.
const ERROR_FIELD: u32 = 1;

/// Longest time from the first page of a list to its last: the transaction keeps the database from
/// cleaning up, and a migration from its cut-over.
const LONGEST_LIST: Duration = Duration::from_secs(60);
/// Longest time between two pages, in which the client takes one and the next waits for a permit,
/// if the database does not end the transaction before that.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The part of the longest idle time of a transaction that is left for the statement after a pause.
const IDLE_MARGIN: Duration = Duration::from_secs(2);

/// The factor by which a page becomes smaller if it exceeds the limits of a translator, down to a
/// single partition key; the pages after it grow by the same factor.
const SMALLER: u32 = 8;

/// Longest time between two pages where the database ends a transaction that is idle for
/// `idle_limit`: shorter, so that the list ends with an error that says why.
pub(super) fn longest_pause(idle_limit: Duration) -> Duration {
    // MySQL and MariaDB have limits of whole seconds.
    let limit = Duration::from_secs(idle_limit.as_secs().max(1));
    LONGEST_PAUSE.min(limit - IDLE_MARGIN.min(limit / 3))
}

/// A list that is being read page by page.
#[derive(Debug)]
pub struct Pages {
    api: Arc<Api>,
    target: CallTarget,
    request: Request,
    /// A page that was read and not yet returned.
    ready: Option<Vec<u8>>,
    state: PageState,
    /// The transaction in which all pages are read; `None` before the first one, and when it was
    /// kept for too long.
    reader: Option<Reader>,
    /// Dropped after the transaction.
    permit: Option<KeptReader>,
    /// When the transaction has to end.
    until: Instant,
    /// The latest time at which the next page begins.
    idle_until: Instant,
    /// Partition keys on the next page. Fewer than usual where records are too large for a
    /// translator.
    units: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum PageState {
    After(Option<Key>),
    Done,
}

impl Pages {
    /// Reads the first page; the answer is whole if the list fits on it.
    pub(super) async fn begin(api: Arc<Api>, target: CallTarget, request: Request) -> Answer {
        let store = api.service.store().clone();
        let waits_until = request.waits_until;
        let mut pages = Self {
            units: api.page_units,
            api,
            target,
            request,
            ready: None,
            state: PageState::Done,
            reader: None,
            permit: None,
            until: Instant::now() + LONGEST_LIST,
            idle_until: waits_until,
        };
        let mut first = pages.read(None).await;
        if pages.state != PageState::Done {
            pages.permit = store.try_keep_reader();
            if pages.permit.is_none() {
                // Begins anew: a list that waits must hold neither a connection nor a page.
                pages.reader = None;
                drop(first);
                let permit = or_abandoned(&pages.request.abandoned, store.keep_reader());
                let Ok(Ok(permit)) = timeout_at(waits_until, permit).await else {
                    return Answer::Busy;
                };
                pages.permit = Some(permit);
                pages.until = Instant::now() + LONGEST_LIST;
                pages.idle_until = waits_until;
                first = pages.read(None).await;
            }
        }
        match first {
            Ok(first) if pages.state != PageState::Done => {
                pages.ready = Some(first);
                Answer::Pages(Box::new(pages))
            }
            whole => Answer::from_run(whole, false),
        }
    }

    /// Reads the next page, encoded; `None` after the last.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(ready) = self.ready.take() {
            return Some(ready);
        }
        let PageState::After(after) = std::mem::replace(&mut self.state, PageState::Done) else {
            return None;
        };
        if self.reader.is_none() || Instant::now() >= self.until {
            return Some(errors::slow_list());
        }
        let page = self.read(after).await;
        Some(
            page.unwrap_or_else(|error| {
                errors::fault(TranslateError::new(error.to_string()), false)
            }),
        )
    }

    /// Waits for the client, which may take longer than the transaction may be kept. Then the list
    /// ends with an error.
    pub async fn wait_for<T>(&mut self, client: impl Future<Output = T>) -> T {
        let mut client = std::pin::pin!(client);
        tokio::select! {
            biased;
            taken = &mut client => return taken,
            () = sleep_until(self.until.min(self.idle_until)) => {}
        }
        self.end_transaction();
        client.await
    }

    async fn read(&mut self, after: Option<Key>) -> Result<Vec<u8>, RunError> {
        self.state = PageState::Done;
        let api = Arc::clone(&self.api);
        let mut through: Option<Key> = None;
        // For all attempts: it would be a wait for each otherwise.
        let mut permit = None;
        loop {
            // The call is answered with the first page, so its waits are those of the call.
            let waits_until = if after.is_none() {
                self.idle_until.min(self.request.waits_until)
            } else {
                self.idle_until
            };
            let extent = Extent::Page {
                reader: self.reader.take(),
                permit,
                waits_until,
                range: Range {
                    after: after.clone(),
                    through: through.clone(),
                    most: Some(self.units),
                    ..Range::default()
                },
            };
            let Run {
                answer,
                page,
                permit: kept,
            } = api.run(self.target.clone(), &self.request, extent).await;
            let next = page.as_ref().and_then(Page::next);
            let cut = page.as_ref().and_then(Page::cut);
            // Its end is known, so that `next` is valid although there is no answer.
            let has_one_key = page.as_ref().is_some_and(Page::has_one_key);
            self.reader = page.and_then(Page::into_reader);
            permit = kept;
            self.idle_until = Instant::now() + self.api.longest_pause;
            if cut.is_some() {
                // In the same transaction, so the list that was too long ends there again.
                through = cut;
                continue;
            }
            let (data, error) = match answer {
                Err(RunError::Translate(fault)) if fault.exceeds_limits && self.units > 1 => {
                    self.units = (self.units / SMALLER).max(1);
                    continue;
                }
                // A page of one unit has two keys if each of two lists has another one.
                Err(RunError::Translate(fault)) if fault.exceeds_limits && has_one_key => {
                    self.api.service.store().leave_out(next.as_deref(), &fault);
                    (Vec::new(), None)
                }
                answer => split_error(answer?).inspect_err(|error| self.api.log_failed(error))?,
            };
            self.units = self.units.saturating_mul(SMALLER).min(self.api.page_units);
            if let Some(error) = error {
                self.end_transaction();
                return Ok([data, error].concat());
            }
            match next {
                Some(_) => self.state = PageState::After(next),
                None => self.end_transaction(),
            }
            return Ok(data);
        }
    }

    /// Gives back what other lists and calls need: this one reads no further page.
    fn end_transaction(&mut self) {
        self.reader = None;
        self.permit = None;
        self.request.body = Bytes::new();
    }
}

/// Splits an encoded answer into the answer without its error field and the encoded error.
fn split_error(answer: Vec<u8>) -> Result<(Vec<u8>, Option<Vec<u8>>), TranslateError> {
    split_field(answer, ERROR_FIELD).map_err(|error| {
        TranslateError::new(format!(
            "{error}: the answer of a translator is not a protobuf message; correct the translator"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_shorter_than_the_idle_time_of_a_transaction() {
        for idle_ms in (1_000..12_000).step_by(100) {
            let limit = Duration::from_millis(idle_ms);
            let in_whole_seconds = Duration::from_secs(limit.as_secs());
            assert!(longest_pause(limit) < in_whole_seconds, "{limit:?}");
        }
        // With the default of `lock_ttl`, 15 s.
        let pause = longest_pause(Duration::from_millis(7_500));
        assert_eq!(pause, LONGEST_PAUSE);
    }

    #[test]
    fn error_is_split_from_the_data_at_any_position() {
        let (data, error) = split_error(vec![0x12, 1, 7, 0x0a, 2, 8, 4, 0x12, 0]).unwrap();
        assert_eq!(
            (data, error),
            (vec![0x12, 1, 7, 0x12, 0], Some(vec![0x0a, 2, 8, 4]))
        );
        let (data, error) = split_error(vec![0x0a, 1, 8, 0x12, 1, 7, 0x0a, 1, 4]).unwrap();
        assert_eq!(
            (data, error),
            (vec![0x12, 1, 7], Some(vec![0x0a, 1, 8, 0x0a, 1, 4]))
        );
        assert_eq!(split_error(vec![]).unwrap(), (vec![], None));
        assert_eq!(
            split_error(vec![0x0a, 0]).unwrap(),
            (vec![], Some(vec![0x0a, 0]))
        );
    }

    #[test]
    fn malformed_answer_of_a_translator_is_an_error() {
        for bad in [&[0x12][..], &[0x12, 5, 1], &[0x07], &[0x80]] {
            let error = split_error(bad.to_vec()).unwrap_err().reason;
            assert!(
                error.contains("the answer of a translator is not a protobuf message"),
                "{bad:?}: {error}"
            );
        }
    }
}
