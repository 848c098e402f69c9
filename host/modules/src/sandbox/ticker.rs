//! The time of calls, and the thread that increments the engine's epoch while calls run, which
//! interrupts those that exceed their deadline. The thread lives as long as its sandbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Ticks without a call after which the thread sleeps until the next call. Waking it for each of
/// many short calls would cost more than these ticks.
const TICKS_AT_REST: u32 = 50;

/// The clock of calls: the processor time of the thread that runs one, ahead by what was skipped.
/// So a machine that is busy with other work takes no time from a call. Clones are the same clock.
#[derive(Clone, Default)]
pub(crate) struct CallClock {
    skipped_ns: Arc<AtomicU64>,
    overruns: Arc<AtomicU64>,
}

impl CallClock {
    /// The time of this thread; that of another one is unrelated.
    pub(crate) fn now(&self) -> Duration {
        let computed = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime));
        computed.expect("a clock of processor time starts at zero")
            + Duration::from_nanos(self.skipped_ns.load(Ordering::SeqCst))
    }

    /// Counts a call that is interrupted because its time is used up.
    pub(crate) fn count_overrun(&self) {
        self.overruns.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn overruns(&self) -> u64 {
        self.overruns.load(Ordering::SeqCst)
    }

    pub(super) fn skip(&self, time: Duration) {
        self.skipped_ns.fetch_add(
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            Ordering::SeqCst,
        );
    }
}

pub(super) struct Ticker {
    state: Arc<TickerState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct TickerState {
    running_calls: AtomicUsize,
    is_asleep: AtomicBool,
    is_stopped: AtomicBool,
}

/// Keeps the ticker ticking until it is dropped.
#[must_use]
pub(crate) struct Ticking<'a>(&'a Ticker);

impl Ticker {
    /// Calls `tick` at each interval while a call runs.
    pub(super) fn start(
        interval: Duration,
        tick: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let state = Arc::<TickerState>::default();
        let thread = thread::Builder::new().name("bbs-epoch".to_owned()).spawn({
            let state = Arc::clone(&state);
            move || state.tick_while_calls_run(interval, tick)
        })?;
        Ok(Self {
            state,
            thread: Some(thread),
        })
    }

    /// Ticks for one more call.
    pub(super) fn ticking(&self) -> Ticking<'_> {
        self.state.running_calls.fetch_add(1, Ordering::SeqCst);
        if self.state.is_asleep.load(Ordering::SeqCst) {
            self.wake();
        }
        Ticking(self)
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl TickerState {
    fn tick_while_calls_run(&self, interval: Duration, tick: impl Fn()) {
        let mut at_rest = 0;
        while !self.is_stopped.load(Ordering::SeqCst) {
            if at_rest < TICKS_AT_REST {
                thread::park_timeout(interval);
                tick();
                at_rest = if self.has_calls() { 0 } else { at_rest + 1 };
            } else {
                self.is_asleep.store(true, Ordering::SeqCst);
                // A call that began before the line above did not wake this thread.
                if !self.has_calls() {
                    thread::park();
                }
                self.is_asleep.store(false, Ordering::SeqCst);
                at_rest = 0;
            }
        }
    }

    fn has_calls(&self) -> bool {
        self.running_calls.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.0.state.running_calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::SeqCst);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // The thread only waits and counts, and cannot panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, TryRecvError};

    use super::*;

    /// Far above the time until the ticker sleeps.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn ticker() -> (Ticker, Receiver<()>) {
        let (ticks, received) = mpsc::channel();
        (
            Ticker::start(Duration::from_millis(1), move || {
                let _ = ticks.send(());
            })
            .expect("a thread starts"),
            received,
        )
    }

    fn wait_until_asleep(ticker: &Ticker, ticks: &Receiver<()>) {
        while !ticker.state.is_asleep.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        while ticks.try_recv().is_ok() {}
    }

    #[test]
    fn clock_counts_what_its_thread_computes_alone() {
        let clock = CallClock::default();
        let computed = Duration::from_millis(20);
        let began = clock.now();
        let other = clock.clone();
        let thread = thread::spawn(move || {
            let began = other.now();
            while other.now() - began < computed {}
        });
        thread.join().expect("it only computes");
        assert!(clock.now() - began < computed);
        clock.skip(computed);
        assert!(clock.now() - began >= computed);
    }

    #[test]
    fn ticks_while_a_call_runs_and_sleeps_afterwards() {
        let ((ticker, ticks), (other, other_ticks)) = (ticker(), ticker());
        let _call = other.ticking();
        for _ in 0..3 {
            wait_until_asleep(&ticker, &ticks);
            while other_ticks.try_recv().is_ok() {}
            for _ in 0..TICKS_AT_REST {
                other_ticks
                    .recv_timeout(PATIENCE)
                    .expect("a call of the other one runs");
            }
            assert_eq!(ticks.try_recv(), Err(TryRecvError::Empty));
            let calls = [ticker.ticking(), ticker.ticking()];
            for _ in 0..2 * TICKS_AT_REST {
                ticks.recv_timeout(PATIENCE).expect("two calls run");
            }
            let [first, second] = calls;
            drop(first);
            for _ in 0..2 * TICKS_AT_REST {
                ticks.recv_timeout(PATIENCE).expect("one call runs");
            }
            drop(second);
        }
    }

    #[test]
    fn thread_ends_when_the_ticker_is_dropped() {
        for is_asleep in [false, true] {
            let (ticker, ticks) = ticker();
            if is_asleep {
                wait_until_asleep(&ticker, &ticks);
            }
            // Dropping joins the thread, so this test ends only if the thread does.
            drop(ticker);
            while ticks.try_recv().is_ok() {}
            assert_eq!(ticks.try_recv(), Err(TryRecvError::Disconnected));
        }
    }
}
