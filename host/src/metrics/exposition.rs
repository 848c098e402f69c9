//! The two formats in which Prometheus reads metrics. Owns which one an answer has, and the older
//! one, which Cloud Foundry's scraper reads whatever the media type says: there a counter has its
//! type and help under the name of its sample.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A format of `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Text,
}

const OPEN_METRICS: &str = "application/openmetrics-text";

impl Exposition {
    /// The format for a request with this `Accept` header: OpenMetrics only if it is named.
    pub fn accepted(accept: Option<&str>) -> Self {
        let mut ranges = accept.unwrap_or_default().split(',');
        let is_open_metrics =
            |range: &str| range.trim().starts_with(OPEN_METRICS) && !is_refused(range);
        if ranges.any(is_open_metrics) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Metrics in OpenMetrics text, in this format.
    pub(super) fn of(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Text => as_text(&open_metrics),
        }
    }
}

/// Whether the quality of a range is zero.
fn is_refused(range: &str) -> bool {
    let quality = range
        .split(';')
        .find_map(|parameter| parameter.trim().strip_prefix("q="));
    quality.and_then(|quality| quality.parse::<f64>().ok()) == Some(0.0)
}

fn as_text(open_metrics: &str) -> String {
    let counters: BTreeSet<&str> = open_metrics.lines().filter_map(counter).collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => {}
            (Some("#"), Some(kind), Some(name), rest) => {
                let end = if counters.contains(name) {
                    "_total"
                } else {
                    ""
                };
                let rest = if rest == Some("unknown") {
                    "untyped"
                } else {
                    rest.unwrap_or_default()
                };
                writeln!(text, "# {kind} {name}{end} {rest}")
                    .expect("writing to a string does not fail");
            }
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

/// The name of a counter, without the end of its samples, in the line of its type.
fn counter(line: &str) -> Option<&str> {
    line.strip_prefix("# TYPE ")?.strip_suffix(" counter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_sent_to_those_that_accept_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        assert_eq!(
            Exposition::accepted(Some(prometheus)),
            Exposition::OpenMetrics
        );
        let others = [
            "text/plain;version=0.0.4",
            "*/*",
            "",
            "text/plain, application/openmetrics-text;q=0",
        ];
        for accept in others.map(Some).into_iter().chain([None]) {
            assert_eq!(Exposition::accepted(accept), Exposition::Text, "{accept:?}");
        }
    }

    #[test]
    fn counter_has_type_and_help_under_the_name_of_its_sample() {
        let open_metrics = "# HELP bbs_a Calls, by route.\n# TYPE bbs_a counter\nbbs_a_total{route=\"# TYPE x\"} 1\n# HELP bbs_b Time.\n\
                            # TYPE bbs_b unknown\n# UNIT bbs_b seconds\nbbs_b 2\n# EOF\n";
        let text = "# HELP bbs_a_total Calls, by route.\n# TYPE bbs_a_total counter\nbbs_a_total{route=\"# TYPE x\"} 1\n\
                    # HELP bbs_b Time.\n# TYPE bbs_b untyped\nbbs_b 2\n";
        assert_eq!(Exposition::Text.of(open_metrics.to_owned()), text);
    }
}
