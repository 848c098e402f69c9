//! The thread that increments the engine's epoch, which interrupts calls that exceed their deadline. Lives as long as its
//! sandbox.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use wasmtime::Engine;

pub(super) struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(super) fn start(engine: &Engine, tick: Duration) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let engine = engine.weak();
        let thread = std::thread::Builder::new().name("bbs-epoch".to_owned()).spawn(move || {
            while stopped.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                let Some(engine) = engine.upgrade() else { return };
                engine.increment_epoch();
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread only waits and counts, and cannot panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_ends_when_the_ticker_is_dropped() {
        let engine = Engine::default();
        let ticker = Ticker::start(&engine, Duration::from_millis(1)).expect("a thread starts");
        let handle = ticker.thread.as_ref().expect("it runs").thread().id();
        assert_ne!(handle, std::thread::current().id());
        // Dropping joins the thread, so this test ends only if the thread does.
        drop(ticker);
    }
}
