//! Shows the progress of long work: a bar with rate and time left on a terminal, plain lines
//! elsewhere. Owns the rendering; the counts come from [`Progress`], of this process or of a
//! watched host.

use std::io::IsTerminal;
use std::pin::pin;
use std::time::{Duration, Instant};

use bbs_work::progress::{Progress, Snapshot};
use indicatif::{ProgressBar, ProgressStyle};

use super::output::{self, OutputReader};
use crate::admin::{AdminClient, AdminClientError, Report};

const REDRAW: Duration = Duration::from_millis(100);
/// Least time between the first and the second line of a phase; doubles with each further line.
const FIRST_INTERVAL: Duration = Duration::from_secs(5);
/// Upper bound of the interval while the counts move, so that the log shows the rate of long work.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// Runs `work` and shows `progress` on standard error until it ends.
pub async fn shown<T>(progress: &Progress, work: impl Future<Output = T>) -> T {
    let mut screen = Screen::new();
    if let Screen::Lines(lines) = &mut screen {
        lines.skip_shown(progress);
    }
    let mut work = pin!(work);
    loop {
        screen.show_passed(progress);
        screen.show(&progress.snapshot());
        tokio::select! {
            result = &mut work => {
                screen.show_passed(progress);
                screen.show(&progress.snapshot());
                return result;
            }
            () = tokio::time::sleep(REDRAW) => {}
        }
    }
}

/// Behaviour of [`follow`] once nothing can be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WithoutReader {
    /// It ends, with an error unless the reader has gone: it has no other purpose than its output.
    End,
    /// It follows the host without printing.
    Continue,
}

/// Shows the reports of a running host, or prints them as JSON, until one is the last or the host
/// closes the connection. Returns the last one; none if it ended because its reader had gone.
pub(super) async fn follow(
    host: &mut AdminClient,
    as_json: bool,
    without_reader: WithoutReader,
    is_last: impl Fn(&Snapshot) -> bool,
) -> anyhow::Result<Option<Report>> {
    let mut last = host.answer().await?;
    let mut screen = Screen::new();
    loop {
        if is_last(&last.progress) {
            return Ok(Some(last));
        }
        let reader = if as_json {
            output::json_line(&last)
        } else {
            Ok(screen.show(&last.progress))
        };
        if without_reader == WithoutReader::End && reader? == OutputReader::Gone {
            return Ok(None);
        }
        match host.next().await {
            Ok(Some(report)) => last = report,
            // A killed host breaks the connection; one that ends closes it.
            Ok(None) | Err(AdminClientError::Broken(_)) => return Ok(Some(last)),
            Err(other) => return Err(other.into()),
        }
    }
}

/// Standard error; a bar is removed when this is dropped.
enum Screen {
    Bar(Box<Bar>),
    Lines(Lines),
}

/// Output that is no terminal: one line when the phase or the reason for waiting changes, then
/// lines at growing intervals.
#[derive(Default)]
struct Lines {
    last: Option<Printed>,
    /// The number of phases of which a line was printed, or will be.
    seen: usize,
}

/// The last line that was printed.
struct Printed {
    state: String,
    counts: (u64, Option<u64>, u64, u64),
    at: Instant,
    /// Least time until the next line.
    interval: Duration,
}

impl Printed {
    fn new(now: &Snapshot, at: Instant, interval: Duration) -> Self {
        Self {
            state: Self::state(now),
            counts: Self::counts(now),
            at,
            interval,
        }
    }

    /// The state whose change is printed at once.
    fn state(now: &Snapshot) -> String {
        format!(
            "{} {} {}",
            now.phase,
            now.detail,
            reason(now).unwrap_or_default()
        )
    }

    fn counts(now: &Snapshot) -> (u64, Option<u64>, u64, u64) {
        (now.done, now.total, now.retries, now.quarantined)
    }
}

/// A bar, with a style for a known total, one for a count alone, and one for a phase that counts
/// nothing.
struct Bar {
    bar: ProgressBar,
    counted: ProgressStyle,
    open: ProgressStyle,
    uncounted: ProgressStyle,
}

impl Screen {
    fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines(Lines::default());
        }
        let style = |template| ProgressStyle::with_template(template).expect("a valid template");
        Self::Bar(Box::new(Bar {
            bar: ProgressBar::new_spinner(),
            counted: style("{spinner} {prefix} [{bar:30}] {pos}/{len} {msg}"),
            open: style("{spinner} {prefix} {pos} {msg}"),
            uncounted: style("{spinner} {prefix} {msg}"),
        }))
    }

    /// Prints the phases that have passed since the last call without a line: which those are
    /// depends on their speed, and two runs of the same work print the same phases.
    fn show_passed(&mut self, progress: &Progress) {
        if let Self::Lines(lines) = self {
            for line in lines.passed(progress) {
                output::note(line);
            }
        }
    }

    fn show(&mut self, now: &Snapshot) -> OutputReader {
        match self {
            // Before the first phase there is nothing to name.
            Self::Bar(_) if now.phase.is_empty() => OutputReader::Present,
            Self::Bar(bar) => {
                let Bar {
                    bar,
                    counted,
                    open,
                    uncounted,
                } = &mut **bar;
                let message = format!("{} {}", self::counted(now), details(now))
                    .trim()
                    .to_owned();
                let style = match now.total {
                    Some(_) => counted,
                    None if now.done > 0 => open,
                    None => uncounted,
                };
                // Setters would draw the new words beside the old numbers; these do not, and
                // `update` draws once.
                let bar = bar
                    .clone()
                    .with_style(style.clone())
                    .with_prefix(now.phase.clone())
                    .with_message(message);
                bar.update(|state| {
                    if let Some(total) = now.total {
                        state.set_len(total);
                    }
                    state.set_pos(now.done);
                });
                OutputReader::Present
            }
            Self::Lines(lines) => lines
                .due(now, Instant::now())
                .map_or(OutputReader::Present, output::note),
        }
    }
}

impl Lines {
    /// Skips the phases of work before this, which another call has shown.
    fn skip_shown(&mut self, progress: &Progress) {
        let now = progress.snapshot();
        if !now.phase.is_empty() {
            self.seen = progress.entered_after(0).len() - 1;
            self.last = Some(Printed::new(&now, Instant::now(), FIRST_INTERVAL));
        }
    }

    /// A line for each phase that was entered and left again since the last call.
    fn passed(&mut self, progress: &Progress) -> Vec<String> {
        let mut entered = progress.entered_after(self.seen);
        // The last one goes on, and is printed with its counts.
        entered.pop();
        self.seen += entered.len();
        entered
            .iter()
            .filter(|(phase, detail)| {
                self.last
                    .as_ref()
                    .is_none_or(|last| !last.state.starts_with(&format!("{phase} {detail} ")))
            })
            .map(|(phase, detail)| format!("{phase} {detail}").trim_end().to_owned())
            .collect()
    }

    /// Returns the line to print at `at`, if one is due. A line whose counts have not changed shows
    /// the elapsed time of the phase, so that no two lines are equal.
    fn due(&mut self, now: &Snapshot, at: Instant) -> Option<String> {
        if now.phase.is_empty() {
            return None;
        }
        let state = Printed::state(now);
        let counts = Printed::counts(now);
        let (text, interval) = match &self.last {
            Some(last) if last.state == state => {
                if at.duration_since(last.at) < last.interval {
                    return None;
                }
                if last.counts == counts {
                    (
                        format!("{}, {} so far", line(now), span(now.elapsed_seconds)),
                        last.interval * 2,
                    )
                } else {
                    (line(now), (last.interval * 2).min(LONGEST_INTERVAL))
                }
            }
            Some(_) | None => (line(now), FIRST_INTERVAL),
        };
        self.last = Some(Printed::new(now, at, interval));
        Some(text)
    }
}

/// The progress in one line.
pub(super) fn line(now: &Snapshot) -> String {
    let count = match now.total {
        Some(total) => format!(" {}/{total}{}", now.done, counted(now)),
        None if now.done > 0 => format!(" {}{}", now.done, counted(now)),
        None => String::new(),
    };
    format!("{}{count} {}", now.phase, details(now))
        .trim_end()
        .to_owned()
}

/// The noun of the phase's numbers, after a space.
fn counted(now: &Snapshot) -> String {
    now.counted
        .map_or_else(String::new, |counted| format!(" {counted}"))
}

fn details(now: &Snapshot) -> String {
    let rate = now
        .units_per_second
        .map(|rate| format!("{rate:.0}{}/s", counted(now)));
    let eta = now
        .eta_seconds
        .filter(|_| now.done > 0)
        .map(|eta| format!("{} left", span(eta)));
    let retries = (now.retries > 0).then(|| format!("{} retries", now.retries));
    let quarantined = (now.quarantined > 0).then(|| format!("{} in quarantine", now.quarantined));
    [
        Some(now.detail.clone()),
        rate,
        eta,
        reason(now),
        retries,
        quarantined,
    ]
    .into_iter()
    .flatten()
    .filter(|part| !part.is_empty())
    .collect::<Vec<_>>()
    .join(", ")
}

fn reason(now: &Snapshot) -> Option<String> {
    now.waiting.map(|waiting| waiting.reason.to_string())
}

/// Formats a number of seconds.
pub(super) fn span(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use bbs_work::progress::{Counted, Wait};

    use super::*;

    #[test]
    fn line_shows_phase_counts_rate_and_time_left() {
        let progress = Progress::default();
        progress.enter("copy", "desired_lrps", Some(Counted::Units.total(100)));
        progress.advance(40);
        let mut now = progress.snapshot();
        (now.units_per_second, now.eta_seconds) = (Some(20.0), Some(3.0));
        assert_eq!(
            line(&now),
            "copy 40/100 units desired_lrps, 20 units/s, 3 s left"
        );
        (now.retries, now.quarantined) = (2, 1);
        assert_eq!(
            line(&now),
            "copy 40/100 units desired_lrps, 20 units/s, 3 s left, 2 retries, 1 in quarantine"
        );
    }

    #[test]
    fn line_omits_unknown_numbers_and_shows_the_reason_for_waiting() {
        let progress = Progress::default();
        progress.enter("lock", "", None);
        assert_eq!(line(&progress.snapshot()), "lock");
        let _waiting = progress.wait(Wait::Lock);
        assert_eq!(line(&progress.snapshot()), "lock waits for the lock");
    }

    /// The seconds at which a line is due within `seconds`, for work that counts one every `step`
    /// seconds.
    fn due_at(seconds: u64, step: u64) -> Vec<u64> {
        let progress = Progress::default();
        progress.enter("compile", "with cargo", Some(Counted::Modules.total(22)));
        let mut lines = Lines::default();
        let begin = Instant::now();
        (0..seconds)
            .filter(|second| {
                let mut now = progress.snapshot();
                (now.done, now.elapsed_seconds) =
                    (second.checked_div(step).unwrap_or(0), *second as f64);
                lines
                    .due(&now, begin + Duration::from_secs(*second))
                    .is_some()
            })
            .collect()
    }

    #[test]
    fn unchanged_counts_are_printed_at_doubling_intervals() {
        assert_eq!(due_at(600, 0), [0, 5, 15, 35, 75, 155, 315]);
    }

    #[test]
    fn changing_counts_are_printed_at_least_once_a_minute() {
        assert_eq!(due_at(300, 1), [0, 5, 15, 35, 75, 135, 195, 255]);
    }

    #[test]
    fn repeated_line_shows_the_elapsed_time() {
        let progress = Progress::default();
        let mut lines = Lines::default();
        let begin = Instant::now();
        assert_eq!(
            lines.due(&progress.snapshot(), begin),
            None,
            "no phase has begun"
        );
        progress.enter("compile", "with cargo", Some(Counted::Modules.total(22)));
        assert_eq!(
            lines.due(&progress.snapshot(), begin).unwrap(),
            "compile 0/22 modules with cargo"
        );
        let mut now = progress.snapshot();
        now.elapsed_seconds = 7.0;
        assert_eq!(
            lines.due(&now, begin + FIRST_INTERVAL).unwrap(),
            "compile 0/22 modules with cargo, 7 s so far"
        );
    }

    #[test]
    fn new_phase_or_reason_for_waiting_is_printed_at_once() {
        let progress = Progress::default();
        let mut lines = Lines::default();
        let begin = Instant::now();
        progress.enter("compile", "", None);
        assert!(lines.due(&progress.snapshot(), begin).is_some());
        progress.enter("encode", "", None);
        assert_eq!(lines.due(&progress.snapshot(), begin).unwrap(), "encode");
        let _waiting = progress.wait(Wait::Paused);
        assert_eq!(
            lines.due(&progress.snapshot(), begin).unwrap(),
            "encode paused"
        );
        assert_eq!(lines.due(&progress.snapshot(), begin), None);
    }

    #[test]
    fn phase_that_ends_between_two_snapshots_has_its_line() {
        let progress = Progress::default();
        let mut lines = Lines::default();
        progress.enter("begin", "up", None);
        assert!(lines.passed(&progress).is_empty(), "it goes on");
        assert_eq!(
            lines.due(&progress.snapshot(), Instant::now()).unwrap(),
            "begin up"
        );
        for phase in ["prepare", "copy", "copy", "verify"] {
            progress.enter(phase, "up", None);
        }
        assert_eq!(
            lines.passed(&progress),
            ["prepare up", "copy up"],
            "the line of `begin` was printed"
        );
        assert_eq!(
            lines.due(&progress.snapshot(), Instant::now()).unwrap(),
            "verify up"
        );
        assert!(lines.passed(&progress).is_empty());
    }

    #[test]
    fn phases_of_work_before_are_not_printed_again() {
        let progress = Progress::default();
        let mut lines = Lines::default();
        lines.skip_shown(&progress);
        for phase in ["begin", "clean-up"] {
            progress.enter(phase, "up", None);
        }
        let mut next = Lines::default();
        next.skip_shown(&progress);
        assert!(
            next.passed(&progress).is_empty()
                && next.due(&progress.snapshot(), Instant::now()).is_none()
        );
        for phase in ["rotate", "verify"] {
            progress.enter(phase, "keys", None);
        }
        assert_eq!(next.passed(&progress), ["rotate keys"]);
        assert_eq!(
            next.due(&progress.snapshot(), Instant::now()).unwrap(),
            "verify keys"
        );
    }

    #[test]
    fn long_times_use_larger_units() {
        assert_eq!(
            [0.2, 99.0, 100.0, 3_700.0, 6_000.0].map(span),
            ["1 s", "99 s", "1 min 40 s", "61 min 40 s", "1 h 40 min"]
        );
    }
}
