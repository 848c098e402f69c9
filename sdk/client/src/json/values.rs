//! The values of fields: texts, numbers, lists, maps, and messages.

use bbs_proto::models;
use serde_json::{Map, Value};

use super::{JsonError, JsonFault, JsonMessage};

/// The value of a field.
pub(super) trait FieldValue: Sized + Default {
    fn write(&self) -> Value;
    /// Whether a field that may be omitted is.
    fn is_empty(&self) -> bool;
    /// Not called with `null`.
    fn read(value: Value) -> Result<Self, JsonError>;
}

fn wrong<T>(expected: &'static str, found: &Value) -> Result<T, JsonError> {
    Err(JsonError::new(JsonFault::Type {
        expected,
        found: found.to_string(),
    }))
}

/// Text. Bytes that are not UTF-8 are replaced, as by Go.
impl FieldValue for Vec<u8> {
    fn write(&self) -> Value {
        text(self).into()
    }

    fn is_empty(&self) -> bool {
        Vec::is_empty(self)
    }

    fn read(value: Value) -> Result<Self, JsonError> {
        match value {
            Value::String(text) => Ok(text.into_bytes()),
            Value::Number(_) | Value::Bool(_) => wrong("a text; put it in quotes", &value),
            other => wrong("a text", &other),
        }
    }
}

impl FieldValue for bool {
    fn write(&self) -> Value {
        (*self).into()
    }

    fn is_empty(&self) -> bool {
        !self
    }

    fn read(value: Value) -> Result<Self, JsonError> {
        value
            .as_bool()
            .map_or_else(|| wrong("true or false", &value), Ok)
    }
}

macro_rules! numbers {
    ($($number:ident: $expected:literal),*) => {
        $(impl FieldValue for $number {
            fn write(&self) -> Value {
                (*self).into()
            }

            fn is_empty(&self) -> bool {
                *self == 0
            }

            fn read(value: Value) -> Result<Self, JsonError> {
                let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
                number.and_then(|number| number.try_into().ok()).map_or_else(|| wrong($expected, &value), Ok)
            }
        })*
    };
}

numbers!(
    i32: "a whole number of 32 bits",
    u32: "a whole number from 0 of 32 bits",
    i64: "a whole number of 64 bits",
    u64: "a whole number from 0 of 64 bits"
);

/// Absent, or any value of the type.
impl<T: FieldValue> FieldValue for Option<T> {
    fn write(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::write)
    }

    fn is_empty(&self) -> bool {
        self.is_none()
    }

    fn read(value: Value) -> Result<Self, JsonError> {
        T::read(value).map(Some)
    }
}

/// A message within its own kind.
impl<T: FieldValue> FieldValue for Box<T> {
    fn write(&self) -> Value {
        T::write(self)
    }

    fn is_empty(&self) -> bool {
        T::is_empty(self)
    }

    fn read(value: Value) -> Result<Self, JsonError> {
        T::read(value).map(Self::new)
    }
}

/// The elements of a list. Go writes `null` for one that is empty.
fn write_list<T>(list: &[T], write: impl Fn(&T) -> Value) -> Value {
    if list.is_empty() {
        Value::Null
    } else {
        list.iter().map(write).collect()
    }
}

fn read_list<T>(
    value: Value,
    read: impl Fn(Value) -> Result<T, JsonError>,
) -> Result<Vec<T>, JsonError> {
    let Value::Array(elements) = value else {
        return wrong("a list", &value);
    };
    let read =
        |(at, element): (usize, Value)| read(element).map_err(|error| error.within(at.to_string()));
    elements.into_iter().enumerate().map(read).collect()
}

macro_rules! lists {
    ($($element:ty),* $(,)?) => {
        $(impl FieldValue for Vec<$element> {
            fn write(&self) -> Value {
                write_list(self, FieldValue::write)
            }

            fn is_empty(&self) -> bool {
                self.is_empty()
            }

            fn read(value: Value) -> Result<Self, JsonError> {
                read_list(value, FieldValue::read)
            }
        })*
    };
}

lists!(
    Vec<u8>,
    u32,
    models::Action,
    models::ActualLrpInternalRoute,
    models::CachedDependency,
    models::Check,
    models::EnvironmentVariable,
    models::File,
    models::ImageLayer,
    models::PortMapping,
    models::Provider,
    models::SecurityGroupRule,
    models::Sidecar,
    models::VolumeMount,
);

fn read_entries<T>(
    value: Value,
    read: impl Fn(String, Value) -> Result<T, JsonError>,
) -> Result<Vec<T>, JsonError> {
    let Value::Object(members) = value else {
        return wrong("an object", &value);
    };
    let read =
        |(key, value): (String, Value)| read(key.clone(), value).map_err(|error| error.within(key));
    members.into_iter().map(read).collect()
}

fn text(bytes: &[u8]) -> String {
    bbs_go_json::replace_invalid(bytes).into_owned()
}

macro_rules! entries {
    ($($entry:ident),*) => {
        $(impl FieldValue for Vec<models::$entry> {
            fn write(&self) -> Value {
                let entries = self.iter().map(|entry| (text(&entry.key), entry.value.write()));
                Value::Object(entries.collect())
            }

            fn is_empty(&self) -> bool {
                self.is_empty()
            }

            fn read(value: Value) -> Result<Self, JsonError> {
                read_entries(value, |key, value| {
                    Ok(models::$entry { key: key.into_bytes(), value: FieldValue::read(value)? })
                })
            }
        })*
    };
}

entries!(TextEntry, MetricTagEntry);

/// The value of a field that is a message with a JSON form.
macro_rules! message_value {
    ($message:ident) => {
        impl FieldValue for models::$message {
            fn write(&self) -> Value {
                super::to_value(self)
            }

            fn is_empty(&self) -> bool {
                false
            }

            fn read(value: Value) -> Result<Self, JsonError> {
                super::from_value(value)
            }
        }
    };
}
pub(super) use message_value;

message_value!(ProtoRoutes);

impl JsonMessage for models::ProtoRoutes {
    fn write(&self, object: &mut Map<String, Value>) {
        for entry in &self.routes {
            let value =
                serde_json::from_slice(&entry.value).unwrap_or_else(|_| entry.value.write());
            object.insert(text(&entry.key), value);
        }
    }

    fn read(members: &mut super::Members) -> Result<Self, JsonError> {
        let entries = std::mem::take(&mut members.members).into_iter();
        let entry = |(key, value): (String, Value)| models::RouteEntry {
            key: key.into_bytes(),
            value: value.to_string().into_bytes(),
        };
        Ok(Self {
            routes: entries.map(entry).collect(),
        })
    }
}
