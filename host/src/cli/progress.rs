//! Shows long work to whoever waits for it: a bar with rate and time left on a terminal, plain lines
//! elsewhere. Owns the drawing; the counts are `Progress`'s.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::progress::{Progress, Snapshot};

const REDRAW: Duration = Duration::from_millis(100);
const PLAIN_LINE_EVERY: Duration = Duration::from_secs(5);

/// Runs `work` and shows `progress` on standard error until it ends.
pub async fn shown<T>(progress: &Progress, work: impl Future<Output = T>) -> T {
    let drawing = async { if std::io::stderr().is_terminal() { bar(progress).await } else { lines(progress).await } };
    tokio::select! {
        result = work => result,
        never = drawing => match never {},
    }
}

async fn bar(progress: &Progress) -> std::convert::Infallible {
    let bar = ClearOnDrop(ProgressBar::new_spinner());
    let counted =
        ProgressStyle::with_template("{spinner} {prefix} [{bar:30}] {pos}/{len} {msg}").expect("a valid template");
    let open = ProgressStyle::with_template("{spinner} {prefix} {pos} {msg}").expect("a valid template");
    loop {
        let now = progress.snapshot();
        match now.total {
            Some(total) => {
                bar.0.set_style(counted.clone());
                bar.0.set_length(total);
            }
            None => bar.0.set_style(open.clone()),
        }
        bar.0.set_prefix(now.phase.clone());
        bar.0.set_position(now.done);
        bar.0.set_message(pace(&now));
        bar.0.tick();
        tokio::time::sleep(REDRAW).await;
    }
}

/// One line when a phase begins and one every few seconds: short work prints little, long work is seen to live.
async fn lines(progress: &Progress) -> std::convert::Infallible {
    let mut phase = String::new();
    let mut since_line = Duration::ZERO;
    loop {
        let now = progress.snapshot();
        if now.phase != phase || since_line >= PLAIN_LINE_EVERY {
            since_line = Duration::ZERO;
            if !now.phase.is_empty() {
                eprintln!("{}", line(&now));
            }
            phase.clone_from(&now.phase);
        }
        tokio::time::sleep(REDRAW).await;
        since_line += REDRAW;
    }
}

fn line(now: &Snapshot) -> String {
    let count = match now.total {
        Some(total) => format!(" {}/{total}", now.done),
        None if now.done > 0 => format!(" {}", now.done),
        None => String::new(),
    };
    format!("{}{count} {}", now.phase, pace(now)).trim_end().to_owned()
}

fn pace(now: &Snapshot) -> String {
    let rate = now.units_per_second.map(|rate| format!("{rate:.0}/s"));
    let eta = now.eta_seconds.filter(|_| now.done > 0).map(|eta| format!("{eta:.0} s left"));
    [Some(now.detail.clone()), rate, eta]
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

struct ClearOnDrop(ProgressBar);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_how_far_how_fast_and_how_long_still() {
        let mut now = Snapshot {
            phase: "copy".into(),
            detail: "desired_lrps".into(),
            done: 50,
            total: Some(200),
            units_per_second: Some(10.0),
            eta_seconds: Some(15.0),
        };
        assert_eq!(line(&now), "copy 50/200 desired_lrps, 10/s, 15 s left");
        (now.total, now.eta_seconds) = (None, None);
        assert_eq!(line(&now), "copy 50 desired_lrps, 10/s");
    }
}
