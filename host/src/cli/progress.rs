//! Shows long work to whoever waits for it: a bar with rate and time left on a terminal, plain lines
//! elsewhere. Owns the drawing; the counts are `Progress`'s, of this process or of a host that is watched.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::progress::{Progress, Snapshot};

const REDRAW: Duration = Duration::from_millis(100);
const PLAIN_LINE_EVERY: Duration = Duration::from_secs(5);

/// Runs `work` and shows `progress` on standard error until it ends.
pub async fn shown<T>(progress: &Progress, work: impl Future<Output = T>) -> T {
    let drawing = async {
        let mut screen = Screen::new();
        loop {
            screen.show(&progress.snapshot());
            tokio::time::sleep(REDRAW).await;
        }
    };
    tokio::select! {
        result = work => result,
        never = drawing => never,
    }
}

/// Standard error, drawn on until this is dropped.
pub(super) enum Screen {
    Bar(Box<Bar>),
    /// One line when a phase or the reason for waiting changes, and one every few seconds: short work prints little,
    /// long work is seen to live.
    Lines {
        last: Option<(Instant, String)>,
    },
}

/// A bar, and how it looks with and without an end in sight.
pub(super) struct Bar {
    bar: ClearOnDrop,
    counted: ProgressStyle,
    open: ProgressStyle,
}

impl Screen {
    pub(super) fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines { last: None };
        }
        let style = |template| ProgressStyle::with_template(template).expect("a valid template");
        Self::Bar(Box::new(Bar {
            bar: ClearOnDrop(ProgressBar::new_spinner()),
            counted: style("{spinner} {prefix} [{bar:30}] {pos}/{len} {msg}"),
            open: style("{spinner} {prefix} {pos} {msg}"),
        }))
    }

    pub(super) fn show(&mut self, now: &Snapshot) {
        match self {
            Self::Bar(bar) => {
                let Bar { bar, counted, open } = &mut **bar;
                match now.total {
                    Some(total) => {
                        bar.0.set_style(counted.clone());
                        bar.0.set_length(total);
                    }
                    None => bar.0.set_style(open.clone()),
                }
                bar.0.set_prefix(now.phase.clone());
                bar.0.set_position(now.done);
                bar.0.set_message(pace(now));
                bar.0.tick();
            }
            Self::Lines { last } => {
                let state = format!("{} {}", now.phase, reason(now).unwrap_or_default());
                let is_due =
                    last.as_ref().is_none_or(|(at, shown)| *shown != state || at.elapsed() >= PLAIN_LINE_EVERY);
                if is_due && !now.phase.is_empty() {
                    eprintln!("{}", line(now));
                    *last = Some((Instant::now(), state));
                }
            }
        }
    }
}

/// What a progress means, in one line.
pub(super) fn line(now: &Snapshot) -> String {
    let count = match now.total {
        Some(total) => format!(" {}/{total}", now.done),
        None if now.done > 0 => format!(" {}", now.done),
        None => String::new(),
    };
    format!("{}{count} {}", now.phase, pace(now)).trim_end().to_owned()
}

fn pace(now: &Snapshot) -> String {
    let rate = now.units_per_second.map(|rate| format!("{rate:.0}/s"));
    let eta = now.eta_seconds.filter(|_| now.done > 0).map(|eta| format!("{} left", span(eta)));
    let retries = (now.retries > 0).then(|| format!("{} retries", now.retries));
    let quarantined = (now.quarantined > 0).then(|| format!("{} in quarantine", now.quarantined));
    [Some(now.detail.clone()), rate, eta, reason(now), retries, quarantined]
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

fn reason(now: &Snapshot) -> Option<String> {
    now.waiting.map(|waiting| waiting.reason.to_string())
}

/// Seconds, as a person says them.
fn span(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

pub(super) struct ClearOnDrop(ProgressBar);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Wait;

    #[test]
    fn a_line_says_what_how_far_how_fast_and_how_long_still() {
        let progress = Progress::default();
        progress.enter("copy", "desired_lrps", Some(100));
        progress.advance(40);
        let mut now = progress.snapshot();
        (now.units_per_second, now.eta_seconds) = (Some(20.0), Some(3.0));
        assert_eq!(line(&now), "copy 40/100 desired_lrps, 20/s, 3 s left");
        (now.retries, now.quarantined) = (2, 1);
        assert_eq!(line(&now), "copy 40/100 desired_lrps, 20/s, 3 s left, 2 retries, 1 in quarantine");
    }

    #[test]
    fn what_is_unknown_is_left_out_and_what_is_waited_for_is_said() {
        let progress = Progress::default();
        progress.enter("lock", "", None);
        assert_eq!(line(&progress.snapshot()), "lock");
        let _waiting = progress.wait(Wait::Lock);
        assert_eq!(line(&progress.snapshot()), "lock waits for the lock");
    }

    #[test]
    fn long_times_are_said_in_longer_units() {
        assert_eq!(
            [0.2, 99.0, 100.0, 3_700.0, 6_000.0].map(span),
            ["1 s", "99 s", "1 min 40 s", "61 min 40 s", "1 h 40 min"]
        );
    }
}
