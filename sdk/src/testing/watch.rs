//! The limit of time for a row function that runs natively: nothing can end it but the end of the
//! process.

use std::io::{self, Write};
use std::process::exit;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The longest time for a batch. A host ends a call after 5 s; a build without optimisation on a
/// busy machine takes longer.
pub(super) const LONGEST_CALL: Duration = Duration::from_secs(60);
/// The exit code of a test that panics.
const FAILED: i32 = 101;

/// Calls a function, and ends the process with a message if that takes longer.
pub(super) fn watched<T>(longest: Duration, message: &str, call: impl FnOnce() -> T) -> T {
    let end = || {
        // Not with a macro, whose text the harness of the tests would keep.
        let _ = writeln!(io::stderr(), "{message}");
        exit(FAILED)
    };
    watched_by(longest, end, call)
}

/// Calls a function on this thread, and another one beside it if that takes longer. A row function
/// is not moved to a thread of its own: what it keeps for its thread from one call to the next has
/// to be found.
fn watched_by<T>(longest: Duration, late: impl FnOnce() + Send, call: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (returned, waiting) = channel::<()>();
        scope.spawn(move || {
            if waiting.recv_timeout(longest) == Err(RecvTimeoutError::Timeout) {
                late();
            }
        });
        let outcome = call();
        drop(returned);
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_that_takes_too_long_is_noticed_while_it_runs() {
        let (noticed, waiting) = channel();
        let late = move || noticed.send("late").expect("the call waits");
        assert_eq!(
            watched_by(Duration::from_millis(1), late, || waiting.recv()),
            Ok("late")
        );
        assert_eq!(
            watched(LONGEST_CALL, "it is not late", || "in time"),
            "in time"
        );
    }
}
