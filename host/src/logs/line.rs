//! One line of lager's log. Owns its two formats and their timestamps.

use chrono::{DateTime, SecondsFormat};
use serde_json::{Map, Value, json};

use crate::config::{LogLevel, TimeFormat};

const NS: i64 = 1_000_000_000;

/// The content of a line.
#[derive(Debug)]
pub struct LagerLine<'a> {
    /// Nanoseconds since 1970.
    pub now_ns: i64,
    /// The component's name, which also prefixes the message.
    pub source: &'a str,
    pub message: &'a str,
    pub severity: LogLevel,
    pub data: Map<String, Value>,
}

impl LagerLine<'_> {
    /// Renders the line with its newline.
    pub fn render(self, times: TimeFormat) -> String {
        let Self {
            now_ns,
            source,
            message,
            severity,
            data,
        } = self;
        let message = format!("{source}.{message}");
        let source = json!(source);
        let message = json!(message);
        let data = Value::Object(data);
        match times {
            TimeFormat::UnixEpoch => format!(
                "{{\"timestamp\":\"{}.{:09}\",\"source\":{source},\"message\":{message},\"log_level\":{},\"data\":{data}}}\n",
                now_ns.div_euclid(NS),
                now_ns.rem_euclid(NS),
                severity as u8,
            ),
            TimeFormat::Rfc3339 => format!(
                "{{\"timestamp\":\"{}\",\"level\":{},\"source\":{source},\"message\":{message},\"data\":{data}}}\n",
                rfc3339(now_ns),
                json!(severity),
            ),
        }
    }
}

fn rfc3339(now_ns: i64) -> String {
    DateTime::from_timestamp_nanos(now_ns).to_rfc3339_opts(SecondsFormat::Nanos, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(times: TimeFormat, severity: LogLevel) -> String {
        let data = Map::from_iter([("guid".to_owned(), json!("a\"b"))]);
        let now_ns = 1_469_643_829_012_345_678;
        LagerLine {
            now_ns,
            source: "bbs",
            message: "request.done",
            severity,
            data,
        }
        .render(times)
    }

    #[test]
    fn line_has_lagers_format() {
        assert_eq!(
            line(TimeFormat::UnixEpoch, LogLevel::Error),
            "{\"timestamp\":\"1469643829.012345678\",\"source\":\"bbs\",\"message\":\"bbs.request.done\",\
             \"log_level\":2,\"data\":{\"guid\":\"a\\\"b\"}}\n"
        );
        assert_eq!(
            line(TimeFormat::Rfc3339, LogLevel::Fatal),
            "{\"timestamp\":\"2016-07-27T18:23:49.012345678Z\",\"level\":\"fatal\",\"source\":\"bbs\",\
             \"message\":\"bbs.request.done\",\"data\":{\"guid\":\"a\\\"b\"}}\n"
        );
    }
}
