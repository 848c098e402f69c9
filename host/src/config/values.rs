//! The types of values of keys, each with the form in which an operator writes it, for errors. Owns
//! no key.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use bbs_model::lrp_update::MaxInFlight;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::duration::GoDuration;
use super::{LogLevel, MigrationMode, OnUnreadable, TimeFormat};

/// A type of values.
pub(super) trait ConfigValue: DeserializeOwned {
    /// Completes "write …".
    const FORM: &'static str;
}

/// Implements [`ConfigValue`] for types with their forms.
macro_rules! forms {
    ($($type:ty => $form:literal),* $(,)?) => {
        $(impl ConfigValue for $type {
            const FORM: &'static str = $form;
        })*
    };
}

forms! {
    bool => "true or false",
    i64 => "a whole number",
    i32 => "a whole number up to 2147483647",
    u16 => "a whole number from 0 to 65535",
    u64 => "a whole number that is not negative",
    usize => "a whole number that is not negative",
    NonZeroU32 => "a whole number above 0",
    String => "a text",
    Vec<Option<String>> => "a list of texts",
    BTreeMap<String, Option<String>> => "an object whose values are texts",
    BTreeMap<String, Option<Vec<Option<String>>>> => "an object whose values are lists of texts",
    Map<String, Value> => "an object",
    GoDuration => "a duration as in \"10s\", \"1m30s\" or \"500ms\"",
    LogLevel => "\"debug\", \"info\", \"error\" or \"fatal\"",
    TimeFormat => "\"unix-epoch\" or \"rfc3339\"",
    MigrationMode => "\"offline\" or \"online\"",
    OnUnreadable => "\"stop\" or \"quarantine\"",
    MaxInFlight => "a number of instances above 0, or a percentage from \"1%\" to \"100%\"",
}

/// Describes a value that cannot be used; lists and objects without their content.
pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        scalar => scalar.to_string(),
    }
}
