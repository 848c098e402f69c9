//! The forms of fields: shown, omitted if empty, inlined in the object around it, or an enumeration
//! by its names.

use std::marker::PhantomData;

use bbs_proto::models;
use serde_json::{Map, Value};

use super::values::FieldValue;
use super::{JsonError, JsonFault, JsonMessage, Members};

/// The form of a field whose type in the message is `T`.
pub(super) trait FieldForm<T> {
    fn write(value: &T, key: &str, object: &mut Map<String, Value>);
    fn read(members: &mut Members, key: &'static str) -> Result<T, JsonError>;
}

fn read_member<T: Default>(
    members: &mut Members,
    key: &'static str,
    read: impl Fn(Value) -> Result<T, JsonError>,
) -> Result<T, JsonError> {
    members
        .take(key)
        .map_or_else(|| Ok(T::default()), read)
        .map_err(|error| error.within(key))
}

/// Present also if it is empty.
pub(super) struct Shown;

impl<T: FieldValue> FieldForm<T> for Shown {
    fn write(value: &T, key: &str, object: &mut Map<String, Value>) {
        object.insert(key.to_owned(), value.write());
    }

    fn read(members: &mut Members, key: &'static str) -> Result<T, JsonError> {
        read_member(members, key, T::read)
    }
}

/// Absent if it is empty.
pub(super) struct Omitted;

impl<T: FieldValue> FieldForm<T> for Omitted {
    fn write(value: &T, key: &str, object: &mut Map<String, Value>) {
        if !value.is_empty() {
            Shown::write(value, key, object);
        }
    }

    fn read(members: &mut Members, key: &'static str) -> Result<T, JsonError> {
        Shown::read(members, key)
    }
}

/// A message whose fields are in the object around it. Always present.
pub(super) struct Inlined;

impl<M: JsonMessage + Default> FieldForm<Option<M>> for Inlined {
    fn write(value: &Option<M>, _: &str, object: &mut Map<String, Value>) {
        match value {
            Some(message) => message.write(object),
            None => M::default().write(object),
        }
    }

    fn read(members: &mut Members, _: &'static str) -> Result<Option<M>, JsonError> {
        M::read(members).map(Some)
    }
}

/// An enumeration whose values have names.
pub(super) trait NamedEnum: Copy + Into<i32> + TryFrom<i32> {
    fn name(self) -> &'static str;
    fn of_name(name: &str) -> Option<Self>;
}

macro_rules! enums {
    ($($name:ty),* $(,)?) => {
        $(impl NamedEnum for $name {
            fn name(self) -> &'static str {
                self.as_str_name()
            }

            fn of_name(name: &str) -> Option<Self> {
                Self::from_str_name(name)
            }
        })*
    };
}

enums!(
    models::actual_lrp::Presence,
    models::actual_lrp_net_info::PreferredAddress,
    models::desired_lrp::UpdateStrategy,
    models::image_layer::DigestAlgorithm,
    models::image_layer::MediaType,
    models::image_layer::Type,
    models::metric_tag_value::DynamicValue,
    models::task::State,
);

fn read_name<E: NamedEnum>(value: Value) -> Result<i32, JsonError> {
    let Value::String(found) = &value else {
        return Err(JsonError::new(JsonFault::Type {
            expected: "a name",
            found: value.to_string(),
        }));
    };
    E::of_name(found).map(E::into).ok_or_else(|| {
        // Those of the messages count from 0 on.
        let names = (0..16)
            .filter_map(|number| E::try_from(number).ok())
            .map(E::name)
            .collect();
        JsonError::new(JsonFault::UnknownName {
            found: found.clone(),
            names,
        })
    })
}

/// An enumeration by its names.
pub(super) struct Named<E>(PhantomData<E>);

impl<E: NamedEnum> FieldForm<i32> for Named<E> {
    fn write(value: &i32, key: &str, object: &mut Map<String, Value>) {
        object.insert(
            key.to_owned(),
            E::try_from(*value).map_or(Value::from(*value), |value| value.name().into()),
        );
    }

    fn read(members: &mut Members, key: &'static str) -> Result<i32, JsonError> {
        read_member(members, key, read_name::<E>)
    }
}

/// An enumeration by its names; absent if it has the first value.
pub(super) struct NamedOmitted<E>(PhantomData<E>);

impl<E: NamedEnum> FieldForm<i32> for NamedOmitted<E> {
    fn write(value: &i32, key: &str, object: &mut Map<String, Value>) {
        if *value != 0 {
            Named::<E>::write(value, key, object);
        }
    }

    fn read(members: &mut Members, key: &'static str) -> Result<i32, JsonError> {
        Named::<E>::read(members, key)
    }
}

/// An enumeration by its numbers, as Go writes it. Names are read as well.
pub(super) struct Numbered<E>(PhantomData<E>);

impl<E: NamedEnum> FieldForm<i32> for Numbered<E> {
    fn write(value: &i32, key: &str, object: &mut Map<String, Value>) {
        Shown::write(value, key, object);
    }

    fn read(members: &mut Members, key: &'static str) -> Result<i32, JsonError> {
        read_member(members, key, |value| {
            if value.is_string() {
                read_name::<E>(value)
            } else {
                FieldValue::read(value)
            }
        })
    }
}

/// Whether an instance is routable, in the object that Go has around it.
pub(super) struct Routable;

const ROUTABLE: &str = "routable";

impl FieldForm<Option<bool>> for Routable {
    fn write(value: &Option<bool>, key: &str, object: &mut Map<String, Value>) {
        let wrapped = value.map_or(
            Value::Null,
            |routable| serde_json::json!({ ROUTABLE: routable }),
        );
        object.insert(key.to_owned(), wrapped);
    }

    fn read(members: &mut Members, key: &'static str) -> Result<Option<bool>, JsonError> {
        read_member(members, key, |mut value| {
            value
                .get_mut(ROUTABLE)
                .map(|value| FieldValue::read(value.take()))
                .transpose()
        })
    }
}
