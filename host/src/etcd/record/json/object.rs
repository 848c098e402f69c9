//! Objects, read by key with the types of Go's fields.

use std::str::FromStr;

use bbs_model::json::{self, Malformed, Member, Scanner, Token};

use crate::etcd::record::RecordError;
use crate::protobuf::MOST_ELEMENTS;

/// The members of a JSON object.
///
/// Keys match in any case, as in Go. Of several equal keys the last one counts that is not
/// `null`. An absent key is zero, as is `null`.
#[derive(Debug)]
pub(in crate::etcd::record) struct JsonObject<'a> {
    members: Vec<Member<'a>>,
}

impl<'a> JsonObject<'a> {
    /// [`Self::parse`] for a record. One with too many values is refused before any of them is
    /// built: an empty object takes hundreds of times its text.
    ///
    /// # Errors
    /// If it has more than [`MOST_ELEMENTS`] values at all depths, or is no JSON object.
    pub(super) fn parse_record(text: &'a [u8]) -> Result<Self, RecordError> {
        if has_many_values(text).map_err(|Malformed { at }| RecordError::Json { at })? {
            return Err(RecordError::Elements {
                limit: MOST_ELEMENTS,
            });
        }
        Self::parse(text)
    }

    /// Parses a whole text, all of which is checked here. `null` has no members.
    ///
    /// # Errors
    /// If it is no JSON object.
    pub(in crate::etcd::record) fn parse(text: &'a [u8]) -> Result<Self, RecordError> {
        let members = json::members(text).map_err(|Malformed { at }| RecordError::Json { at })?;
        Ok(Self {
            members: members.unwrap_or_default(),
        })
    }

    /// The raw value of a key, unless it is `null`.
    pub(in crate::etcd::record) fn get(&self, key: &str) -> Option<&'a [u8]> {
        let mut found = self
            .members
            .iter()
            .rev()
            .filter(|(name, _)| json::names_field(name, key));
        found
            .find(|(_, value)| !json::is_null(value))
            .map(|(_, value)| *value)
    }

    /// # Errors
    /// If the value is no string.
    pub(super) fn text(&self, key: &'static str) -> Result<Vec<u8>, RecordError> {
        self.get(key)
            .map_or(Ok(Vec::new()), |value| text(key, value))
    }

    /// # Errors
    /// If the value is no integer of this type.
    pub(in crate::etcd::record) fn number<N: FromStr + Default>(
        &self,
        key: &'static str,
    ) -> Result<N, RecordError> {
        self.get(key)
            .map_or(Ok(N::default()), |value| number(key, value))
    }

    /// # Errors
    /// If the value is neither `true` nor `false`.
    pub(super) fn flag(&self, key: &'static str) -> Result<bool, RecordError> {
        match self.get(key) {
            None | Some(b"false") => Ok(false),
            Some(b"true") => Ok(true),
            Some(_) => Err(RecordError::JsonMember {
                key,
                expected: "true or false",
            }),
        }
    }

    /// # Errors
    /// If the value is no object, or as `read`.
    pub(super) fn object<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&JsonObject<'a>) -> Result<T, RecordError>,
    ) -> Result<Option<T>, RecordError> {
        self.get(key)
            .map(|value| read(&object(key, value)?))
            .transpose()
    }

    /// Reads each element of an array.
    ///
    /// # Errors
    /// If the value is no array, or as `read`.
    pub(super) fn list<T>(
        &self,
        key: &'static str,
        read: impl FnMut(&'a [u8]) -> Result<T, RecordError>,
    ) -> Result<Vec<T>, RecordError> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        let elements = json::elements(value);
        let elements = elements.map_err(|_| RecordError::JsonMember {
            key,
            expected: "an array",
        })?;
        elements.unwrap_or_default().into_iter().map(read).collect()
    }

    /// The members as they are.
    pub(super) fn into_members(self) -> Vec<Member<'a>> {
        self.members
    }
}

/// Whether a value and those in it, at all depths, are more than [`MOST_ELEMENTS`].
fn has_many_values(text: &[u8]) -> Result<bool, Malformed> {
    let mut scanner = Scanner::new(text);
    // The open arrays and objects, innermost last; true for an object.
    let mut open = Vec::new();
    let mut values = 0;
    loop {
        match scanner.token()? {
            Token::Object => open.push(true),
            Token::Array => open.push(false),
            Token::Null | Token::Bool(_) | Token::Number(_) | Token::String(_) => {}
        }
        values += 1;
        if values > MOST_ELEMENTS {
            return Ok(true);
        }
        loop {
            let has_next = match open.last() {
                None => return Ok(false),
                Some(true) => scanner.key()?.is_some(),
                Some(false) => scanner.element()?,
            };
            if has_next {
                break;
            }
            open.pop();
        }
    }
}

/// # Errors
/// If the value of the key is neither an object nor `null`.
pub(super) fn object<'a>(
    key: &'static str,
    value: &'a [u8],
) -> Result<JsonObject<'a>, RecordError> {
    JsonObject::parse(value).map_err(|_| RecordError::JsonMember {
        key,
        expected: "an object",
    })
}

/// # Errors
/// If the value of the key is neither a string nor `null`.
pub(super) fn text(key: &'static str, value: &[u8]) -> Result<Vec<u8>, RecordError> {
    let text = json::string(value).map_err(|_| RecordError::JsonMember {
        key,
        expected: "a string",
    })?;
    Ok(text.unwrap_or_default())
}

/// Parses an integer from its spelling, because a float is not exact for times in nanoseconds. Like
/// Go's decoder it accepts neither fractions nor exponents.
///
/// # Errors
/// If the value of the key is no integer of this type.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_in_any_case_and_the_last_that_is_not_null_counts() {
        let object =
            JsonObject::parse(br#"{"index":1,"INDEX":2,"Index":null,"other":[{"index":3}]}"#)
                .unwrap();
        assert_eq!(object.number("index"), Ok(2));
        assert_eq!(
            (
                object.number("absent"),
                object.text("absent"),
                object.flag("absent")
            ),
            (Ok(0), Ok(vec![]), Ok(false))
        );
    }

    #[test]
    fn null_is_zero() {
        let object = JsonObject::parse(br#"{"a":null}"#).unwrap();
        assert_eq!(
            (object.number("a"), object.text("a"), object.flag("a")),
            (Ok(0_i64), Ok(vec![]), Ok(false))
        );
        assert_eq!(object.list("a", |_| Ok(())), Ok(vec![]));
        assert_eq!(object.object("a", |_| Ok(())), Ok(None));
        assert!(
            JsonObject::parse(b"null")
                .unwrap()
                .into_members()
                .is_empty()
        );
    }

    #[test]
    fn integers_are_exact_and_have_the_range_of_their_type() {
        let object =
            JsonObject::parse(br#"{"a":9223372036854775807,"b":-1,"c":1e3,"d":1.0,"e":"1"}"#)
                .unwrap();
        let error = |key| RecordError::JsonMember {
            key,
            expected: "a number",
        };
        assert_eq!(object.number("a"), Ok(i64::MAX));
        assert_eq!(object.number::<i32>("a"), Err(error("a")));
        assert_eq!(
            (object.number("b"), object.number::<u32>("b")),
            (Ok(-1), Err(error("b")))
        );
        for key in ["c", "d", "e"] {
            assert_eq!(object.number::<i64>(key), Err(error(key)));
        }
    }

    #[test]
    fn value_of_another_type_is_an_error_that_names_its_key() {
        let object = JsonObject::parse(br#"{"a":[],"b":{},"c":1}"#).unwrap();
        let error = |key, expected| RecordError::JsonMember { key, expected };
        assert_eq!(object.text("a"), Err(error("a", "a string")));
        assert_eq!(object.flag("c"), Err(error("c", "true or false")));
        assert_eq!(object.list("b", |_| Ok(())), Err(error("b", "an array")));
        assert_eq!(object.object("a", |_| Ok(())), Err(error("a", "an object")));
    }
}
