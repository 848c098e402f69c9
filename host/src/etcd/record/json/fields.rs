//! The types of fields: texts, numbers, flags, lists and messages.

use std::str::FromStr;

use bbs_model::json::{self, Scanner, Token};
use bbs_proto::models;

use crate::etcd::record::RecordError;

/// The type of a field.
pub(in crate::etcd::record) trait JsonField: Sized {
    /// Reads the value of a key, in this number of actions.
    ///
    /// # Errors
    /// If the value is not of the type.
    fn read(key: &'static str, value: &[u8], depth: usize) -> Result<Self, RecordError>;
}

/// Text; `null` is empty.
impl JsonField for Vec<u8> {
    fn read(key: &'static str, value: &[u8], _: usize) -> Result<Self, RecordError> {
        let text = json::string(value).map_err(|_| RecordError::JsonMember {
            key,
            expected: "a string",
        })?;
        Ok(text.unwrap_or_default())
    }
}

impl JsonField for bool {
    fn read(key: &'static str, value: &[u8], _: usize) -> Result<Self, RecordError> {
        match value {
            b"true" => Ok(true),
            b"false" => Ok(false),
            _ => Err(RecordError::JsonMember {
                key,
                expected: "true or false",
            }),
        }
    }
}

/// Parses an integer from its spelling, because a float is not exact for times in nanoseconds. Like
/// Go's decoder it accepts neither fractions nor exponents.
///
/// # Errors
/// If the value of the key is neither an integer of this type nor `null`.
pub(super) fn number<N: FromStr + Default>(
    key: &'static str,
    value: &[u8],
) -> Result<N, RecordError> {
    let parsed = match Scanner::new(value).token() {
        Ok(Token::Null) => Some(N::default()),
        Ok(Token::Number(spelling)) => str::from_utf8(spelling)
            .ok()
            .and_then(|spelling| spelling.parse().ok()),
        _ => None,
    };
    parsed.ok_or(RecordError::JsonMember {
        key,
        expected: "a number",
    })
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl JsonField for $number {
            fn read(key: &'static str, value: &[u8], _: usize) -> Result<Self, RecordError> {
                number(key, value)
            }
        })*
    };
}

numbers!(i32, u32, i64, u64);

impl<T: JsonField> JsonField for Option<T> {
    fn read(key: &'static str, value: &[u8], depth: usize) -> Result<Self, RecordError> {
        T::read(key, value, depth).map(Some)
    }
}

impl<T: JsonField> JsonField for Box<T> {
    fn read(key: &'static str, value: &[u8], depth: usize) -> Result<Self, RecordError> {
        T::read(key, value, depth).map(Self::new)
    }
}

macro_rules! lists {
    ($($element:ty),* $(,)?) => {
        $(impl JsonField for Vec<$element> {
            fn read(key: &'static str, value: &[u8], depth: usize) -> Result<Self, RecordError> {
                let elements = json::elements(value).map_err(|_| RecordError::JsonMember {
                    key,
                    expected: "an array",
                })?;
                let elements = elements.unwrap_or_default().into_iter();
                elements.map(|element| <$element>::read(key, element, depth)).collect()
            }
        })*
    };
}

lists!(
    Vec<u8>,
    u32,
    models::Action,
    models::EnvironmentVariable,
    models::PortMapping,
    models::SecurityGroupRule,
);
