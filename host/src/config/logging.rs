//! The keys that say what is logged, where and in which form. Owns reading them; writes nothing.

use serde::{Deserialize, Deserializer, de};

use super::ConfigError;
use super::keys::Keys;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Logging {
    /// What each line begins with, as Diego's do; without it lines are for people.
    pub session_name: Option<String>,
    pub level: LogLevel,
    pub time_format: TimeFormat,
    /// Longer texts within a line are cut.
    pub max_data_string_length: Option<usize>,
    /// Nothing is taken out of lines where absent; where empty, what usually is a secret.
    pub redact: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    #[default]
    Info,
    Error,
    Fatal,
}

/// How a line says when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeFormat {
    #[default]
    UnixEpoch,
    Rfc3339,
}

/// By name or, as Go's own type has it, by number.
impl<'de> Deserialize<'de> for TimeFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        match (value.as_str(), value.as_u64()) {
            (Some("unix-epoch" | ""), _) | (_, Some(0)) => Ok(Self::UnixEpoch),
            (Some("rfc3339"), _) | (_, Some(1)) => Ok(Self::Rfc3339),
            _ => Err(de::Error::custom(format!("{value} is neither \"unix-epoch\" nor \"rfc3339\""))),
        }
    }
}

impl Logging {
    pub(super) fn read(keys: &mut Keys) -> Result<Self, ConfigError> {
        let patterns = keys.texts("redact_patterns")?;
        Ok(Self {
            session_name: keys.text("session_name")?,
            level: keys.take("log_level")?.unwrap_or_default(),
            time_format: keys.take("time_format")?.unwrap_or_default(),
            max_data_string_length: keys.count("max_data_string_length")?.map(|length| length as usize),
            redact: keys.flag("redact_secrets")?.then_some(patterns),
        })
    }
}
