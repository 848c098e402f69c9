//! State that a running guest shares with the future that drives it: calls of the next newer
//! version, their answers, and when the guest has to give way.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::translate::{NextAnswer, NextCall, TranslateError};

/// Connects a running guest with the future that drives it.
#[derive(Default)]
pub(super) struct Exchange(Mutex<ExchangeState>);

#[derive(Default)]
struct ExchangeState {
    /// Whether the call may call the next version.
    has_next: bool,
    called: Option<NextCall>,
    answer: Option<NextAnswer>,
    slice: Option<Slice>,
}

/// The time for which a guest runs without interruption.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    pub(super) end: Instant,
    /// When the call has used up its time, by the clock of calls of the slice's thread, if the slice
    /// does not end before.
    pub(super) call_end: Duration,
}

impl Exchange {
    /// For a call that calls the next version, or for one that may not.
    pub(super) fn new(has_next: bool) -> Arc<Self> {
        Arc::new(Self(Mutex::new(ExchangeState {
            has_next,
            ..ExchangeState::default()
        })))
    }

    /// The import `next`: hands the call to the driving future, and waits for the answer.
    pub(super) async fn call_next(&self, call: NextCall) -> NextAnswer {
        {
            let mut state = self.0.lock();
            if !state.has_next {
                return Err(TranslateError::new(
                    "`next` can be called only during `call`",
                ));
            }
            state.called = Some(call);
        }
        // No waker: the driving future polls the guest again once it has the answer.
        poll_fn(|_| {
            self.0
                .lock()
                .answer
                .take()
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The call that the guest waits for, once.
    pub(super) fn take_call(&self) -> Option<NextCall> {
        self.0.lock().called.take()
    }

    /// The answer to the guest's last call.
    pub(super) fn answer(&self, answer: Option<NextAnswer>) {
        self.0.lock().answer = answer;
    }

    pub(super) fn begin_slice(&self, slice: Slice) {
        self.0.lock().slice = Some(slice);
    }

    /// The running slice; `None` before the first.
    pub(super) fn slice(&self) -> Option<Slice> {
        self.0.lock().slice
    }
}
