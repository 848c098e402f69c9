//! Objects, read by key with the types of Go's fields.

use bbs_model::json::{self, Malformed, Member, Scanner, Token};

use super::fields::JsonField;
use crate::etcd::record::RecordError;
use crate::protobuf::MOST_ELEMENTS;

/// The members of a JSON object.
///
/// Keys match in any case, as in Go. Of several equal keys the last one counts that is not
/// `null`. An absent key is zero, as is `null`.
#[derive(Debug)]
pub(in crate::etcd::record) struct JsonObject<'a> {
    members: Vec<Member<'a>>,
    /// The number of actions that it is in.
    depth: usize,
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
            depth: 0,
        })
    }

    /// The object that is the value of a key, in this number of actions.
    ///
    /// # Errors
    /// If the value is neither an object nor `null`.
    pub(super) fn of(
        key: &'static str,
        value: &'a [u8],
        depth: usize,
    ) -> Result<Self, RecordError> {
        let object = Self::parse(value).map_err(|_| RecordError::JsonMember {
            key,
            expected: "an object",
        })?;
        Ok(Self { depth, ..object })
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

    /// The value of a key; zero if it is absent or `null`.
    ///
    /// # Errors
    /// If the value is not of the type.
    pub(in crate::etcd::record) fn field<T: JsonField + Default>(
        &self,
        key: &'static str,
    ) -> Result<T, RecordError> {
        self.get(key)
            .map_or_else(|| Ok(T::default()), |value| T::read(key, value, self.depth))
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

#[cfg(test)]
mod tests {
    use bbs_proto::models::ModificationTag;

    use super::*;

    #[test]
    fn keys_match_in_any_case_and_the_last_that_is_not_null_counts() {
        let object =
            JsonObject::parse(br#"{"index":1,"INDEX":2,"Index":null,"other":[{"index":3}]}"#)
                .unwrap();
        assert_eq!(object.field("index"), Ok(2_i32));
        assert_eq!(
            (
                object.field("absent"),
                object.field("absent"),
                object.field("absent")
            ),
            (Ok(0_i32), Ok(Vec::<u8>::new()), Ok(false))
        );
    }

    #[test]
    fn null_is_zero() {
        let object = JsonObject::parse(br#"{"a":null}"#).unwrap();
        assert_eq!(
            (object.field("a"), object.field("a"), object.field("a")),
            (Ok(0_i64), Ok(Vec::<u8>::new()), Ok(false))
        );
        assert_eq!(object.field("a"), Ok(Vec::<u32>::new()));
        assert_eq!(object.field("a"), Ok(None::<ModificationTag>));
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
        assert_eq!(object.field("a"), Ok(i64::MAX));
        assert_eq!(object.field::<i32>("a"), Err(error("a")));
        assert_eq!(
            (object.field("b"), object.field::<u32>("b")),
            (Ok(-1_i32), Err(error("b")))
        );
        for key in ["c", "d", "e"] {
            assert_eq!(object.field::<i64>(key), Err(error(key)));
        }
    }

    #[test]
    fn value_of_another_type_is_an_error_that_names_its_key() {
        let object = JsonObject::parse(br#"{"a":[],"b":{},"c":1}"#).unwrap();
        let error = |key, expected| RecordError::JsonMember { key, expected };
        assert_eq!(object.field::<Vec<u8>>("a"), Err(error("a", "a string")));
        assert_eq!(object.field::<bool>("c"), Err(error("c", "true or false")));
        assert_eq!(object.field::<Vec<u32>>("b"), Err(error("b", "an array")));
        assert_eq!(
            object.field::<ModificationTag>("a"),
            Err(error("a", "an object"))
        );
    }
}
