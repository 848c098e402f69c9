//! Keys for the log. Owns parsing them; writes no log.

use serde::{Deserialize, Deserializer, Serialize, de};

use super::keys::Keys;

/// The form and level of the log; the format is an option of `bbs serve` alone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Logging {
    /// The source of lager's lines, as Diego's component name; without it, lines are for people.
    pub session_name: Option<String>,
    /// The form of lines; chosen by `session_name` and standard output if absent.
    pub format: Option<LogFormat>,
    pub level: LogLevel,
    pub time_format: TimeFormat,
    /// Length in bytes at which texts within a line are truncated; unlimited if absent.
    pub max_data_string_length: Option<usize>,
    /// Patterns of secrets to redact: `None` redacts nothing, an empty list uses the built-in
    /// patterns.
    pub redact: Option<Vec<String>>,
}

/// The severity of a line; in the configuration, the least that is logged. The numbers and names of
/// the variants are lager's.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Default,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    #[default]
    Info,
    Error,
    Fatal,
}

/// The form of the log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// JSON as Diego's components write it, on standard output.
    Lager,
    /// Lines for people, on standard error.
    Text,
}

/// The format of a line's timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeFormat {
    #[default]
    UnixEpoch,
    Rfc3339,
}

/// Accepts the name or the number that Go's type has.
impl<'de> Deserialize<'de> for TimeFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        match (value.as_str(), value.as_u64()) {
            (Some("unix-epoch" | ""), _) | (_, Some(0)) => Ok(Self::UnixEpoch),
            (Some("rfc3339"), _) | (_, Some(1)) => Ok(Self::Rfc3339),
            _ => Err(de::Error::custom(format!(
                "{value} is neither \"unix-epoch\" nor \"rfc3339\""
            ))),
        }
    }
}

impl Logging {
    pub(super) fn read(keys: &mut Keys) -> Self {
        let patterns = keys.texts("redact_patterns");
        Self {
            session_name: keys.text("session_name"),
            format: None,
            level: keys.take("log_level").unwrap_or_default(),
            time_format: keys.take("time_format").unwrap_or_default(),
            max_data_string_length: keys
                .count("max_data_string_length")
                .map(|length| length as usize),
            redact: keys.flag("redact_secrets").then_some(patterns),
        }
    }
}
