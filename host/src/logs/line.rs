//! One line of lager's log. Owns its two formats and their timestamps.

use serde_json::{Map, Value, json};

use crate::config::TimeFormat;

const NS: i64 = 1_000_000_000;
const DAY_S: i64 = 86_400;

/// Lager's levels; the numbers of the variants are those of its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Debug,
    Info,
    Error,
    Fatal,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Error => "error",
            Self::Fatal => "fatal",
        }
    }
}

/// The content of a line.
#[derive(Debug)]
pub struct LagerLine<'a> {
    /// Nanoseconds since 1970.
    pub now_ns: i64,
    /// The component's name, which also prefixes the message.
    pub source: &'a str,
    pub message: &'a str,
    pub severity: Severity,
    pub data: Map<String, Value>,
}

impl LagerLine<'_> {
    /// Renders the line with its newline.
    pub fn render(self, times: TimeFormat) -> String {
        let Self { now_ns, source, message, severity, data } = self;
        let message = format!("{source}.{message}");
        let (source, message, data) = (json!(source), json!(message), Value::Object(data));
        match times {
            TimeFormat::UnixEpoch => format!(
                "{{\"timestamp\":\"{}.{:09}\",\"source\":{source},\"message\":{message},\"log_level\":{},\"data\":{data}}}\n",
                now_ns.div_euclid(NS),
                now_ns.rem_euclid(NS),
                severity as u8,
            ),
            TimeFormat::Rfc3339 => format!(
                "{{\"timestamp\":\"{}\",\"level\":\"{}\",\"source\":{source},\"message\":{message},\"data\":{data}}}\n",
                rfc3339(now_ns),
                severity.name(),
            ),
        }
    }
}

fn rfc3339(now_ns: i64) -> String {
    let (seconds, ns) = (now_ns.div_euclid(NS), now_ns.rem_euclid(NS));
    let (year, month, day) = date(seconds.div_euclid(DAY_S));
    let second = seconds.rem_euclid(DAY_S);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ns:09}Z")
}

/// Year, month and day of a day number since 1970. Years are counted from March, so that a leap day is the last day.
fn date(days: i64) -> (i64, i64, i64) {
    const ERA: i64 = 400 * 365 + 97;
    // Days since 0000-03-01.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(times: TimeFormat, severity: Severity) -> String {
        let data = Map::from_iter([("guid".to_owned(), json!("a\"b"))]);
        let now_ns = 1_469_643_829_012_345_678;
        LagerLine { now_ns, source: "bbs", message: "request.done", severity, data }.render(times)
    }

    #[test]
    fn line_has_lagers_format() {
        assert_eq!(
            line(TimeFormat::UnixEpoch, Severity::Error),
            "{\"timestamp\":\"1469643829.012345678\",\"source\":\"bbs\",\"message\":\"bbs.request.done\",\
             \"log_level\":2,\"data\":{\"guid\":\"a\\\"b\"}}\n"
        );
        assert_eq!(
            line(TimeFormat::Rfc3339, Severity::Fatal),
            "{\"timestamp\":\"2016-07-27T18:23:49.012345678Z\",\"level\":\"fatal\",\"source\":\"bbs\",\
             \"message\":\"bbs.request.done\",\"data\":{\"guid\":\"a\\\"b\"}}\n"
        );
    }

    #[test]
    fn dates_follow_the_gregorian_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_400, "2000-02-29T00:00:00"),
            (951_868_800, "2000-03-01T00:00:00"),
            (1_709_164_800, "2024-02-29T00:00:00"),
            (1_735_689_599, "2024-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
            (-1, "1969-12-31T23:59:59"),
        ] {
            assert_eq!(rfc3339(seconds * NS), format!("{text}.000000000Z"));
        }
    }
}
