//! A call of a translator while it runs: a future that stops where the guest calls the next newer
//! version, and that gives way to other tasks while it computes. So a chain of translators needs
//! neither a thread of its own nor a deep stack: each instance has its own.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use wasmtime::{Store, UpdateDeadline};

use super::call::CallError;
use super::exchange::{Exchange, Slice};
use super::instance::InstanceState;
use super::sandbox::{CallClock, Sandbox};
use super::translate::{NextAnswer, NextCall};

/// How long a guest computes before other tasks of its thread run, up to the next tick of the
/// epoch. A native call may wait for one at each of its steps, so this decides how much a guest
/// without end delays the others.
const SLICE: Duration = Duration::from_millis(2);
/// A call that has computed for longer is long.
const SHORT_CALL: Duration = Duration::from_millis(10);

/// Makes calls into the store's instance give way at the end of a slice, and end when their time is
/// used up.
pub(super) fn interrupt_between_slices(store: &mut Store<InstanceState>, clock: CallClock) {
    store.epoch_deadline_callback(move |store| {
        Ok(match store.data().exchange.slice() {
            Some(Slice { call_end, .. }) if call_end <= clock.now() => {
                clock.count_overrun();
                UpdateDeadline::Interrupt
            }
            Some(Slice { end, .. }) if end <= Instant::now() => UpdateDeadline::Yield(1),
            _ => UpdateDeadline::Continue(1),
        })
    });
}

/// The state at which a running call has stopped.
pub(super) enum GuestProgress<T> {
    Next(NextCall),
    Ended(Result<T, CallError>),
}

/// A call that runs. Dropping it ends it, and discards its instance.
pub(super) struct RunningGuest<'a, T> {
    guest: BoxFuture<'a, Result<T, CallError>>,
    exchange: Arc<Exchange>,
    sandbox: &'a Sandbox,
    /// The time that the guest has computed, by the clock of calls.
    ran: Duration,
}

impl<'a, T> RunningGuest<'a, T> {
    /// `guest` computes with `exchange` in its store.
    pub(super) fn new(
        guest: BoxFuture<'a, Result<T, CallError>>,
        exchange: Arc<Exchange>,
        sandbox: &'a Sandbox,
    ) -> Self {
        Self {
            guest,
            exchange,
            sandbox,
            ran: Duration::ZERO,
        }
    }

    /// Runs the guest until it calls the next version or ends. `answer` is that to its last call.
    pub(super) async fn resume(&mut self, answer: Option<NextAnswer>) -> GuestProgress<T> {
        self.exchange.answer(answer);
        loop {
            // For each slice of a long call, so that such calls together leave threads to all
            // others.
            let slice = if self.ran < SHORT_CALL {
                None
            } else {
                Some(
                    self.sandbox
                        .long_calls()
                        .acquire()
                        .await
                        .expect("the semaphore is never closed"),
                )
            };
            if let Poll::Ready(ended) = poll_fn(|cx| Poll::Ready(self.run_slice(cx))).await {
                return GuestProgress::Ended(ended);
            }
            if let Some(called) = self.exchange.take_call() {
                return GuestProgress::Next(called);
            }
            drop(slice);
            tokio::task::yield_now().await;
        }
    }

    fn run_slice(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, CallError>> {
        let clock = self.sandbox.clock();
        let began = clock.now();
        let call_end = began + self.sandbox.limits().call_time.saturating_sub(self.ran);
        self.exchange.begin_slice(Slice {
            end: Instant::now() + SLICE,
            call_end,
        });
        let progress = self.guest.as_mut().poll(cx);
        self.ran += clock.now() - began;
        progress
    }

    /// Runs a guest that may not call the next version to its end.
    pub(super) async fn finish(mut self) -> Result<T, CallError> {
        match self.resume(None).await {
            GuestProgress::Ended(ended) => ended,
            GuestProgress::Next(_) => unreachable!("its exchange has no next version"),
        }
    }
}
