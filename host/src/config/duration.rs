//! Durations in Go's notation: `10s`, `1m30s`, `1.5h`, `500ms`. No other notation is accepted, so
//! that a file means the same to Diego and to this host.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// A duration parsed from Go's notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoDuration(pub Duration);

/// A unit stands before any that is its prefix.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 6e10),
    ("h", 3.6e12),
];

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl std::str::FromStr for GoDuration {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text)
            .map(Self)
            .ok_or("write it as in 10s, 1m30s or 500ms")
    }
}

fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total_ns = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .filter(|&end| end > 0)?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let (unit, scale) = UNITS.into_iter().find(|(unit, _)| rest.starts_with(unit))?;
        total_ns += number * scale;
        rest = &rest[unit.len()..];
    }
    (!text.is_empty() && total_ns < u64::MAX as f64)
        .then(|| Duration::from_nanos(total_ns.round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gos_notation_is_parsed() {
        let ms = |text| parse(text).map(|duration| duration.as_millis());
        assert_eq!(ms("10s"), Some(10_000));
        assert_eq!(ms("1m30s"), Some(90_000));
        assert_eq!(ms("1.5h"), Some(5_400_000));
        assert_eq!(ms("500ms"), Some(500));
        assert_eq!(ms("1h0m0s"), Some(3_600_000));
        assert_eq!(ms("2000000ns"), Some(2));
        assert_eq!(ms("0"), Some(0));
    }

    #[test]
    fn text_that_go_rejects_is_rejected() {
        for text in ["", "10", "s", "10 s", "1x", "-1s", "1..5s", "9999999999h"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
